"""The store of a client without a broker: writes, queries and periodic work."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import milepost.queues.execution  # noqa: F401  # registers the operations on queues
from milepost.brokerless.clock import DatabaseClock, DatabaseTime
from milepost.brokerless.transactions import BrokerlessTransactions
from milepost.config import settings
from milepost.errors import Closed, MilepostError
from milepost.operations import Look, Operation
from milepost.operations import queues as operations
from milepost.operations.queues import Perform, Renew, Undo
from milepost.queues.machine import Effects, Then
from milepost.storage import Store, open_store
from milepost.storage.loop_writer import LoopWriter

NAME: Final = "brokerless"  # of the logs of such clients: brokerless-1 and so on
LOOKS: Final = 2  # threads for queries: a long query leaves one thread to all others
CLOSING_S: Final = 5.0  # most seconds to wait for the database at the end; leases end what is not undone then
TICK_S: Final = 1.0
CLOCK_S: Final = 5.0  # between readings of the database's clock
LISTEN_S: Final = 0.1  # between checks for writes of other members of the cell, and for messages that are due


class MemberStore:
    """Made by `opened`, and ended by `end`. `lost` is called when another process has taken over the log."""

    def __init__(self, store: Store, lease_s: float, lost: Callable[[MilepostError], None]) -> None:
        self.store: Final = store
        self.time_us: Final = DatabaseClock()
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._writer = LoopWriter(store, time_us=self.time_us, done=self._done, brief=_brief)
        self._looks = ThreadPoolExecutor(LOOKS, "milepost-look")
        self._pulse: dict[int, int] | None = None  # commits of the other logs at the last check
        now = self._loop.time()
        self.machine: Final = BrokerlessTransactions(lease_s, now)
        self._set, self._listened = now, now  # when the clock was set, and writes of others checked
        self._setting: asyncio.Task[None] | None = None  # sets the clock
        self._listening: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(TICK_S, self._tick)
        self._waking: asyncio.TimerHandle | None = None  # set while dequeues wait
        self._idle: asyncio.Future[None] | None = None  # `end` waits for the outcome of an operation
        self._ending = False

    @classmethod
    async def opened(cls, url: str, lost: Callable[[MilepostError], None]) -> MemberStore:
        """Open the store, and undo the open transactions of the last holder of its log. Raises the store's errors."""
        chosen = settings()
        store = await asyncio.to_thread(
            open_store,
            url,
            broker=NAME,
            address=f"{socket.gethostname()} process {os.getpid()}",
            broker_id=int.from_bytes(os.urandom(4), "little"),
            time_us=DatabaseClock()(),
            lease_s=chosen.lease_s,
            remember_s=chosen.remember_s,
            staged_s=chosen.staged_s,
            one_of_many=True,
        )
        self = cls(store, chosen.queue_lease_s, lost)
        try:
            await self._set_clock()
            await self.do(operations.Recover())
        except BaseException:
            await self.end(Closed("the store was not opened"))
            raise
        return self

    # Writes and queries

    def run(self, effects: Effects) -> None:
        """Carry out the machine's effects."""
        for operation, then in effects:
            if isinstance(operation, Look):
                looked = self._loop.run_in_executor(self._looks, self.store.inspect, operation, self.time_us())
                looked.add_done_callback(partial(self._looked, then))
            elif not self._ending:  # after that, leases end open transactions
                self._writer.give(operation, then)
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)
        waiting = self.machine.waiting
        if waiting.some and not self._ending:
            at = min(self._loop.time() + LISTEN_S, waiting.soonest)
            if self._waking is None or at < self._waking.when():
                if self._waking is not None:
                    self._waking.cancel()
                self._waking = self._loop.call_at(at, self._wake)

    def _looked(self, then: Then, looked: asyncio.Future[Any]) -> None:
        error = looked.exception()
        self.run(then(error if isinstance(error, MilepostError) else looked.result()))

    async def do(self, operation: Operation) -> Any:
        """Carry out an operation; raises if the outcome is an error. Cancelling the caller does not cancel it."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._writer.give(operation, partial(_tell, future))
        return await future

    async def look(self, operation: Look) -> Any:
        """Carry out an operation that only reads; raises its error."""
        return await self._loop.run_in_executor(self._looks, self.store.inspect, operation, self.time_us())

    async def _set_clock(self) -> None:
        self.time_us.set(*await self.look(DatabaseTime()))

    def _done(self, results: list[tuple[Any, Any]], _entries: Any) -> None:
        for then, outcome in results:
            self.run(then(outcome))
        if self._writer.over is not None:
            self._lost(self._writer.over)

    async def _news(self) -> bool:
        try:
            pulse = await self._loop.run_in_executor(self._looks, self.store.pulse)
        except MilepostError:
            return False  # an outage: requests get the error
        pulse.pop(self.store.log, None)
        before, self._pulse = self._pulse, pulse
        return before != pulse

    # Periodic work

    def _tick(self) -> None:
        self._timer = self._loop.call_later(TICK_S, self._tick)
        now = self._loop.time()
        self.run(self.machine.leases.tick(now))
        if now - self._set >= CLOCK_S and (self._setting is None or self._setting.done()):
            self._set = now
            self._setting = self._loop.create_task(self._keep_time(), name="milepost clock")

    async def _keep_time(self) -> None:
        try:
            await self._set_clock()
        except MilepostError:
            pass  # an outage: requests get the error

    def _wake(self) -> None:
        """While dequeues wait: check for writes of others and for due messages, and end waits that are over."""
        self._waking = None
        now = self._loop.time()
        if now - self._listened >= LISTEN_S and (self._listening is None or self._listening.done()):
            self._listened = now
            self._listening = self._loop.create_task(self._listen(), name="milepost listening")
        self.run(self.machine.waiting.wake(now, self.time_us()))

    async def _listen(self) -> None:
        if await self._news():
            self.run(self.machine.waiting.notify_all())

    def hurry(self) -> None:
        """Limit all waits for the server to `CLOSING_S`, since the client is closing."""
        self.store.hurry(CLOSING_S)
        self._writer.hurry()

    async def end(self, error: MilepostError) -> None:
        """Fail open requests with an error, finish the writes, and release the log."""
        self.hurry()
        self._timer.cancel()
        if self._waking is not None:
            self._waking.cancel()
        for task in (self._setting, self._listening):
            if task is not None:
                task.cancel()
        self.run(self.machine.close(error))
        while self.machine.busy:
            self._idle = self._loop.create_future()
            await self._idle
        self.run(self.machine.undo_all())
        self._ending = True
        await self._writer.end()
        await asyncio.to_thread(self._looks.shutdown)
        await asyncio.to_thread(self.store.close)


def _brief(operation: Operation) -> bool:
    return type(operation) in (Perform, Renew, Undo)


def _tell(future: asyncio.Future[Any], outcome: Any) -> Effects:
    if not future.done():
        if isinstance(outcome, MilepostError):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
    return []
