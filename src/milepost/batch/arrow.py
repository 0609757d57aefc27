"""Batches as Arrow record batches: the same columns under Arrow's names.

Fixed-width columns, text and validity bits are not copied; only batches of several flat-tuple cases are gathered.
`from_arrow` is the inverse.

A tuple is a struct, a list a list, and a variant a dense union with one child per case. An optional variant has one
more child, of Arrow's null type and with an empty name. Types that Arrow lacks are marked in the field's metadata.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from milepost.batch.block import Block, arrow_type
from milepost.batch.format import FORMATS, Format
from milepost.errors import MissingPackage
from milepost.schema.flat import AtomShape, BoxShape, ChoiceShape, ListShape, Shape, SuperVariant, TupleShape
from milepost.schema.types import IDENT, UUID, Dynamic, Field, List, Optional, Ref, Schema, Tuple, Type, Variant

if TYPE_CHECKING:
    from milepost.batch.batch import Batch

KIND: Final = b"milepost.type"  # field metadata: ident, uuid, dynamic, or the name of a recursive reference
SCHEMA: Final = b"milepost.schema"  # schema metadata: the canonical text
ABSENT: Final = ""  # the name of the child that stands for an absent variant


# Schemas


@lru_cache(FORMATS)  # needed for each batch, and as costly as all the columns of a small one
def arrow_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema of a batch's record batch."""
    cases = SuperVariant(schema.type, schema)
    assert isinstance(schema.type, Tuple)
    fields = [_field(cases, item) for item in schema.type.fields]
    return pa.schema(fields, metadata={SCHEMA: schema.canonical})


def _field(cases: SuperVariant, item: Field) -> pa.Field:
    kind = cases.inline(item.type)
    inner = kind.type if isinstance(kind, Optional) else kind
    return pa.field(item.name, field_type(cases, kind), nullable=inner is not kind, metadata=_metadata(inner))


def _metadata(kind: Type) -> dict[bytes, str] | None:
    return {KIND: str(kind)} if isinstance(kind, Dynamic | Ref) or kind in (IDENT, UUID) else None


def field_type(cases: SuperVariant, kind: Type) -> pa.DataType:
    """The Arrow type of a type inside a schema."""
    kind = cases.inline(kind)
    match kind:
        case Optional(inner):
            return _union(cases, inner, True) if isinstance(inner, Variant) else field_type(cases, inner)
        case Tuple(fields):
            return pa.struct([_field(cases, item) for item in fields])
        case List(item):
            return pa.list_(_field(cases, Field("item", item)))
        case Variant():
            return _union(cases, kind, False)
    return arrow_type(kind)


def _union(cases: SuperVariant, kind: Variant, optional: bool) -> pa.DataType:
    children = [pa.field(ABSENT, pa.null())] if optional else []
    return pa.dense_union([*children, *(_field(cases, item) for item in kind.cases)])


# To Arrow


