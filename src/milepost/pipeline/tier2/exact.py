"""Exact sums of integers and decimals, over any number of rows, with NumPy's 64 bits.

A number is split into limbs of 32 bits, the lowest first, the highest with the sign. Limbs are added separately in
int64, which holds the sum of 2³¹ of them, and then carried. So only the final result decides about overflow, never an
intermediate sum, as docs/query.md requires.
"""

from __future__ import annotations

import sys
from typing import Final

import numpy as np
import pyarrow as pa

from milepost.pipeline.tier2.columns import Bools, Ints, numbers, valid

_MASK: Final = 0xFFFFFFFF
_LARGEST: Final = 10**38  # decimals have 38 digits
_LARGEST_LIMBS: Final = tuple((_LARGEST >> shift) & _MASK for shift in (0, 32, 64, 96))
assert sys.byteorder == "little", "Arrow's decimals are read as they lie in memory"


def limbs_of(kind: pa.DataType) -> int:
    """The number of limbs of a sum of such values; 0 when there is no exact sum."""
    if pa.types.is_integer(kind):
        return 2
    return 4 if pa.types.is_decimal(kind) and kind.bit_width <= 128 else 0


def split(array: pa.Array) -> list[Ints]:
    """The limbs of each value, 0 where it is null."""
    kind = array.type
    if pa.types.is_integer(kind):
        values = numbers(array)
        if values.dtype != np.uint64:
            values = values.astype(np.int64)
        return [(values & np.asarray(_MASK, values.dtype)).astype(np.int64), (values >> 32).astype(np.int64)]
    if kind.bit_width != 128:
        array = array.cast(pa.decimal128(38, kind.scale))
    words = np.frombuffer(array.buffers()[1] or b"", np.uint32)[4 * array.offset : 4 * (array.offset + len(array))]
    limbs = list(words.reshape(-1, 4).T.astype(np.int64))
    limbs[3] = (limbs[3] ^ 0x80000000) - 0x80000000
    present = valid(array)
    return limbs if present is None else [limb * present for limb in limbs]


def carry(limbs: list[Ints]) -> list[Ints]:
    """The same numbers with every limb but the highest in its 32 bits."""
    carried = [limb.copy() for limb in limbs]
    for low in range(len(carried) - 1):
        carried[low + 1] += carried[low] >> 32
        carried[low] &= _MASK
    return carried


def to_arrow(limbs: list[Ints], kind: pa.DataType, missing: Bools) -> pa.Array:
    """The sums as int64, or as 38 digits with the scale of `kind`. Null where `missing`, and where they do not fit."""
    if pa.types.is_integer(kind):
        low, high = limbs
        outside = missing | (high < -(1 << 31)) | (high >= 1 << 31)
        return pa.array(np.where(outside, 0, high) << 32 | low, mask=outside)
    outside = missing | ~_fits(limbs)
    words = np.stack(limbs, axis=1).astype(np.uint32)
    words[outside] = 0
    bitmap = pa.py_buffer(np.packbits(~outside, bitorder="little"))
    buffers = [bitmap, pa.py_buffer(np.ascontiguousarray(words))]
    return pa.Array.from_buffers(pa.decimal128(38, kind.scale), len(outside), buffers)


def _fits(limbs: list[Ints]) -> Bools:
    magnitude = carry([np.where(limbs[3] < 0, -limb, limb) for limb in limbs])
    less = np.zeros(len(limbs[0]), np.bool_)
    equal = ~less
    for limb, bound in zip(reversed(magnitude), reversed(_LARGEST_LIMBS), strict=True):
        less |= equal & (limb < bound)
        equal &= limb == bound
    return less
