"""The store of a client without a broker: who writes it, who looks, and what has to be done now and then."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import milepost.queues.execution  # noqa: F401  # registers how operations on queues are carried out
from milepost.config import settings
from milepost.direct.clock import Clock, Told
from milepost.direct.waiting import Waiting
from milepost.errors import MilepostError, StoreUnavailable
from milepost.operations import Look, Operation
from milepost.operations import queues as operations
from milepost.operations.queues import Perform, Renew, Undo
from milepost.storage import Store, open_store
from milepost.storage.loop_writer import LoopWriter

NAME: Final = "direct"  # of the logs of such clients: direct-1 and so on
LOOKS: Final = 2  # threads for whoever only looks: a long look leaves the other to everybody else
CLOSING_S: Final = 5.0  # that the database has when the client leaves; leases end what it has not undone
TICK_S: Final = 1.0
RENEWALS: Final = 3  # of a lease before it would end
SWEEP_S: Final = 5.0  # between looks at messages that have expired, and at leases of those who are gone

log = logging.getLogger("milepost.direct")

Then = Callable[[Any], None]


class Keeper:
    """Made by `opened`, and ended by `end`. `lost` is called when another process has taken over the log."""

    def __init__(self, store: Store, lease_s: float, lost: Callable[[MilepostError], None]) -> None:
        self.store: Final = store
        self.time_us: Final = Clock()
        self.lease_us: Final = int(lease_s * 1_000_000)
        self._lease_s = lease_s
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._writer = LoopWriter(store, time_us=self.time_us, done=self._done, brief=_brief)
        self._looks = ThreadPoolExecutor(LOOKS, "milepost-look")
        self._pulse: dict[int, int] | None = None  # how often the others had written, when that was last asked
        self._renewed = self._swept = self._loop.time()
        self._renews = self._sweeps = False  # one is under way: more of them, while the store is away, would pile up
        self._setting: asyncio.Task[None] | None = None  # of the clock
        self._timer = self._loop.call_later(TICK_S, self._tick)
        self.waiting: Final = Waiting(self.time_us, self._news)
        self.numbers: Callable[[], Iterable[int]] = tuple  # of the transactions under way; set by the connection

    @classmethod
    async def opened(cls, url: str, lost: Callable[[MilepostError], None]) -> Keeper:
        """Open the store, and undo what whoever had the same log before has left. Raises what is in the way."""
        chosen = settings()
        store = await asyncio.to_thread(
            open_store,
            url,
            broker=NAME,
            address=f"{socket.gethostname()} process {os.getpid()}",
            broker_id=int.from_bytes(os.urandom(4), "little"),
            time_us=Clock()(),
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
            await self.end()
            raise
        return self

    # Writing and looking

    def give(self, operation: Operation, then: Then) -> None:
        """Have an operation written; `then` is called with its outcome, which may be an error."""
        self._writer.give(operation, then)

    async def do(self, operation: Operation) -> Any:
        """The outcome of an operation, which is carried out whoever still waits for it; raised when it is an error."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self.give(operation, partial(_tell, future))
        return await future

    async def look(self, operation: Look) -> Any:
        """The outcome of something that changes nothing; raised when it is an error."""
        return await self._loop.run_in_executor(self._looks, self.store.inspect, operation, self.time_us())

    async def _set_clock(self) -> None:
        self.time_us.set(*await self.look(Told()))

    def _done(self, results: list[tuple[Any, Any]], _entries: Any) -> None:
        for then, outcome in results:
            then(outcome)
        if self._writer.over is not None:
            self._lost(self._writer.over)

    async def _news(self) -> bool:
        try:
            pulse = await self._loop.run_in_executor(self._looks, self.store.pulse)
        except MilepostError:
            return False  # the store is away: whoever wants something of it is told
        pulse.pop(self.store.log, None)
        before, self._pulse = self._pulse, pulse
        return before != pulse

    # Now and then

    def _tick(self) -> None:
        self._timer = self._loop.call_later(TICK_S, self._tick)
        now = self._loop.time()
        sweeps = now - self._swept >= SWEEP_S
        # Before each sweep too: leases are of the clock of the day, which may have jumped.
        if (sweeps or now - self._renewed >= self._lease_s / RENEWALS) and not self._renews:
            self._renewed = now
            numbers = tuple(self.numbers())
            if numbers:
                self._renews = True
                self.give(Renew(numbers, self.lease_us), self._renewed_once)
        if sweeps:
            self._swept = now
            if self._setting is None or self._setting.done():
                self._setting = self._loop.create_task(self._keep_time(), name="milepost clock")
            if not self._sweeps:
                self._sweep()

    async def _keep_time(self) -> None:
        try:
            await self._set_clock()
        except MilepostError:
            pass  # the store is away: whoever wants something of it is told

    def _renewed_once(self, outcome: Any) -> None:
        self._renews = False
        if isinstance(outcome, MilepostError) and not isinstance(outcome, StoreUnavailable):
            log.warning("the leases of transactions cannot be renewed: %s", outcome)

    def _sweep(self) -> None:
        self._sweeps = True
        self.give(operations.Sweep(), self._swept_once)

    def _swept_once(self, outcome: Any) -> None:
        self._sweeps = False
        if isinstance(outcome, MilepostError):
            if not isinstance(outcome, StoreUnavailable):  # the store says in the log that it is away
                log.warning("queues cannot be looked after: %s", outcome)
            return
        self.waiting.stir(outcome.touched)
        # Behind what others have asked for meanwhile; and not when this is the end.
        if outcome.more and self._timer.when() > self._loop.time() and not self._timer.cancelled():
            self._sweep()

    def undo(self, number: int) -> None:
        """Undo a transaction; when the store does not, its lease ends."""
        self.give(Undo(number), self._undone)

    def _undone(self, outcome: Any) -> None:
        if not isinstance(outcome, MilepostError):
            self.waiting.stir(outcome.touched)

    def hurry(self) -> None:
        """The client leaves: nobody waits any longer for a server that does not answer."""
        self.store.hurry(CLOSING_S)
        self._writer.hurry()

    async def end(self) -> None:
        """Write what was given, and give the log back."""
        self.hurry()
        self._timer.cancel()
        if self._setting is not None:
            self._setting.cancel()
        await self._writer.end()
        await asyncio.to_thread(self._looks.shutdown)
        await asyncio.to_thread(self.store.close)


def _brief(operation: Operation) -> bool:
    return type(operation) in (Perform, Renew, Undo)


def _tell(future: asyncio.Future[Any], outcome: Any) -> None:
    if future.done():
        return
    if isinstance(outcome, MilepostError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
