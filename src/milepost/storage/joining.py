"""Rows that are stored together become entries: few large ones rather than many small ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np

from milepost.batch import Batch
from milepost.errors import InvalidValue
from milepost.schema import Schema

JOINED_BYTES: Final = 1 << 20  # of an entry that was joined; larger ones read no faster, and cost memory
JOINED_ROWS: Final = 65_536  # the same in rows, for the kernels that go over them
KEPT_BYTES: Final = 1 << 17  # of a staged piece: from here on it stays where it is, and is not joined to others
_STAMPS_END: Final = 1 << 63  # databases count in signed 64 bits: enough until the year 6,429

After = tuple[int, int]


class Piece(NamedTuple):
    """Rows for one topic, in the order in which they are stored."""

    topic: int
    batch: Batch
    after: After | None = None
    piece: int = 0  # of rows that were staged: where the store has their bytes already


class Run(NamedTuple):
    """Rows for one topic that came one by one, each the bytes of a batch of its own, of one schema."""

    topic: int
    schema: Schema
    datas: list[bytes]

    def pieces(self) -> Iterator[Piece]:
        """The rows as pieces that are entries by themselves."""
        datas = self.datas
        if len(datas) > JOINED_ROWS or sum(map(len, datas)) > JOINED_BYTES:
            for data in datas:  # to be joined as far as they may be
                yield Piece(self.topic, Batch.trusted(data, self.schema))
        else:
            alone = len(datas) == 1
            batch = Batch.trusted(datas[0], self.schema) if alone else Batch.joined(datas, self.schema)
            yield Piece(self.topic, batch)


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
    made: list[Piece] = []
    run: list[Piece] = []
    size = rows = 0
    after: After | None = None
    alone = False  # what is in the run stays by itself
    schema: Schema | None = None  # of the run
    for piece in _pieces(given):
        batch = piece.batch
        more, bytes_more = len(batch), len(batch.data)
        stays = piece.piece != 0 and bytes_more >= KEPT_BYTES
        fits = (
            run
            and rows + more <= JOINED_ROWS
            and size + bytes_more <= JOINED_BYTES
            and not (stays or alone)
            and (batch.schema is schema or batch.schema == schema)
            and (after is None or piece.after is None or after[0] == piece.after[0])
        )
        if not fits:
            if run:
                made.append(_one(run, rows, after))
            run, size, rows, after = [], 0, 0, None
            alone, schema = stays, batch.schema
        run.append(piece)
        size += bytes_more
        rows += more
        # Of two positions of one log the later one is behind both, and as sure to be there.
        if piece.after is not None:
            after = piece.after if after is None else max(after, piece.after)
    if run:
        made.append(_one(run, rows, after))
    return made


def _pieces(given: Iterable[Piece | Run]) -> Iterator[Piece]:
    for piece in given:
        if isinstance(piece, Run):
            yield from piece.pieces()
        else:
            yield piece


def _one(run: list[Piece], rows: int, after: After | None) -> Piece:
    first = run[0]
    if len(run) == 1:
        return Piece(first.topic, first.batch, after, first.piece)
    if rows == len(run):  # each a row: as a compaction joins them
        return Piece(first.topic, Batch.joined([bytes(piece.batch.data) for piece in run], first.batch.schema), after)
    return Piece(first.topic, Batch.concat(piece.batch for piece in run), after)
