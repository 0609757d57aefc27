"""Waiting dequeues that found nothing: when each tries again, and when it gives up."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from functools import partial
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, Final

from milepost.errors import MilepostError
from milepost.operations import queues as operations
from milepost.operations import steps
from milepost.queues.open_transaction import TransactionRequest
from milepost.queues.waiting_line import NEVER, WaitingLine

if TYPE_CHECKING:
    from milepost.queues.machine import Effects, TransactionMachine

PROBE_S: Final = 1.0  # between tries of waiting dequeues without a known reason: messages may come from a caller's own
# database transaction, or from one that the store has undone by itself
PROBED: Final = 16  # most selectors of one line that try then: thousands of clients may have one each
ENDS_KEPT: Final = 1_000  # ends of waits that are kept; at twice as many, those of answered dequeues are removed


class Waiters:
    """The lines of all queues."""

    def __init__(self, machine: TransactionMachine) -> None:
        self._machine = machine
        self._lines: dict[str, WaitingLine] = {}
        self._ends: list[tuple[float, int, TransactionRequest]] = []  # a heap: when waiting dequeues end
        self._most_ends = ENDS_KEPT
        self._probed = -math.inf  # seconds

    @property
    def some(self) -> bool:
        """Whether dequeues wait: then the driver must call `wake` repeatedly."""
        return bool(self._lines)

    @property
    def soonest(self) -> float:
        """When the next dequeue gives up, or earlier: seconds of the driver's monotonic clock."""
        return self._ends[0][0] if self._ends else math.inf

    def __len__(self) -> int:
        return sum(line.waiting + line.tried for line in self._lines.values())

    def joins(self, request: TransactionRequest) -> bool:
        """Let a dequeue wait without a try, if others with its selector wait: nothing is there, or they come first."""
        line = self._lines.get(request.dequeue.queue)
        if line is None or request.waited or not line.known(request.selector):
            return False
        self._wait(request)
        return True

    def got(self, request: TransactionRequest, outcome: steps.Got) -> Effects:
        """Called after a try of a dequeue: reply, or let it wait."""
        alone, count = len(request.transaction.requests) == 1, outcome.count
        if count or not request.until or not alone or not self._machine.present(request):
            return self._machine.took(request, outcome.groups, count)
        line = self._wait(request)
        if outcome.waits_us is not None:
            line.due_us = outcome.waits_us if line.due_us is None else min(line.due_us, outcome.waits_us)
        return []

    def _wait(self, request: TransactionRequest) -> WaitingLine:
        line = self._lines.get(request.dequeue.queue)
        if line is None:
            line = self._lines[request.dequeue.queue] = WaitingLine()
        line.join(request)
        if not request.waited:
            request.waited = True
            heappush(self._ends, (request.until, request.order, request))
            if len(self._ends) > 2 * self._most_ends:
                self._ends = [each for each in self._ends if each[2] in each[2].transaction.requests]
                heapify(self._ends)
                self._most_ends = max(ENDS_KEPT, len(self._ends))
        return line

    def notify(
        self,
        queues: Iterable[str],
        effects: Effects,
        counted: Counter[str] | None = None,
        uncounted: Counter[str] | None = None,
    ) -> None:
        """Called when messages of queues become visible: as many as `counted`, unless `uncounted` has some too."""
        for queue in queues:
            line = self._lines.get(queue)
            if line is not None:
                known = counted[queue] if counted and not (uncounted and uncounted[queue]) else 0
                line.notify(known or math.inf)
                self._serve(queue, line, effects)

    def notify_all(self) -> Effects:
        """Called when another member of the cell has written, or may have."""
        effects: Effects = []
        self.notify(list(self._lines), effects)
        return effects

    def _serve(self, queue: str, line: WaitingLine, effects: Effects) -> None:
        while (request := line.next()) is not None:
            if not self._machine.present(request):  # its client is gone: another with this selector may find some
                request.changes = NEVER
                line.came(request, 0)
                effects += self._machine.took(request, [], 0) + self._machine.advance(request.transaction)
            else:
                effects += self._look(request) if line.unsure else self._take(request)
        if line.idle:
            self._lines.pop(queue, None)

    def _look(self, request: TransactionRequest) -> Effects:
        """Peek whether a dequeue would find messages, without a write: see `WaitingLine.unsure`."""
        request.transaction.busy = True
        said, owner = request.dequeue, request.transaction.number
        peek = operations.Peek(said.queue, said.type, where=said.where, order=said.order, owner=owner)
        return self._machine.look(peek, partial(self._looked, request))

    def _looked(self, request: TransactionRequest, outcome: Any) -> Effects:
        if isinstance(outcome, MilepostError) or outcome.count:
            if request.transaction.over is None and self._machine.present(request):
                return self._take(request)  # also after an error: then the dequeue fails, and the client gets the error
            request.changes = NEVER  # its client is gone: another with this selector may find some
            outcome = steps.Got([])
        return self._came(request, outcome, [])

    def _take(self, request: TransactionRequest) -> Effects:
        return self._machine.give(request, (self._machine.step_of(request.dequeue),), self._tried)

    def _tried(self, request: TransactionRequest, outcome: Any) -> Effects:
        """Called with the outcome of a waiting dequeue's try."""
        if not isinstance(outcome, MilepostError):
            return self._came(request, outcome.outcomes[-1], self._machine.learn(request.transaction, outcome))
        return self._came(request, outcome, [])

    def _came(self, request: TransactionRequest, found: steps.Got | MilepostError, effects: Effects) -> Effects:
        """Reply to a waiting dequeue after its try, or let it wait again."""
        transaction, queue = request.transaction, request.dequeue.queue
        transaction.busy = False
        line = self._lines[queue]
        if isinstance(found, MilepostError):
            line.came(request, 0)
            effects += self._machine.failed(request, found)
        else:
            line.came(request, found.count)
            effects += self.got(request, found)
        effects += self._machine.advance(transaction)
        self._serve(queue, line, effects)
        return effects

    def come_away(self, request: TransactionRequest) -> Effects:
        """End a waiting dequeue without messages."""
        queue = request.dequeue.queue
        line = self._lines[queue]
        line.leave(request)
        if line.idle:
            del self._lines[queue]
        return self._machine.took(request, [], 0) + self._machine.advance(request.transaction)

    def wake(self, now: float, time_us: int) -> Effects:
        """End dequeues that have waited long enough, and try for messages that have become due.

        Called several times a second while dequeues wait. `now` is a time of the driver's monotonic clock, `time_us` of
        the wall clock, in microseconds since 1970.
        """
        effects: Effects = []
        while self._ends and self._ends[0][0] <= now:
            request = heappop(self._ends)[2]
            if request.waiting:
                effects += self.come_away(request)
            else:
                request.until = 0.0  # its current try is the last
        for queue, line in list(self._lines.items()):
            if line.due_us is not None and line.due_us <= time_us:
                line.due_us = None
                line.notify()
                self._serve(queue, line, effects)
        if now - self._probed >= PROBE_S:
            self._probed = now
            for queue, line in list(self._lines.items()):
                line.probe(PROBED)
                self._serve(queue, line, effects)
        return effects
