"""Columns: what a path reads in every row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from milepost.query.kinds import BYTES, STRING, Scalar
from milepost.query.mask.frame import Frame
from milepost.query.mask.spot import Spot, follow, unboxed
from milepost.query.mask.vector import Array, Bools, Part, Vector, both, gathered, merged
from milepost.query.typed import CaseName, Read
from milepost.schema.flat import AtomShape, BoxShape, ChoiceShape
from milepost.schema.types import Atom


def read(node: Read, frame: Frame) -> Vector | None:
    """The values at the end of a path to an atom."""
    assert isinstance(node.kind, Scalar)
    spots = follow(frame.spot(node.variable), node.steps)
    if len(spots) == 1 and spots[0].rows is None:
        return _column(spots[0], node.kind)
    return merged([Part(_rows(spot), _column(spot, node.kind)) for spot in spots], frame.n, node.kind)


def present(node: Read, frame: Frame) -> Bools:
    """Which rows have something at the end of a path to a structure."""
    found = np.zeros(frame.n, np.bool_)
    for spot in follow(frame.spot(node.variable), node.steps):
        there = spot.present()
        rows = slice(None) if spot.rows is None else spot.rows
        found[rows] = True if there is None else there
    return found


def case_name(node: CaseName, frame: Frame) -> Vector | None:
    """The names of the cases that a variant is in."""
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
                parts.append(Part(part.rows, name))
    return merged(parts, frame.n, node.kind)


def _rows(spot: Spot) -> Any:
    assert spot.rows is not None
    return spot.rows


def _column(spot: Spot, kind: Scalar) -> Vector:
    shape = spot.shape
    assert isinstance(shape, AtomShape)
    known = spot.present()
    match shape.type:
        case Atom("string" | "bytes"):
            return Vector(_texts(spot, shape, kind), known)
        case Atom("decimal"):
            return Vector(_units(spot.chosen(spot.block.words(shape))), known)
        case Atom("uuid"):
            return Vector(spot.chosen(spot.block.values(shape).view("S16")), known)
        case Atom("float" | "double"):
            values = spot.chosen(spot.block.values(shape)).astype(np.float64, copy=False)
            return Vector(values, both(known, numbers(values)))
        case _:
            return Vector(spot.chosen(spot.block.values(shape)), known)


def numbers(values: Array) -> Bools | None:
    """Which doubles are not NaN; None when none is."""
    wrong = np.isnan(values)
    return ~wrong if wrong.any() else None


def _texts(spot: Spot, shape: AtomShape, kind: Scalar) -> pa.Array:
    offsets, data = spot.block.var(shape)
    values = texts(offsets, data, kind)
    return values if spot.index is None else gathered(values, spot.index)


def texts(offsets: Array, data: Array, kind: Scalar) -> pa.Array:
    """An Arrow array over offsets and bytes; nothing is copied."""
    arrow = pa.string() if kind == STRING else pa.binary()
    assert kind in (STRING, BYTES)
    return pa.Array.from_buffers(arrow, len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _units(words: Array) -> Array:
    """Decimals from pairs of words, low and high: the low words alone where they tell all."""
    low, high = words[:, 0], words[:, 1]
    if (high == low >> 63).all():
        return np.ascontiguousarray(low)
    wide: Array = (high.astype(object) << 64) + low.view(np.uint64).astype(object)  # 128 bits: rare, beyond NumPy
    return wide
