"""Dequeues that wait for messages of one queue: first come, first served, tried only when there is a reason."""

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, Final, Protocol

MOST_TRIES: Final = 16  # most concurrent tries of one line: the store carries them out one by one anyway
NEVER: Final = -1  # a waiter's `changes`: its try tells nothing about available messages


class WaitingDequeue(Protocol):
    """A dequeue in a line."""

    order: int  # rises with each dequeue
    waiting: bool  # in the line; one that has given up is skipped
    changes: int  # the line's `changes` when it was last tried

    @property
    def selector(self) -> Any:
        """Dequeues with the same selector find the same messages: when one finds nothing, the others need not try."""


class WaitingLine:
    """The waiting dequeues of one queue.

    `_expected` is how many messages may be available to waiting dequeues, as far as this process knows: those that
    commits and aborts made visible, less those taken since. It may be too high. Then a try finds nothing, and no
    dequeue with the same selector is tried until something changes. It is never too low for this process's own commits.
    Messages that cannot be counted (of other processes, or messages that have become due) make it infinite: dequeues
    are then tried one at a time at first, and twice as many after each success.
    """

    __slots__ = (
        "_counted", "_empty", "_expected", "_heads", "_waiters", "_width", "changes", "due_us", "tried", "waiting",
    )  # fmt: skip

    def __init__(self) -> None:
        self._waiters: dict[Any, list[tuple[int, Any]]] = {}  # by selector: a heap
        self._empty: dict[Any, None] = {}  # selectors without available messages, the longest known first
        # A heap of the first dequeue of each selector that is not in `_empty`, by order: thousands of dequeues may have
        # a selector each. Stale entries are removed when they reach the top.
        self._heads: list[tuple[int, Any]] = []
        self._expected: float = 0
        self._counted: float = 0  # the counted part of `_expected`; at least one after a try that found some
        self._width = 1
        self.changes = 0  # how often messages became visible
        self.tried = 0  # tries in progress
        self.waiting = 0
        self.due_us: int | None = None  # when a message becomes visible by itself

    def join(self, waiter: WaitingDequeue) -> None:
        """Wait; after a try that found nothing, at the same place as before."""
        waiter.waiting = True
        self.waiting += 1
        selector = waiter.selector
        heap = self._waiters.setdefault(selector, [])
        heappush(heap, (waiter.order, waiter))
        if heap[0][1] is waiter and selector not in self._empty:
            heappush(self._heads, (waiter.order, selector))

    def leave(self, waiter: WaitingDequeue) -> None:
        """Stop waiting."""
        if waiter.waiting:
            waiter.waiting = False
            self.waiting -= 1
            selector = waiter.selector
            if len(self._waiters.get(selector, ())) == 1:  # the last dequeue with this selector
                del self._waiters[selector]
                self._empty.pop(selector, None)

    def known(self, selector: Any) -> bool:
        """Whether dequeues with this selector wait: then nothing is there, or they come first."""
        return any(waiter.waiting for _, waiter in self._waiters.get(selector, ()))

    def notify(self, messages: float = math.inf) -> None:
        """Called when this many messages may have become visible."""
        self.changes += 1
        if self._empty:
            self._empty.clear()
            self._heads = [(heap[0][0], selector) for selector, heap in self._waiters.items() if heap]
            heapify(self._heads)
        self._expected += messages
        self._counted += 0 if messages == math.inf else messages
        self._width = max(self._width, 1 if messages == math.inf else min(int(messages), MOST_TRIES))

    def probe(self, selectors: int) -> None:
        """Let this many selectors be tried without a known reason; the next call tries others."""
        for selector in list(self._empty)[:selectors]:
            del self._empty[selector]
            if heap := self._waiters.get(selector):
                heappush(self._heads, (heap[0][0], selector))
        self._expected = math.inf

    def next(self) -> Any:
        """The dequeue to try now, or None."""
        if self.tried >= min(self._expected, self._width):
            return None
        found = self._first()
        if found is None:
            if not self.tried:
                self._expected, self._counted, self._width = 0, 0, 1
            return None
        waiter = heappop(found)[1]
        if found:
            heapreplace(self._heads, (found[0][0], self._heads[0][1]))
        else:
            del self._waiters[heappop(self._heads)[1]]
        waiter.waiting = False
        waiter.changes = self.changes
        self.waiting -= 1
        self.tried += 1
        return waiter

    def _first(self) -> list[tuple[int, Any]] | None:
        """The waiters of the first selector that may find messages; that selector is the top of `_heads`."""
        heads = self._heads
        while heads:
            order, selector = heads[0]
            heap = self._waiters.get(selector)
            while heap and not heap[0][1].waiting:
                heappop(heap)
            if not heap:
                self._waiters.pop(selector, None)
                heappop(heads)
            elif selector in self._empty:
                heappop(heads)
            elif heap[0][0] != order:
                heapreplace(heads, (heap[0][0], selector))
            else:
                return heap
        return None

    def came(self, waiter: WaitingDequeue, messages: int) -> None:
        """Called after a try, which got this many messages."""
        self.tried -= 1
        if messages:
            self._expected = max(0, self._expected - messages)
            self._counted = max(1, self._counted - messages)
            self._width = min(2 * self._width, MOST_TRIES)
        elif waiter.changes == self.changes:
            self._empty[waiter.selector] = None
            self._counted = 0

    @property
    def unsure(self) -> bool:
        """Whether no message is known to be available. A dequeue then peeks first, and dequeues only if it found some.

        A dequeue writes to the log even if it finds nothing. Other members of the cell with waiting dequeues notice the
        write and try as well: without the peek, members would keep each other busy for ever.
        """
        return self._expected == math.inf and not self._counted

    @property
    def idle(self) -> bool:
        """Whether no dequeue is in this line."""
        return not self.waiting and not self.tried
