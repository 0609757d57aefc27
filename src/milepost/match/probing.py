"""The kernel that asks an index: for each row, which entries of all segments hold.

A segment is handed over as one row of numbers, mostly addresses of its arrays: a snapshot has a few dozen segments with
twenty arrays each, and passing them as arguments would cost more than asking them. Who calls keeps the arrays alive.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from milepost.match.kernel import kernel, part

NULL = -(1 << 63)

# What stands where in the row of a segment. The arrays themselves are described in `segment`.
(
    ENTRY, FIRST_COLUMN, FIRST_LOW, FIRST_HIGH, SECOND_COLUMN, SECOND_LOW, SECOND_HIGH,
    REST_START, REST_COLUMN, REST_LOW, REST_HIGH, TARGETS, DIED, SLOTS, SLOT_MASK, CLUSTERS,
    EQUAL_COLUMNS, EQUAL_COUNT, GRIDS, GRID_COUNT, BOUNDS, BUCKETS, ALWAYS, ALWAYS_END, SORTED,
) = range(25)  # fmt: skip
WIDTH = 25
REACH = 4  # buckets behind its own that an interval may reach into

BLOCK = 256  # postings that are tested together: what is read of them fits the nearest cache
CHUNK = 8192  # rows that are ordered together

_numba: Any = import_module("numba")
_extending: Any = import_module("numba.extending")
_cgutils: Any = import_module("numba.core.cgutils")
carray: Any = _numba.carray

_ANY = 1 << 40  # the length of an array whose length nobody looks at


def _pointer(typing: Any, address: Any) -> Any:
    """For Numba: how an address becomes a pointer."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], _cgutils.voidptr_t)

    return _numba.types.voidptr(address), generate


_at: Any = _extending.intrinsic(_pointer)


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
def _holds(segment: Any, begin: Any, end: Any, codes: Any) -> Any:
    """Whether the terms from the third on, and the negated ones, hold."""
    columns, lows, highs = _ints(segment[REST_COLUMN]), _longs(segment[REST_LOW]), _longs(segment[REST_HIGH])
    for term in range(begin, end):
        column = columns[term]
        if column >= 0:
            code = codes[column]
            if (code < lows[term]) | (code > highs[term]):
                return False
        else:
            code = codes[~column]
            if code == NULL or ((code >= lows[term]) & (code <= highs[term])):
                return False
    return True


@part
def _scan(segment: Any, begin: Any, end: Any, codes: Any, now: Any, out: Any, used: Any, hits: Any, some: Any) -> Any:
    """Append the targets of the postings from `begin` to `end`, at most `BLOCK`, that hold; there is room for all.

    First and second terms are tested without a branch, since nobody could predict it, and only the postings that are
    left are looked at further.
    """
    # Arrays that start at `begin`, and not indexes that do: only so the compiler tests several postings at a time.
    size = end - begin
    columns = carray(_at(segment[FIRST_COLUMN] + 4 * begin), (size,), np.int32)
    lows = carray(_at(segment[FIRST_LOW] + 8 * begin), (size,), np.int64)
    highs = carray(_at(segment[FIRST_HIGH] + 8 * begin), (size,), np.int64)
    left = 0
    if size > 16 and columns[0] == columns[size - 1] and segment[SORTED]:
        # They are sorted by column within a cluster, so it is one for all.
        code = codes[columns[0]]
        for i in range(size):
            hits[i] = (code >= lows[i]) & (code <= highs[i])
        for i in range(size):
            some[left] = i
            left += hits[i]
    else:
        for i in range(size):
            code = codes[columns[i]]
            some[left] = i
            left += (code >= lows[i]) & (code <= highs[i])
    if not left:
        return used
    columns = carray(_at(segment[SECOND_COLUMN] + 4 * begin), (size,), np.int32)
    lows = carray(_at(segment[SECOND_LOW] + 8 * begin), (size,), np.int64)
    highs = carray(_at(segment[SECOND_HIGH] + 8 * begin), (size,), np.int64)
    tested = left
    left = 0
    for k in range(tested):
        i = some[k]
        code = codes[columns[i]]
        some[left] = i
        left += (code >= lows[i]) & (code <= highs[i])
    if not left:
        return used
    rest_start = carray(_at(segment[REST_START] + 4 * begin), (size + 1,), np.int32)
    entries = carray(_at(segment[ENTRY] + 4 * begin), (size,), np.int32)
    died, targets = _longs(segment[DIED]), _ints(segment[TARGETS])
    for k in range(left):
        i = some[k]
        if rest_start[i] == rest_start[i + 1] or _holds(segment, rest_start[i], rest_start[i + 1], codes):
            entry = entries[i]
            out[used] = targets[entry]
            used += died[entry] > now
    return used


