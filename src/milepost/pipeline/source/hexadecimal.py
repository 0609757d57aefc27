"""Columns of 16 bytes (UUIDs, message IDs) as hexadecimal text and back, a whole column at a time."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from milepost.errors import InvalidValue

WIDTH: Final = 16  # bytes
DIGITS: Final = 2 * WIDTH
DASHED: Final = DIGITS + 4  # characters of a UUID's text

_PAIRS: Final = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), np.uint8).reshape(256, 2)
_DASHES: Final = np.array([8, 13, 18, 23])
_PLACES: Final = np.delete(np.arange(DASHED), _DASHES)  # places of the digits among the dashes
_NO_DIGIT: Final = 255
_VALUES: Final = np.full(256, _NO_DIGIT, np.uint8)
for _digit in range(16):
    _VALUES[ord(f"{_digit:x}")] = _VALUES[ord(f"{_digit:X}")] = _digit


def digits(values: npt.NDArray[np.uint8]) -> pa.Array:
    """Rows of 16 bytes as 32 digits each."""
    text = _PAIRS[values].reshape(len(values), DIGITS)
    return _texts(text, None)


def uuid_text(array: pa.Array) -> pa.Array:
    """A column of UUIDs, as 16 bytes, as canonical lower-case text."""
    if array.offset:
        array = array.take(pa.array(np.arange(len(array))))
    valid, data = array.buffers()
    values = np.frombuffer(data or b"", np.uint8, WIDTH * len(array)).reshape(len(array), WIDTH)
    text = np.full((len(array), DASHED), ord("-"), np.uint8)
    text[:, _PLACES] = _PAIRS[values].reshape(len(array), DIGITS)
    return _texts(text, valid)


def _texts(text: npt.NDArray[np.uint8], valid: pa.Buffer | None) -> pa.Array:
    count, width = text.shape
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(text))]
    return pa.Array.from_buffers(pa.string(), count, buffers)


def uuid_bytes(array: pa.Array, path: str) -> pa.Array:
    """A column of UUIDs as text, in 16 bytes each. `InvalidValue` names the column and the first invalid text."""
    count = len(array)
    # A new column without gaps, with offset 0, and with text of the right length under each null.
    filled = pc.if_else(array.is_valid(), array.cast(pa.string()), pa.scalar(str(UUID(int=0))))
    lengths = np.asarray(pc.binary_length(filled))
    if bool((wrong := lengths != DASHED).any()):
        raise _no_uuid(array, int(np.argmax(wrong)), path)
    edges = np.frombuffer(filled.buffers()[1] or bytes(4), np.int32)[filled.offset :]
    data: Any = filled.buffers()[2] or b""
    text = np.frombuffer(data, np.uint8, DASHED * count, int(edges[0])).reshape(count, DASHED)
    values = _VALUES[text[:, _PLACES]]
    bad = (values == _NO_DIGIT).any(axis=1) | (text[:, _DASHES] != ord("-")).any(axis=1)
    if bool(bad.any()):
        raise _no_uuid(array, int(np.argmax(bad)), path)
    packed = np.ascontiguousarray((values[:, 0::2] << 4) | values[:, 1::2])
    made = pa.Array.from_buffers(pa.binary(WIDTH), count, [None, pa.py_buffer(packed)])
    return made if not array.null_count else pc.if_else(array.is_valid(), made, pa.scalar(None, pa.binary(WIDTH)))


def _no_uuid(array: pa.Array, row: int, path: str) -> InvalidValue:
    return InvalidValue(f"{array[row].as_py()!r:.60} is not a uuid; write it as {UUID(int=0)}", path, row)
