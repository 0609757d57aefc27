"""EntryHeader entries that lie side by side become large ones, which are read many times as fast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from milepost.batch.neighbours import ENTRY, join_encoded, runs
from milepost.operations import StoredEntry
from milepost.schema import Schema
from milepost.storage.lookups import TIME

RUN_ENTRIES: Final = 64  # joined in one step: some milliseconds, and everybody who writes waits for it
RUN_WORTH: Final = 32  # entries that are worth a step, however small they are
LARGE_BYTES: Final = ENTRY.bytes // 2  # entries of this size stay as they are
LARGE_ROWS: Final = ENTRY.rows // 2  # the same in rows
RUN: Final = ENTRY._replace(small=LARGE_BYTES - 1, items=RUN_ENTRIES)


class EntryHeader(NamedTuple):
    """An entry that may be joined, without its data."""

    first: int
    rows: int
    bytes: int
    after: bool  # it is to be read after rows of another log

    @property
    def large(self) -> bool:
        """Whether it stays as it is."""
        return self.bytes >= LARGE_BYTES or self.rows >= LARGE_ROWS


def run_of(entries: Sequence[EntryHeader]) -> tuple[list[EntryHeader], int]:
    """Neighbours worth joining, and the offset before which nothing will ever be.

    A run is worth it when it cannot grow, when it makes a large entry, or when it is of many; and when its largest is
    at most half of it: so what a row lies in at least doubles each time, and it is written some ten times in all, not
    once for each neighbour that comes.
    """
    if not entries:
        return [], 0
    done = entries[0].first
    *full, run = runs(entries, [entry.bytes for entry in entries], [entry.rows for entry in entries], RUN, _follows)
    for each in full:
        if len(each) > 1:
            return each, done
        done = each[0].first + each[0].rows
    if run[0].large:
        return [], run[0].first + run[0].rows
    while run and not _worth(run):
        sizes = [item.bytes for item in run]
        largest = sizes.index(max(sizes))
        if len(run) < RUN_WORTH:
            return [], done
        run = run[largest + 1 :]
    return run, done


def _follows(run: list[EntryHeader], entry: EntryHeader) -> bool:
    last = run[-1]
    # Rows before one that waits for another log must not wait with it: they may be what that log waits for.
    return not entry.after and last.first + last.rows == entry.first and last.rows < LARGE_ROWS > entry.rows


def _worth(run: list[EntryHeader]) -> bool:
    sizes = [entry.bytes for entry in run]
    total = sum(sizes)
    enough = total >= LARGE_BYTES or sum(entry.rows for entry in run) >= LARGE_ROWS or len(run) >= RUN_WORTH
    return len(run) > 1 and enough and max(sizes) * 2 <= total


def join(
    entries: Sequence[StoredEntry], schemas: dict[int, Schema], fingerprints: Sequence[int]
) -> tuple[StoredEntry, int] | None:
    """The first entries of one schema as one, and how many they are; None when they cannot be joined."""
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
    """Where each of the entries began, and when it was stored; neighbours of one time are told once."""
    pairs: list[tuple[int, int]] = []
    base = run[0].first
    for entry in run:
        known = TIME.iter_unpack(entry.times) if entry.times else [(0, entry.time_us)]
        for row, time_us in known:
            if not pairs or pairs[-1][1] != time_us:
                pairs.append((entry.first - base + row, time_us))
    return b"".join(TIME.pack(*pair) for pair in pairs)
