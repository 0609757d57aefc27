"""Kernels that make a segment from postings, and postings from a segment; first a sort, then counting alone.

Postings in the form that is built from: for each its entry, the way to it (`ALWAYS`, `EQUAL`, `RANGE`) and its terms,
the first of which is the one it is found by. A term is a column and two codes; a negated one has the complement of the
column.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from milepost.kernels.kernel import kernel, part
from milepost.match.probing import BLOCK, REACH, _rank, mixed
from milepost.match.ways import ALWAYS, EQUAL, RANGE

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1  # a first term that holds for every code

GRID_BOUNDS = 4096  # cuts of one column's codes at most: finer than that, buckets would be near empty at 1 M
GRID_POSTINGS = 8  # that a bucket should hold: fewer make more buckets than postings
GRID_SAMPLE = 16  # ends of intervals looked at for each bound


@part
def _power(least: Any) -> Any:
    size = np.int64(4)
    while size < least:
        size *= 2
    return size


@part
def _file(slots: Any, column: Any, code: Any, next_cluster: Any) -> Any:
    """The cluster of a column and a code; a new one when they are seen for the first time."""
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
def _first(way: Any, begin: Any, end: Any, columns: Any) -> Any:
    """The term that is checked first while scanning: the access term of a range, else the first that is positive."""
    start = begin + 1 if way == EQUAL else begin
    for term in range(start, end):
        if columns[term] >= 0:
            return term
    return np.int64(-1)


@part
def _second(first: Any, way: Any, begin: Any, end: Any, columns: Any) -> Any:
    """The term that is checked next, another positive one."""
    for term in range(begin + 1 if way == EQUAL else begin, end):
        if columns[term] >= 0 and term != first:
            return term
    return np.int64(-1)


@part
def _level(rank_low: Any, rank_high: Any) -> Any:
    """The level on which an interval reaches into `REACH` further buckets at most."""
    level = 0
    while (rank_high - rank_low) >> level >= REACH:
        level += 1
    return level


@kernel(
    "Tuple((i4[::1], i4[::1], i8[::1], i8[::1], i4[::1], i8[::1], i8[::1], i4[::1], i4[::1], i8[::1], i8[::1],"
    " i8[:,::1], i4[::1], i4[::1], i8[:,::1], i8[:,::1], i8[::1], i4[::1], i8[::1], i8[::1], i4[::1], i8))"
    "(i4[::1], u1[::1], i4[::1], i4[::1], i8[::1], i8[::1], i8, i8)"
)
def build(entry: Any, way: Any, start: Any, columns: Any, lows: Any, highs: Any, width: Any, entries: Any) -> Any:
    """The arrays of a segment, in the order in which `segment.Segment` names them.

    Entries are numbered anew, as their postings come, so that whoever scans postings walks through entries too.
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
    dummy = max(width - 1, 0)  # the column of a first term that always holds: the last, to keep columns in order
    seen_columns = np.zeros(width, np.bool_)
    first = np.empty(count, np.int32)
    by_first = np.empty(count, np.int32)
    mine = np.empty(equal, np.int32)
    filled = 0
    for posting in range(count):
        term = start[posting]
        first[posting] = _first(way[posting], term, start[posting + 1], columns)
        by_first[posting] = columns[first[posting]] if first[posting] >= 0 else dummy
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
    mine = _sorted_by_low(mine, first, lows)
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
            low = _rank(bounds, grids[number, 1], grids[number, 2], lows[term])
            high = _rank(bounds, grids[number, 1], grids[number, 2], highs[term])
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

    # Everything in its order: equalities, ranges, and what is looked at always.
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
        other = _second(first[posting], way[posting], start[posting], start[posting + 1], columns)
        rest_total += (
            start[posting + 1] - start[posting] - (way[posting] == EQUAL) - (first[posting] >= 0) - (other >= 0)
        )
    p_entry, p_column = np.empty(count, np.int32), np.empty(count, np.int32)
    p_low, p_high = np.empty(count, np.int64), np.empty(count, np.int64)
    s_column, s_low, s_high = np.empty(count, np.int32), np.empty(count, np.int64), np.empty(count, np.int64)
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
        other = _second(chosen, way[posting], start[posting], start[posting + 1], columns)
        if other >= 0:
            s_column[place], s_low[place], s_high[place] = columns[other], lows[other], highs[other]
        else:
            s_column[place], s_low[place], s_high[place] = 0, LOWEST, HIGHEST
        for term in range(start[posting] + (way[posting] == EQUAL), start[posting + 1]):
            if term != chosen and term != other:
                rest_column[rest], rest_low[rest], rest_high[rest] = columns[term], lows[term], highs[term]
                rest += 1
    rest_start[count] = rest
    for i in range(entries):  # those that no posting leads to, because nothing can satisfy them
        if moved[i] < 0:
            moved[i] = numbered
            numbered += 1
    blocks = (count + BLOCK - 1) // BLOCK
    least, greatest = np.full(blocks, HIGHEST, np.int64), np.full(blocks, LOWEST, np.int64)
    for place in range(count):
        least[place // BLOCK] = min(least[place // BLOCK], p_low[place])
        greatest[place // BLOCK] = max(greatest[place // BLOCK], p_high[place])
    return (
        p_entry, p_column, p_low, p_high, s_column, s_low, s_high, rest_start, rest_column, rest_low, rest_high,
        slots, cluster_starts, equal_columns, keys[:clusters].copy(),
        grids, bounds[:bounds_used].copy(), bucket_starts, least, greatest, moved, np.int64(equal),
    )  # fmt: skip


@kernel(
    "Tuple((i4[::1], u1[::1], i4[::1], i4[::1], i8[::1], i8[::1]))"
    "(i4[::1], i4[::1], i8[::1], i8[::1], i4[::1], i8[::1], i8[::1], i4[::1], i4[::1], i8[::1], i8[::1], i4[::1],"
    " i8[:,::1], i8, i8, i4[::1])"
)
def unfold(
    p_entry: Any, p_column: Any, p_low: Any, p_high: Any, s_column: Any, s_low: Any, s_high: Any, rest_start: Any,
    rest_column: Any, rest_low: Any, rest_high: Any, cluster_starts: Any, keys: Any, equal: Any, ranges: Any, kept: Any,
) -> Any:  # fmt: skip
    """The postings of a segment again, those of entries that are kept, with their entries renumbered by `kept`."""
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
