"""Kernels that build a segment from postings, and postings from a segment, by one sort and then by counting.

The input has for each posting its entry, the way to it (`ALWAYS`, `EQUAL`, `RANGE`) and its terms, the access term
first. A term is a column and two codes; a negated term has the complement of the column.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from milepost.kernels.kernel import kernel, part
from milepost.match.access import ALWAYS, EQUAL, RANGE
from milepost.match.probe import REACH, mixed, rank_of
from milepost.match.scan import BLOCK, NEAR_GREATEST, NEAR_NULL, NEAR_STEPS, near_code

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1  # a first term that holds for every code

GRID_BOUNDS = 4096  # bounds of one column at most: with more, buckets would be almost empty at 1 M subscriptions
GRID_POSTINGS = 8  # postings that a bucket should hold: with fewer there would be more buckets than postings
GRID_SAMPLE = 16  # ends of intervals sampled for each bound

ALIKE = 64  # postings with the same two columns, on average, that make it worth cutting a cluster into blocks
SCALE_SAMPLE = 256  # ends of intervals sampled for the scale of a column
SCALE_OUTLIERS = 8  # of these, ends on either side that may fall outside the scale


@part
def _power(least: Any) -> Any:
    size = np.int64(4)
    while size < least:
        size *= 2
    return size


@part
def _file(slots: Any, column: Any, code: Any, next_cluster: Any) -> Any:
    """The cluster of a column and a code; a new one if there is none yet."""
    mask = slots.shape[0] - 1
    at = mixed(column, code) & mask
    while slots[at, 1] >= 0:
        if slots[at, 0] == code and (slots[at, 1] >> 32) == column:
            return slots[at, 1] & 0xFFFFFFFF
        at = (at + 1) & mask
    slots[at, 0] = code
    slots[at, 1] = (np.int64(column) << 32) | next_cluster
    return next_cluster


@part
def _sorted_by(order: Any, group: Any, groups: Any) -> Any:
    """A stable sort of `order` by `group[posting]`, and where each group starts."""
    starts = np.zeros(groups + 1, np.int32)
    for i in range(len(order)):
        starts[group[order[i]] + 1] += 1
    for i in range(groups):
        starts[i + 1] += starts[i]
    place = starts[:-1].copy()
    out = np.empty(len(order), np.int32)
    for i in range(len(order)):
        which = group[order[i]]
        out[place[which]] = order[i]
        place[which] += 1
    return out, starts


@part
def _sorted_by_low(order: Any, first: Any, lows: Any) -> Any:
    """A sort of `order` by the low ends of first terms."""
    ends = np.empty(len(order), np.int64)
    for i in range(len(order)):
        ends[i] = lows[first[order[i]]] if first[order[i]] >= 0 else LOWEST
    return order[np.argsort(ends)]


@part
def _positive(way: Any, begin: Any, end: Any, columns: Any, other: Any) -> Any:
    """The first positive term, other than `other`, that a scan has to check; -1 when there is none.

    For a range it is the access term. The access term of an equality needs no check: the cluster has its code.
    """
    for term in range(begin + 1 if way == EQUAL else begin, end):
        if columns[term] >= 0 and term != other:
            return term
    return np.int64(-1)


@part
def _level(rank_low: Any, rank_high: Any) -> Any:
    """The level on which an interval covers at most `REACH` further buckets."""
    level = 0
    while (rank_high - rank_low) >> level >= REACH:
        level += 1
    return level


@part
def _scales(first: Any, second: Any, columns: Any, lows: Any, highs: Any, width: Any) -> Any:
    """For each column, the least code and the step, a power of two, by which `near_code` distinguishes its codes.

    Also returns whether near codes are exact: then a term holds if it holds in 16 bits.
    """
    exact = np.int64(1)
    counts = np.zeros(width, np.int64)
    for posting in range(len(first)):
        for term in (first[posting], second[posting]):
            if term >= 0:
                counts[columns[term]] += 2
    samples = np.empty((width, SCALE_SAMPLE + 2), np.int64)
    taken, seen = np.zeros(width, np.int64), np.zeros(width, np.int64)
    least, greatest = np.full(width, HIGHEST, np.int64), np.full(width, LOWEST, np.int64)
    for posting in range(len(first)):
        for term in (first[posting], second[posting]):
            if term < 0:
                continue
            column = columns[term]
            if lows[term] == HIGHEST or highs[term] == LOWEST + 1:
                exact = np.int64(0)  # the outermost codes share a near code with their neighbours
            for end in (lows[term], highs[term]):
                seen[column] += 1
                if end > LOWEST + 1 and end < HIGHEST:  # neither null nor open
                    least[column], greatest[column] = min(least[column], end), max(greatest[column], end)
                    if seen[column] * SCALE_SAMPLE >= taken[column] * counts[column] and taken[column] < SCALE_SAMPLE:
                        samples[column, taken[column]] = end
                        taken[column] += 1
    scales = np.zeros((width, 2), np.int64)
    for column in range(width):
        if least[column] > greatest[column]:
            continue
        low, high = least[column], greatest[column]
        if np.uint64(high) - np.uint64(low) > NEAR_STEPS - 1:
            exact = np.int64(0)
            ends = np.sort(samples[column, : taken[column]])
            outliers = taken[column] * SCALE_OUTLIERS // SCALE_SAMPLE
            low, high = ends[outliers], ends[taken[column] - 1 - outliers]
        shift = 0
        while (np.uint64(high) - np.uint64(low)) >> np.uint64(shift) > NEAR_STEPS - 1:
            shift += 1
        scales[column, 0], scales[column, 1] = low, shift
    return scales, exact


@part
def _kinds(first: Any, second: Any, columns: Any, width: Any) -> Any:
    """How many different pairs of columns the first and second terms have, in any order; no term counts as a column."""
    seen = np.zeros((width + 1, width + 1), np.bool_)
    for posting in range(len(first)):
        one = columns[first[posting]] + 1 if first[posting] >= 0 else 0
        other = columns[second[posting]] + 1 if second[posting] >= 0 else 0
        seen[min(one, other), max(one, other)] = True
    return np.count_nonzero(seen)


@part
def _blocks(cluster_starts: Any, large: Any, columns: Any, second_columns: Any, lows: Any, highs: Any) -> Any:
    """The blocks of large clusters: postings with the same two columns, and the extremes of their first terms.

    Returns where the blocks of each cluster start, and for each block its begin, its end, and the two extremes.
    """
    clusters = len(cluster_starts) - 1
    of_cluster = np.zeros(clusters + 1, np.int32)
    blocks = np.empty((0, 4), np.int32)
    for filling in (False, True):
        used = 0
        for cluster in range(clusters):
            of_cluster[cluster] = used
            begin, end = cluster_starts[cluster], cluster_starts[cluster + 1]
            while end - begin > 0 and cluster_starts[cluster + 1] - cluster_starts[cluster] >= large:
                stop = begin
                least, greatest = NEAR_GREATEST, NEAR_NULL
                while (
                    stop < min(end, begin + BLOCK)
                    and columns[stop] == columns[begin]
                    and second_columns[stop] == second_columns[begin]
                ):
                    least, greatest = min(least, lows[stop]), max(greatest, highs[stop])
                    stop += 1
                if filling:
                    blocks[used, 0], blocks[used, 1], blocks[used, 2], blocks[used, 3] = begin, stop, least, greatest
                used += 1
                begin = stop
        of_cluster[clusters] = used
        if not filling:
            blocks = np.empty((used, 4), np.int32)
    return of_cluster, blocks


@kernel(
    "Tuple((i4[::1], u1[::1], i8[::1], i8[::1], u1[::1], i8[::1], i8[::1], i4[::1], i4[::1], i8[::1], i8[::1],"
    " i8[:,::1], i4[::1], i4[::1], i8[:,::1], i8[:,::1], i8[::1], i4[::1], i2[::1], i2[::1],"
    " i2[::1], i2[::1], i2[::1], i2[::1], i8[:,::1], i4[::1], i4[:,::1], i4[::1], i8, i8))"
    "(i4[::1], u1[::1], i4[::1], i4[::1], i8[::1], i8[::1], i8, i8)"
)
def build(entry: Any, way: Any, start: Any, columns: Any, lows: Any, highs: Any, width: Any, entries: Any) -> Any:
    """The arrays of a segment, in the order in which `segment.Segment` names them.

    Entries are renumbered in the order of their postings, so that a scan of postings reads entries in order too.
    """
    count = len(entry)
    equal = ranges = 0
    for posting in range(count):
        equal += way[posting] == EQUAL
        ranges += way[posting] == RANGE

    # Equalities: a cluster for each column and code.
    many = np.empty((_power(2 * equal), 2), np.int64)
    many[:, 1] = -1
    cluster = np.empty(count, np.int32)
    keys = np.empty((equal, 2), np.int64)
    clusters = 0
    dummy = max(width - 1, 0)  # the column of a first term that always holds: the last, to keep columns sorted
    seen_columns = np.zeros(width, np.bool_)
    first, second = np.empty(count, np.int32), np.empty(count, np.int32)
    mine = np.empty(equal, np.int32)
    filled = 0
    for posting in range(count):
        term = start[posting]
        first[posting] = _positive(way[posting], term, start[posting + 1], columns, -1)
        second[posting] = _positive(way[posting], term, start[posting + 1], columns, first[posting])
        if way[posting] == EQUAL:
            found = _file(many, columns[term], lows[term], clusters)
            if found == clusters:
                keys[clusters, 0] = columns[term]
                keys[clusters, 1] = lows[term]
                seen_columns[columns[term]] = True
                clusters += 1
            cluster[posting] = found
            mine[filled] = posting
            filled += 1
    scales, exact = _scales(first, second, columns, lows, highs, max(width, 1))

    # In a large cluster, postings with the same two columns are neighbours.
    sizes = np.zeros(clusters, np.int32)
    for i in range(equal):
        sizes[cluster[mine[i]]] += 1
    large = max(BLOCK, ALIKE * _kinds(first, second, columns, max(width, 1)))
    by_first, by_second = np.empty(count, np.int32), np.zeros(count, np.int32)
    for posting in range(count):
        one, other = first[posting], second[posting]
        if way[posting] == EQUAL and other >= 0 and sizes[cluster[posting]] >= large:
            if columns[one] > columns[other]:
                first[posting], second[posting] = other, one
            by_second[posting] = columns[second[posting]] + 1
        by_first[posting] = columns[first[posting]] if one >= 0 else dummy
    mine = _sorted_by_low(mine, first, lows)
    mine, _ = _sorted_by(mine, by_second, width + 1)
    mine, _ = _sorted_by(mine, by_first, dummy + 1)
    mine, cluster_starts = _sorted_by(mine, cluster, clusters)
    slots = np.empty((_power(2 * clusters), 2), np.int64)
    slots[:, 1] = -1
    for number in range(clusters):
        _file(slots, keys[number, 0], keys[number, 1], number)
    equal_columns = np.flatnonzero(seen_columns).astype(np.int32)

    # Ranges: a grid for each column.
    per_column = np.zeros(width + 1, np.int64)
    for posting in range(count):
        if way[posting] == RANGE:
            per_column[columns[start[posting]]] += 1
    grid_columns = np.flatnonzero(per_column)
    grids = np.zeros((len(grid_columns), 5), np.int64)
    bounds = np.empty(len(grid_columns) * GRID_BOUNDS, np.int64)
    bounds_used = np.int64(0)
    bucket_total = np.int64(0)
    grid_of = np.full(width + 1, -1, np.int64)
    for number in range(len(grid_columns)):
        column = grid_columns[number]
        grid_of[column] = number
        wanted = min(GRID_BOUNDS, max(1, per_column[column] // GRID_POSTINGS))
        ends = np.empty(2 * per_column[column], np.int64)
        step = max(1, 2 * per_column[column] // (wanted * GRID_SAMPLE))
        taken = position = np.int64(0)
        for posting in range(count):
            term = start[posting]
            if way[posting] == RANGE and columns[term] == column:
                if position % step == 0:
                    ends[taken] = lows[term]
                    ends[taken + 1] = highs[term] + 1 if highs[term] < HIGHEST else HIGHEST
                    taken += 2
                position += 2
        ends = np.sort(ends[:taken])
        here = bounds_used
        for i in range(wanted):
            bound = ends[(2 * i + 1) * taken // (2 * wanted)]
            if bounds_used == here or bounds[bounds_used - 1] != bound:
                bounds[bounds_used] = bound
                bounds_used += 1
        size = bounds_used - here
        grids[number, 0], grids[number, 1], grids[number, 2], grids[number, 3] = column, here, size, bucket_total
        level = 0
        while True:
            bucket_total += (size >> level) + 1
            if size >> level == 0:
                break
            level += 1
    bucket = np.empty(count, np.int32)
    spans = np.empty(ranges, np.int32)
    filled = 0
    for posting in range(count):
        if way[posting] == RANGE:
            term = start[posting]
            number = grid_of[columns[term]]
            low = rank_of(bounds, grids[number, 1], grids[number, 2], lows[term])
            high = rank_of(bounds, grids[number, 1], grids[number, 2], highs[term])
            level = _level(low, high)
            base = grids[number, 3]
            for below in range(level):
                base += (grids[number, 2] >> below) + 1
            grids[number, 4] |= np.int64(1) << level
            bucket[posting] = base + (low >> level)
            spans[filled] = posting
            filled += 1
    spans = _sorted_by_low(spans, first, lows)
    spans, bucket_starts = _sorted_by(spans, bucket, bucket_total)
    for i in range(len(bucket_starts)):
        bucket_starts[i] += equal

    # All postings in order: equalities, ranges, and the postings that are always scanned.
    order = np.empty(count, np.int32)
    order[:equal] = mine
    order[equal : equal + ranges] = spans
    always = np.empty(count - equal - ranges, np.int32)
    filled = 0
    for posting in range(count):
        if way[posting] == ALWAYS:
            always[filled] = posting
            filled += 1
    always = _sorted_by_low(always, first, lows)
    always, _ = _sorted_by(always, by_first, dummy + 1)
    order[equal + ranges :] = always
    rest_total = 0
    for posting in range(count):
        rest_total += (
            start[posting + 1]
            - start[posting]
            - (way[posting] == EQUAL)
            - (first[posting] >= 0)
            - (second[posting] >= 0)
        )
    p_entry, p_column = np.empty(count, np.int32), np.empty(count, np.uint8)
    p_low, p_high = np.empty(count, np.int64), np.empty(count, np.int64)
    s_column, s_low, s_high = np.empty(count, np.uint8), np.empty(count, np.int64), np.empty(count, np.int64)
    near_low, near_high = np.empty(count, np.int16), np.empty(count, np.int16)
    near_second_low, near_second_high = np.empty(count, np.int16), np.empty(count, np.int16)
    rest_start = np.empty(count + 1, np.int32)
    rest_column = np.empty(rest_total, np.int32)
    rest_low, rest_high = np.empty(rest_total, np.int64), np.empty(rest_total, np.int64)
    rest = 0
    moved = np.full(entries, -1, np.int32)
    numbered = 0
    for place in range(count):
        posting = order[place]
        if moved[entry[posting]] < 0:
            moved[entry[posting]] = numbered
            numbered += 1
        p_entry[place] = moved[entry[posting]]
        rest_start[place] = rest
        chosen = first[posting]
        if chosen >= 0:
            p_column[place], p_low[place], p_high[place] = columns[chosen], lows[chosen], highs[chosen]
        else:
            p_column[place], p_low[place], p_high[place] = dummy, LOWEST, HIGHEST
        other = second[posting]
        if other >= 0:
            s_column[place], s_low[place], s_high[place] = columns[other], lows[other], highs[other]
        else:
            s_column[place], s_low[place], s_high[place] = 0, LOWEST, HIGHEST
        base, shift = scales[p_column[place], 0], scales[p_column[place], 1]
        near_low[place], near_high[place] = near_code(p_low[place], base, shift), near_code(p_high[place], base, shift)
        base, shift = scales[s_column[place], 0], scales[s_column[place], 1]
        near_second_low[place] = near_code(s_low[place], base, shift)
        near_second_high[place] = near_code(s_high[place], base, shift)
        for term in range(start[posting] + (way[posting] == EQUAL), start[posting + 1]):
            if term != chosen and term != other:
                rest_column[rest], rest_low[rest], rest_high[rest] = columns[term], lows[term], highs[term]
                rest += 1
    rest_start[count] = rest
    for i in range(entries):  # entries without a posting, because nothing can satisfy them
        if moved[i] < 0:
            moved[i] = numbered
            numbered += 1
    parts = (count + BLOCK - 1) // BLOCK
    least, greatest = np.full(parts, NEAR_GREATEST, np.int16), np.full(parts, NEAR_NULL, np.int16)
    for place in range(count):
        least[place // BLOCK] = min(least[place // BLOCK], near_low[place])
        greatest[place // BLOCK] = max(greatest[place // BLOCK], near_high[place])
    cluster_blocks, blocks = _blocks(cluster_starts, large, p_column, s_column, near_low, near_high)
    return (
        p_entry, p_column, p_low, p_high, s_column, s_low, s_high, rest_start, rest_column, rest_low, rest_high,
        slots, cluster_starts, equal_columns, keys[:clusters].copy(),
        grids, bounds[:bounds_used].copy(), bucket_starts, least, greatest,
        near_low, near_high, near_second_low, near_second_high, scales, cluster_blocks, blocks,
        moved, np.int64(equal), exact,
    )  # fmt: skip


@kernel(
    "Tuple((i4[::1], u1[::1], i4[::1], i4[::1], i8[::1], i8[::1]))"
    "(i4[::1], u1[::1], i8[::1], i8[::1], u1[::1], i8[::1], i8[::1], i4[::1], i4[::1], i8[::1], i8[::1], i4[::1],"
    " i8[:,::1], i8, i8, i4[::1])"
)
def unfold(
    p_entry: Any, p_column: Any, p_low: Any, p_high: Any, s_column: Any, s_low: Any, s_high: Any, rest_start: Any,
    rest_column: Any, rest_low: Any, rest_high: Any, cluster_starts: Any, keys: Any, equal: Any, ranges: Any, kept: Any,
) -> Any:  # fmt: skip
    """The postings of a segment's kept entries, as the input of `build`; `kept` has the new number of each entry."""
    count = len(p_entry)
    postings = terms = 0
    for place in range(count):
        if kept[p_entry[place]] >= 0:
            postings += 1
            terms += 3 + rest_start[place + 1] - rest_start[place]
    entry, way = np.empty(postings, np.int32), np.empty(postings, np.uint8)
    start, columns = np.empty(postings + 1, np.int32), np.empty(terms, np.int32)
    lows, highs = np.empty(terms, np.int64), np.empty(terms, np.int64)
    posting = term = cluster = 0
    for place in range(count):
        while cluster < len(keys) and place >= cluster_starts[cluster + 1]:
            cluster += 1
        if kept[p_entry[place]] < 0:
            continue
        entry[posting] = kept[p_entry[place]]
        way[posting] = EQUAL if place < equal else RANGE if place < equal + ranges else ALWAYS
        start[posting] = term
        posting += 1
        if place < equal:
            columns[term], lows[term], highs[term] = keys[cluster, 0], keys[cluster, 1], keys[cluster, 1]
            term += 1
        if p_low[place] != LOWEST or p_high[place] != HIGHEST:
            columns[term], lows[term], highs[term] = p_column[place], p_low[place], p_high[place]
            term += 1
        if s_low[place] != LOWEST or s_high[place] != HIGHEST:
            columns[term], lows[term], highs[term] = s_column[place], s_low[place], s_high[place]
            term += 1
        for rest in range(rest_start[place], rest_start[place + 1]):
            columns[term], lows[term], highs[term] = rest_column[rest], rest_low[rest], rest_high[rest]
            term += 1
    start[posting] = term
    return entry, way, start, columns[:term].copy(), lows[:term].copy(), highs[:term].copy()