@part
def _cluster(segment: Any, column: Any, code: Any) -> Any:
    """The number of the cluster of a column and a code; -1 when there is none."""
    slots, mask = _longs(segment[SLOTS]), segment[SLOT_MASK]
    at = mixed(column, code) & mask
    while slots[2 * at + 1] >= 0:
        if slots[2 * at] == code and (slots[2 * at + 1] >> 32) == column:
            return slots[2 * at + 1] & 0xFFFFFFFF
        at = (at + 1) & mask
    return np.int64(-1)


@part
def _roomy(out: Any, used: Any, more: Any) -> Any:
    """An array with room for `more`."""
    if used + more + 1 <= len(out):
        return out
    larger = np.empty(max(2 * len(out), used + more + 1), np.int32)
    larger[:used] = out[:used]
    return larger


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


@kernel("Tuple((i8[::1], i4[::1]))(i8[:,::1], i8, i8[:,::1], i8)")
def probe(segments: Any, now: Any, codes: Any, expected: Any) -> Any:
    """The targets of each row, one row after the other: for few rows, or few subscriptions.

    Gives offsets and targets; `expected` is how many there may be.
    """
    offsets = np.zeros(len(codes) + 1, np.int64)
    out = np.empty(expected + BLOCK, np.int32)
    used = np.int64(0)
    hits, some = np.empty(BLOCK, np.uint8), np.empty(BLOCK + 1, np.int32)
    for row in range(len(codes)):
        mine = codes[row]
        for s in range(len(segments)):
            segment = segments[s]
            if segment[EQUAL_COUNT] > 0:
                columns, clusters = _ints(segment[EQUAL_COLUMNS]), _ints(segment[CLUSTERS])
                for i in range(segment[EQUAL_COUNT]):
                    column = np.int64(columns[i])
                    cluster = _cluster(segment, column, mine[column])
                    if cluster >= 0:
                        begin, end = np.int64(clusters[cluster]), np.int64(clusters[cluster + 1])
                        out = _roomy(out, used, end - begin)
                        for at in range(begin, end, BLOCK):
                            used = _scan(segment, at, min(at + BLOCK, end), mine, now, out, used, hits, some)
            for i in range(segment[GRID_COUNT]):
                grid = 5 * i
                grids, buckets = _longs(segment[GRIDS]), _ints(segment[BUCKETS])
                code = mine[grids[grid]]
                if code != NULL:
                    rank = _rank(_longs(segment[BOUNDS]), grids[grid + 1], grids[grid + 2], code)
                    base = grids[grid + 3]
                    level = 0
                    while grids[grid + 4] >> level:
                        if (grids[grid + 4] >> level) & 1:
                            # An interval is filed under the bucket of its low end.
                            number = rank >> level
                            begin = np.int64(buckets[base + max(number - REACH, 0)])
                            end = np.int64(buckets[base + number + 1])
                            out = _roomy(out, used, end - begin)
                            for at in range(begin, end, BLOCK):
                                used = _scan(segment, at, min(at + BLOCK, end), mine, now, out, used, hits, some)
                        base += (grids[grid + 2] >> level) + 1
                        level += 1
            begin, end = segment[ALWAYS], segment[ALWAYS_END]
            if begin < end:
                out = _roomy(out, used, end - begin)
                for at in range(begin, end, BLOCK):
                    used = _scan(segment, at, min(at + BLOCK, end), mine, now, out, used, hits, some)
        offsets[row + 1] = used
    return offsets, out[:used].copy()


@part
def _by_code(codes: Any, column: Any, first: Any, count: Any, table: Any, order: Any, starts: Any, values: Any) -> Any:
    """Rows from `first` on in groups of one code in a column; how many groups. `table` has room for twice the rows."""
    mask = len(table) - 1
    table[:] = -1
    groups = 0
    group_of = np.empty(count, np.int32)
    starts[: count + 1] = 0
    for row in range(count):
        code = codes[first + row, column]
        at = mixed(column, code) & mask
        while table[at] >= 0 and values[table[at]] != code:
            at = (at + 1) & mask
        if table[at] < 0:
            table[at] = groups
            values[groups] = code
            groups += 1
        group_of[row] = table[at]
        starts[table[at] + 1] += 1
    for group in range(groups):
        starts[group + 1] += starts[group]
    place = starts[:groups].copy()
    for row in range(count):
        order[place[group_of[row]]] = first + row
        place[group_of[row]] += 1
    return groups


@part
def _tested(
    segment: Any, begin: Any, end: Any, rows: Any, codes: Any, now: Any, out: Any, out_rows: Any, used: Any, hits: Any,
    some: Any,
) -> Any:  # fmt: skip
    """A block of postings against several rows: it stays in the nearest cache meanwhile."""
    for i in range(len(rows)):
        before = used
        used = _scan(segment, begin, end, codes[rows[i]], now, out, used, hits, some)
        for k in range(before, used):
            out_rows[k] = rows[i]
    return used


