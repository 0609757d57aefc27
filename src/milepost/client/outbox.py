"""Rows of one topic between the call that puts them and the frame that carries them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from milepost import limits
from milepost.batch import Batch, Collector, Copier, Draft
from milepost.batch.neighbours import FRAME, join, runs
from milepost.client.unsettled import PendingPut
from milepost.errors import LimitExceeded
from milepost.query import encode, enforce
from milepost.schema import Schema

GATHERED_ROWS: Final = 2_048  # sent together at the latest: the fixed costs of a frame are then one in a hundred
PIECES_BYTES: Final = 1 << 20  # of waiting rows that were encoded one by one
PUT_HEADER: Final = 8  # bytes before the batch in the body of a PUT
IDS_BYTES: Final = 64  # at most, of a batch's IDs beside its stamps, and of a frame's header


class Outbox:
    """A bounded number of rows, in order.

    `gathering` is true while rows need only be added, not sent: a frame is in flight, or none can be sent, and there is
    room. The fast path of `AsyncClient.put` checks nothing else. For a durable topic, whose `alone` is None, it is true
    while rows without a waiter gather until they are sent: further such rows need only be added.
    """

    __slots__ = (
        "_bytes",
        "_collector",
        "_puts",
        "add",
        "alone",
        "batch_bytes",
        "collected",
        "durable",
        "flying",
        "gathering",
        "kept",
        "most",
        "name",
        "number",
        "schema",
        "unwatched",
        "waiters",
    )

    def __init__(
        self, name: str, number: int, schema: Schema, batch_bytes: int = limits.FRAME_BYTES - PUT_HEADER
    ) -> None:
        self.name: Final = name
        self.number = number  # the broker's number of the topic; 0 when the client must ask for it
        self.batch_bytes = batch_bytes  # most that the broker takes; larger puts are split
        self.gathering = False
        self.flying = False  # rows were sent in this turn of the event loop or, if durable, are sent at its end
        self.durable = False
        self.waiters: list[asyncio.Future[None]] = []  # of durable puts: wait until the collected rows are stored
        self.unwatched = False  # some rows here have no waiter
        self._puts: deque[PendingPut] = deque()  # in order, before the collected rows
        self.kept = 0  # rows in `_puts`
        self._bytes = 0
        self._use(schema)

    def _use(self, schema: Schema) -> None:
        self.schema = schema
        flat = Collector.of(schema)
        self._collector = flat if flat is not None else Copier.of(schema)  # not `or`: an empty one is false
        self.add: Callable[[Any], None] = _refuse if self._collector is None else self._collector.add
        self.alone: Callable[[Any, int, int, int], bytes] | None = None if flat is None or self.durable else flat.alone
        self.collected: list[Any] = [] if self._collector is None else self._collector.parts
        self.most = GATHERED_ROWS if self._collector is None else GATHERED_ROWS * self._collector.width

    def change(self, schema: Schema) -> None:
        """Take rows of another version from now on; waiting rows keep theirs."""
        if schema != self.schema:
            self._cut()
            self._use(schema)

    def become(self, durable: bool) -> None:
        """Make the topic durable or live; waiting rows are sent accordingly."""
        if durable != self.durable:
            self.durable, self.gathering = durable, False
            self._cut()
            self._use(self.schema)

    def fail_waiters(self, error: Exception) -> None:
        """Fail the puts whose rows wait here. The rows stay."""
        for waiters in (*(put.waiters for put in self._puts), self.waiters):
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(error)
            waiters.clear()
        self.unwatched = False

    def clear(self) -> None:
        """Discard the rows that are here."""
        self._cut()
        self._puts.clear()
        self.kept = self._bytes = 0

    def __len__(self) -> int:
        return self.kept + (0 if self._collector is None else len(self._collector))

    @property
    def full(self) -> bool:
        """Whether rows must be sent before more can be added."""
        return len(self) >= GATHERED_ROWS or self._bytes >= PIECES_BYTES

    def encoded(self, row: Any) -> Batch:
        """A row that `add` refused, as a batch. Raises `InvalidValue` or `CheckFailed` if it is invalid."""
        batch = encode(self.schema, [row])
        most = self.batch_bytes - IDS_BYTES
        if len(batch.data) > most:
            raise LimitExceeded("frame_bytes", len(batch.data), most, "the bytes of one message")
        return batch

    def draft(self, source: Any) -> Draft | Batch:
        """Rows that satisfy the rules of the schema, without IDs."""
        draft = Draft.of(self.schema, source)
        if isinstance(draft, Batch):
            enforce(draft)  # a schema with rules makes only batches
        return draft

    def take(self, row: Any) -> list[asyncio.Future[None]]:
        """Add a row that `add` refused, or raise its error; other rows stay. Returns its waiters, none yet."""
        put = PendingPut([(self, self.encoded(row))], [])
        self.keep(put)
        return put.waiters

    def keep(self, put: PendingPut) -> None:
        """Add encoded rows."""
        self._cut()
        self._puts.append(put)
        self._count(put)

    def _cut(self) -> None:
        """Turn the collected rows into a put."""
        if self._collector is not None and self.collected:
            put = PendingPut([(self, self._collector.batch())], self.waiters)
            self.waiters = []
            self._puts.append(put)
            self._count(put)

    def _count(self, put: PendingPut) -> None:
        self.kept += len(put.batch)
        self._bytes += len(put.batch.data)
        if self.full:
            self.gathering = False

    def next(self) -> PendingPut:
        """Remove and return the put to send first: a row with a key, or all rows up to one, of a single schema."""
        self._cut()
        puts = self._puts
        if len(puts) == 1:
            return self._pop()
        sizes, rows = [len(put.batch.data) for put in puts], [len(put.batch) for put in puts]
        run = next(runs(puts, sizes, rows, FRAME, _alike))
        batch = join([put.batch for put in run])
        first = self._pop()
        if batch is None or len(run) == 1:
            return first
        for _ in run[1:]:
            self._pop()
        return PendingPut([(self, batch)], [waiter for put in run for waiter in put.waiters])

    def _pop(self) -> PendingPut:
        put = self._puts.popleft()
        self.kept -= len(put.batch)
        self._bytes -= len(put.batch.data)
        return put

    def give_back(self, put: PendingPut) -> None:
        """Put back, at the front, what `next` removed and did not fit into a frame."""
        self._puts.appendleft(put)
        self._count(put)

    def collector(self) -> Collector | Copier | None:
        """The collector, if it holds all waiting rows: then they are encoded and given IDs in one step."""
        return self._collector if self.collected and not self._puts else None


def _alike(run: list[PendingPut], put: PendingPut) -> bool:
    """Whether a put can be joined with others in one batch. One that did not fit into a frame may have IDs already."""
    first = run[0]
    if first.key or put.key or first.batch.ids is not None or put.batch.ids is not None:
        return False
    return first.batch.schema == put.batch.schema


def _refuse(row: Any) -> None:
    raise TypeError
