"""Small entries that lie side by side become large ones, which are read many times as fast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from milepost.batch import Batch
from milepost.errors import MilepostError
from milepost.schema import Schema
from milepost.storage.joining import JOINED_BYTES, JOINED_ROWS
from milepost.storage.reading import TIME

RUN_ENTRIES: Final = 64  # joined in one step: some milliseconds, and everybody who writes waits for it
RUN_WORTH: Final = 32  # entries that are worth a step, however small they are
LARGE_BYTES: Final = JOINED_BYTES // 2  # entries of this size stay as they are


class Small(NamedTuple):
    """An entry that may be joined, without its data."""

    first: int
    rows: int
    bytes: int
    after: bool  # it is to be read after rows of another log


class Joint(NamedTuple):
    """An entry as it is stored."""

    first: int
    rows: int
    first_us: int
    last_us: int
    times: bytes | None
    data: bytes


def run_of(entries: Sequence[Small]) -> tuple[list[Small], int]:
    """Neighbours worth joining, and the offset before which nothing will ever be.

    A run is worth it when it cannot grow, when it makes a large entry, or when it is of many; and when its largest is
    at most half of it: so what a row lies in at least doubles each time, and it is written some ten times in all, not
    once for each neighbour that comes.
    """
    run: list[Small] = []
    done = entries[0].first if entries else 0
    size = rows = 0
    for entry in entries:
        end = run[-1].first + run[-1].rows if run else entry.first
        large = entry.bytes >= LARGE_BYTES or entry.rows >= JOINED_ROWS // 2
        # Rows before one that waits for another log must not wait with it: they may be what that log waits for.
        fits = size + entry.bytes <= JOINED_BYTES and rows + entry.rows <= JOINED_ROWS and not (entry.after and run)
        if run and (large or not fits or entry.first != end or len(run) == RUN_ENTRIES):
            if len(run) > 1:
                return run, done  # it cannot grow any more
            run, done, size, rows = [], entry.first, 0, 0
        if large:
            done = entry.first + entry.rows
            continue
        run.append(entry)
        size += entry.bytes
        rows += entry.rows
    while run and not _worth(run):
        sizes = [item.bytes for item in run]
        largest = sizes.index(max(sizes))
        if len(run) < RUN_WORTH:
            return [], done
        run = run[largest + 1 :]
    return run, done


def _worth(run: list[Small]) -> bool:
    sizes = [entry.bytes for entry in run]
    total = sum(sizes)
    enough = total >= LARGE_BYTES or sum(entry.rows for entry in run) >= JOINED_ROWS // 2 or len(run) >= RUN_WORTH
    return len(run) > 1 and enough and max(sizes) * 2 <= total


def join(entries: Sequence[Joint], schemas: dict[int, Schema], fingerprints: Sequence[int]) -> tuple[Joint, int] | None:
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
    try:
        batch = Batch.concat([Batch.trusted(entry.data, schema) for entry in run])
    except MilepostError:
        return None  # together they are over a limit of batches
    made = Joint(run[0].first, len(batch), run[0].first_us, run[-1].last_us, _times(run), bytes(batch))
    return made, count


def _times(run: Sequence[Joint]) -> bytes:
    """Where each of the entries began, and when it was stored; neighbours of one time are told once."""
    pairs: list[tuple[int, int]] = []
    base = run[0].first
    for entry in run:
        known = TIME.iter_unpack(entry.times) if entry.times else [(0, entry.first_us)]
        for row, time_us in known:
            if not pairs or pairs[-1][1] != time_us:
                pairs.append((entry.first - base + row, time_us))
    return b"".join(TIME.pack(*pair) for pair in pairs)