@kernel("Tuple((i8[::1], i4[::1]))(i8[:,::1], i8, i8[:,::1], i8)")
def sweep(segments: Any, now: Any, codes: Any, expected: Any) -> Any:
    """What `probe` gives, for many rows and many subscriptions: rows that lead to the same postings go there together.

    A cluster of a large index is far away from the processor. Fetching it once for all rows of a chunk, and not for
    each, is most of the difference between the two.
    """
    n, width = codes.shape
    chunk = min(n, CHUNK)
    slots = np.int64(4)
    while slots < 2 * chunk:
        slots *= 2
    table = np.empty(slots, np.int32)
    orders, starts = np.empty((width, chunk), np.int32), np.empty((width, chunk + 1), np.int32)
    values, groups = np.empty((width, chunk), np.int64), np.empty(width, np.int64)
    ranks, order = np.empty(chunk, np.int32), np.empty(chunk, np.int32)
    hits, some = np.empty(BLOCK, np.uint8), np.empty(BLOCK + 1, np.int32)
    out, out_rows = np.empty(expected + BLOCK, np.int32), np.empty(expected + BLOCK, np.int32)
    used = np.int64(0)
    everything = np.arange(n).astype(np.int32)
    for first in range(0, n, chunk):
        count = min(chunk, n - first)
        groups[:] = -1
        for s in range(len(segments)):
            segment = segments[s]
            for i in range(segment[EQUAL_COUNT]):
                column = np.int64(_ints(segment[EQUAL_COLUMNS])[i])
                clusters = _ints(segment[CLUSTERS])
                if groups[column] < 0:
                    groups[column] = _by_code(
                        codes, column, first, count, table, orders[column], starts[column], values[column]
                    )
                for group in range(groups[column]):
                    cluster = _cluster(segment, column, values[column, group])
                    if cluster >= 0:
                        begin, end = np.int64(clusters[cluster]), np.int64(clusters[cluster + 1])
                        rows = orders[column, starts[column, group] : starts[column, group + 1]]
                        for at in range(begin, end, BLOCK):
                            stop = min(at + BLOCK, end)
                            out = _roomy(out, used, BLOCK * len(rows))
                            out_rows = _roomy(out_rows, used, BLOCK * len(rows))
                            used = _tested(segment, at, stop, rows, codes, now, out, out_rows, used, hits, some)
            for i in range(segment[GRID_COUNT]):
                grid = 5 * i
                grids, buckets, bounds = _longs(segment[GRIDS]), _ints(segment[BUCKETS]), _longs(segment[BOUNDS])
                column, size = grids[grid], grids[grid + 2]
                of_rank = np.zeros(size + 3, np.int32)
                for row in range(count):
                    code = codes[first + row, column]
                    ranks[row] = -1 if code == NULL else _rank(bounds, grids[grid + 1], size, code)
                    of_rank[ranks[row] + 2] += 1
                for rank in range(size + 2):
                    of_rank[rank + 1] += of_rank[rank]
                filled = of_rank.copy()
                for row in range(count):
                    order[filled[ranks[row] + 1]] = first + row
                    filled[ranks[row] + 1] += 1
                # of_rank[rank + 1] is where the rows of a rank start, those without a value before all others
                base = grids[grid + 3]
                level = 0
                while grids[grid + 4] >> level:
                    if (grids[grid + 4] >> level) & 1:
                        for number in range((size >> level) + 1):
                            low, high = number << level, min((number + 1) << level, size + 1)
                            rows = order[of_rank[low + 1] : of_rank[high + 1]]
                            begin = np.int64(buckets[base + max(number - REACH, 0)])
                            end = np.int64(buckets[base + number + 1])
                            if len(rows) and begin < end:
                                for at in range(begin, end, BLOCK):
                                    stop = min(at + BLOCK, end)
                                    out = _roomy(out, used, BLOCK * len(rows))
                                    out_rows = _roomy(out_rows, used, BLOCK * len(rows))
                                    used = _tested(segment, at, stop, rows, codes, now, out, out_rows, used, hits, some)
                    base += (size >> level) + 1
                    level += 1
            begin, end = segment[ALWAYS], segment[ALWAYS_END]
            if begin < end:
                rows = everything[first : first + count]
                for at in range(begin, end, BLOCK):
                    stop = min(at + BLOCK, end)
                    out = _roomy(out, used, BLOCK * len(rows))
                    out_rows = _roomy(out_rows, used, BLOCK * len(rows))
                    used = _tested(segment, at, stop, rows, codes, now, out, out_rows, used, hits, some)
    offsets = np.zeros(n + 1, np.int64)
    for i in range(used):
        offsets[out_rows[i] + 1] += 1
    for row in range(n):
        offsets[row + 1] += offsets[row]
    place = offsets[:-1].copy()
    targets = np.empty(used, np.int32)
    for i in range(used):
        targets[place[out_rows[i]]] = out[i]
        place[out_rows[i]] += 1
    return offsets, targets
