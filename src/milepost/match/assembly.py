"""Kernels that turn the targets found by `probe` into the keys of each row, and the rows of each connection."""

from __future__ import annotations

from typing import Any

import numpy as np

from milepost.kernels.kernel import kernel
from milepost.match.scan import ints, longs

FEW = 48  # up to so many pairs, an insertion sort is quicker than counting over all connections


@kernel("Tuple((i4[::1], i8[::1], i4[::1]))(i8[::1], i4[::1], i8)")
def split(offsets: Any, targets: Any, groups: Any) -> Any:
    """The groups among the targets: their numbers, where the rows of each start, and the rows, ascending and unique."""
    counts = np.zeros(groups + 1, np.int64)
    total = 0
    for i in range(len(targets)):
        if targets[i] < 0:
            counts[~targets[i] + 1] += 1
            total += 1
    hit = 0
    for group in range(groups):
        hit += counts[group + 1] > 0
        counts[group + 1] += counts[group]
    place = counts[:-1].copy()
    rows = np.empty(total, np.int32)
    for row in range(len(offsets) - 1):
        for i in range(offsets[row], offsets[row + 1]):
            if targets[i] < 0:
                group = ~targets[i]
                rows[place[group]] = row
                place[group] += 1
    numbers, starts = np.empty(hit, np.int32), np.empty(hit + 1, np.int64)
    used = np.int64(0)
    hit = 0
    for group in range(groups):
        if counts[group] < counts[group + 1]:
            numbers[hit], starts[hit] = group, used
            hit += 1
            last = np.int32(-1)
            for i in range(counts[group], counts[group + 1]):
                if rows[i] != last:  # a row may satisfy several alternatives of one predicate
                    last = rows[i]
                    rows[used] = last
                    used += 1
    starts[hit] = used
    return numbers, starts, rows[:used].copy()


@kernel("Tuple((i8[::1], i4[::1]))(i8[::1], i4[::1], i4[::1], i8[::1], i4[::1], i8[:,::1], i8)")
def assemble(offsets: Any, targets: Any, numbers: Any, starts: Any, rows: Any, table: Any, now: Any) -> Any:
    """The keys of each row: the keys among the targets, and the keys of the groups that hold in it.

    `table` has for each group the address of its keys, the address of their times of death, and their number.
    """
    n = len(offsets) - 1
    room = np.int64(0)
    for i in range(len(numbers)):
        room += table[numbers[i], 2]
    living = np.empty(room, np.int32)
    first = np.empty(len(numbers) + 1, np.int64)
    alive = np.int64(0)
    for i in range(len(numbers)):
        first[i] = alive
        keys, died = ints(table[numbers[i], 0]), longs(table[numbers[i], 1])
        for k in range(table[numbers[i], 2]):
            if died[k] > now:
                living[alive] = keys[k]
                alive += 1
    first[len(numbers)] = alive
    found = np.zeros(n + 1, np.int64)
    for row in range(n):
        for i in range(offsets[row], offsets[row + 1]):
            found[row + 1] += targets[i] >= 0
    for i in range(len(numbers)):
        for k in range(starts[i], starts[i + 1]):
            found[rows[k] + 1] += first[i + 1] - first[i]
    for row in range(n):
        found[row + 1] += found[row]
    place = found[:-1].copy()
    out = np.empty(found[n], np.int32)
    for row in range(n):
        for i in range(offsets[row], offsets[row + 1]):
            if targets[i] >= 0:
                out[place[row]] = targets[i]
                place[row] += 1
    for i in range(len(numbers)):
        for k in range(starts[i], starts[i + 1]):
            at = place[rows[k]]
            for key in range(first[i], first[i + 1]):
                out[at] = living[key]
                at += 1
            place[rows[k]] = at
    return found, out


@kernel("Tuple((i4[::1], i8[::1], i8[::1], i8[::1], i4[::1]))(i8[::1], i4[::1], i4[::1])")
def regroup(offsets: Any, keys: Any, owners: Any) -> Any:
    """The pairs of row and key by the owner of the key; returns the arrays of `matches.Deliveries`."""
    total = len(keys)
    row_of, owner_of, marks = np.empty(total, np.int64), np.empty(total, np.int32), np.empty(total, np.int32)
    if total <= FEW:
        i = 0
        for row in range(len(offsets) - 1):
            for pair in range(offsets[row], offsets[row + 1]):
                owner = owners[keys[pair]]
                at = i
                while at > 0 and owner_of[at - 1] > owner:
                    row_of[at], owner_of[at], marks[at] = row_of[at - 1], owner_of[at - 1], marks[at - 1]
                    at -= 1
                row_of[at], owner_of[at], marks[at] = row, owner, keys[pair]
                i += 1
    else:
        # The owner of a key is probably in no cache, so it is read once.
        unsorted = np.empty(total, np.int32)
        highest = np.int32(0)
        for pair in range(total):
            unsorted[pair] = owners[keys[pair]]
            highest = max(highest, unsorted[pair])
        place = np.zeros(np.int64(highest) + 2, np.int64)
        for pair in range(total):
            place[unsorted[pair] + 1] += 1
        for owner in range(np.int64(highest) + 1):
            place[owner + 1] += place[owner]
        for row in range(len(offsets) - 1):
            for pair in range(offsets[row], offsets[row + 1]):
                at = place[unsorted[pair]]
                place[unsorted[pair]] = at + 1
                row_of[at], owner_of[at], marks[at] = row, unsorted[pair], keys[pair]
    found, starts = np.empty(total, np.int32), np.empty(total + 1, np.int64)
    rows, mark_offsets = np.empty(total, np.int64), np.empty(total + 1, np.int64)
    count = used = 0
    for i in range(total):
        fresh = i == 0 or owner_of[i] != owner_of[i - 1]
        if fresh:
            found[count], starts[count] = owner_of[i], used
            count += 1
        if fresh or row_of[i] != row_of[i - 1]:
            rows[used], mark_offsets[used] = row_of[i], i
            used += 1
    starts[count], mark_offsets[used] = used, total
    return found[:count].copy(), starts[: count + 1].copy(), rows[:used].copy(), mark_offsets[: used + 1].copy(), marks
