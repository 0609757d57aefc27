"""Scans that test postings against rows: the parts of the kernels in `probe`.

A segment is passed as one row of numbers, mostly addresses of its arrays: a snapshot has a few dozen segments with
thirty arrays each, and passing them as arguments would cost more than the search. The caller keeps the arrays alive.

Each posting has its first and second terms beside it twice: exactly, and *near*, in 16 bits, see `near_code`. Near
codes alone exclude most postings, and vector instructions test many of them at a time.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from milepost.kernels.kernel import inner, part

NULL = -(1 << 63)

# The places in the row of a segment. `segment` describes the arrays.
(
    ENTRY, FIRST_COLUMN, FIRST_LOW, FIRST_HIGH, SECOND_COLUMN, SECOND_LOW, SECOND_HIGH,
    REST_START, REST_COLUMN, REST_LOW, REST_HIGH, TARGETS, DIED, SLOTS, SLOT_MASK, CLUSTERS,
    EQUAL_COLUMNS, EQUAL_COUNT, GRIDS, GRID_COUNT, BOUNDS, BUCKETS, ALWAYS, ALWAYS_END, SORTED,
    LEAST_LOW, GREATEST_HIGH, NEAR_FIRST_LOW, NEAR_FIRST_HIGH, NEAR_SECOND_LOW, NEAR_SECOND_HIGH, SCALES, EXACT,
    CLUSTER_BLOCKS, BLOCKS, PLAIN, DEAD,
) = range(37)  # fmt: skip
WIDTH = 37

BLOCK = 256  # postings that are tested together, a power of two: their data fits the first-level cache
FEW = 4  # up to so many postings are tested one by one
SCRATCH = (BLOCK + 8 + 4 * (BLOCK + 9)) // 8 + 1  # words that a scan writes: a byte and the place of each posting

# Codes in 16 bits: null, everything below the scale, the number of steps of the scale, and everything above.
NEAR_NULL, NEAR_LEAST, NEAR_STEPS, NEAR_GREATEST = -(1 << 15), 1 - (1 << 15), (1 << 16) - 3, (1 << 15) - 1

_numba: Any = import_module("numba")
_extending: Any = import_module("numba.extending")
_cgutils: Any = import_module("numba.core.cgutils")
carray: Any = _numba.carray

_ANY = 1 << 40  # the length of an array whose length is not used


def _pointer(typing: Any, address: Any) -> Any:
    """A Numba intrinsic: an address as a pointer."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], _cgutils.voidptr_t)

    return _numba.types.voidptr(address), generate


_at: Any = _extending.intrinsic(_pointer)


@part
def ints(where: Any) -> Any:
    """Numbers of 32 bits in memory."""
    return carray(_at(where), (_ANY,), np.int32)


@part
def longs(where: Any) -> Any:
    """Numbers of 64 bits in memory."""
    return carray(_at(where), (_ANY,), np.int64)


@inner
def address(array: Any) -> Any:
    """The address of an array.

    Numba frees an array after its last use, so take the address inside the loop that needs it.
    """
    return np.int64(array.ctypes.data)


@part
def shorts(where: Any) -> Any:
    """Numbers of 16 bits in memory."""
    return carray(_at(where), (_ANY,), np.int16)


@part
def octets(where: Any) -> Any:
    """Bytes in memory."""
    return carray(_at(where), (_ANY,), np.uint8)


@part
def _holds(segment: Any, begin: Any, end: Any, codes: Any, row: Any) -> Any:
    """Whether the further terms (the third and later, and negated ones) hold in the row whose codes start at `row`."""
    columns, lows, highs = ints(segment[REST_COLUMN]), longs(segment[REST_LOW]), longs(segment[REST_HIGH])
    for term in range(begin, end):
        column = columns[term]
        if column >= 0:
            code = codes[row + column]
            if (code < lows[term]) | (code > highs[term]):
                return False
        else:
            code = codes[row + ~column]
            if code == NULL or ((code >= lows[term]) & (code <= highs[term])):
                return False
    return True


