"""Builtins for the operations on single messages that are too slow in Python.

Each leaves unusual input to its counterpart in Python.
"""

from __future__ import annotations

import zlib
from typing import Any, Final

import numpy as np

from milepost.kernels.builtin import builtin
from milepost.kernels.memory import (
    as_int,
    bytearray_at,
    bytearray_size,
    bytes_at,
    bytes_size,
    call,
    clear_error,
    decref,
    f64,
    i32,
    i64,
    incref,
    item,
    new_float,
    new_int,
    new_text,
    new_tuple,
    new_uint,
    set_item,
    u8,
    u32,
)

# The kind of a field, in the plan of a projection
NOTHING, TEXT, INT, LONG, UINT32, UINT64, DOUBLE = range(7)

FIELD: Final = 12  # bytes of a field in it: its kind, its position, and the position of its validity byte, or 0

# The table of CRC-32 by bytes: the checksum of a byte, without the initial and the final inversion.
_CRC: Final = np.array([zlib.crc32(bytes([255 - byte])) ^ 0xFF000000 for byte in range(256)], np.int64)
_IDENTITY: Final = 24  # bytes: stamp, one run, the row after its last, publisher, broker


@builtin
def project(plan: int, arguments: int, count: int) -> Any:
    """Some fields of a batch of one row, as a tuple.

    The plan: the fields, each of `FIELD` bytes; the same function in Python, for all other input; None.
    """
    fallback = item(plan, 1)
    if count != 1:
        return call(fallback, arguments, count, 0)
    given = i64(arguments)
    data = bytes_at(given)
    if data == 0:  # a view, or no bytes at all
        clear_error()
        return call(fallback, arguments, count, 0)
    size = bytes_size(given)
    words, fields = bytes_at(item(plan, 0)), bytes_size(item(plan, 0)) // FIELD
    made = new_tuple(fields)
    if made == 0:
        return 0
    for number in range(fields):
        field = words + number * FIELD
        what, at, flag = u32(field), u32(field + 4), u32(field + 8)
        if at + (4 if what in (INT, UINT32) else 8) > size or flag >= size:
            decref(made)
            return call(fallback, arguments, count, 0)
        if what == NOTHING or (flag > 0 and u8(data + flag) == 0):
            value = item(plan, 2)
            incref(value)
        elif what == TEXT:
            start, end = u32(data + at), u32(data + at + 4)
            if end < start or end > size:
                decref(made)
                return call(fallback, arguments, count, 0)
            value = new_text(data + start, end - start, 0)
        elif what == INT:
            value = new_int(i32(data + at))
        elif what == LONG:
            value = new_int(i64(data + at))
        elif what == UINT32:
            value = new_int(u32(data + at))
        elif what == UINT64:
            value = new_uint(i64(data + at))
        else:
            value = new_float(f64(data + at))
        if value == 0:
            decref(made)
            return 0
        set_item(made, number, value)
    return made


@builtin
def read_text(plan: int, arguments: int, count: int) -> Any:
    """The text of one field of a batch of one row. The plan is that of `project`, for this field."""
    fallback = item(plan, 1)
    given = i64(arguments)
    data = bytes_at(given) if count == 1 else 0
    if data == 0:  # a view, or no bytes at all
        clear_error()
        return call(fallback, arguments, count, 0)
    size = bytes_size(given)
    words = bytes_at(item(plan, 0))
    at, flag = u32(words + 4), u32(words + 8)
    if at + 8 > size or flag >= size:
        return call(fallback, arguments, count, 0)
    if flag > 0 and u8(data + flag) == 0:
        nothing = item(plan, 2)
        incref(nothing)
        return nothing
    start, end = u32(data + at), u32(data + at + 4)
    if end < start or end > size:
        return call(fallback, arguments, count, 0)
    return new_text(data + start, end - start, 0)


@builtin
def judge(plan: int, arguments: int, count: int) -> Any:
    """The stamp of a single message if its batch is valid; else 0.

    Called with the start and the end of the batch, and the publisher's last stamp, which this one must exceed. The
    plan: bytes, as `RowCodec.judging` writes them, and the bytearray that messages are read into.
    """
    if count != 3:
        return new_int(0)
    start, end, last = as_int(i64(arguments)), as_int(i64(arguments + 8)), as_int(i64(arguments + 16))
    buffer = item(plan, 1)
    if start < 0 or end < start or last < 0 or bytearray_size(buffer) < end:
        clear_error()  # an argument that was no number has set an error
        return new_int(0)
    data = bytearray_at(buffer)
    words = bytes_at(item(plan, 0))
    fixed, most = u32(words + 32), u32(words + 36)
    size = end - start
    if size < fixed + _IDENTITY or size > most:
        return new_int(0)
    data += start
    if i64(data + 4) != i64(words) or u32(data + 12) != u32(words + 8):  # rows, flags and fingerprint
        return new_int(0)
    stop = fixed
    offsets, at = u32(words + 40), u32(words + 44)
    if offsets > 0:
        strings = u32(words + 48)
        before = fixed
        text = fixed
        if u32(data + at) != before:
            return new_int(0)
        for number in range(1, offsets):
            after = u32(data + at + 4 * number)
            if after < before:
                return new_int(0)
            before = after
            if number == strings:
                text = after
        if before > size:
            return new_int(0)
        stop = before
        high = 0
        for place in range(fixed, text):
            high |= u8(data + place)
        if high > 127:
            return new_int(0)
    bits, at = u32(words + 52), u32(words + 56)
    for number in range(bits):
        if u8(data + at + number) > 1:
            return new_int(0)
    ranges = u32(words + 60)
    for number in range(ranges):
        bounds = words + 64 + 24 * number
        at = u32(bounds)
        value = i32(data + at) if u32(bounds + 4) == 4 else i64(data + at)
        if value < i64(bounds + 8) or value > i64(bounds + 16):
            return new_int(0)
    at = (stop + 7) & ~7
    if at + _IDENTITY != size:
        return new_int(0)
    for place in range(stop, at):
        if u8(data + place) != 0:
            return new_int(0)
    stamp = i64(data + at)
    # One run of one row, with this publisher and this broker.
    if stamp <= last or i64(data + at + 8) != i64(words + 16) or i64(data + at + 16) != i64(words + 24):
        return new_int(0)
    checksum = 0xFFFFFFFF
    for place in range(4, size):
        checksum = _CRC[(checksum ^ u8(data + place)) & 0xFF] ^ (checksum >> 8)
    if (checksum ^ 0xFFFFFFFF) != u32(data):
        return new_int(0)
    return new_int(stamp)
