"""A writer in an event loop: groups are written by a greenlet of the loop's own thread.

A thread for it would have to be woken for each group, and would have to wake the loop again: twice as long as a small
statement takes. In the loop it is the socket of the database that wakes whoever waits for it. What is not a matter of
a moment (tables that are made, a database that is away, upkeep) is done in a thread all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, TypeVar

from greenlet import getcurrent, greenlet

from milepost.errors import Closed
from milepost.storage import waiting
from milepost.storage.operations import Operation, Work
from milepost.storage.store import Store
from milepost.storage.writer import MAINTAIN_S, MAINTAIN_SHARE, Done, Writer, _Given

T = TypeVar("T")


class LoopWriter(Writer):
    """A `Writer` whose methods belong to one event loop; `done` is called in it.

    `brief` says of a piece of work that it may be done in the loop: that it never takes long beside waiting for the
    database, and says nothing to that but by the store's own session.
    """

    def __init__(
        self, store: Store, *, time_us: Callable[[], int], done: Done, brief: Callable[[Operation], bool],
        maintain_s: float = MAINTAIN_S,
    ) -> None:  # fmt: skip
        self._brief = brief
        super().__init__(store, time_us=time_us, done=done, maintain_s=maintain_s)

    def _begin(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._aside = ThreadPoolExecutor(1, "milepost-store")
        self._writing: Final = _Wait(self._loop, self._aside)
        self._busy = False
        self._ended: asyncio.Future[None] | None = None
        self._timer = self._loop.call_later(self._maintain_s, self._maintained)

    def _put(self, given: _Given) -> None:
        if self._closing:
            raise Closed("the writer was closed")
        self._waiting.append(given)
        if not self._busy:
            self._go_on()

    def _go_on(self) -> None:
        """Write what waits, until something has to be waited for."""
        while self._waiting and not self._busy:
            group = self._group()
            self._busy = True
            if all(self._is_brief(given) for given in group):
                self._writing.start(lambda group=group: self._brought(group))  # type: ignore[misc]
            else:
                self._in_thread(lambda group=group: super(LoopWriter, self)._write(group))  # type: ignore[misc]
        if self._ended is not None and not self._busy and not self._waiting and not self._ended.done():
            self._ended.set_result(None)

    def _is_brief(self, given: _Given) -> bool:
        operation = given.operation
        return given.function is None and (
            operation is None or (isinstance(operation, Work) and self._brief(operation))
        )

    def _brought(self, group: list[_Given]) -> None:
        """In the greenlet."""
        try:
            super()._write(group)
        finally:
            self._busy = False
            if self._waiting or self._ended is not None:
                self._loop.call_soon(self._go_on)

    def _in_thread(self, work: Callable[[], Any]) -> None:
        def over(_: Any) -> None:
            self._busy = False
            self._go_on()

        self._loop.run_in_executor(self._aside, work).add_done_callback(over)

    def _tell(self, results: list[tuple[Any, Any]], entries: list[Any]) -> None:
        if waiting.current.get() is None:  # in the other thread
            with suppress(RuntimeError):  # the loop is closed: what was given is written all the same
                self._loop.call_soon_threadsafe(super()._tell, results, entries)
        else:
            super()._tell(results, entries)

    def _maintained(self) -> None:
        """Now and then, when there is nothing else to do: upkeep."""
        if self._closing or self._over is not None:
            return
        wait_s = self._maintain_s
        if not self._busy and not self._waiting:
            self._busy = True
            began = self._loop.time()

            def over(outcome: asyncio.Future[bool]) -> None:
                self._busy = False
                cost_s = self._loop.time() - began
                more = outcome.exception() is None and outcome.result()
                self._timer = self._loop.call_later(
                    0.0 if more else max(wait_s, cost_s * MAINTAIN_SHARE), self._maintained
                )
                self._go_on()

            self._loop.run_in_executor(self._aside, self._maintain).add_done_callback(over)
            return
        self._timer = self._loop.call_later(wait_s, self._maintained)

    def resume(self, session: Hashable) -> None:
        self._put(_Given(None, None, session))

    async def end(self) -> None:
        """Write what was given, then end. Does not close the store."""
        self._closing = True
        self._timer.cancel()
        self._ended = self._loop.create_future()
        self._go_on()
        await self._ended
        await asyncio.to_thread(self._aside.shutdown)

    def close(self) -> None:
        raise AssertionError("a writer in an event loop is ended by `end`")


class _Wait:
    """A greenlet in an event loop, which is left whenever it waits, and entered again by the loop: a `Waiter`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: ThreadPoolExecutor) -> None:
        self._loop = loop
        self._threads = threads
        self._own: greenlet | None = None
        self._hub: greenlet | None = None  # whoever has entered it

    def start(self, work: Callable[[], None]) -> None:
        """Run something up to where it first waits. One at a time."""

        def run() -> None:
            waiting.current.set(self)  # a greenlet has a context of its own
            work()

        self._own = greenlet(run)
        self._enter()

    def _enter(self) -> None:
        own = self._own
        assert own is not None
        self._hub = hub = getcurrent()
        if own.parent is not hub:
            own.parent = hub  # it comes back here when it ends
        own.switch()

    def ready(self, socket: int, writing: bool) -> None:
        loop = self._loop
        loop.add_reader(socket, self._enter)
        if writing:
            loop.add_writer(socket, self._enter)
        assert self._hub is not None
        try:
            self._hub.switch()
        finally:
            loop.remove_reader(socket)
            if writing:
                loop.remove_writer(socket)

    def aside(self, function: Callable[[], T]) -> T:
        future = self._loop.run_in_executor(self._threads, function)
        future.add_done_callback(lambda _: self._enter())
        assert self._hub is not None
        self._hub.switch()
        return future.result()
