"""Rows that are stored together become entries: few large ones rather than many small ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from milepost.batch import Batch
from milepost.batch.neighbours import ENTRY, join, join_encoded, runs
from milepost.errors import InvalidValue
from milepost.schema import Schema

KEPT_BYTES: Final = 1 << 17  # of a staged piece: from here on it stays where it is, and is not joined to others
_STAMPS_END: Final = 1 << 63  # databases count in signed 64 bits: enough until the year 6,429

After = tuple[int, int]


class Piece(NamedTuple):
    """Rows for one topic, in the order in which they are stored."""

    topic: int
    batch: Batch
    after: After | None = None
    piece: int = 0  # of rows that were staged: where the store has their bytes already

    @property
    def stays(self) -> bool:
        """Whether its bytes stay where they were staged: then it is an entry by itself."""
        return self.piece != 0 and len(self.batch.data) >= KEPT_BYTES


class Run(NamedTuple):
    """Rows for one topic that came one by one, each the bytes of a batch of its own, of one schema."""

    topic: int
    schema: Schema
    datas: list[bytes]

    def pieces(self) -> list[Piece]:
        """The rows as one piece, or a piece each, to be joined as far as that goes."""
        datas = self.datas
        if len(datas) <= ENTRY.rows and sum(map(len, datas)) <= ENTRY.bytes:
            batch = join_encoded(datas, self.schema)
            if batch is not None:
                return [Piece(self.topic, batch)]
        return [Piece(self.topic, Batch.trusted(data, self.schema)) for data in datas]


def add_rows(pieces: list[Piece | Run], topic: int, schema: Schema, datas: list[bytes]) -> None:
    """Put rows behind others, together with those that came in the same way."""
    last = pieces[-1] if pieces else None
    if isinstance(last, Run) and last.topic == topic and last.schema is schema:
        last.datas.extend(datas)
    else:
        pieces.append(Run(topic, schema, datas))


def new_rows(batch: Batch, mark: int, previous: int = 0) -> tuple[Batch | None, int]:
    """The rows above a mark (None: there are none), and the last stamp.

    `InvalidValue` when stamps do not increase; `previous` is the last one of the part before.
    """
    if batch.ids is None or not len(batch):
        raise InvalidValue("only rows with message IDs are stored, and at least one")
    if len(batch) == 1:
        first = last = batch.ids[0].stamp
        kept = batch if last > mark else None
    else:
        stamps = batch.ids.stamps
        if not bool((stamps[1:] > stamps[:-1]).all()):
            raise InvalidValue("the stamps of a publisher's rows increase; these do not")
        first, last = int(stamps[0]), int(stamps[-1])
        known = int(np.searchsorted(stamps, np.uint64(mark), side="right"))
        kept = None if known == len(batch) else batch.slice(known) if known else batch
    if first <= previous:
        raise InvalidValue("the stamps of a publisher's rows increase from part to part; these do not")
    if last >= _STAMPS_END:
        raise InvalidValue(f"a stamp of {last} is past the year 6,429: set the publisher's clock")
    return kept, last


def joined(given: Iterable[Piece | Run]) -> list[Piece]:
    """Pieces of one topic, neighbours of one schema joined up to the size of an entry; their order stays."""
    pieces = _pieces(given)
    if len(pieces) == 1:
        return pieces
    made: list[Piece] = []
    sizes = [len(piece.batch.data) for piece in pieces]
    rows = [len(piece.batch) for piece in pieces]
    for run in runs(pieces, sizes, rows, ENTRY, _fits):
        made += run if len(run) == 1 else _one(run)
    return made


def _pieces(given: Iterable[Piece | Run]) -> list[Piece]:
    pieces: list[Piece] = []
    for piece in given:
        if isinstance(piece, Run):
            pieces += piece.pieces()
        else:
            pieces.append(piece)
    return pieces


def _fits(run: list[Piece], piece: Piece) -> bool:
    first = run[0]
    schema, other = piece.batch.schema, first.batch.schema
    if (schema is not other and schema != other) or (piece.piece and piece.stays) or (first.piece and first.stays):
        return False
    if piece.after is None:
        return True
    # Rows wait for one log at most. The search is from the end, so that pieces which all wait cost a step each.
    last = next((before.after for before in reversed(run) if before.after is not None), piece.after)
    return last[0] == piece.after[0]


def _one(run: list[Piece]) -> list[Piece]:
    """A run as one piece, or as it is when that exceeds a limit of batches."""
    first = run[0]
    if all(len(piece.batch) == 1 for piece in run):
        batch = join_encoded([bytes(piece.batch.data) for piece in run], first.batch.schema)
    else:
        batch = join([piece.batch for piece in run])
    if batch is None:
        return run
    # Of two positions of one log the later one is behind both, and as sure to be there.
    return [Piece(first.topic, batch, max([piece.after for piece in run if piece.after is not None], default=None))]
