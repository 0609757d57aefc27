"""Compaction: adjacent small entries are joined into large ones, which are read many times as fast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from milepost.batch.neighbours import ENTRY, join_encoded, runs
from milepost.operations import StoredEntry
from milepost.schema import Schema
from milepost.storage.lookups import TIME, TIMES

RUN_ENTRIES: Final = 64  # joined in one step, which takes some milliseconds and delays all writes
RUN_WORTH: Final = 32  # a run of this many entries is worth a step, however small they are
LARGE_BYTES: Final = ENTRY.bytes // 2  # entries of this size stay as they are
LARGE_ROWS: Final = ENTRY.rows // 2  # the same in rows
RUN: Final = ENTRY._replace(small=LARGE_BYTES - 1, items=RUN_ENTRIES)


class EntryHeader(NamedTuple):
    """An entry that may be joined, without its data."""

    first: int
    rows: int
    bytes: int
    after: bool  # the entry must be read after rows of another log

    @property
    def large(self) -> bool:
        """Whether the entry is too large to be joined."""
        return self.bytes >= LARGE_BYTES or self.rows >= LARGE_ROWS


def run_of(entries: Sequence[EntryHeader]) -> tuple[list[EntryHeader], int]:
    """The next run worth joining, and the offset before which no entry will ever be joined.

    A run is worth joining when it cannot grow, makes a large entry, or has many entries; and its largest entry must be
    at most half of it. So the entry of a row at least doubles each time, and the row is written some ten times in all,
    not once for each new neighbour.
    """
    if not entries:
        return [], 0
    done = entries[0].first
    *full, run = runs(entries, [entry.bytes for entry in entries], [entry.rows for entry in entries], RUN, _follows)
    for each in full:
        if len(each) == RUN_ENTRIES:  # only the bound of a step ends it: it can still grow
            each = _balanced(each)
        if len(each) > 1:
            return each, done
        done = each[0].first + each[0].rows
    if run[0].large:
        return [], run[0].first + run[0].rows
    run = _balanced(run)
    return (run if _worth(run) else []), done


def _follows(run: list[EntryHeader], entry: EntryHeader) -> bool:
    last = run[-1]
    # An entry that waits for another log must not be joined to earlier rows: the other log may wait for those rows.
    return not entry.after and last.first + last.rows == entry.first and last.rows < LARGE_ROWS > entry.rows


def _balanced(run: list[EntryHeader]) -> list[EntryHeader]:
    """The end of a run in which no entry is larger than all others together."""
    while run:
        sizes = [entry.bytes for entry in run]
        largest = max(sizes)
        if largest * 2 <= sum(sizes):
            break
        run = run[sizes.index(largest) + 1 :]
    return run


def _worth(run: list[EntryHeader]) -> bool:
    if len(run) < 2:
        return False
    return (
        len(run) >= RUN_WORTH
        or sum(entry.bytes for entry in run) >= LARGE_BYTES
        or sum(entry.rows for entry in run) >= LARGE_ROWS
    )


def join(
    entries: Sequence[StoredEntry], schemas: dict[int, Schema], fingerprints: Sequence[int]
) -> tuple[StoredEntry, int] | None:
    """Join the leading entries of one schema. Returns the new entry and their number; None if they cannot be joined."""
    schema = schemas.get(fingerprints[0])
    if schema is None:
        return None
    count = 1
    while count < len(entries) and fingerprints[count] == fingerprints[0]:
        count += 1
    if count < 2:
        return None
    run = entries[:count]
    batch = join_encoded([entry.data for entry in run], schema)
    if batch is None:
        return None
    first = run[0]
    made = StoredEntry(first.first, len(batch), first.time_us, bytes(batch), first.after, run[-1].last_us, _times(run))
    return made, count


def _times(run: Sequence[StoredEntry]) -> bytes:
    """The first row of each entry and the time it was stored; adjacent entries of one time share a pair."""
    known = [entry.times or TIME.pack(0, entry.time_us) for entry in run]
    pairs = np.frombuffer(b"".join(known), TIMES).copy()
    base = run[0].first
    pairs["row"] += np.repeat(
        np.array([entry.first - base for entry in run], "<u4"), [len(times) // TIME.size for times in known]
    )
    changes = np.ones(len(pairs), bool)
    changes[1:] = pairs["time_us"][1:] != pairs["time_us"][:-1]
    return pairs[changes].tobytes()
