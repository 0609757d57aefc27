"""Converts batches of messages to the Arrow record batches that Spark takes from a source.

Spark compares the schema of the first record batch with what it expects, including which parts may be null, and
supports neither unions nor unsigned numbers. Most columns are passed on without a copy; the others are converted a
column at a time.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from milepost.batch import Batch, DynamicValue
from milepost.batch.arrow import ABSENT
from milepost.batch.block import arrow_type
from milepost.batch.ids import COUNTER_BITS
from milepost.client.logbatch import LogBatch
from milepost.errors import ConfigError, did_you_mean
from milepost.pipeline.source import hexadecimal
from milepost.pipeline.source.types import METADATA
from milepost.schema import Schema
from milepost.schema.flat import SuperVariant
from milepost.schema.types import Atom, List, Optional, Tuple, Type, Variant

Convert = Callable[[pa.Array], pa.Array]

_MS_US: Final = 1_000


class ToSpark:
    """Converts batches of one schema, or of other versions of it, to record batches of one Spark schema.

    `struct` may have a subset of the messages' columns, in any order, and the columns of `METADATA`. Other columns and
    other types raise `ConfigError`.
    """

    def __init__(self, schema: Schema, struct: StructType) -> None:
        self.schema: Final = schema
        self.arrow: Final[pa.Schema] = to_arrow_schema(struct, timezone="UTC").remove_metadata()
        cases = SuperVariant(schema.type, schema)
        assert isinstance(schema.type, Tuple)
        kinds = {item.name: item.type for item in schema.type.fields}
        self._columns: list[tuple[str, Convert | None]] = []
        self.with_metadata = False
        for field in self.arrow:
            if field.name in kinds:
                convert = _converter(cases, kinds[field.name], field.type, field.name)
                self._columns.append((field.name, convert))
            elif field.name in METADATA.names:
                self._columns.append((field.name, None))
                self.with_metadata = True
            else:
                near = did_you_mean(field.name, kinds)
                raise ConfigError(f"schema: the messages of {schema.name} have no field {field.name!r}{near}")

    def __call__(self, batch: Batch) -> pa.RecordBatch:
        """The rows of a batch. Raises `IncompatibleSchema` when its version cannot be read as this one."""
        extra = _metadata(batch) if self.with_metadata else {}
        if batch.schema is not self.schema and batch.schema != self.schema:
            batch = batch.read_as(self.schema)
        table = batch.to_arrow()
        arrays = []
        for name, convert in self._columns:
            array = extra[name] if name in extra else table.column(name)
            arrays.append(array if convert is None else convert(array))
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)


def _metadata(batch: Batch) -> dict[str, pa.Array]:
    """The columns of `METADATA`. A batch that is not from a log has no offsets, and a batch without IDs no IDs."""
    count = len(batch)
    log: Any = pa.nulls(count, pa.int64())
    offsets: Any = log
    if isinstance(batch, LogBatch):
        log = pa.array(np.full(count, batch.log, np.int64))
        offsets = pa.array(batch.offsets.astype(np.int64))
    if batch.ids is None:
        names = ("_id", pa.string()), ("_time", pa.timestamp("us", "UTC")), ("_publisher", pa.int64())
        return {"_log": log, "_offset": offsets} | {name: pa.nulls(count, kind) for name, kind in names}
    stamps = batch.ids.stamps
    publishers, brokers = np.zeros(count, np.int64), np.zeros(count, np.int64)
    start = 0
    for run in batch.ids.runs:
        publishers[start : run.end], brokers[start : run.end] = run.publisher, run.broker
        start = run.end
    whole = np.empty((count, hexadecimal.WIDTH), np.uint8)
    whole[:, :4] = publishers.astype(">u4").view(np.uint8).reshape(count, 4)
    whole[:, 4:8] = brokers.astype(">u4").view(np.uint8).reshape(count, 4)
    whole[:, 8:] = stamps.astype(">u8").view(np.uint8).reshape(count, 8)
    times = (stamps >> np.uint64(COUNTER_BITS)).astype(np.int64) * _MS_US
    return {
        "_id": hexadecimal.digits(whole),
        "_log": log,
        "_offset": offsets,
        "_time": pa.array(times).cast(pa.timestamp("us", "UTC")),
        "_publisher": pa.array(publishers),
    }


def _converter(cases: SuperVariant, kind: Type, target: pa.DataType, path: str) -> Convert | None:
    """A function that converts a column of a message for Spark; None when no conversion is needed."""
    kind = cases.inline(kind)
    if isinstance(kind, Optional):
        kind = cases.inline(kind.type)
    match kind:
        case Tuple(fields) if pa.types.is_struct(target):
            return _tuple(cases, [(item.name, item.type) for item in fields], target, path)
        case List(item) if pa.types.is_list(target):
            return _list(_converter(cases, item, target.value_type, f"{path}[]"), target)
        case Variant(choices) if pa.types.is_struct(target):
            inside = {item.name: item.type for item in choices}
            return _variant(cases, inside, target, path)
        case Atom("uuid") if pa.types.is_string(target):
            return hexadecimal.uuid_text
        case Atom():
            source = arrow_type(kind)
            if source == target:
                return None
            if (kind.kind, target) in _CAST:
                return lambda array: array.cast(target)
        case _ if pa.types.is_string(target):
            return _json  # dynamic values, and recursive references
    raise ConfigError(f"schema: {path} is a {kind} in the messages, which cannot be read as {target}")


_CAST: Final = {
    ("uint8", pa.int16()), ("uint16", pa.int32()), ("uint32", pa.int64()), ("uint64", pa.decimal128(20, 0)),
}  # fmt: skip


def _tuple(cases: SuperVariant, fields: list[tuple[str, Type]], target: pa.DataType, path: str) -> Convert:
    kinds = dict(fields)
    converters: list[Convert | None] = []
    for number in range(target.num_fields):
        field = target.field(number)
        if field.name not in kinds:
            raise ConfigError(f"schema: {path} has no field {field.name!r} in the messages")
        converters.append(_converter(cases, kinds[field.name], field.type, f"{path}.{field.name}"))

    def convert(array: pa.Array) -> pa.Array:
        array = _whole(array)
        children = []
        for number, inner in enumerate(converters):
            child = array.field(target.field(number).name)
            children.append(child if inner is None else inner(child))
        return pa.Array.from_buffers(target, len(array), [array.buffers()[0]], children=children)

    return convert


def _list(inner: Convert | None, target: pa.DataType) -> Convert:
    def convert(array: pa.Array) -> pa.Array:
        array = _whole(array)
        values = array.values if inner is None else inner(array.values)
        return pa.Array.from_buffers(target, len(array), array.buffers()[:2], children=[values])

    return convert


def _variant(cases: SuperVariant, inside: dict[str, Type], target: pa.DataType, path: str) -> Convert:
    """A union as a struct: the name of the case, and a column for each case with a value."""
    carried = [target.field(number) for number in range(1, target.num_fields)]
    converters = [
        _converter(cases, inside[field.name], field.type, f"{path}.{field.name}") if field.name in inside else None
        for field in carried
    ]

    def convert(array: pa.Array) -> pa.Array:
        array = _whole(array)
        codes, places = np.asarray(array.type_codes), np.asarray(array.offsets)
        names = [array.type.field(number).name for number in range(array.type.num_fields)]
        shown = pa.array([None if name == ABSENT else name for name in names], pa.string())
        chosen = shown.take(pa.array(codes))
        children = [chosen]
        for field, inner in zip(carried, converters, strict=True):
            number = names.index(field.name)
            child = array.field(number)
            if inner is not None:
                child = inner(child)
            children.append(child.take(pa.array(places, mask=codes != number)))
        valid = None
        if chosen.null_count:
            valid = pa.py_buffer(np.packbits(np.asarray(chosen.is_valid()), bitorder="little"))
        return pa.Array.from_buffers(target, len(array), [valid], children=children)

    return convert


def _whole(array: pa.Array) -> pa.Array:
    """An array that is not a slice, so that its buffers start at offset 0."""
    if array.offset or (isinstance(array, pa.UnionArray) and len(array.type_codes) != len(array)):
        return array.take(pa.array(np.arange(len(array))))
    return array


def _json(array: pa.Array) -> pa.Array:
    """Values of schemas that are not known here, in the form that the command line prints."""

    def one(data: bytes | None) -> str | None:
        if not data:  # absent; an absent tuple has an empty value in its place
            return None
        value = DynamicValue.read(data)
        return json.dumps({"fingerprint": f"{value.fingerprint:016x}", "data": base64.b64encode(data).decode()})

    return pa.array([one(data) for data in array.to_pylist()], pa.string())
