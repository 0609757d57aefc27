"""The kernel that asks an index: for each row, which entries of all segments hold.

A segment is handed over as one row of numbers, mostly addresses of its arrays: a snapshot has a few dozen segments with
twenty arrays each, and passing them as arguments would cost more than asking them. Who calls keeps the arrays alive.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic

from milepost.match.kernel import kernel, part

NULL = -(1 << 63)

# What stands where in the row of a segment. The arrays themselves are described in `segment`.
(
    ENTRY, FIRST_COLUMN, FIRST_LOW, FIRST_HIGH, REST_START, REST_COLUMN, REST_LOW, REST_HIGH, TARGETS, DIED,
    SLOTS, SLOT_MASK, CLUSTERS, EQUAL_COLUMNS, EQUAL_COUNT, GRIDS, GRID_COUNT, BOUNDS, BUCKETS, ALWAYS, ALWAYS_END,
) = range(21)  # fmt: skip
WIDTH = 21

_ANY = 1 << 40  # the length of an array whose length nobody looks at


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def _at(typing: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


@part
def _ints(address: Any) -> Any:
    return carray(_at(address), (_ANY,), np.int32)


@part
def _longs(address: Any) -> Any:
    return carray(_at(address), (_ANY,), np.int64)


@part
def mixed(column: Any, code: Any) -> Any:
    """A hash of a column and a code."""
    word = np.uint64(code) + np.uint64(column) * np.uint64(0x9E3779B97F4A7C15)
    word ^= word >> np.uint64(32)
    word *= np.uint64(0xD6E8FEB86659FD93)
    word ^= word >> np.uint64(29)
    return np.int64(word & np.uint64(0x7FFFFFFFFFFFFFFF))


@part
def _scan(segment: Any, begin: Any, end: Any, codes: Any, now: Any, out: Any, used: Any) -> Any:
    """Append the targets of the postings from `begin` to `end` that hold; -1 when there is no room."""
    first_column, first_low, first_high = (
        _ints(segment[FIRST_COLUMN]), _longs(segment[FIRST_LOW]), _longs(segment[FIRST_HIGH])
    )  # fmt: skip
    for posting in range(begin, end):
        code = codes[first_column[posting]]
        if (code >= first_low[posting]) & (code <= first_high[posting]):
            rest_start = _ints(segment[REST_START])
            rest_column = _ints(segment[REST_COLUMN])
            rest_low, rest_high = _longs(segment[REST_LOW]), _longs(segment[REST_HIGH])
            holds = True
            for term in range(rest_start[posting], rest_start[posting + 1]):
                column = rest_column[term]
                if column >= 0:
                    code = codes[column]
                    if (code < rest_low[term]) | (code > rest_high[term]):
                        holds = False
                        break
                else:
                    code = codes[~column]
                    if code == NULL or ((code >= rest_low[term]) & (code <= rest_high[term])):
                        holds = False
                        break
            if holds:
                entry = _ints(segment[ENTRY])[posting]
                if _longs(segment[DIED])[entry] > now:
                    if used >= len(out):
                        return np.int64(-1)
                    out[used] = _ints(segment[TARGETS])[entry]
                    used += 1
    return used


@part
def _rank(bounds: Any, begin: Any, count: Any, code: Any) -> Any:
    """How many of `count` sorted bounds are not above a code."""
    low, high = np.int64(0), np.int64(count)
    while low < high:
        middle = (low + high) >> 1
        if bounds[begin + middle] <= code:
            low = middle + 1
        else:
            high = middle
    return low


@part
def _row(segment: Any, codes: Any, now: Any, out: Any, used: Any) -> Any:
    """One row against one segment."""
    mask = segment[SLOT_MASK]
    if segment[EQUAL_COUNT] > 0:
        columns, slots, clusters = _ints(segment[EQUAL_COLUMNS]), _longs(segment[SLOTS]), _ints(segment[CLUSTERS])
        for i in range(segment[EQUAL_COUNT]):
            column = np.int64(columns[i])
            code = codes[column]
            at = mixed(column, code) & mask
            while slots[2 * at + 1] >= 0:
                found = slots[2 * at + 1]
                if slots[2 * at] == code and (found >> 32) == column:
                    cluster = found & 0xFFFFFFFF
                    used = _scan(segment, clusters[cluster], clusters[cluster + 1], codes, now, out, used)
                    if used < 0:
                        return used
                    break
                at = (at + 1) & mask
    if segment[GRID_COUNT] > 0:
        grids, bounds, buckets = _longs(segment[GRIDS]), _longs(segment[BOUNDS]), _ints(segment[BUCKETS])
        for i in range(segment[GRID_COUNT]):
            code = codes[grids[5 * i]]
            if code == NULL:
                continue
            count = grids[5 * i + 2]
            rank = _rank(bounds, grids[5 * i + 1], count, code)
            base = grids[5 * i + 3]
            levels = grids[5 * i + 4]
            level = 0
            while levels >> level:
                if (levels >> level) & 1:
                    # An interval is filed under the bucket of its low end, and reaches into the next at most.
                    bucket = base + (rank >> level)
                    begin = buckets[bucket - 1] if rank >> level else buckets[bucket]
                    used = _scan(segment, begin, buckets[bucket + 1], codes, now, out, used)
                    if used < 0:
                        return used
                base += (count >> level) + 1
                level += 1
    return _scan(segment, segment[ALWAYS], segment[ALWAYS_END], codes, now, out, used)


@kernel("UniTuple(i8, 2)(i8[:,::1], i8, i8[:,::1], i8, i8, i8[::1], i4[::1])")
def probe(segments: Any, now: Any, codes: Any, row: Any, used: Any, offsets: Any, out: Any) -> Any:
    """Fill `offsets` and `out`, the targets of each row, from `row` on, of which `used` are there already.

    Gives the first row that is not done, because `out` was full, and how much of it is used.
    """
    while row < len(codes):
        here = used
        for i in range(len(segments)):
            here = _row(segments[i], codes[row], now, out, here)
            if here < 0:
                return row, used
        used = here
        row += 1
        offsets[row] = used
    return row, used
