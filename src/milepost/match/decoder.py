"""Kernels that decode the bytes of a batch into codes, the 64-bit numbers that terms test (see `codes`).

One pass over the bytes reads all columns of all rows, so that a single row costs one call.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from milepost.kernels.kernel import kernel, part

NULL = -(1 << 63)
OTHER = NULL + 1  # a text that no subscription names, where texts are numbered

# How a column is stored; `columns.ReadPlan` has it for each column of a layout.
ABSENT, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64 = 0, 1, 2, 3, 4, 5, 6, 7, 8
FLOAT, DOUBLE, BIT, UNITS, START, NUMBERED, NUMBERED_UUID, ELSEWHERE = 9, 10, 11, 12, 13, 14, 15, 16

START_BYTES = 7  # of a text in its code, above one byte for its length


@part
def _word(data: Any, at: Any) -> Any:
    return (
        np.uint64(data[at])
        | (np.uint64(data[at + 1]) << np.uint64(8))
        | (np.uint64(data[at + 2]) << np.uint64(16))
        | (np.uint64(data[at + 3]) << np.uint64(24))
        | (np.uint64(data[at + 4]) << np.uint64(32))
        | (np.uint64(data[at + 5]) << np.uint64(40))
        | (np.uint64(data[at + 6]) << np.uint64(48))
        | (np.uint64(data[at + 7]) << np.uint64(56))
    )


@part
def _half(data: Any, at: Any) -> Any:
    return (
        np.uint32(data[at])
        | (np.uint32(data[at + 1]) << np.uint32(8))
        | (np.uint32(data[at + 2]) << np.uint32(16))
        | (np.uint32(data[at + 3]) << np.uint32(24))
    )


@part
def _quarter(data: Any, at: Any) -> Any:
    return np.uint16(data[at]) | (np.uint16(data[at + 1]) << np.uint16(8))


@part
def _double(bits: Any) -> Any:
    """The code of a double from its bits: the same order, one zero, and null for NaN."""
    magnitude = np.int64(bits & np.uint64(0x7FFFFFFFFFFFFFFF))
    if magnitude > np.int64(0x7FF0000000000000):
        return np.int64(NULL)
    return -magnitude if bits >> np.uint64(63) else magnitude


@part
def _start(data: Any, begin: Any, end: Any) -> Any:
    """The code of a text, by its first bytes and its length: in the order of texts, as far as these bytes tell."""
    size = end - begin
    word = np.uint64(0)
    for i in range(START_BYTES):
        word = (word << np.uint64(8)) | np.uint64(data[begin + i] if i < size else 0)
    word = (word << np.uint64(8)) | np.uint64(min(size, START_BYTES + 1))
    return np.int64(word + np.uint64(1) - np.uint64(1 << 63))


@part
def _hash(data: Any, begin: Any, end: Any, seed: Any) -> Any:
    word = np.uint64(seed)
    for i in range(begin, end):
        word = (word ^ np.uint64(data[i])) * np.uint64(0x100000001B3)
    word ^= word >> np.uint64(29)
    word *= np.uint64(0xBF58476D1CE4E5B9)
    word ^= word >> np.uint64(32)
    return np.int64(word)


@part
def _number(data: Any, begin: Any, end: Any, slots: Any, pool: Any, seed: Any) -> Any:
    """The number of a text, found by its hash and then byte by byte."""
    mask = slots.shape[0] - 1
    wanted = _hash(data, begin, end, seed)
    size = end - begin
    at = wanted & mask
    while slots[at, 1] != 0:
        if slots[at, 0] == wanted:
            place = slots[at, 2]
            if (place & 0x7FFFFFFF) == size:
                start = place >> 31
                same = True
                for i in range(size):
                    if pool[start + i] != data[begin + i]:
                        same = False
                        break
                if same:
                    return slots[at, 1]
        at = (at + 1) & mask
    return np.int64(OTHER)


@part
def _signed(value: Any) -> Any:
    return max(np.int64(value), np.int64(NULL + 1))


@part
def _unsigned(value: Any) -> Any:
    # The two greatest numbers share a code, as the two least signed ones do: one code must be left for null.
    return np.int64(min(value, np.uint64(0xFFFFFFFFFFFFFFFE)) + np.uint64(1) - np.uint64(1 << 63))


@part
def _narrow(bits: Any) -> Any:
    """The code of a float: the code of the double with the same value."""
    sign = np.uint64(bits >> np.uint32(31)) << np.uint64(63)
    exponent = np.int64((bits >> np.uint32(23)) & np.uint32(0xFF))
    fraction = np.uint64(bits & np.uint32(0x7FFFFF))
    if exponent == 0xFF:
        return _double(sign | np.uint64(0x7FF0000000000000) | (fraction << np.uint64(29)))
    if exponent == 0:
        if fraction == 0:
            return np.int64(0)
        exponent = np.int64(1)
        while not fraction & np.uint64(0x800000):  # a subnormal float is a normal double
            fraction <<= np.uint64(1)
            exponent -= 1
        fraction &= np.uint64(0x7FFFFF)
    return _double(sign | (np.uint64(exponent + 896) << np.uint64(52)) | (fraction << np.uint64(29)))


@kernel(
    "void(Array(u1, 1, 'C', readonly=True), i8, i8, i8[:,::1], i8[::1], i8[:,::1], u1[::1], i8, i8[::1], i8[:,::1])"
)
def read_codes(
    data: Any, base: Any, n: Any, plan: Any, valid: Any, slots: Any, pool: Any, seed: Any, rows: Any, out: Any
) -> None:
    """Fill the codes of one group's rows: `out[row, column]`.

    `plan` has for each column how it is stored, its start relative to `base`, and the range in `valid` of its validity
    bit columns. `rows` are the row numbers in the batch; empty when the group has all rows in order.
    """
    for column in range(plan.shape[0]):
        sort = plan[column, 0]
        if sort == ELSEWHERE:
            continue
        at = base + plan[column, 1]
        for i in range(n):
            row = rows[i] if len(rows) else i
            there = sort != ABSENT
            for k in range(plan[column, 2], plan[column, 3]):
                there &= ((data[base + valid[k] + (i >> 3)] >> (i & 7)) & 1) != 0
            code = np.int64(NULL)
            if there:
                if sort == INT32:
                    code = np.int64(np.int32(_half(data, at + 4 * i)))
                elif sort == INT64:
                    code = _signed(np.int64(_word(data, at + 8 * i)))
                elif sort == DOUBLE:
                    code = _double(_word(data, at + 8 * i))
                elif sort == START:
                    begin = np.int64(_half(data, at + 4 * i))
                    code = _start(data, begin, np.int64(_half(data, at + 4 * i + 4)))
                elif sort == NUMBERED:
                    begin = np.int64(_half(data, at + 4 * i))
                    code = _number(data, begin, np.int64(_half(data, at + 4 * i + 4)), slots, pool, seed)
                elif sort == BIT:
                    code = np.int64((data[at + (i >> 3)] >> (i & 7)) & 1)
                elif sort == UNITS:
                    code = np.int64(_word(data, at + 16 * i))
                elif sort == FLOAT:
                    code = _narrow(_half(data, at + 4 * i))
                elif sort == UINT64:
                    code = _unsigned(_word(data, at + 8 * i))
                elif sort == UINT32:
                    code = np.int64(_half(data, at + 4 * i))
                elif sort == INT16:
                    code = np.int64(np.int16(_quarter(data, at + 2 * i)))
                elif sort == UINT16:
                    code = np.int64(_quarter(data, at + 2 * i))
                elif sort == INT8:
                    code = np.int64(np.int8(data[at + i]))
                elif sort == UINT8:
                    code = np.int64(data[at + i])
                else:
                    code = _number(data, at + 16 * i, at + 16 * i + 16, slots, pool, seed)
            out[row, column] = code


@kernel("void(i4[::1], Array(u1, 1, 'C', readonly=True), b1, i8[:,::1], u1[::1], i8, i8[::1])")
def text_codes(offsets: Any, data: Any, numbered: Any, slots: Any, pool: Any, seed: Any, out: Any) -> None:
    """The codes of texts that are given by offsets, as those of a box or a list."""
    for i in range(len(out)):
        begin, end = np.int64(offsets[i]), np.int64(offsets[i + 1])
        out[i] = _number(data, begin, end, slots, pool, seed) if numbered else _start(data, begin, end)


@kernel("void(i8[::1], i8[::1], i8[::1], u1[::1], i8, i8[:,::1])")
def fill_slots(numbers: Any, starts: Any, sizes: Any, pool: Any, seed: Any, slots: Any) -> None:
    """Enter texts, which are in `pool`, into a table that has room for them."""
    mask = slots.shape[0] - 1
    for i in range(len(numbers)):
        begin = starts[i]
        found = _hash(pool, begin, begin + sizes[i], seed)
        at = found & mask
        while slots[at, 1] != 0:
            at = (at + 1) & mask
        slots[at, 0] = found
        slots[at, 2] = (begin << 31) | sizes[i]
        slots[at, 1] = numbers[i]  # last: until then, a reader on another thread sees an empty slot
