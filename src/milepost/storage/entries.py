"""Rows that are stored together become entries: few large ones rather than many small ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from milepost.batch import Batch
from milepost.batch.neighbours import ENTRY, join, join_encoded, runs
from milepost.errors import InvalidValue
from milepost.operations import Part
from milepost.schema import Schema

KEPT_BYTES: Final = 1 << 17  # a staged part of at least this size stays where it is, and is not joined to others
_STAMPS_END: Final = 1 << 63  # databases count in signed 64 bits: enough until the year 6,429

After = tuple[int, int]


def stays(part: Part) -> bool:
    """Whether a staged part keeps its bytes in the staging tables: then it is an entry by itself."""
    return part.piece != 0 and len(part.batch.data) >= KEPT_BYTES


class EncodedRows(NamedTuple):
    """Rows for one topic that arrived one by one: each is an encoded batch of one row, all of one schema."""

    topic: int
    schema: Schema
    datas: list[bytes]

    def parts(self) -> list[Part]:
        """The rows as one part; or one part each, when they do not fit into one entry."""
        datas = self.datas
        if len(datas) <= ENTRY.rows and sum(map(len, datas)) <= ENTRY.bytes:
            batch = join_encoded(datas, self.schema)
            if batch is not None:
                return [Part(self.topic, batch)]
        return [Part(self.topic, Batch.trusted(data, self.schema)) for data in datas]


def add_rows(parts: list[Part | EncodedRows], topic: int, schema: Schema, datas: list[bytes]) -> None:
    """Append rows to `parts`; they extend the last item if that is `EncodedRows` of the same topic and schema."""
    last = parts[-1] if parts else None
    if isinstance(last, EncodedRows) and last.topic == topic and last.schema is schema:
        last.datas.extend(datas)
    else:
        parts.append(EncodedRows(topic, schema, datas))


def new_rows(batch: Batch, high_water: int, previous: int = 0) -> tuple[Batch | None, int]:
    """The rows above a high water (None if there are none), and the last stamp.

    `InvalidValue` when stamps do not increase; `previous` is the last stamp of the previous part.
    """
    if batch.ids is None or not len(batch):
        raise InvalidValue("only rows with message IDs are stored, and at least one")
    if len(batch) == 1:
        first = last = batch.ids[0].stamp
        kept = batch if last > high_water else None
    else:
        stamps = batch.ids.stamps
        if not bool((stamps[1:] > stamps[:-1]).all()):
            raise InvalidValue("the stamps of a publisher's rows increase; these do not")
        first, last = int(stamps[0]), int(stamps[-1])
        known = int(np.searchsorted(stamps, np.uint64(high_water), side="right"))
        kept = None if known == len(batch) else batch.slice(known) if known else batch
    if first <= previous:
        raise InvalidValue("the stamps of a publisher's rows increase from part to part; these do not")
    if last >= _STAMPS_END:
        raise InvalidValue(f"a stamp of {last} is past the year 6,429: set the publisher's clock")
    return kept, last


def joined(given: Iterable[Part | EncodedRows]) -> list[Part]:
    """The parts of one topic in order, with neighbours of one schema joined up to the size of an entry."""
    parts = _parts(given)
    if len(parts) == 1:
        return parts
    made: list[Part] = []
    sizes = [len(part.batch.data) for part in parts]
    rows = [len(part.batch) for part in parts]
    for run in runs(parts, sizes, rows, ENTRY, _fits):
        made += run if len(run) == 1 else _one(run)
    return made


def _parts(given: Iterable[Part | EncodedRows]) -> list[Part]:
    parts: list[Part] = []
    for part in given:
        if isinstance(part, EncodedRows):
            parts += part.parts()
        else:
            parts.append(part)
    return parts


def _fits(run: list[Part], part: Part) -> bool:
    first = run[0]
    schema, other = part.batch.schema, first.batch.schema
    if (schema is not other and schema != other) or (part.piece and stays(part)) or (first.piece and stays(first)):
        return False
    if part.after is None:
        return True
    # An entry waits for at most one log. Searching from the end takes one step per part when all parts wait.
    last = next((before.after for before in reversed(run) if before.after is not None), part.after)
    return last[0] == part.after[0]


def _one(run: list[Part]) -> list[Part]:
    """A run joined into one part, or unchanged when the joined batch would exceed a limit."""
    first = run[0]
    if all(len(part.batch) == 1 for part in run):
        batch = join_encoded([bytes(part.batch.data) for part in run], first.batch.schema)
    else:
        batch = join([part.batch for part in run])
    if batch is None:
        return run
    # Of two positions in one log, the later one follows both, and exists just as surely.
    return [Part(first.topic, batch, max([part.after for part in run if part.after is not None], default=None))]
