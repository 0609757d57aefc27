"""Rows of one topic between the call that put them and the frame that takes them away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any, Final

from milepost import limits
from milepost.batch import Batch, Collector, Copier
from milepost.errors import LimitExceeded
from milepost.query import encode
from milepost.schema import Schema

GATHERED_ROWS: Final = 2_048  # leave together at the latest: the fixed costs of a frame are then one in a hundred
PIECES_BYTES: Final = 1 << 20  # of rows that were encoded one by one and wait
PUT_HEADER: Final = 8  # bytes before the batch in the body of a PUT


class Outbox:
    """A bounded number of rows, in order.

    `gathering` is true while rows are to be added and not sent: something is in flight, or nothing can be sent, and
    there is room. `AsyncClient.put` looks at nothing else on its short way. Of a durable topic, whose `alone` is None,
    it is true while rows gather that nobody waits for, until they are sent: more of that kind need only be added.
    """

    __slots__ = (
        "_bytes",
        "_collector",
        "_pieces",
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
        self.number = number  # the broker's for the topic; 0 when it has to be asked for
        self.batch_bytes = batch_bytes  # that the broker takes; larger puts are split
        self.gathering = False
        self.flying = False  # something was sent in this turn of the event loop, or, if durable, is to be at its end
        self.durable = False
        self.waiters: list[asyncio.Future[None]] = []  # of durable puts: for the storing of rows that are here
        self.unwatched = False  # rows are here that nobody waits for
        self._pieces: list[tuple[Batch, bytes]] = []  # in order, before what is collected; with a key, one row each
        self.kept = 0  # rows in the pieces
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
        """Take rows of another version from now on; those that wait stay what they are."""
        if schema != self.schema:
            self._cut()
            self._use(schema)

    def become(self, durable: bool) -> None:
        """The topic is durable, or live: what waits leaves as the topic is then."""
        if durable != self.durable:
            self.durable, self.gathering = durable, False
            self._cut()
            self._use(self.schema)

    def watched(self) -> tuple[list[asyncio.Future[None]], bool]:
        """Who waits for the rows that are taken out now, and whether some have nobody."""
        found = self.waiters, self.unwatched
        self.waiters, self.unwatched = [], False
        return found

    def __len__(self) -> int:
        return self.kept + (0 if self._collector is None else len(self._collector))

    @property
    def full(self) -> bool:
        """Whether rows have to leave before more can come."""
        return len(self) >= GATHERED_ROWS or self._bytes >= PIECES_BYTES

    def encoded(self, row: Any) -> Batch:
        """A row that `add` refused, as a batch; `InvalidValue` or `CheckFailed` says what is wrong with it."""
        batch = encode(self.schema, [row])
        if len(batch.data) > self.batch_bytes:
            raise LimitExceeded("frame_bytes", len(batch.data), self.batch_bytes, "the bytes of one message")
        return batch

    def take(self, row: Any) -> None:
        """Add a row that `add` refused, or raise what is wrong with it; nothing else is lost."""
        self.keep(self.encoded(row))

    def keep(self, batch: Batch, key: bytes = b"") -> None:
        """Add rows that are encoded; under a key, a single one, which leaves in a frame of its own."""
        self._cut()
        self._keep(batch, key)

    def _cut(self) -> None:
        """What is collected becomes a piece."""
        if self._collector is not None and self.collected:
            self._keep(self._collector.batch())

    def _keep(self, batch: Batch, key: bytes = b"") -> None:
        self._pieces.append((batch, key))
        self.kept += len(batch)
        self._bytes += len(batch.data)
        if self.full:
            self.gathering = False

    def batches(self) -> Iterator[tuple[Batch, bytes]]:
        """What waits, joined as far as one schema goes, with keys, and taken out. IDs are still to be given."""
        self._cut()
        pieces, self._pieces = self._pieces, []
        self.kept = self._bytes = 0
        for (_, key), group in groupby(pieces, key=lambda piece: (piece[0].schema, piece[1])):
            alike = [batch for batch, _ in group]
            if key:
                yield from ((batch, key) for batch in alike)
            else:
                yield alike[0] if len(alike) == 1 else Batch.concat(alike), key

    def collector(self) -> Collector | Copier | None:
        """The collector, when everything that waits is in it: its rows are then encoded and given IDs at once."""
        return self._collector if self.collected and not self._pieces else None


def _refuse(row: Any) -> None:
    raise TypeError
