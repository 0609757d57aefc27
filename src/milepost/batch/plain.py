"""Columns -> plain Python values, a column at a time."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from milepost.batch import atoms
from milepost.batch.block import Block
from milepost.batch.dynamic import DynamicValue
from milepost.batch.format import WRAPPED, Format
from milepost.schema.flat import AtomShape, BoxShape, ChoiceShape, ListShape, Shape, TupleShape
from milepost.schema.types import Atom, Ref, Tuple


def plain(form: Format, block: Block, shape: Shape) -> list[Any]:
    """The values of one shape for every element of a block."""
    match shape:
        case AtomShape():
            return _present(block, shape, _leaves(form, block, shape))
        case TupleShape(_, fields):
            columns = [plain(form, block, inner) for inner in fields.values()]
            names = tuple(fields)
            rows = zip(*columns, strict=True) if columns else ((),) * block.n
            return _present(block, shape, [dict(zip(names, row, strict=True)) for row in rows])
        case ListShape():
            offsets, items = block.list(shape)
            elements = plain(form, items, items.layout.root)
            edges = offsets.tolist()
            lists = [elements[start:end] for start, end in itertools.pairwise(edges)]
            return _present(block, shape, lists)
        case ChoiceShape(_, _, case, inner):
            if inner is None:
                return [None] * block.n
            return [{case: value} for value in plain(form, block, inner)]
        case BoxShape():
            return _boxed(form, block, shape)


def _present(block: Block, shape: AtomShape | TupleShape | ListShape, values: list[Any]) -> list[Any]:
    valid = block.valid(shape)
    if valid is None or valid.all():
        return values
    return [value if there else None for value, there in zip(values, valid.tolist(), strict=True)]


def _boxed(form: Format, block: Block, shape: BoxShape) -> list[Any]:
    tags, _, cases = block.box(shape)
    values: list[Any] = [None] * block.n
    for tag, elements in cases.items():
        inner = plain(form, elements, elements.layout.root)
        for position, value in zip(np.flatnonzero(tags == tag).tolist(), inner, strict=True):
            values[position] = value
    return values


def _leaves(form: Format, block: Block, shape: AtomShape) -> list[Any]:
    kind = shape.type
    if isinstance(kind, Atom) and kind.kind not in ("string", "bytes"):
        return atoms.unpack(kind, block.values(shape))
    offsets, data = block.var(shape)
    edges = offsets.tolist()
    raw = data[edges[0] : edges[-1]].tobytes()
    if edges[0]:
        edges = [edge - edges[0] for edge in edges]
    pairs = itertools.pairwise(edges)
    if kind == Atom("string"):
        text = raw.decode()
        if len(text) == len(raw):  # every character is one byte: slice the decoded text
            return [text[start:end] for start, end in pairs]
        return [raw[start:end].decode() for start, end in pairs]
    if isinstance(kind, Atom):
        return [raw[start:end] for start, end in pairs]
    return [cell(form, shape, raw[start:end]) for start, end in pairs]


def cell(form: Format, shape: AtomShape, raw: bytes, view: bool = False) -> Any:
    """A dynamic value from the bytes of its cell; the plain value, or a view, where the schema is known."""
    if not raw:
        return None
    if not isinstance(shape.type, Ref):
        return DynamicValue.read(raw)
    from milepost.batch.batch import Batch

    batch = Batch.trusted(raw, form.referred(shape.type))
    value = batch[0] if view else batch.to_pylist()[0]
    return value if isinstance(form.schema.resolve(shape.type), Tuple) else value[WRAPPED]