@part
def near_code(code: Any, base: Any, shift: Any) -> Any:
    """A code in 16 bits, in the same order: exact near the constants of a column's terms, if these are close together.

    `base` is the least code of the scale. Codes below it share one near code, and so do codes more than about
    2^16 times 2^shift above it.
    """
    if code < base:
        return np.int16(NEAR_NULL if code == NULL else NEAR_LEAST)
    steps = (np.uint64(code) - np.uint64(base)) >> np.uint64(shift)
    return np.int16(NEAR_LEAST + 1 + np.int64(min(steps, np.uint64(NEAR_STEPS))))


@part
def near_row(segment_at: Any, codes: Any, row: Any, near: Any, at: Any) -> None:
    """The near codes of a row, by the scales of a segment."""
    scales = longs(longs(segment_at)[SCALES])
    for column in range(codes.shape[1]):
        near[at, column] = near_code(codes[row, column], scales[2 * column], scales[2 * column + 1])


@part
def _scan(
    segment_at: Any, begin: Any, end: Any, alike: Any, least: Any, greatest: Any, desk: Any, rows_at: Any,
    count: Any, out_at: Any, used: Any, runs_at: Any, runs: Any,
) -> Any:  # fmt: skip
    """Append the targets of the postings from `begin` to `end`, at most `BLOCK`, that hold in each of some rows.

    There is room for all. The targets of a row are a run, which is recorded by its end, unless it is empty. Postings
    that are `alike` have the same two columns, and first terms between `least` and `greatest`.

    First and second terms are tested without a branch, since it could not be predicted; only the postings that pass are
    tested further. `desk` is shared by all calls for some rows: the addresses of their codes, of their near codes from
    row `first` on and of scratch memory, the number of columns, and the moment.
    """
    # Everything is passed by address: Numba counts references to array arguments, one by one, and that took as long as
    # testing a hundred postings.
    codes_at, near_at, scratch_at, width, first, now = desk
    segment, codes, near = longs(segment_at), longs(codes_at), shorts(near_at)
    words, hits, some = longs(scratch_at), octets(scratch_at), ints(scratch_at + BLOCK + 8)
    rows, out, run_list = ints(rows_at), ints(out_at), ints(runs_at)
    # Arrays that start at `begin` instead of indexes that do: only then does the compiler vectorise the tests.
    size = end - begin
    columns = carray(_at(segment[FIRST_COLUMN] + begin), (size,), np.uint8)
    lows = carray(_at(segment[NEAR_FIRST_LOW] + 2 * begin), (size,), np.int16)
    highs = carray(_at(segment[NEAR_FIRST_HIGH] + 2 * begin), (size,), np.int16)
    second_columns = carray(_at(segment[SECOND_COLUMN] + begin), (size,), np.uint8)
    second_lows = carray(_at(segment[NEAR_SECOND_LOW] + 2 * begin), (size,), np.int16)
    second_highs = carray(_at(segment[NEAR_SECOND_HIGH] + 2 * begin), (size,), np.int16)
    rest_start = carray(_at(segment[REST_START] + 4 * begin), (size + 1,), np.int32)
    entries = carray(_at(segment[ENTRY] + 4 * begin), (size,), np.int32)
    died, targets = longs(segment[DIED]), ints(segment[TARGETS])
    column, second_column = columns[0], second_columns[0]
    sorted_ = size > 16 and column == columns[size - 1]
    if sorted_ and not alike and begin // BLOCK == (end - 1) // BLOCK:
        # Postings are sorted by column within a cluster, so all have the same, and then by their low ends: most blocks
        # of a large cluster are too low or too high as a whole.
        least = np.int64(shorts(segment[LEAST_LOW])[begin // BLOCK])
        greatest = np.int64(shorts(segment[GREATEST_HIGH])[begin // BLOCK])
    for index in range(count):
        row = np.int64(rows[index])
        at = (row - first) * width
        left = 0
        if alike or sorted_:
            code, other = near[at + column], near[at + second_column]
            if (code < least) | (code > greatest):
                continue
            if alike:
                for i in range(size):
                    hits[i] = (
                        (code >= lows[i]) & (code <= highs[i]) & (other >= second_lows[i]) & (other <= second_highs[i])
                    )
            else:
                for i in range(size):
                    hits[i] = (code >= lows[i]) & (code <= highs[i])
            for i in range(8):
                hits[size + i] = 0
            for word in range((size + 7) >> 3):
                if words[word]:  # postings are sorted by their low ends, so the ones that hold are mostly neighbours
                    for i in range(8 * word, 8 * word + 8):
                        some[left] = i
                        left += hits[i]
        else:
            for i in range(size):
                code = near[at + columns[i]]
                some[left] = i
                left += (code >= lows[i]) & (code <= highs[i])
        if not alike:
            tested = left
            left = 0
            for k in range(tested):
                i = some[k]
                code = near[at + second_columns[i]]
                some[left] = i
                left += (code >= second_lows[i]) & (code <= second_highs[i])
        if not left:
            continue
        if not segment[EXACT]:
            left = _exactly(segment, begin, size, codes, row * width, left, some)
        before = used
        if segment[PLAIN] and not segment[DEAD]:
            for k in range(left):
                out[used + k] = targets[begin + some[k]]
            used += left
        else:
            for k in range(left):
                i = some[k]
                if rest_start[i] == rest_start[i + 1] or _holds(
                    segment, rest_start[i], rest_start[i + 1], codes, row * width
                ):
                    entry = entries[i]
                    out[used] = targets[entry]
                    used += died[entry] > now
        run_list[2 * runs], run_list[2 * runs + 1] = row, used
        runs += used > before
    return used, runs


@part
def _exactly(segment: Any, begin: Any, size: Any, codes: Any, row: Any, left: Any, some: Any) -> Any:
    """Keep the postings in `some` whose first and second terms hold exactly, not only in 16 bits; returns how many."""
    columns = carray(_at(segment[FIRST_COLUMN] + begin), (size,), np.uint8)
    lows = carray(_at(segment[FIRST_LOW] + 8 * begin), (size,), np.int64)
    highs = carray(_at(segment[FIRST_HIGH] + 8 * begin), (size,), np.int64)
    second_columns = carray(_at(segment[SECOND_COLUMN] + begin), (size,), np.uint8)
    second_lows = carray(_at(segment[SECOND_LOW] + 8 * begin), (size,), np.int64)
    second_highs = carray(_at(segment[SECOND_HIGH] + 8 * begin), (size,), np.int64)
    tested = left
    left = 0
    for k in range(tested):
        i = some[k]
        code, other = codes[row + columns[i]], codes[row + second_columns[i]]
        some[left] = i
        left += (code >= lows[i]) & (code <= highs[i]) & (other >= second_lows[i]) & (other <= second_highs[i])
    return left


@part
def scan_new(segment_at: Any, desk: Any, row: Any, out_at: Any, used: Any) -> Any:
    """`_scan` for all postings of a delta and one row: they have one term beside them, and no near codes."""
    codes_at, _, scratch_at, width, _, now = desk
    segment, codes, out, some = longs(segment_at), longs(codes_at), ints(out_at), ints(scratch_at)
    columns, lows, highs = octets(segment[FIRST_COLUMN]), longs(segment[FIRST_LOW]), longs(segment[FIRST_HIGH])
    rest_start, entries = ints(segment[REST_START]), ints(segment[ENTRY])
    died, targets = longs(segment[DIED]), ints(segment[TARGETS])
    for begin in range(0, segment[ALWAYS_END], BLOCK):
        left = 0
        for i in range(begin, min(begin + BLOCK, segment[ALWAYS_END])):
            code = codes[row * width + columns[i]]
            some[left] = i
            left += (code >= lows[i]) & (code <= highs[i])
        for k in range(left):
            i = some[k]
            if _holds(segment, rest_start[i], rest_start[i + 1], codes, row * width):
                entry = entries[i]
                out[used] = targets[entry]
                used += died[entry] > now
    return used


@part
def scan_few(segment_at: Any, begin: Any, end: Any, desk: Any, row: Any, out_at: Any, used: Any) -> Any:
    """`_scan` for one row and so few postings that testing their near codes first would not pay."""
    codes_at, _, _, width, _, now = desk
    segment, codes, out, at = longs(segment_at), longs(codes_at), ints(out_at), row * width
    columns, lows, highs = octets(segment[FIRST_COLUMN]), longs(segment[FIRST_LOW]), longs(segment[FIRST_HIGH])
    rest_start = ints(segment[REST_START])
    second_columns = octets(segment[SECOND_COLUMN])
    second_lows, second_highs = longs(segment[SECOND_LOW]), longs(segment[SECOND_HIGH])
    for i in range(begin, end):
        code, begin_rest, end_rest = codes[at + columns[i]], rest_start[i], rest_start[i + 1]
        if code < lows[i] or code > highs[i]:
            continue
        code = codes[at + second_columns[i]]
        if code < second_lows[i] or code > second_highs[i]:
            continue
        if begin_rest == end_rest or _holds(segment, begin_rest, end_rest, codes, at):
            entry = ints(segment[ENTRY])[i]
            out[used] = ints(segment[TARGETS])[entry]
            used += longs(segment[DIED])[entry] > now
    return used


@part
def _stop(at: Any, end: Any) -> Any:
    """The end of the block that begins at `at`: few postings are one block, more are cut at multiples of `BLOCK`."""
    return end if end - at <= BLOCK else (at // BLOCK + 1) * BLOCK


@part
def roomy(out: Any, used: Any, more: Any) -> Any:
    """The array, or a larger copy, with room for `more`."""
    if used + more + 1 <= len(out):
        return out
    larger = np.empty(max(2 * len(out), used + more + 1), np.int32)
    larger[:used] = out[:used]
    return larger


@inner
def scan_all(
    segment_at: Any, begin: Any, end: Any, desk: Any, rows: Any, out: Any, used: Any, run_list: Any, runs: Any
) -> Any:
    """`_scan` for any number of postings that are not alike; also returns the arrays, which may be larger copies."""
    while begin < end:
        stop = _stop(begin, end)
        out = roomy(out, used, (stop - begin) * len(rows))
        run_list = roomy(run_list, 2 * runs, 2 * len(rows))
        used, runs = _scan(
            segment_at, begin, stop, False, NEAR_NULL, NEAR_GREATEST, desk, address(rows), len(rows), address(out),
            used, address(run_list), runs,
        )  # fmt: skip
        begin = stop
    return out, used, run_list, runs


@inner
def scan_cluster(
    segment_at: Any, cluster: Any, desk: Any, rows: Any, out: Any, used: Any, run_list: Any, runs: Any
) -> Any:
    """`scan_all` for the postings of a cluster; a large cluster has blocks of postings that are alike."""
    segment = longs(segment_at)
    of_cluster, blocks = ints(segment[CLUSTER_BLOCKS]), ints(segment[BLOCKS])
    block, last = 4 * np.int64(of_cluster[cluster]), 4 * np.int64(of_cluster[cluster + 1])
    if block == last:
        clusters = ints(segment[CLUSTERS])
        out, used, run_list, runs = scan_all(
            segment_at, np.int64(clusters[cluster]), np.int64(clusters[cluster + 1]), desk, rows, out, used, run_list,
            runs,
        )  # fmt: skip
    while block < last:
        begin, end = np.int64(blocks[block]), np.int64(blocks[block + 1])
        out = roomy(out, used, (end - begin) * len(rows))
        run_list = roomy(run_list, 2 * runs, 2 * len(rows))
        used, runs = _scan(
            segment_at, begin, end, True, np.int64(blocks[block + 2]), np.int64(blocks[block + 3]), desk,
            address(rows), len(rows), address(out), used, address(run_list), runs,
        )  # fmt: skip
        block += 4
    return out, used, run_list, runs
