"""The kernel that asks an index: for each row, which entries of all segments hold.

A segment is handed over as one row of numbers, mostly addresses of its arrays: a snapshot has a few dozen segments with
twenty arrays each, and passing them as arguments would cost more than asking them. Who calls keeps the arrays alive.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from milepost.kernels.kernel import kernel, part

NULL = -(1 << 63)

# What stands where in the row of a segment. The arrays themselves are described in `segment`.
(
    ENTRY, FIRST_COLUMN, FIRST_LOW, FIRST_HIGH, SECOND_COLUMN, SECOND_LOW, SECOND_HIGH,
    REST_START, REST_COLUMN, REST_LOW, REST_HIGH, TARGETS, DIED, SLOTS, SLOT_MASK, CLUSTERS,
    EQUAL_COLUMNS, EQUAL_COUNT, GRIDS, GRID_COUNT, BOUNDS, BUCKETS, ALWAYS, ALWAYS_END, SORTED,
    LEAST_LOW, GREATEST_HIGH,
) = range(27)  # fmt: skip
WIDTH = 27
REACH = 4  # buckets behind its own that an interval may reach into

BLOCK = 256  # postings that are tested together, a power of two: what is read of them fits the nearest cache
CHUNK = 8192  # rows that are ordered together at most
CHUNK_LEAST = 256  # … and at least
CHUNK_PAIRS = 1 << 19  # of row and target that a chunk should find: they stay in a cache until they are in order

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
def _holds(segment: Any, begin: Any, end: Any, codes: Any, row: Any) -> Any:
    """Whether the terms from the third on, and the negated ones, hold."""
    columns, lows, highs = _ints(segment[REST_COLUMN]), _longs(segment[REST_LOW]), _longs(segment[REST_HIGH])
    for term in range(begin, end):
        column = columns[term]
        if column >= 0:
            code = codes[row, column]
            if (code < lows[term]) | (code > highs[term]):
                return False
        else:
            code = codes[row, ~column]
            if code == NULL or ((code >= lows[term]) & (code <= highs[term])):
                return False
    return True


@part
def _scan(
    segment: Any, begin: Any, end: Any, codes: Any, row: Any, now: Any, out: Any, used: Any, hits: Any, words: Any,
    some: Any,
) -> Any:  # fmt: skip
    """Append the targets of the postings from `begin` to `end`, at most `BLOCK`, that hold; there is room for all.

    First and second terms are tested without a branch, since nobody could predict it, and only the postings that are
    left are looked at further. `words` are `hits`, eight in one; they and `some` are only there to be written to.
    """
    # Arrays that start at `begin`, and not indexes that do: only so the compiler tests several postings at a time.
    # And no array for the row: making one counts references, which would cost as much as testing ten postings.
    size = end - begin
    columns = carray(_at(segment[FIRST_COLUMN] + 4 * begin), (size,), np.int32)
    lows = carray(_at(segment[FIRST_LOW] + 8 * begin), (size,), np.int64)
    highs = carray(_at(segment[FIRST_HIGH] + 8 * begin), (size,), np.int64)
    left = 0
    if size > 16 and columns[0] == columns[size - 1] and segment[SORTED]:
        # They are sorted by column within a cluster, so it is one for all, and then by their low ends: most blocks of
        # a large cluster are too low or too high as a whole.
        code = codes[row, columns[0]]
        block = begin // BLOCK
        least, greatest = _longs(segment[LEAST_LOW]), _longs(segment[GREATEST_HIGH])
        if block == (end - 1) // BLOCK and (code < least[block] or code > greatest[block]):
            return used
        for i in range(size):
            hits[i] = (code >= lows[i]) & (code <= highs[i])
        for i in range(8):
            hits[size + i] = 0
        for word in range((size + 7) >> 3):
            if words[word]:  # sorted by their low ends, those that hold are mostly neighbours
                for i in range(8 * word, 8 * word + 8):
                    some[left] = i
                    left += hits[i]
    else:
        for i in range(size):
            code = codes[row, columns[i]]
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
        code = codes[row, columns[i]]
        some[left] = i
        left += (code >= lows[i]) & (code <= highs[i])
    if not left:
        return used
    rest_start = carray(_at(segment[REST_START] + 4 * begin), (size + 1,), np.int32)
    entries = carray(_at(segment[ENTRY] + 4 * begin), (size,), np.int32)
    died, targets = _longs(segment[DIED]), _ints(segment[TARGETS])
    for k in range(left):
        i = some[k]
        if rest_start[i] == rest_start[i + 1] or _holds(segment, rest_start[i], rest_start[i + 1], codes, row):
            entry = entries[i]
            out[used] = targets[entry]
            used += died[entry] > now
    return used


@part
def _stop(at: Any, end: Any) -> Any:
    """Where the block ends that begins at `at`: few postings are one, more are cut where the summaries are."""
    return end if end - at <= BLOCK else (at // BLOCK + 1) * BLOCK


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
    words, some = np.empty(BLOCK // 8 + 1, np.uint64), np.empty(BLOCK + 9, np.int32)
    hits = words.view(np.uint8)
    for row in range(len(codes)):
        for s in range(len(segments)):
            segment = segments[s]
            if segment[EQUAL_COUNT] > 0:
                columns, clusters = _ints(segment[EQUAL_COLUMNS]), _ints(segment[CLUSTERS])
                for i in range(segment[EQUAL_COUNT]):
                    column = np.int64(columns[i])
                    cluster = _cluster(segment, column, codes[row, column])
                    if cluster >= 0:
                        begin, end = np.int64(clusters[cluster]), np.int64(clusters[cluster + 1])
                        out = _roomy(out, used, end - begin)
                        at = begin
                        while at < end:
                            stop = _stop(at, end)
                            used = _scan(segment, at, stop, codes, row, now, out, used, hits, words, some)
                            at = stop
            for i in range(segment[GRID_COUNT]):
                grid = 5 * i
                grids, buckets = _longs(segment[GRIDS]), _ints(segment[BUCKETS])
                code = codes[row, grids[grid]]
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
                            at = begin
                            while at < end:
                                stop = _stop(at, end)
                                used = _scan(segment, at, stop, codes, row, now, out, used, hits, words, some)
                                at = stop
                        base += (grids[grid + 2] >> level) + 1
                        level += 1
            begin, end = segment[ALWAYS], segment[ALWAYS_END]
            if begin < end:
                out = _roomy(out, used, end - begin)
                at = begin
                while at < end:
                    stop = _stop(at, end)
                    used = _scan(segment, at, stop, codes, row, now, out, used, hits, words, some)
                    at = stop
        offsets[row + 1] = used
    return offsets, out[:used]


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
    segment: Any, begin: Any, end: Any, rows: Any, codes: Any, now: Any, out: Any, used: Any,
    run_rows: Any, run_ends: Any, runs: Any, hits: Any, words: Any, some: Any,
) -> Any:  # fmt: skip
    """A block of postings against several rows: it stays in the nearest cache meanwhile. What a row finds is a run."""
    for i in range(len(rows)):
        before = used
        used = _scan(segment, begin, end, codes, rows[i], now, out, used, hits, words, some)
        run_rows[runs], run_ends[runs] = rows[i], used
        runs += used > before
    return used, runs


@kernel("Tuple((i8[::1], i4[::1]))(i8[:,::1], i8, i8[:,::1], i8)")
def sweep(segments: Any, now: Any, codes: Any, expected: Any) -> Any:
    """What `probe` gives, for many rows and many subscriptions: rows that lead to the same postings go there together.

    A cluster of a large index is far away from the processor. Fetching it once for all rows of a chunk, and not for
    each, is most of the difference between the two.
    """
    n, width = codes.shape
    chunk = min(n, max(CHUNK_LEAST, min(CHUNK, CHUNK_PAIRS * n // (expected + 1))))
    slots = np.int64(4)
    while slots < 2 * chunk:
        slots *= 2
    table = np.empty(slots, np.int32)
    orders, starts = np.empty((width, chunk), np.int32), np.empty((width, chunk + 1), np.int32)
    values, groups = np.empty((width, chunk), np.int64), np.empty(width, np.int64)
    ranks, order = np.empty(chunk, np.int32), np.empty(chunk, np.int32)
    words, some = np.empty(BLOCK // 8 + 1, np.uint64), np.empty(BLOCK + 9, np.int32)
    hits = words.view(np.uint8)
    out = np.empty(CHUNK_PAIRS, np.int32)
    run_rows, run_ends = np.empty(CHUNK_PAIRS // 4, np.int32), np.empty(CHUNK_PAIRS // 4, np.int32)
    offsets, targets, place = np.zeros(n + 1, np.int64), np.empty(expected + 1, np.int32), np.empty(chunk, np.int64)
    everything = np.arange(n).astype(np.int32)
    for first in range(0, n, chunk):
        count = min(chunk, n - first)
        used = runs = np.int64(0)
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
                        at = begin
                        while at < end:
                            stop = _stop(at, end)
                            out = _roomy(out, used, (stop - at) * len(rows))
                            run_rows = _roomy(run_rows, runs, len(rows))
                            run_ends = _roomy(run_ends, runs, len(rows))
                            used, runs = _tested(
                                segment,
                                at,
                                stop,
                                rows,
                                codes,
                                now,
                                out,
                                used,
                                run_rows,
                                run_ends,
                                runs,
                                hits,
                                words,
                                some,
                            )
                            at = stop
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
                                at = begin
                                while at < end:
                                    stop = _stop(at, end)
                                    out = _roomy(out, used, (stop - at) * len(rows))
                                    run_rows = _roomy(run_rows, runs, len(rows))
                                    run_ends = _roomy(run_ends, runs, len(rows))
                                    used, runs = _tested(
                                        segment,
                                        at,
                                        stop,
                                        rows,
                                        codes,
                                        now,
                                        out,
                                        used,
                                        run_rows,
                                        run_ends,
                                        runs,
                                        hits,
                                        words,
                                        some,
                                    )
                                    at = stop
                    base += (size >> level) + 1
                    level += 1
            begin, end = segment[ALWAYS], segment[ALWAYS_END]
            if begin < end:
                rows = everything[first : first + count]
                at = begin
                while at < end:
                    stop = _stop(at, end)
                    out = _roomy(out, used, (stop - at) * len(rows))
                    run_rows = _roomy(run_rows, runs, len(rows))
                    run_ends = _roomy(run_ends, runs, len(rows))
                    used, runs = _tested(
                        segment, at, stop, rows, codes, now, out, used, run_rows, run_ends, runs, hits, words, some
                    )
                    at = stop
        # Runs in the order in which they were found become targets in the order of rows.
        since = 0
        for run in range(runs):
            offsets[run_rows[run] + 1] += run_ends[run] - since
            since = run_ends[run]
        for row in range(first, first + count):
            offsets[row + 1] += offsets[row]
            place[row - first] = offsets[row]
        targets = _roomy(targets, offsets[first], used)
        since = 0
        for run in range(runs):
            at = place[run_rows[run] - first]
            for i in range(since, run_ends[run]):
                targets[at] = out[i]
                at += 1
            place[run_rows[run] - first] = at
            since = run_ends[run]
    return offsets, targets[: offsets[n]]
