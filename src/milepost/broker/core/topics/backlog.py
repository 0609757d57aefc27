"""The backlog of a connection: deliveries that wait because its socket is full or its credit is used up."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from milepost import limits
from milepost.batch import Batch
from milepost.batch.neighbours import Bounds, join, runs
from milepost.wire import Tags

if TYPE_CHECKING:
    from milepost.broker.core.sessions.connection import Connection
    from milepost.broker.core.topics.topic import Topic


LARGE_BATCH: Final = 16 << 20  # bytes; a larger batch may exceed the frame limit with its tags


class Place(NamedTuple):
    """Where the rows of a delivery are in the log of a durable topic."""

    log: int
    first: int  # offset of the batch's first row, or the base of `rows`
    end: int  # all rows before it were delivered to the connection, or match none of its predicates
    rows: npt.NDArray[np.integer] | None = None  # offset of each row, minus `first`; None: consecutive offsets

    @property
    def told(self) -> tuple[int, int]:
        """The log and end, as a DELIVER frame has them."""
        return self.log, self.end

    def halves(self, middle: int) -> tuple[Place, Place]:
        """The places of the rows before and from `middle` on."""
        if self.rows is None:
            cut = self.first + middle
            return self._replace(end=cut), self._replace(first=cut)
        cut = self.first + int(self.rows[middle - 1]) + 1
        return self._replace(end=cut, rows=self.rows[:middle]), self._replace(rows=self.rows[middle:])


@dataclass(slots=True)
class Waiting:
    """A delivery that could not be sent at once."""

    topic: Topic
    batch: Batch  # the connection's rows, often shared with other connections
    tags: tuple[int, ...] | Tags
    size: int  # bytes of its frame if it is sent alone
    held: int = 0  # bytes counted for this connection: connections that share the rows share the bytes
    place: Place | None = None  # for rows of a durable topic, if the client reads places

    def halves(self) -> tuple[Waiting, Waiting]:
        """The same rows as two deliveries."""
        middle = len(self.batch) // 2
        tags, size, held = self.tags, self.size // 2, self.held // 2
        first = second = tags
        here, there = (None, None) if self.place is None else self.place.halves(middle)
        if isinstance(tags, Tags):
            cut = int(tags.offsets[middle])
            first = Tags(tags.offsets[: middle + 1], tags.subscriptions[:cut])
            second = Tags(tags.offsets[middle:] - np.uint32(cut), tags.subscriptions[cut:])
        return (
            Waiting(self.topic, self.batch.slice(0, middle), first, size, held, here),
            Waiting(self.topic, self.batch.slice(middle), second, size, held, there),
        )


@dataclass(slots=True)
class CreditHold:
    """Credit that a publisher gets back when this number of `backlogs` have room again."""

    publisher: Connection
    size: int
    backlogs: int = 0


@dataclass(slots=True)
class Backlog:
    """The queue of one connection, first in, first out."""

    waiting: deque[Waiting] = field(default_factory=deque)
    holds: list[CreditHold] = field(default_factory=list)
    bytes: int = 0
    rows: int = 0
    held: int = 0

    def append(self, item: Waiting) -> None:
        self.waiting.append(item)
        self.bytes += item.size
        self.held += item.held
        self.rows += len(item.batch)

    def joined(self, most: int) -> Waiting:
        """Remove the oldest deliveries and join them into one, for a frame of about `most` bytes.

        Neighbours of one topic and schema are joined, so rows of many publishers become one batch here.
        """
        waiting = self.waiting
        if len(waiting) == 1:
            return self._pop()
        sizes, rows = (item.size for item in waiting), (len(item.batch) for item in waiting)
        parts = next(runs(waiting, sizes, rows, Bounds(most), _alike))
        batch = join([part.batch for part in parts])
        first = self._pop()
        if batch is None or len(parts) == 1:
            return first
        for _ in parts[1:]:
            self._pop()
        size, held = sum([part.size for part in parts]), sum([part.held for part in parts])
        return Waiting(first.topic, batch, _joined_tags(parts), size, held, _joined_place(parts))

    def put_back(self, item: Waiting) -> None:
        """Put a delivery back at the front."""
        self.waiting.appendleft(item)
        self.bytes += item.size
        self.held += item.held
        self.rows += len(item.batch)

    def drop(self, most: int, slow_of: str | None) -> dict[int, int]:
        """Drop the oldest deliveries until at most `most` bytes wait; returns the rows dropped, by subscription.

        `slow_of` is the client's own policy. Without one, only deliveries whose topic has the policy "drop" are
        dropped.
        """
        lost: dict[int, int] = {}
        kept: deque[Waiting] = deque()
        while self.waiting and self.bytes > most:
            item = self._pop()
            if (slow_of or item.topic.slow) == "drop":
                for tag, rows in _counts(item).items():
                    lost[tag] = lost.get(tag, 0) + rows
            else:
                kept.append(item)
                most -= item.size  # it is put back later; `_pop` has subtracted its bytes
        while kept:
            self.put_back(kept.pop())
        return lost

    def drop_all(self) -> dict[int, int]:
        """Drop everything; returns the rows dropped, by subscription."""
        lost: dict[int, int] = {}
        while self.waiting:
            for tag, rows in _counts(self._pop()).items():
                lost[tag] = lost.get(tag, 0) + rows
        return lost

    def _pop(self) -> Waiting:
        item = self.waiting.popleft()
        self.bytes -= item.size
        self.held -= item.held
        self.rows -= len(item.batch)
        return item


def _counts(item: Waiting) -> dict[int, int]:
    if not isinstance(item.tags, Tags):
        return dict.fromkeys(item.tags, len(item.batch))
    tags, counts = np.unique(item.tags.subscriptions, return_counts=True)
    return dict(zip(tags.tolist(), counts.tolist(), strict=True))


def _alike(run: list[Waiting], item: Waiting) -> bool:
    first = run[0]
    return (
        item.topic is first.topic
        and item.batch.schema is first.batch.schema
        and (item.place and item.place.log) == (first.place and first.place.log)
    )


def _joined_tags(parts: list[Waiting]) -> tuple[int, ...] | Tags:
    first = parts[0].tags
    if all(not isinstance(part.tags, Tags) and part.tags == first for part in parts):
        return first
    offsets, subscriptions = [np.zeros(1, np.uint32)], []
    start = 0
    for part in parts:
        tags = row_by_row(part.tags, len(part.batch))
        offsets.append(tags.offsets[1:].astype(np.uint32) + np.uint32(start))
        subscriptions.append(tags.subscriptions)
        start += len(tags.subscriptions)
    return Tags(np.concatenate(offsets), np.concatenate(subscriptions))


def _joined_place(parts: list[Waiting]) -> Place | None:
    places = [part.place for part in parts if part.place is not None]
    if not places:
        return None
    first, last = places[0], places[-1]
    counts = [len(part.batch) for part in parts]
    steps = zip(places, places[1:], counts, strict=False)
    if all(place.rows is None for place in places) and all(a.first + n == b.first for a, b, n in steps):
        return first._replace(end=last.end)
    rows = [
        np.arange(count) + (place.first - first.first)
        if place.rows is None
        else place.rows + (place.first - first.first)
        for place, count in zip(places, counts, strict=True)
    ]
    return Place(first.log, first.first, last.end, np.concatenate(rows))


def row_by_row(tags: tuple[int, ...] | Tags, rows: int) -> Tags:
    """The same tags, repeated for each row."""
    if isinstance(tags, Tags):
        return tags
    return Tags(np.arange(rows + 1, dtype=np.uint32) * np.uint32(len(tags)), np.tile(np.array(tags, np.uint32), rows))


def too_long(batch: Batch, tags: tuple[int, ...] | Tags) -> bool:
    """Whether a delivery must be split to fit into one frame; a single row cannot be."""
    tagged = len(tags.subscriptions) + len(tags.offsets) if isinstance(tags, Tags) else len(tags)
    return len(batch.data) + 4 * tagged + 64 > limits.FRAME_BYTES and len(batch) > 1
