"""Futures that tasks of a client wait for."""

from __future__ import annotations

import asyncio
from typing import Any


class WaitingTasks(list[asyncio.Future[None]]):
    """The tasks that wait for a change. Each of them looks again when it is woken."""

    async def wait(self) -> None:
        """Wait for the next `wake`."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.append(waiter)
        try:
            await waiter
        finally:
            self.remove(waiter)

    def wake(self) -> None:
        """Wake all waiters after a change."""
        for waiter in self:
            if not waiter.done():
                waiter.set_result(None)


def fail(future: asyncio.Future[Any], error: BaseException) -> None:
    """Give a future its error, unless it is done."""
    if not future.done():
        future.set_exception(error)
        future.exception()  # retrieved here, because a cancelled waiter never does
