"""The kernels that search an index: for each row, the entries of all segments that hold."""

from __future__ import annotations

from typing import Any

import numpy as np

from milepost.kernels.kernel import kernel, part

from milepost.match.scan import (  # fmt: skip  # isort: skip
    ALWAYS, ALWAYS_END, BLOCK, BOUNDS, BUCKETS, CLUSTERS, EQUAL_COLUMNS, EQUAL_COUNT, FEW, GRID_COUNT, GRIDS, NULL,
    SCRATCH, SLOT_MASK, SLOTS, SORTED, WIDTH, address, ints, longs, near_row, roomy, scan_all, scan_cluster, scan_few,
    scan_new,
)  # fmt: skip

REACH = 4  # further buckets that an interval may cover
CHUNK = 8192  # rows that are processed together at most
CHUNK_LEAST = 256  # … and at least
CHUNK_PAIRS = 1 << 19  # pairs of row and target that a chunk should find: they stay in a cache until they are sorted


@part
def mixed(column: Any, code: Any) -> Any:
    """A hash of a column and a code."""
    word = np.uint64(code) + np.uint64(column) * np.uint64(0x9E3779B97F4A7C15)
    word ^= word >> np.uint64(32)
    word *= np.uint64(0xD6E8FEB86659FD93)
    word ^= word >> np.uint64(29)
    return np.int64(word & np.uint64(0x7FFFFFFFFFFFFFFF))


@part
def _cluster(segment: Any, column: Any, code: Any) -> Any:
    """The number of the cluster of a column and a code; -1 when there is none."""
    slots, mask = longs(segment[SLOTS]), segment[SLOT_MASK]
    at = mixed(column, code) & mask
    while slots[2 * at + 1] >= 0:
        if slots[2 * at] == code and (slots[2 * at + 1] >> 32) == column:
            return slots[2 * at + 1] & 0xFFFFFFFF
        at = (at + 1) & mask
    return np.int64(-1)


@part
def rank_of(bounds: Any, begin: Any, count: Any, code: Any) -> Any:
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
    """The targets of each row, row by row: for few rows, or few subscriptions.

    Returns offsets and targets; `expected` is an estimate of the number of targets.
    """
    offsets = np.zeros(len(codes) + 1, np.int64)
    out = np.empty(expected + BLOCK, np.int32)
    used = np.int64(0)
    near, scratch = np.empty((1, codes.shape[1]), np.int16), np.empty(SCRATCH, np.uint64)
    rows, run_list = np.empty(1, np.int32), np.empty(4, np.int32)
    for row in range(len(codes)):
        rows[0] = row
        desk = (address(codes), address(near), address(scratch), codes.shape[1], row, now)
        for s in range(len(segments)):
            segment_at = address(segments) + 8 * WIDTH * s
            segment = longs(segment_at)
            if not segment[SORTED]:
                out = roomy(out, used, segment[ALWAYS_END])
                used = scan_new(segment_at, desk, row, address(out), used)
                continue
            fresh = True  # the near codes of this row are not computed yet, and may not be needed
            if segment[GRID_COUNT] > 0 or segment[ALWAYS] < segment[ALWAYS_END]:
                near_row(segment_at, codes, row, near, 0)
                fresh = False
            if segment[EQUAL_COUNT] > 0:
                columns, clusters = ints(segment[EQUAL_COLUMNS]), ints(segment[CLUSTERS])
                for i in range(segment[EQUAL_COUNT]):
                    cluster = _cluster(segment, np.int64(columns[i]), codes[row, columns[i]])
                    if cluster < 0:
                        continue
                    begin, end = np.int64(clusters[cluster]), np.int64(clusters[cluster + 1])
                    if end - begin <= FEW:
                        out = roomy(out, used, FEW)
                        used = scan_few(segment_at, begin, end, desk, row, address(out), used)
                    else:
                        if fresh:
                            near_row(segment_at, codes, row, near, 0)
                            fresh = False
                        out, used, run_list, _ = scan_cluster(segment_at, cluster, desk, rows, out, used, run_list, 0)
            for i in range(segment[GRID_COUNT]):
                grid = 5 * i
                grids, buckets = longs(segment[GRIDS]), ints(segment[BUCKETS])
                code = codes[row, grids[grid]]
                if code != NULL:
                    rank = rank_of(longs(segment[BOUNDS]), grids[grid + 1], grids[grid + 2], code)
                    base = grids[grid + 3]
                    level = 0
                    while grids[grid + 4] >> level:
                        if (grids[grid + 4] >> level) & 1:
                            # An interval is filed under the bucket of its low end.
                            number = rank >> level
                            begin = np.int64(buckets[base + max(number - REACH, 0)])
                            end = np.int64(buckets[base + number + 1])
                            out, used, run_list, _ = scan_all(
                                segment_at, begin, end, desk, rows, out, used, run_list, 0
                            )
                        base += (grids[grid + 2] >> level) + 1
                        level += 1
            out, used, run_list, _ = scan_all(
                segment_at, segment[ALWAYS], segment[ALWAYS_END], desk, rows, out, used, run_list, 0
            )
        offsets[row + 1] = used
    return offsets, out[:used]


@part
def _by_code(codes: Any, column: Any, first: Any, count: Any, table: Any, order: Any, starts: Any, values: Any) -> Any:
    """Group rows from `first` on by their code in a column; returns the number of groups.

    `table` has room for twice the rows.
    """
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


