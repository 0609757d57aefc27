"""Converts Spark's Arrow record batches to what `milepost.encode` takes for a schema.

`milepost.encode` handles widths, units and nesting. This module converts what Spark represents differently: UUIDs and
dynamic values as text, variants as structs. Errors name the column.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.batch import DynamicValue
from milepost.batch.arrow import ABSENT
from milepost.errors import InvalidValue, did_you_mean
from milepost.pipeline.source import hexadecimal
from milepost.query import parse_schema
from milepost.query.spark import case_field
from milepost.schema import Schema
from milepost.schema.flat import SuperVariant
from milepost.schema.types import Atom, Dynamic, List, Optional, Ref, Tuple, Type, Variant

Convert = Callable[[pa.Array], pa.Array]


class FromSpark:
    """Converts record batches whose columns are the fields of one schema. Missing columns are absent fields."""

    def __init__(self, schema: Schema) -> None:
        self.schema: Final = schema
        assert isinstance(schema.type, Tuple)
        cases = SuperVariant(schema.type, schema)
        made = {item.name: _converter(cases, item.type, item.name) for item in schema.type.fields}
        self._names = list(made)
        self._converters = {name: convert for name, convert in made.items() if convert is not None}

    def __call__(self, table: pa.RecordBatch) -> pa.RecordBatch:
        """The same rows, ready to be encoded."""
        self.check(table.schema.names)
        if not self._converters:
            return table
        arrays = [
            self._converters[name](array) if name in self._converters else array
            for name, array in zip(table.schema.names, table.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, names=table.schema.names)

    def check(self, columns: list[str]) -> None:
        """Refuse a column that is not a field, before anything is written."""
        for name in columns:
            if name not in self._names:
                near = did_you_mean(name, self._names) or f"; there are {', '.join(self._names)}"
                raise InvalidValue(f"column {name!r} is not a field of {self.schema.name}{near}")


def _converter(cases: SuperVariant, kind: Type, path: str) -> Convert | None:
    """A function that converts a column of Spark for encoding; None when no conversion is needed."""
    kind = cases.inline(kind)
    if isinstance(kind, Optional):
        kind = cases.inline(kind.type)
    match kind:
        case Tuple(fields):
            inside = {item.name: _converter(cases, item.type, f"{path}.{item.name}") for item in fields}
            return _tuple(inside) if any(inside.values()) else None
        case List(item):
            inner = _converter(cases, item, f"{path}[]")
            return None if inner is None else _list(inner)
        case Variant(choices):
            made = {item.name: _converter(cases, item.type, f"{path}.{item.name}") for item in choices}
            return _variant(made, case_field(kind), path)
        case Atom("uuid"):
            return _of_text(lambda array: hexadecimal.uuid_bytes(array, path))
        case Dynamic() | Ref():
            return _of_text(lambda array: _cells(array, path))
    return None


def _of_text(convert: Convert) -> Convert:
    """Leave values that are not text to the encoder, which reports them."""
    return lambda array: convert(array) if array.type in (pa.string(), pa.large_string()) else array


def _tuple(inside: dict[str, Convert | None]) -> Convert:
    def convert(array: pa.Array) -> pa.Array:
        if not pa.types.is_struct(array.type):
            return array  # the encoder reports what it is instead
        names = [array.type.field(number).name for number in range(array.type.num_fields)]
        children = []
        for name, child in zip(names, array.flatten(), strict=True):
            inner = inside.get(name)
            children.append(child if inner is None else inner(child))
        fields = [pa.field(name, child.type) for name, child in zip(names, children, strict=True)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())

    return convert


def _list(inner: Convert) -> Convert:
    def convert(array: pa.Array) -> pa.Array:
        if not pa.types.is_list(array.type):
            return array
        if array.offset:
            array = array.take(pa.array(np.arange(len(array))))
        values = inner(array.values)
        kind = pa.list_(pa.field("item", values.type))
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], children=[values])

    return convert


def _variant(inside: dict[str, Convert | None], which: str, path: str) -> Convert:
    """A struct of the case's name and a column for each case, converted to a union."""
    names = list(inside)
    wanted = pa.array(names, pa.string())

    def convert(array: pa.Array) -> pa.Array:
        kind = array.type
        if pa.types.is_null(kind) or pa.types.is_union(kind):
            return array
        if not pa.types.is_struct(kind) or kind.get_field_index(which) < 0:
            raise InvalidValue(f"a variant is a struct with {which!r} and a field for each case, not {kind}", path)
        parts = {kind.field(number).name: child for number, child in enumerate(array.flatten())}
        chosen = parts.pop(which)
        for name in parts:
            if name not in inside:
                raise InvalidValue(f"there is no case {name!r}{did_you_mean(name, names)}", path)
        numbers = np.asarray(pc.fill_null(pc.index_in(chosen, value_set=wanted), -1))
        if bool((wrong := (numbers < 0) & np.asarray(chosen.is_valid())).any()):
            row = int(np.argmax(wrong))
            raise InvalidValue(f"{chosen[row].as_py()!r:.60} is none of the cases {', '.join(names)}", path, row)
        places = np.zeros(len(array), np.int32)
        children = []
        for number, (name, inner) in enumerate(inside.items()):
            mine = numbers == number
            rows = np.flatnonzero(mine)
            places[rows] = np.arange(len(rows), dtype=np.int32)
            child = parts.get(name)
            if child is None:
                children.append(pa.Array.from_buffers(pa.struct([]), len(rows), [None], children=[]))
                continue
            if bool((stray := np.asarray(child.is_valid()) & ~mine).any()):
                row = int(np.argmax(stray))
                raise InvalidValue(f"{name!r} has a value, but the case is {chosen[row].as_py()!r}", path, row)
            taken = child.take(pa.array(rows))
            children.append(taken if inner is None else inner(taken))
        absent = np.flatnonzero(numbers < 0)
        places[absent] = np.arange(len(absent), dtype=np.int32)
        codes = np.where(numbers < 0, len(names), numbers).astype(np.int8)
        children.append(pa.nulls(len(absent)))
        return pa.UnionArray.from_dense(pa.array(codes), pa.array(places), children, [*names, ABSENT])

    return convert


def _cells(array: pa.Array, path: str) -> pa.Array:
    """Dynamic values: {"schema": text, "value": ...}, or {"data": base64} as a source gives them."""

    def one(row: int, text: str | None) -> bytes | None:
        if text is None:
            return None
        try:
            found: Any = json.loads(text)
            if isinstance(found.get("data"), str):
                return base64.b64decode(found["data"], validate=True)
            return DynamicValue(parse_schema(found["schema"]), found["value"]).data
        except (ValueError, KeyError, AttributeError, TypeError):
            raise InvalidValue('write {"schema": "its schema", "value": ...} as JSON', path, row) from None

    return pa.array([one(row, text) for row, text in enumerate(array.to_pylist())], pa.binary())
