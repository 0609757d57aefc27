"""Rows of one topic between the call that put them and the frame that takes them away."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from milepost import limits
from milepost.batch import Batch, Collector, Copier
from milepost.batch.neighbours import FRAME, join, runs
from milepost.errors import LimitExceeded
from milepost.query import encode
from milepost.schema import Schema

GATHERED_ROWS: Final = 2_048  # leave together at the latest: the fixed costs of a frame are then one in a hundred
PIECES_BYTES: Final = 1 << 20  # of rows that were encoded one by one and wait
PUT_HEADER: Final = 8  # bytes before the batch in the body of a PUT
IDS_BYTES: Final = 64  # at most, of a batch's IDs beside its stamps, and of a frame's header


class Piece(NamedTuple):
    """Rows that are encoded, of one version. IDs are given when they leave."""

    batch: Batch
    key: bytes  # of its single row, which leaves in a frame of its own; empty for rows without one
    waiters: list[asyncio.Future[None]]  # of durable puts: for the storing of its rows


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
        self.waiters: list[asyncio.Future[None]] = []  # of durable puts: for the storing of what is collected
        self.unwatched = False  # rows are here that nobody waits for
        self._pieces: deque[Piece] = deque()  # in order, before what is collected
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

    def fail_waiters(self, error: Exception) -> None:
        """Fail the puts that wait for rows that are here. The rows stay."""
        for waiters in (*(piece.waiters for piece in self._pieces), self.waiters):
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(error)
            waiters.clear()
        self.unwatched = False

    def clear(self) -> None:
        """Throw away the rows that are here."""
        self._cut()
        self._pieces.clear()
        self.kept = self._bytes = 0

    def __len__(self) -> int:
        return self.kept + (0 if self._collector is None else len(self._collector))

    @property
    def full(self) -> bool:
        """Whether rows have to leave before more can come."""
        return len(self) >= GATHERED_ROWS or self._bytes >= PIECES_BYTES

    def encoded(self, row: Any) -> Batch:
        """A row that `add` refused, as a batch; `InvalidValue` or `CheckFailed` says what is wrong with it."""
        batch = encode(self.schema, [row])
        most = self.batch_bytes - IDS_BYTES
        if len(batch.data) > most:
            raise LimitExceeded("frame_bytes", len(batch.data), most, "the bytes of one message")
        return batch

    def take(self, row: Any) -> list[asyncio.Future[None]]:
        """Add a row that `add` refused, or raise what is wrong with it; nothing else is lost. Its waiters, none yet."""
        piece = Piece(self.encoded(row), b"", [])
        self.keep(piece)
        return piece.waiters

    def keep(self, piece: Piece) -> None:
        """Add rows that are encoded."""
        self._cut()
        self._pieces.append(piece)
        self._count(piece)

    def _cut(self) -> None:
        """What is collected becomes a piece."""
        if self._collector is not None and self.collected:
            piece = Piece(self._collector.batch(), b"", self.waiters)
            self.waiters = []
            self._pieces.append(piece)
            self._count(piece)

    def _count(self, piece: Piece) -> None:
        self.kept += len(piece.batch)
        self._bytes += len(piece.batch.data)
        if self.full:
            self.gathering = False

    def next(self) -> Piece:
        """Take out what is to leave first: a row with a key, or all up to one, as far as one schema goes."""
        self._cut()
        pieces = self._pieces
        if len(pieces) == 1:
            return self._pop()
        sizes, rows = [len(piece.batch.data) for piece in pieces], [len(piece.batch) for piece in pieces]
        run = next(runs(pieces, sizes, rows, FRAME, _alike))
        batch = join([piece.batch for piece in run])
        first = self._pop()
        if batch is None or len(run) == 1:
            return first
        for _ in run[1:]:
            self._pop()
        return Piece(batch, b"", [waiter for piece in run for waiter in piece.waiters])

    def _pop(self) -> Piece:
        piece = self._pieces.popleft()
        self.kept -= len(piece.batch)
        self._bytes -= len(piece.batch.data)
        return piece

    def give_back(self, piece: Piece) -> None:
        """What `next` took out and did not fit into a frame is the first again."""
        self._pieces.appendleft(piece)
        self._count(piece)

    def collector(self) -> Collector | Copier | None:
        """The collector, when everything that waits is in it: its rows are then encoded and given IDs at once."""
        return self._collector if self.collected and not self._pieces else None


def _alike(run: list[Piece], piece: Piece) -> bool:
    """Whether a piece can leave in one batch with others. One that did not fit into a frame may have IDs already."""
    first = run[0]
    if first.key or piece.key or first.batch.ids is not None or piece.batch.ids is not None:
        return False
    return first.batch.schema == piece.batch.schema


def _refuse(row: Any) -> None:
    raise TypeError
