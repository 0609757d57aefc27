"""Dequeues that wait for messages of one queue: first come, first served, and tried when there is a reason."""

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, Final, Protocol

MOST_TRIES: Final = 16  # of one line under way at once: the store carries them out one after the other anyway
NEVER: Final = -1  # of a waiter's `changes`: its try says nothing about what is there


class Waiter(Protocol):
    """A dequeue, as its line knows it."""

    order: int  # counts up: who came first
    waiting: bool  # in the line; one that has given up is passed over
    changes: int  # of the line, when it was last tried

    @property
    def wish(self) -> Any:
        """Two with the same wish get the same, or nothing: when one found nothing, the other need not look."""


class Line:
    """See above.

    `hope` is how many messages may be there for those who wait, as far as the broker can tell: what commits and
    aborts have let be seen, less what was taken since. It may be too high, and then a try finds nothing, and all with
    the same wish are left alone until something changes; it is never too low for what this broker has done. What it
    cannot count (other brokers' messages, messages whose time has come) is an infinite hope, tried one at a time at
    first, and twice as many after each success.
    """

    __slots__ = ("_empty", "_heads", "_hope", "_sure", "_waiters", "_width", "changes", "due_us", "tried", "waiting")

    def __init__(self) -> None:
        self._waiters: dict[Any, list[tuple[int, Any]]] = {}  # by wish: a heap
        self._empty: dict[Any, None] = {}  # wishes for which nothing is there, the longest known first
        # A heap of the first of each wish that is not known to be in vain, by order: thousands may want something else
        # each. Entries that are no longer so are found out when it is their turn.
        self._heads: list[tuple[int, Any]] = []
        self._hope: float = 0
        self._sure: float = 0  # of these, messages that were counted; one at least after a try that found some
        self._width = 1
        self.changes = 0  # how often something became visible
        self.tried = 0  # under way
        self.waiting = 0
        self.due_us: int | None = None  # when a message becomes visible by itself

    def join(self, waiter: Waiter) -> None:
        """Wait, or wait again after a try that found nothing, at the same place as before."""
        waiter.waiting = True
        self.waiting += 1
        wish = waiter.wish
        heap = self._waiters.setdefault(wish, [])
        heappush(heap, (waiter.order, waiter))
        if heap[0][1] is waiter and wish not in self._empty:
            heappush(self._heads, (waiter.order, wish))

    def leave(self, waiter: Waiter) -> None:
        """Wait no longer."""
        if waiter.waiting:
            waiter.waiting = False
            self.waiting -= 1
            wish = waiter.wish
            if len(self._waiters.get(wish, ())) == 1:  # nobody else wants it, and perhaps nobody ever will again
                del self._waiters[wish]
                self._empty.pop(wish, None)

    def known(self, wish: Any) -> bool:
        """Whether others wait for the same: then nothing is there, or they come first."""
        return any(waiter.waiting for _, waiter in self._waiters.get(wish, ()))

    def stir(self, messages: float = math.inf) -> None:
        """So many messages may be there now."""
        self.changes += 1
        if self._empty:
            self._empty.clear()
            self._heads = [(heap[0][0], wish) for wish, heap in self._waiters.items() if heap]
            heapify(self._heads)
        self._hope += messages
        self._sure += 0 if messages == math.inf else messages
        self._width = max(self._width, 1 if messages == math.inf else min(int(messages), MOST_TRIES))

    def probe(self, wishes: int) -> None:
        """Nothing is known to have come; so many wishes may be looked after all the same, and others the next time."""
        for wish in list(self._empty)[:wishes]:
            del self._empty[wish]
            if heap := self._waiters.get(wish):
                heappush(self._heads, (heap[0][0], wish))
        self._hope = math.inf

    def next(self) -> Any:
        """Who is to try now, or None."""
        if self.tried >= min(self._hope, self._width):
            return None
        found = self._first()
        if found is None:
            if not self.tried:
                self._hope, self._sure, self._width = 0, 0, 1
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
        """The waiters of the wish whose first one came first, of those that may be fulfilled; it leads `_heads`."""
        heads = self._heads
        while heads:
            order, wish = heads[0]
            heap = self._waiters.get(wish)
            while heap and not heap[0][1].waiting:
                heappop(heap)
            if not heap:
                self._waiters.pop(wish, None)
                heappop(heads)
            elif wish in self._empty:
                heappop(heads)
            elif heap[0][0] != order:
                heapreplace(heads, (heap[0][0], wish))
            else:
                return heap
        return None

    def came(self, waiter: Waiter, messages: int) -> None:
        """A try is over; it got so many messages."""
        self.tried -= 1
        if messages:
            self._hope = max(0, self._hope - messages)
            self._sure = max(1, self._sure - messages)
            self._width = min(2 * self._width, MOST_TRIES)
        elif waiter.changes == self.changes:
            self._empty[waiter.wish] = None
            self._sure = 0

    @property
    def unsure(self) -> bool:
        """Whether nobody knows that something has come. Then it is looked first, and taken if something is there.

        A dequeue writes to the log, also in vain. Other members of the cell that wait see that somebody has written,
        and try as well: without the look they would keep each other busy for ever.
        """
        return self._hope == math.inf and not self._sure

    @property
    def idle(self) -> bool:
        """Whether nobody needs this line."""
        return not self.waiting and not self.tried