def to_arrow(batch: Batch) -> pa.RecordBatch:
    """See `Batch.to_arrow`."""
    form = batch._form
    schema = arrow_schema(batch.schema)
    if not schema.names:  # only a struct keeps the number of rows when there is no column
        rows = pa.Array.from_buffers(pa.struct([]), len(batch), [None], children=[])
        return pa.RecordBatch.from_struct_array(rows).replace_schema_metadata(schema.metadata)
    if len(batch.groups) == 1:
        arrays = _fields(form, batch.groups[0].block, batch.groups[0].block.layout.root)
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    parts = [_fields(form, group.block, group.block.layout.root) for group in batch.groups]
    order = np.concatenate([group.rows for group in batch.groups if group.rows is not None])
    back = pa.array(np.argsort(order))
    arrays = [pa.concat_arrays(column).take(back) for column in zip(*parts, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


# To frames, through Arrow


def to_pandas(batch: Batch, options: dict[str, Any]) -> Any:
    """See `Batch.to_pandas`."""
    pandas = _package("pandas")
    table, objects = _framed(batch)
    frame = table.to_pandas(**options) if table.num_columns else pandas.DataFrame(index=range(len(batch)))
    for place, name, values in objects:
        frame.insert(place, name, pandas.Series(values, frame.index, object))
    return frame


def to_polars(batch: Batch) -> Any:
    """See `Batch.to_polars`."""
    polars = _package("polars")
    table, objects = _framed(batch)
    columns = polars.from_arrow(table).get_columns()
    for place, name, values in objects:
        columns.insert(place, polars.Series(name, values, polars.Object))
    return polars.DataFrame(columns)


def _package(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        text = f"to_{name} needs the Python package {error.name}: pip install {error.name}"
        raise MissingPackage(text, name=error.name) from None


def _framed(batch: Batch) -> tuple[pa.RecordBatch, list[tuple[int, str, list[Any]]]]:
    """The columns that frames have types for, and the others (with variants) as place, name and Python values."""
    table = to_arrow(batch)
    odd = [(place, field.name) for place, field in enumerate(table.schema) if _has_union(field.type)]
    if not odd:
        return table, []
    rows = batch.to_pylist()
    return table.drop_columns([name for _, name in odd]), [(at, name, [row[name] for row in rows]) for at, name in odd]


def _has_union(kind: pa.DataType) -> bool:
    return pa.types.is_union(kind) or any(_has_union(kind.field(at).type) for at in range(kind.num_fields))


def _fields(form: Format, block: Block, root: Shape) -> list[pa.Array]:
    assert isinstance(root, TupleShape)
    return [shape_to_arrow(form, block, shape) for shape in root.fields.values()]


def shape_to_arrow(form: Format, block: Block, shape: Shape) -> pa.Array:
    """One shape of a block as an Arrow array."""
    match shape:
        case AtomShape():
            return block.arrow(shape)
        case TupleShape(_, fields):
            children = [shape_to_arrow(form, block, inner) for inner in fields.values()]
            kinds = [_child(name, inner, child) for (name, inner), child in zip(fields.items(), children, strict=True)]
            return pa.Array.from_buffers(pa.struct(kinds), block.n, [_validity(block, shape.valid)], children=children)
        case ListShape():
            items = block.items[shape.slot]
            child = shape_to_arrow(form, items, items.layout.root)
            offsets = pa.py_buffer(block.list_offsets(shape))
            kind = pa.list_(_child("item", items.layout.root, child))
            return pa.Array.from_buffers(kind, block.n, [_validity(block, shape.valid), offsets], children=[child])
        case ChoiceShape():
            return _choice_to_arrow(form, block, shape)
        case BoxShape():
            return _box_to_arrow(form, block, shape)


def _validity(block: Block, slot: int | None) -> pa.Buffer | None:
    if slot is None:
        return None
    return pa.py_buffer(block.data).slice(block.base + block.layout.bit_at(slot, block.n), (block.n + 7) >> 3)


def _child(name: str, shape: Shape, array: pa.Array) -> pa.Field:
    optional = shape.optional if isinstance(shape, ChoiceShape | BoxShape) else shape.valid is not None
    metadata = _metadata(shape.type) if isinstance(shape, AtomShape) else None
    return pa.field(name, array.type, nullable=optional, metadata=metadata)


def _choice_to_arrow(form: Format, block: Block, shape: ChoiceShape) -> pa.Array:
    """A variant that is in one case for all elements: a union with one child filled."""
    kind = _union(form.cases, shape.variant, shape.optional)
    names = [kind.field(number).name for number in range(kind.num_fields)]
    number = names.index(ABSENT if shape.case is None else shape.case)
    children = [pa.nulls(0, kind.field(other).type) for other in range(kind.num_fields)]
    if shape.shape is None:
        children[number] = pa.nulls(block.n)
    else:
        children[number] = shape_to_arrow(form, block, shape.shape)
    codes = np.full(block.n, number, np.int8)
    return _dense(kind, codes, np.arange(block.n, dtype=np.int32), children)


def _box_to_arrow(form: Format, block: Block, shape: BoxShape) -> pa.Array:
    kind = _union(form.cases, shape.variant, shape.optional)
    tags, ranks, cases = block.box(shape)
    codes = np.zeros(block.n, np.int8)
    places = np.zeros(block.n, np.int32)
    chunks: list[list[pa.Array]] = [[] for _ in range(kind.num_fields)]
    names = [kind.field(number).name for number in range(kind.num_fields)]
    for tag, elements in cases.items():
        root = elements.layout.root
        assert isinstance(root, ChoiceShape)
        assert root.case is not None
        assert root.shape is not None
        number = names.index(root.case)
        mine = tags == tag
        codes[mine] = number
        places[mine] = ranks[mine] + sum(len(chunk) for chunk in chunks[number])
        chunks[number].append(shape_to_arrow(form, elements, root.shape))
    absent = tags == 0
    if bool(absent.any()):
        number = 0  # the child for absence; without one (inside an absent tuple) any child will do
        places[absent] = sum(len(chunk) for chunk in chunks[number])
        if shape.optional:
            places[absent] = np.arange(int(absent.sum()), dtype=np.int32)
            chunks[number].append(pa.nulls(int(absent.sum())))
        else:
            chunks[number].append(pa.nulls(1, kind.field(number).type))
    children = [
        pa.concat_arrays(chunk) if chunk else pa.nulls(0, kind.field(number).type)
        for number, chunk in enumerate(chunks)
    ]
    for number, child in enumerate(children):
        mine = np.flatnonzero(codes == number)
        found = places[mine]
        if bool((found[1:] < found[:-1]).any()):  # Arrow requires ascending offsets: several tags may be of one case
            children[number] = child.take(pa.array(found))
            places[mine] = np.arange(len(mine), dtype=np.int32)
    return _dense(kind, codes, places, children)


def _dense(kind: pa.DataType, codes: npt.NDArray[np.int8], places: npt.NDArray[np.int32], children: Any) -> pa.Array:
    buffers = [None, pa.py_buffer(codes), pa.py_buffer(places)]
    return pa.Array.from_buffers(kind, len(codes), buffers, children=children)
