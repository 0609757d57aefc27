"""Dequeues that found nothing, and wait: who looks again when, and when they give up."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from functools import partial
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, Final

from milepost.broker.core.effects import Effect, Inspect
from milepost.broker.core.queues.transaction import Request
from milepost.errors import MilepostError
from milepost.operations import queues as operations
from milepost.operations import steps
from milepost.queues.line import NEVER, Line

if TYPE_CHECKING:
    from milepost.broker.core.queues.transactions import QueueTransactions

PROBE_S: Final = 1.0  # how often those who wait look again without a reason that the broker knows of: messages may come
# from a caller's own database transaction, or out of one that the store has undone by itself
PROBED: Final = 16  # wishes of one line that are looked after then: thousands of clients may want something else each
ENDS_KEPT: Final = 1_000  # of dequeues that have waited and are answered: twice as many are looked through


class Waiters:
    """The lines of all queues."""

    def __init__(self, queues: QueueTransactions) -> None:
        self._queues = queues
        self._lines: dict[str, Line] = {}
        self._ends: list[tuple[float, int, Request]] = []  # a heap: when waiting dequeues end
        self._most_ends = ENDS_KEPT
        self._probed = -math.inf  # seconds

    @property
    def some(self) -> bool:
        """Whether anybody waits: then `wake` is to be called again and again."""
        return bool(self._lines)

    def __len__(self) -> int:
        return sum(line.waiting + line.tried for line in self._lines.values())

    def joins(self, request: Request) -> bool:
        """Let a dequeue wait at once where others wait for the same: nothing is there, or they come first."""
        line = self._lines.get(request.dequeue.queue)
        if line is None or request.waited or not line.known(request.wish):
            return False
        self._wait(request)
        return True

    def got(self, request: Request, outcome: steps.Got) -> list[Effect]:
        """A dequeue was carried out: answer it, or let it wait."""
        alone = len(request.dealing.requests) == 1 and request.dealing.owner.connection is not None
        if outcome.count or not request.until or not alone:
            return self._queues.took(request, outcome.groups, outcome.count)
        line = self._wait(request)
        if outcome.waits_us is not None:
            line.due_us = outcome.waits_us if line.due_us is None else min(line.due_us, outcome.waits_us)
        return []

    def _wait(self, request: Request) -> Line:
        line = self._lines.get(request.dequeue.queue)
        if line is None:
            line = self._lines[request.dequeue.queue] = Line()
        line.join(request)
        if not request.waited:
            request.waited = True
            heappush(self._ends, (request.until, request.order, request))
            if len(self._ends) > 2 * self._most_ends:
                self._ends = [each for each in self._ends if each[2] in each[2].dealing.requests]
                heapify(self._ends)
                self._most_ends = max(ENDS_KEPT, len(self._ends))
        return line

    def stir(
        self,
        queues: Iterable[str],
        effects: list[Effect],
        counted: Counter[str] | None = None,
        uncounted: Counter[str] | None = None,
    ) -> None:
        """Messages of some queues may be seen now that could not be.

        As many as were `counted`, where that is known; where something is `uncounted` as well, it is not.
        """
        for queue in queues:
            line = self._lines.get(queue)
            if line is not None:
                known = counted[queue] if counted and not (uncounted and uncounted[queue]) else 0
                line.stir(known or math.inf)
                self._serve(queue, line, effects)

    def stirred(self) -> list[Effect]:
        """Another broker has written something, whatever it is; or nobody knows."""
        effects: list[Effect] = []
        self.stir(list(self._lines), effects)
        return effects

    def _serve(self, queue: str, line: Line, effects: list[Effect]) -> None:
        while (request := line.next()) is not None:
            effects += self._look(request) if line.unsure else self._take(request)
        if line.idle:
            self._lines.pop(queue, None)

    def _look(self, request: Request) -> list[Effect]:
        """See what a dequeue would take, without a write: see `Line.unsure`."""
        request.dealing.busy = True
        said, owner = request.dequeue, request.dealing.number
        peek = operations.Peek(said.queue, said.type, where=said.where, order=said.order, owner=owner)
        return [Inspect(peek, partial(self._looked, request))]

    def _looked(self, request: Request, outcome: Any) -> list[Effect]:
        if isinstance(outcome, MilepostError) or outcome.count:
            if request.dealing.over is None and request.dealing.owner.connection is not None:
                return self._take(request)  # also after an error, which the store then tells the transaction
            request.changes = NEVER  # its client is gone: the next one with this wish may find something
            outcome = steps.Got([])
        return self._came(request, outcome, [])

    def _take(self, request: Request) -> list[Effect]:
        return self._queues.give(request, (self._queues.step_of(request.dequeue),), self._tried)

    def _tried(self, request: Request, outcome: Any) -> list[Effect]:
        """A waiting dequeue was carried out."""
        if not isinstance(outcome, MilepostError):
            return self._came(request, outcome.outcomes[-1], self._queues.learn(request.dealing, outcome))
        return self._came(request, outcome, [])

    def _came(self, request: Request, found: steps.Got | MilepostError, effects: list[Effect]) -> list[Effect]:
        """A waiting dequeue has its answer, or waits on."""
        dealing, queue = request.dealing, request.dequeue.queue
        dealing.busy = False
        line = self._lines[queue]
        if isinstance(found, MilepostError):
            line.came(request, 0)
            effects += self._queues.failed(request, found)
        else:
            line.came(request, found.count)
            effects += self.got(request, found)
        effects += self._queues.advance(dealing)
        self._serve(queue, line, effects)
        return effects

    def come_away(self, request: Request) -> list[Effect]:
        """A waiting dequeue ends without messages."""
        queue = request.dequeue.queue
        line = self._lines[queue]
        line.leave(request)
        if line.idle:
            del self._lines[queue]
        return self._queues.took(request, [], 0) + self._queues.advance(request.dealing)

    def wake(self, now: float, time_us: int) -> list[Effect]:
        """Several times a second while somebody waits: end what has waited long enough, and see what has become due."""
        effects: list[Effect] = []
        while self._ends and self._ends[0][0] <= now:
            request = heappop(self._ends)[2]
            if request.waiting:
                effects += self.come_away(request)
            else:
                request.until = 0.0  # it looks for the last time
        for queue, line in list(self._lines.items()):
            if line.due_us is not None and line.due_us <= time_us:
                line.due_us = None
                line.stir()
                self._serve(queue, line, effects)
        if now - self._probed >= PROBE_S:
            self._probed = now
            for queue, line in list(self._lines.items()):
                line.probe(PROBED)
                self._serve(queue, line, effects)
        return effects
