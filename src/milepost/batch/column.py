"""One field of every row: found by path, read as Arrow or NumPy, or replaced."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from milepost.batch import atoms, gather
from milepost.batch.arrow import shape_to_arrow
from milepost.batch.block import DTYPES
from milepost.batch.columns import pack_bits
from milepost.batch.encoder import Encoder
from milepost.batch.format import Format
from milepost.batch.plain import cell
from milepost.errors import InvalidValue, did_you_mean
from milepost.schema.flat import AtomShape, ChoiceShape, Shape, TupleShape
from milepost.schema.types import Atom, Dynamic, List, Optional, Ref, Schema, Tuple, Type, Variant

if TYPE_CHECKING:
    from milepost.batch.batch import Batch

Step = str | int
Mask = npt.NDArray[np.bool_] | None
_STEP: Final = re.compile(r"(?:\A|\.)([A-Za-z_][A-Za-z0-9_]*)|\[(\d{1,9})\]")


def steps(path: str) -> list[Step]:
    """A path such as `lines[0].item.name` as names and positions."""
    found: list[Step] = []
    at = 0
    if path.startswith((".", "[")):
        raise InvalidValue("a path starts with the name of a field", path)
    while at < len(path) or not found:
        match = _STEP.match(path, at)
        if match is None:
            raise InvalidValue(f"invalid path at character {at + 1}: write names and positions: lines[0].price", path)
        found.append(match[1] if match[1] is not None else int(match[2]))
        at = match.end()
    return found


def type_at(schema: Schema, path: str) -> Type:
    """The type at the end of a path. Raises `InvalidValue` that describes the type at the wrong step."""
    kind: Type = schema.type
    for step in steps(path):
        kind = _bare(schema, kind)
        match kind:
            case Tuple(fields) | Variant(fields) if isinstance(step, str):
                inside = {item.name: item.type for item in fields}
                if step not in inside:
                    what = "field" if isinstance(kind, Tuple) else "case"
                    raise InvalidValue(f"there is no {what} {step!r}{did_you_mean(step, inside)}", path)
                kind = inside[step]
            case List(item) if isinstance(step, int):
                kind = item
            case _:
                raise InvalidValue(_no_way(step, kind), path)
    return _bare(schema, kind)


def _bare(schema: Schema, kind: Type) -> Type:
    while isinstance(kind, Optional) or (isinstance(kind, Ref) and kind.name not in schema.recursive):
        kind = kind.type if isinstance(kind, Optional) else schema.resolve(kind)
    return kind


def _no_way(step: Step, kind: Type) -> str:
    if isinstance(kind, List):
        return f"{step!r} follows a list: choose an element, as in [0]"
    return f"a value of type {kind!s:.40} has no {step!r}"


def arrow(batch: Batch, path: str) -> pa.Array:
    """See `Batch.arrow`."""
    type_at(batch.schema, path)
    way = steps(path)
    if len(batch.groups) > 1:
        array = batch.to_arrow().column(str(way[0]))
        rest = way[1:]
    else:
        block = batch.groups[0].block
        shape, rest = _descend(block.layout.root, way)
        array = shape_to_arrow(batch._form, block, shape)
    there: Mask = None  # where all tuples of the path are present; Arrow keeps this apart from their members
    for step in rest:
        array, there = _element(array, there, step) if isinstance(step, int) else _member(array, there, step)
    return array if there is None or bool(there.all()) else _masked(array, there)


def _descend(shape: Shape, way: list[Step]) -> tuple[Shape, list[Step]]:
    """Skip tuples that are always present: they are only names."""
    while way and isinstance(shape, TupleShape) and shape.valid is None and isinstance(way[0], str):
        shape, way = shape.fields[way[0]], way[1:]
    return shape, way


def _member(array: pa.Array, there: Mask, name: str) -> tuple[pa.Array, Mask]:
    number = next(number for number in range(array.type.num_fields) if array.type.field(number).name == name)
    child = array.field(number)
    if isinstance(array, pa.StructArray):
        return child, _and(there, array)
    mine = np.asarray(array.type_codes) == array.type.type_codes[number]
    if mine.all() and len(child) == len(array):
        return child, there
    places = np.where(mine, np.asarray(array.offsets), 0)
    return _picked(child, places), mine if there is None else there & mine


def _element(array: pa.ListArray, there: Mask, position: int) -> tuple[pa.Array, Mask]:
    offsets = np.asarray(array.offsets)
    places = offsets[:-1].astype(np.int64) + position
    inside = places < offsets[1:]
    there = _and(there, array)
    return _picked(array.values, np.where(inside, places, 0)), inside if there is None else there & inside


def _and(there: Mask, array: pa.Array) -> Mask:
    if not array.null_count:
        return there
    valid = np.asarray(array.is_valid().to_numpy(zero_copy_only=False))
    return valid if there is None else there & valid


def _picked(array: pa.Array, places: npt.NDArray[Any]) -> pa.Array:
    return array.take(pa.array(places)) if len(array) else pa.nulls(len(places), array.type)


def _masked(array: pa.Array, there: npt.NDArray[np.bool_]) -> pa.Array:
    """The same values, absent also where a part of the path is. Numbers and text only get new validity bits."""
    both = there if not array.null_count else there & np.asarray(array.is_valid().to_numpy(zero_copy_only=False))
    if pa.types.is_nested(array.type) or pa.types.is_union(array.type):
        return array.take(pa.array(np.arange(len(array)), mask=~both))
    bits = pack_bits(np.concatenate([np.zeros(array.offset, np.bool_), both]))
    return pa.Array.from_buffers(
        array.type, len(array), [pa.py_buffer(bits), *array.buffers()[1:]], offset=array.offset
    )


def column(batch: Batch, path: str) -> npt.NDArray[Any]:
    """See `Batch.column`."""
    kind = type_at(batch.schema, path)
    if not isinstance(kind, Atom | Dynamic | Ref):
        parts = [_walk(row, steps(path)) for row in batch._flat_pylist()]
        return _maybe_masked(object_array(parts), np.array([part is None for part in parts], np.bool_))
    array = arrow(batch, path)
    if isinstance(kind, Atom) and kind.kind in _NUMERIC:
        values = _numbers(kind, array)
    else:
        values = object_array(_objects(batch._form, kind, array))
    if not array.null_count:
        return values
    return _maybe_masked(values, array.is_null().to_numpy(zero_copy_only=False))


def _maybe_masked(values: npt.NDArray[Any], absent: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    return np.ma.array(values, mask=absent) if absent.any() else values


def object_array(values: Sequence[Any]) -> npt.NDArray[Any]:
    """Values of any kind as an array; NumPy would make a table of equally long lists."""
    made = np.empty(len(values), object)
    made[:] = values
    return made


def _walk(value: Any, way: Sequence[Step]) -> Any:
    """Follow a path in a plain value; None where it ends early."""
    for step in way:
        if isinstance(step, int):
            value = value[step] if value is not None and step < len(value) else None
        else:
            value = None if value is None else value.get(step)
    return value


_NUMERIC: Final = {*DTYPES, "bool"} - {"decimal", "uuid"}


def _numbers(kind: Atom, array: pa.Array) -> npt.NDArray[Any]:
    raw = array.buffers()[1] or b""
    if kind.kind == "bool":
        bits = np.unpackbits(np.frombuffer(raw, np.uint8), bitorder="little")
        return bits[array.offset : array.offset + len(array)].view(np.bool_)
    values = np.frombuffer(raw, DTYPES[kind.kind], len(array), array.offset * DTYPES[kind.kind].itemsize)
    if kind.kind == "timestamp":
        return values.view("<M8[us]")
    return values.astype("<M8[D]") if kind.kind == "date" else values


def _objects(form: Format, kind: Type, array: pa.Array) -> list[Any]:
    if isinstance(kind, Dynamic | Ref):
        shape = AtomShape("", kind)
        return [None if raw is None else cell(form, shape, raw) for raw in array.to_pylist()]
    if kind == Atom("uuid"):
        return [None if raw is None else atoms.uuid_of(raw) for raw in array.to_pylist()]
    return array.to_pylist()  # type: ignore[no-any-return]


def replace(batch: Batch, path: str, values: Any) -> Batch:
    """See `Batch.replace`."""
    from milepost.batch.batch import Batch

    type_at(batch.schema, path)
    given = _one_each(values, len(batch), path)
    way = steps(path)
    groups = {}
    for group in batch.groups:
        shape, rest = _descend(group.block.layout.root, way)
        if rest or _decided(shape) or batch.schema.message_type is not None:
            # Inside an optional tuple, a list or a variant, a new value may change other columns too.
            return _replace_rows(batch, way, given)
        mine = given if group.rows is None else [given[row] for row in group.rows.tolist()]
        columns = gather.gather(group.block, slice(None))
        Encoder(batch._form).fill(columns, shape, mine)
        groups[group.code] = columns, group.rows
    return Batch.assemble(batch._form, len(batch), groups, batch.ids)


def _decided(shape: Shape) -> bool:
    """Whether the flat-tuple case depends on something inside, so that a new value may need another case."""
    if isinstance(shape, TupleShape):
        return any(_decided(inner) for inner in shape.fields.values())
    return isinstance(shape, ChoiceShape)


def _one_each(values: Any, rows: int, path: str) -> Sequence[Any]:
    if isinstance(values, np.ndarray) and values.dtype == np.dtype("M8[us]"):
        values = [None if value is None else value.replace(tzinfo=UTC) for value in values.tolist()]
    elif isinstance(values, np.ndarray):
        values = values.tolist()
    elif isinstance(values, pa.Array | pa.ChunkedArray):
        values = values.to_pylist()
    if not isinstance(values, list | tuple) or rows == 0:
        return [values] * rows
    if len(values) != rows:
        raise InvalidValue(f"{len(values)} values for {rows} rows", path)
    return values


def _replace_rows(batch: Batch, way: list[Step], values: Sequence[Any]) -> Batch:
    from milepost.batch.batch import Batch

    rows = batch._flat_pylist()
    for row, value in zip(rows, values, strict=True):
        place = _walk(row, way[:-1])
        if place is not None and (isinstance(place, dict) or way[-1] < len(place)):  # type: ignore[operator]
            place[way[-1]] = value
    return Batch.from_flat(batch.schema, rows, batch.ids)
