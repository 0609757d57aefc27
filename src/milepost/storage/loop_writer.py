"""A writer in an event loop: groups are written by a greenlet in the loop's own thread.

A separate thread would have to be woken for each group, and would have to wake the loop again: that takes twice as long
as a small statement. In the loop, the socket of the database wakes the greenlet. Long work (making tables, waiting for
an outage to end, upkeep) is still done in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, TypeVar

from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]

from milepost.errors import Closed
from milepost.operations import Entry, Operation, Work
from milepost.storage import waits
from milepost.storage.store import Store
from milepost.storage.upkeep import UpkeepStep
from milepost.storage.writer import MAINTAIN_S, Done, MaintenancePace, Writer, _Given

T = TypeVar("T")


class LoopWriter(Writer):
    """A `Writer` whose methods are called in one event loop; `done` is called in it too.

    `brief` tells whether an operation may run in the loop: it takes long only while it waits for the database, and it
    uses the database only through the store's own session.
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
        self._writing = _Work(self._loop, self._aside)
        self._results: list[tuple[list[tuple[Any, Any]], list[Entry]]] = []  # for `done`, after the greenlet is left
        self._busy = False
        self._ended: asyncio.Future[None] | None = None
        self._pace = MaintenancePace(self._maintain_s, self._loop.time(), self._store.beat_s)
        self._timer = self._loop.call_at(self._pace.due, self._look)

    def _put(self, given: _Given) -> None:
        if self._closing:
            raise Closed("the writer was closed")
        self._waiting.append(given)
        if not self._busy:
            self._go_on()

    def _go_on(self) -> None:
        """Write waiting operations until the database has to be waited for."""
        if self._due and not self._busy:
            self._step()
        while self._waiting and not self._busy:
            group = self._group()
            self._busy = True
            self._pace.wrote = True
            if self._held is None and all(self._is_brief(given) for given in group):
                self._writing.start(partial(self._write, group), self._written)
            else:
                self._loop.run_in_executor(self._aside, self._write, group).add_done_callback(self._written)
        if self._ended is not None and not self._busy and not self._waiting and not self._ended.done():
            self._ended.set_result(None)

    @property
    def _due(self) -> bool:
        """Whether a step of upkeep is due."""
        return self._loop.time() >= self._pace.due and not self._closing and self.over is None

    def _look(self) -> None:
        """Called by the timer: begin a step of upkeep, now or after the group that is being written."""
        if self._loop.time() < self._pace.due:  # a timer may be early by the resolution of its clock
            self._timer = self._loop.call_at(self._pace.due, self._look)
        elif not self._busy:
            self._go_on()

    def _is_brief(self, given: _Given) -> bool:
        operation = given.operation
        return given.function is None and (
            operation is None or (isinstance(operation, Work) and self._brief(operation))
        )

    def _rest(self, chosen: list[_Given], asked_s: Mapping[int, float]) -> None:
        """Do nothing: this process has one client, so its expressions delay no other client."""

    def _written(self, _: Any = None) -> None:
        """Called after a group is written, and after a step of upkeep."""
        results, self._results = self._results, []
        for some, entries in results:
            super()._tell(some, entries)
        self._busy = False
        if self._waiting or self._ended is not None or self._due:
            self._go_on()

    def _tell(self, results: list[tuple[Any, Any]], entries: list[Entry]) -> None:
        self._results.append((results, entries))

    def _step(self) -> None:
        """Run one step of upkeep in the thread."""
        self._busy = True
        began = self._loop.time()

        def over(outcome: asyncio.Future[UpkeepStep]) -> None:
            step = outcome.result() if outcome.exception() is None else UpkeepStep(more=False, worked=False)
            self._pace.stepped(began, self._loop.time(), step)
            self._timer.cancel()
            self._timer = self._loop.call_at(self._pace.due, self._look)
            self._written()

        self._loop.run_in_executor(self._aside, self._maintain).add_done_callback(over)

    async def end(self) -> None:
        """Write the operations given so far, then end. Does not close the store."""
        self._closing = True
        self._timer.cancel()
        self._ended = self._loop.create_future()
        self._go_on()
        await self._ended
        await self._loop.run_in_executor(self._aside, partial(self._settle_held, last=True))
        self._written()
        await asyncio.to_thread(self._aside.shutdown)

    def close(self) -> None:
        raise AssertionError("a writer in an event loop is ended by `end`")


class _Wish(NamedTuple):
    """The condition under which the greenlet is entered again."""

    socket: int = -1  # this socket can be read,
    writing: bool = False  # or, if True, written to;
    function: Callable[[], Any] | None = None  # or this function has returned, in another thread


class _Work:
    """A greenlet that is left whenever it waits, and entered again by the event loop: a `waits.WaitHook`.

    The greenlet never calls the loop. A loop in C keeps pointers to its own stack, which may hold other data while the
    greenlet runs.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: ThreadPoolExecutor) -> None:
        self._loop = loop
        self._threads = threads
        self._own: greenlet
        self._hub: greenlet  # the greenlet that entered it
        self._then: Callable[[], None]

    def start(self, work: Callable[[], None], then: Callable[[], None]) -> None:
        """Run `work` up to its first wait; `then` is called when it has ended. One at a time."""

        def run() -> None:
            waits.current.set(self)  # a greenlet has a context of its own
            work()

        self._own, self._then = greenlet(run), then
        self._enter()

    def _enter(self) -> None:
        own = self._own
        self._hub = hub = getcurrent()
        if own.parent is not hub:
            own.parent = hub  # control returns here when it ends
        wish: _Wish | None = own.switch()
        if wish is None:
            self._then()
        elif wish.function is not None:
            self._future = self._loop.run_in_executor(self._threads, wish.function)
            self._future.add_done_callback(lambda _: self._enter())
        else:
            self._loop.add_reader(wish.socket, self._awake, wish)
            if wish.writing:
                self._loop.add_writer(wish.socket, self._awake, wish)

    def _awake(self, wish: _Wish) -> None:
        self._loop.remove_reader(wish.socket)
        if wish.writing:
            self._loop.remove_writer(wish.socket)
        self._enter()

    def ready(self, socket: int, writing: bool) -> None:
        self._hub.switch(_Wish(socket, writing))

    def aside(self, function: Callable[[], T]) -> T:
        self._hub.switch(_Wish(function=function))
        return self._future.result()  # type: ignore[no-any-return]
