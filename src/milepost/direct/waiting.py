"""Dequeues that found nothing, and wait: in the order in which they came, and looking again when there is a reason."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from itertools import count
from typing import Any, Final, Protocol

from milepost.errors import MilepostError
from milepost.operations.steps import Got
from milepost.queues.line import NEVER, Line

LOOK_S: Final = 0.1  # how soon it is seen that another member of the cell has written, or that a message is due
PROBE_S: Final = 1.0  # how often those who wait look again without a reason that is known: a caller's own database
# transaction may have brought messages, or the store has undone one by itself
PROBED: Final = 16  # wishes of one line that are looked after then

_orders: Final = count(1)


class Whose(Protocol):
    """A transaction."""

    over: MilepostError | None  # why nobody waits in it any longer


class Waiter:
    """One of them: see `queues.line.Waiter`."""

    __slots__ = ("changes", "late", "order", "trying", "turn", "unsure", "waiting", "whose", "wish")

    def __init__(self, whose: Whose, wish: Any) -> None:
        self.whose = whose
        self.wish = wish
        self.order = next(_orders)
        self.waiting = False
        self.trying = False  # it was given its turn: the line counts it until it has `came`
        self.unsure = False  # it was given its turn though nothing is known to have come
        self.late = False  # its time is over
        self.changes = 0
        self.turn: asyncio.Future[None]


class Waiting:
    """The lines of all queues. `news` tells whether others have written anything; it is asked while somebody waits."""

    def __init__(self, time_us: Callable[[], int], news: Callable[[], Awaitable[bool]]) -> None:
        self._time_us = time_us
        self._news = news
        self._loop = asyncio.get_running_loop()
        self._lines: dict[str, Line] = {}
        self._waiters: set[Waiter] = set()
        self._looking: asyncio.Task[None] | None = None  # there is one while there are lines
        self._over: MilepostError | None = None  # why nobody may wait any longer

    def __len__(self) -> int:
        return len(self._waiters)

    def known(self, queue: str, wish: Any) -> bool:
        """Whether others wait for the same: nothing is there, or they come first."""
        line = self._lines.get(queue)
        return line is not None and line.known(wish)

    async def take(
        self, queue: str, whose: Whose, wish: Any, until: float, first: Got | None,
        look: Callable[[bool], Awaitable[Got]],
    ) -> Got | None:  # fmt: skip
        """Wait for messages, up to a time of the event loop; None when none came. `first` was found before: nothing.

        `look` takes them, and is told whether nobody knows that there are any.
        """
        waiter = Waiter(whose, wish)
        found = first
        self._waiters.add(waiter)
        try:
            while True:
                if (over := self._over or whose.over) is not None:  # it ended while this one was looking
                    raise over
                line = self._join(queue, waiter)
                if found is not None and found.waits_us is not None:
                    line.due_us = found.waits_us if line.due_us is None else min(line.due_us, found.waits_us)
                waiter.turn = self._loop.create_future()
                timer = self._loop.call_at(until, self._late, queue, line, waiter)
                found = None
                try:
                    await waiter.turn
                    if waiter.late:
                        return None
                    found = await look(waiter.unsure)
                except MilepostError:
                    raise
                except BaseException:
                    waiter.changes = NEVER  # it has not looked: the next one with this wish may find something
                    raise
                finally:
                    timer.cancel()
                    if waiter.waiting:
                        line.leave(waiter)
                        self._tidy(queue, line)
                    elif waiter.trying:
                        self._came(queue, line, waiter, 0 if found is None else found.count)
                if found.count:
                    return found
                if self._loop.time() >= until:
                    return None
        finally:
            self._waiters.discard(waiter)

    def _late(self, queue: str, line: Line, waiter: Waiter) -> None:
        """Its time is over; if it is its turn, it looks for the last time."""
        if waiter.waiting and not waiter.turn.done():
            waiter.late = True
            line.leave(waiter)
            self._tidy(queue, line)
            waiter.turn.set_result(None)

    def _join(self, queue: str, waiter: Waiter) -> Line:
        line = self._lines.get(queue)
        if line is None:
            line = self._lines[queue] = Line()
        line.join(waiter)
        if self._looking is None:
            self._looking = self._loop.create_task(self._look(), name="milepost waiting")
        return line

    def _came(self, queue: str, line: Line, waiter: Waiter, messages: int) -> None:
        waiter.trying = False
        line.came(waiter, messages)
        self._serve(queue, line)

    def _serve(self, queue: str, line: Line) -> None:
        while (waiter := line.next()) is not None:
            if waiter.turn.done():  # it was cancelled, and has not heard of it yet: whoever is behind it looks
                waiter.changes = NEVER
                line.came(waiter, 0)
            else:
                waiter.trying, waiter.unsure = True, line.unsure
                waiter.turn.set_result(None)
        self._tidy(queue, line)

    def _tidy(self, queue: str, line: Line) -> None:
        if line.idle and self._lines.get(queue) is line:
            del self._lines[queue]

    def stir(
        self, queues: Iterable[str], counted: Counter[str] | None = None, uncounted: Counter[str] | None = None
    ) -> None:
        """Messages of some queues may be seen now; as many as `counted`, unless something is `uncounted` as well."""
        for queue in queues:
            line = self._lines.get(queue)
            if line is not None:
                known = counted[queue] if counted and not (uncounted and uncounted[queue]) else 0
                line.stir(known or math.inf)
                self._serve(queue, line)

    async def _look(self) -> None:
        """While somebody waits: what others have brought, and what has become due."""
        probed = self._loop.time()
        while self._lines:
            await asyncio.sleep(LOOK_S)
            if self._lines and await self._news():
                self.stir(list(self._lines))
            now = self._time_us()
            for queue, line in list(self._lines.items()):
                if line.due_us is not None and line.due_us <= now:
                    line.due_us = None
                    line.stir()
                    self._serve(queue, line)
            if self._loop.time() - probed >= PROBE_S:
                probed = self._loop.time()
                for queue, line in list(self._lines.items()):
                    line.probe(PROBED)
                    self._serve(queue, line)
        self._looking = None

    def dismiss(self, whose: Whose) -> None:
        """A transaction is over: who still waits in it is told."""
        for waiter in self._waiters:
            if waiter.whose is whose and whose.over is not None:
                self._tell(waiter, whose.over)

    def end(self, error: MilepostError) -> None:
        """Nobody waits any longer."""
        self._over = error
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        for waiter in self._waiters:
            self._tell(waiter, error)

    @staticmethod
    def _tell(waiter: Waiter, error: MilepostError) -> None:
        if not waiter.turn.done():
            waiter.turn.set_exception(error)
            waiter.turn.exception()  # seen, whether or not somebody still waits for it
