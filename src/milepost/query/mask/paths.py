"""The values at the end of paths, as columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from milepost.query.kinds import BYTES, STRING, Scalar
from milepost.query.mask.frame import RowFrame
from milepost.query.mask.spot import Spot, follow, unboxed
from milepost.query.mask.vector import Array, Bools, Packed, PartialVector, Vector, both, gathered, merged
from milepost.query.typed import CaseName, ReadPath
from milepost.schema.flat import AtomShape, BoxShape, ChoiceShape


def read(node: ReadPath, frame: RowFrame) -> Vector | None:
    """The values at the end of a path to an atom."""
    assert isinstance(node.kind, Scalar)
    spots = follow(frame.spot(node.variable), node.steps)
    if len(spots) == 1 and spots[0].rows is None:
        return _column(spots[0], node.kind)
    return merged([PartialVector(_rows(spot), _column(spot, node.kind)) for spot in spots], frame.n, node.kind)


def unchecked(node: ReadPath, frame: RowFrame) -> tuple[Vector | None, Packed | None]:
    """The result of `read`; for a plain column its validity is separate, and packed, eight rows in a byte.

    Unpacking validity is most of the cost of an optional column. A caller that needs values in several columns can
    intersect their packed validity, and unpack once.
    """
    assert isinstance(node.kind, Scalar)
    spots = follow(frame.spot(node.variable), node.steps)
    if len(spots) != 1 or not spots[0].plain:
        return read(node, frame), None
    (spot,) = spots
    block, shape = spot.block, spot.shape
    assert isinstance(shape, AtomShape)
    values = _values(spot, shape, node.kind)
    if shape.valid is None:
        return values, None
    at = block.base + block.layout.bit_at(shape.valid, block.n)
    return values, np.frombuffer(block.data, np.uint8, (block.n + 7) >> 3, at)


def present(node: ReadPath, frame: RowFrame) -> Bools:
    """Which rows have a value at the end of a path to a structure."""
    found = np.zeros(frame.n, np.bool_)
    for spot in follow(frame.spot(node.variable), node.steps):
        there = spot.present()
        rows = slice(None) if spot.rows is None else spot.rows
        found[rows] = True if there is None else there
    return found


def case_name(node: CaseName, frame: RowFrame) -> Vector | None:
    """The name of a variant's case in each row."""
    read = node.variant
    parts = []
    for spot in follow(frame.spot(read.variable), read.steps):
        inside = unboxed(spot, spot.shape) if isinstance(spot.shape, BoxShape) else [spot]
        for part in inside:
            assert isinstance(part.shape, ChoiceShape)
            if part.shape.case is not None:
                name = Vector(pa.scalar(part.shape.case, pa.string()), part.known)
                if part.rows is None:
                    return name
                parts.append(PartialVector(part.rows, name))
    return merged(parts, frame.n, node.kind)


def _rows(spot: Spot) -> Any:
    assert spot.rows is not None
    return spot.rows


def _column(spot: Spot, kind: Scalar) -> Vector:
    shape = spot.shape
    assert isinstance(shape, AtomShape)
    found = _values(spot, shape, kind)
    return Vector(found.values, both(spot.present(), found.known))


def _values(spot: Spot, shape: AtomShape, kind: Scalar) -> Vector:
    """A column without regard to its validity; only NaN is null."""
    name = kind.name
    if name in ("string", "bytes"):
        column = texts(*spot.block.var(shape), kind)
        return Vector(column if spot.index is None else gathered(column, spot.index))
    if name == "decimal":
        return Vector(_units(spot.chosen(spot.block.words(shape))))
    values = spot.chosen(spot.block.values(shape))
    if name == "uuid":
        return Vector(values.view("S16"))
    if name == "double":
        values = values.astype(np.float64, copy=False)
        return Vector(values, numbers(values))
    return Vector(values)


def numbers(values: Array) -> Bools | None:
    """Which doubles are not NaN; None if there is no NaN."""
    wrong = np.isnan(values)
    return ~wrong if wrong.any() else None


def texts(offsets: Array, data: Array, kind: Scalar) -> pa.Array:
    """An Arrow array over offsets and bytes; nothing is copied."""
    arrow = pa.string() if kind == STRING else pa.binary()
    assert kind in (STRING, BYTES)
    return pa.Array.from_buffers(arrow, len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _units(words: Array) -> Array:
    """Decimals from pairs of words, low and high: the low words alone where the values fit into them."""
    low, high = words[:, 0], words[:, 1]
    if (high == low >> 63).all():
        return np.ascontiguousarray(low)
    wide: Array = (high.astype(object) << 64) + low.view(np.uint64).astype(object)  # 128 bits: rare, beyond NumPy
    return wide
