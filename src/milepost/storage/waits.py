"""Waits for a database: a thread may block, and work in an event loop must call the hook here."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, Protocol, TypeVar

T = TypeVar("T")


class WaitHook(Protocol):
    """Lets other things go on in the thread while something that runs in it waits."""

    def ready(self, socket: int, writing: bool) -> None:
        """Return when a socket can be read; or, if `writing`, when it can be written to or read."""

    def aside(self, function: Callable[[], T]) -> T:
        """What a function gives that may take long: it is called in another thread."""


# None: a thread that may wait. Set for work in an event loop, by the code that starts it.
current: Final[ContextVar[WaitHook | None]] = ContextVar("waiter", default=None)


def aside(function: Callable[[], T]) -> T:
    """Call something that may take long."""
    waiter = current.get()
    return function() if waiter is None else waiter.aside(function)
