"""Principals: the user or service at the other end of a connection. Checks of its rights belong in `admission`.

Until there is authentication, every connection has the same principal.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Principal(NamedTuple):
    """A user or a service, across all its connections."""

    name: str
    authenticated: bool = True


ANONYMOUS: Final = Principal("anonymous", authenticated=False)

__all__ = ["ANONYMOUS", "Principal"]
