"""Waits for a database: a thread may block; code in an event loop must call the hook here."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, Protocol, TypeVar

T = TypeVar("T")


class WaitHook(Protocol):
    """Lets an event loop continue while code that runs in its thread waits."""

    def ready(self, socket: int, writing: bool) -> None:
        """Return when a socket can be read; or, if `writing`, when it can be written to or read."""

    def aside(self, function: Callable[[], T]) -> T:
        """Call a function that may take long in another thread. Returns its result."""


# None: the thread may block. Set by the code that starts work in an event loop.
current: Final[ContextVar[WaitHook | None]] = ContextVar("waiter", default=None)


def aside(function: Callable[[], T]) -> T:
    """Call a function that may take long."""
    waiter = current.get()
    return function() if waiter is None else waiter.aside(function)