@kernel("Tuple((i8[::1], i4[::1]))(i8[:,::1], i8, i8[:,::1], i8)")
def sweep(segments: Any, now: Any, codes: Any, expected: Any) -> Any:
    """The result of `probe`, for many rows and many subscriptions: rows with the same postings are tested together.

    A cluster of a large index is in no cache. Fetching it once for all rows of a chunk, not for each row, is most of
    the gain.
    """
    n, width = codes.shape
    chunk = min(n, max(CHUNK_LEAST, min(CHUNK, CHUNK_PAIRS * n // (expected + 1))))
    slots = np.int64(4)
    while slots < 2 * chunk:
        slots *= 2
    table = np.empty(slots, np.int32)
    orders, starts = np.empty((width, chunk), np.int32), np.empty((width, chunk + 1), np.int32)
    values, groups = np.empty((width, chunk), np.int64), np.empty(width, np.int64)
    ranks, order, near = np.empty(chunk, np.int32), np.empty(chunk, np.int32), np.empty((chunk, width), np.int16)
    scratch = np.empty(SCRATCH, np.uint64)
    out, run_list = np.empty(CHUNK_PAIRS, np.int32), np.empty(CHUNK_PAIRS // 2, np.int32)
    offsets, targets, place = np.zeros(n + 1, np.int64), np.empty(expected + 1, np.int32), np.empty(chunk, np.int64)
    everything = np.arange(n).astype(np.int32)
    for first in range(0, n, chunk):
        count = min(chunk, n - first)
        used = runs = np.int64(0)
        groups[:] = -1
        desk = (address(codes), address(near), address(scratch), width, first, now)
        for s in range(len(segments)):
            segment_at = address(segments) + 8 * WIDTH * s
            segment = longs(segment_at)
            if not segment[SORTED]:
                for row in range(first, first + count):
                    out, run_list = roomy(out, used, segment[ALWAYS_END]), roomy(run_list, 2 * runs, 2)
                    used = scan_new(segment_at, desk, row, address(out), used)
                    run_list[2 * runs], run_list[2 * runs + 1] = row, used
                    runs += 1
                continue
            for row in range(count):
                near_row(segment_at, codes, first + row, near, row)
            for i in range(segment[EQUAL_COUNT]):
                column = np.int64(ints(segment[EQUAL_COLUMNS])[i])
                if groups[column] < 0:
                    groups[column] = _by_code(
                        codes, column, first, count, table, orders[column], starts[column], values[column]
                    )
                for group in range(groups[column]):
                    cluster = _cluster(segment, column, values[column, group])
                    if cluster >= 0:
                        rows = orders[column, starts[column, group] : starts[column, group + 1]]
                        out, used, run_list, runs = scan_cluster(
                            segment_at, cluster, desk, rows, out, used, run_list, runs
                        )
            for i in range(segment[GRID_COUNT]):
                grid = 5 * i
                grids, buckets, bounds = longs(segment[GRIDS]), ints(segment[BUCKETS]), longs(segment[BOUNDS])
                column, size = grids[grid], grids[grid + 2]
                of_rank = np.zeros(size + 3, np.int32)
                for row in range(count):
                    code = codes[first + row, column]
                    ranks[row] = -1 if code == NULL else rank_of(bounds, grids[grid + 1], size, code)
                    of_rank[ranks[row] + 2] += 1
                for rank in range(size + 2):
                    of_rank[rank + 1] += of_rank[rank]
                filled = of_rank.copy()
                for row in range(count):
                    order[filled[ranks[row] + 1]] = first + row
                    filled[ranks[row] + 1] += 1
                # of_rank[rank + 1] is where the rows of a rank start; rows without a value come first
                base = grids[grid + 3]
                level = 0
                while grids[grid + 4] >> level:
                    if (grids[grid + 4] >> level) & 1:
                        for number in range((size >> level) + 1):
                            low, high = number << level, min((number + 1) << level, size + 1)
                            rows = order[of_rank[low + 1] : of_rank[high + 1]]
                            begin = np.int64(buckets[base + max(number - REACH, 0)])
                            end = np.int64(buckets[base + number + 1])
                            if len(rows):
                                out, used, run_list, runs = scan_all(
                                    segment_at, begin, end, desk, rows, out, used, run_list, runs
                                )
                    base += (size >> level) + 1
                    level += 1
            rows = everything[first : first + count]
            out, used, run_list, runs = scan_all(
                segment_at, segment[ALWAYS], segment[ALWAYS_END], desk, rows, out, used, run_list, runs
            )
        # Sort the runs, which are in the order they were found, by row.
        since = np.int64(0)
        for run in range(runs):
            row, end = run_list[2 * run], np.int64(run_list[2 * run + 1])
            offsets[row + 1] += end - since
            since = end
        for row in range(first, first + count):
            offsets[row + 1] += offsets[row]
            place[row - first] = offsets[row]
        targets = roomy(targets, offsets[first], used)
        since = np.int64(0)
        for run in range(runs):
            row, end = run_list[2 * run] - first, np.int64(run_list[2 * run + 1])
            # Arrays that start there, as in `_scan`.
            source, goal = ints(address(out) + 4 * since), ints(address(targets) + 4 * place[row])
            for i in range(end - since):
                goal[i] = source[i]
            place[row] += end - since
            since = end
    return offsets, targets[: offsets[n]]
