"""Who is at the other end of a connection. What a principal may do is asked in `admission`, for every message.

Until there is authentication, every connection has the same principal.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Principal(NamedTuple):
    """A user or a service, whatever connection it comes by."""

    name: str
    authenticated: bool = True


ANONYMOUS: Final = Principal("anonymous", authenticated=False)

__all__ = ["ANONYMOUS", "Principal"]
