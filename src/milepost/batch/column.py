"""One field of every row: found by path, read as NumPy or Arrow, or replaced."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from milepost.batch import atoms, gather
from milepost.batch.arrow import shape_to_arrow
from milepost.batch.block import DTYPES, Block
from milepost.batch.encode import Encoder
from milepost.batch.plain import plain
from milepost.errors import InvalidValue, did_you_mean
from milepost.schema.flat import AtomShape, BoxShape, ChoiceShape, ListShape, Shape, TupleShape
from milepost.schema.types import Atom

if TYPE_CHECKING:
    from milepost.batch.batch import Batch

_STEP: Final = re.compile(r"\.?([A-Za-z_][A-Za-z0-9_]*)|\[(\d+)\]")


def steps(path: str) -> list[str | int]:
    """A path such as `lines[0].item.name` as names and positions."""
    found: list[str | int] = []
    at = 0
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None or (at == 0 and path[0] in ".["):
            raise InvalidValue(f"{path!r} is no path at character {at + 1}: write names and [0] with dots between")
        found.append(match[1] if match[1] is not None else int(match[2]))
        at = match.end()
    if not found:
        raise InvalidValue("an empty path names no field")
    return found


@dataclass(frozen=True, slots=True)
class _Found:
    """A shape in a block, the elements of it that belong to the rows asked for, and which of them are there."""

    block: Block
    shape: Shape | None  # None where the path leads into a case the rows are not in
    index: npt.NDArray[np.intp] | None  # element for each row; None: all, in order
    there: npt.NDArray[np.bool_] | None  # None: all are


def find(block: Block, path: str) -> _Found:
    """Follow a path from the root of a block."""
    shape: Shape | None = block.layout.root
    index: npt.NDArray[np.intp] | None = None
    there: npt.NDArray[np.bool_] | None = None
    for step in steps(path):
        if isinstance(shape, TupleShape | ListShape):
            there = _and(there, _at(block.valid(shape), index))
        if isinstance(shape, BoxShape):
            return _find_boxed(block, shape, index, there, path)
        block, shape, index, there = _follow(block, shape, index, there, step, path)
        if shape is None:
            break
    return _Found(block, shape, index, there)


def _follow(
    block: Block, shape: Shape | None, index: Any, there: Any, step: str | int, path: str
) -> tuple[Block, Shape | None, Any, Any]:
    match shape:
        case TupleShape(_, fields) if isinstance(step, str):
            if step not in fields:
                raise InvalidValue(f"there is no field {step!r}{did_you_mean(step, fields)}", path)
            return block, fields[step], index, there
        case ChoiceShape(_, variant, case, inner) if isinstance(step, str):
            names = [item.name for item in variant.cases]
            if step not in names:
                raise InvalidValue(f"there is no case {step!r}{did_you_mean(step, names)}", path)
            return block, inner if step == case else None, index, there
        case ListShape() if isinstance(step, int):
            offsets, items = block.list(shape)
            starts, ends = _at(offsets[:-1], index), _at(offsets[1:], index)
            inside = starts + step < ends
            places = np.where(inside, starts + step, 0).astype(np.intp)
            return items, items.layout.root, places, _and(there, inside)
    raise InvalidValue(f"{step!r} does not lead on from {shape.path if shape else path!r}", path)


def _find_boxed(block: Block, shape: BoxShape, index: Any, there: Any, path: str) -> _Found:
    raise InvalidValue(f"{shape.path} is boxed in this batch; read it with to_arrow() or row by row", path)


def _at(array: Any, index: npt.NDArray[np.intp] | None) -> Any:
    return array if array is None or index is None else array[index] if len(array) else np.zeros(len(index), array.dtype)


def _and(first: Any, second: Any) -> Any:
    if first is None or second is None:
        return first if second is None else second
    return first & second


def column(batch: Batch, path: str) -> npt.NDArray[Any]:
    """See `Batch.column`."""
    if len(batch.groups) == 1:
        return _numpy(batch, find(batch.groups[0].block, path))
    parts = [(group.rows, _numpy(batch, find(group.block, path))) for group in batch.groups]
    kinds = {part.dtype for _, part in parts if not _nothing(part)} or {np.dtype(object)}
    whole = np.ma.masked_all(len(batch), kinds.pop() if len(kinds) == 1 else object)
    for rows, part in parts:
        if not _nothing(part):
            whole[rows] = part
    return whole if np.ma.is_masked(whole) else whole.data


def _nothing(part: npt.NDArray[Any]) -> bool:
    return part.dtype == object and np.ma.isMaskedArray(part) and bool(np.ma.getmaskarray(part).all())


def _numpy(batch: Batch, found: _Found) -> npt.NDArray[Any]:
    block, shape = found.block, found.shape
    count = len(found.index) if found.index is not None else block.n
    if shape is None:
        return np.ma.masked_all(count, object)
    values: npt.NDArray[Any]
    there = found.there
    if isinstance(shape, AtomShape):
        there = _and(there, _at(block.valid(shape), found.index))
    if isinstance(shape, AtomShape) and isinstance(shape.type, Atom) and shape.type.kind in _NUMERIC:
        values = _at(_converted(shape.type, block.values(shape)), found.index)
    else:
        objects = plain(batch._form, block, shape)
        values = np.empty(len(objects), object)
        values[:] = objects
        values = _at(values, found.index)
        if isinstance(shape, TupleShape | ListShape | ChoiceShape | BoxShape):
            there = _and(there, np.array([value is not None for value in values], np.bool_))
    return values if there is None or bool(there.all()) else np.ma.array(values, mask=~there)


_NUMERIC: Final = {*DTYPES, "bool"} - {"decimal", "uuid"}


def _converted(kind: Atom, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if kind.kind == "timestamp":
        return values.view("datetime64[us]")
    return values.astype("datetime64[D]") if kind.kind == "date" else values


def arrow(batch: Batch, path: str) -> pa.Array:
    """See `Batch.arrow`."""
    if len(batch.groups) != 1:
        return _from_struct(batch.to_arrow(), path)
    found = find(batch.groups[0].block, path)
    if found.shape is None:
        return pa.nulls(len(batch))
    made = shape_to_arrow(batch._form, found.block, found.shape)
    if found.index is not None:
        made = made.take(pa.array(found.index, mask=None if found.there is None else ~found.there))
    elif found.there is not None and not found.there.all():
        made = made.take(pa.array(np.arange(len(batch)), mask=~found.there))
    return made


def _from_struct(table: pa.RecordBatch, path: str) -> pa.Array:
    raise InvalidValue("the batch holds several cases; read the whole with to_arrow()", path)


def replace(batch: Batch, path: str, values: Any) -> Batch:
    """See `Batch.replace`."""
    from milepost.batch.batch import Batch

    rows = len(batch)
    column = _column_of(values, rows, path)
    form = batch._form
    groups = {}
    for group in batch.groups:
        mine = column if group.rows is None else [column[row] for row in group.rows.tolist()]
        found = find(group.block, path)
        if found.index is not None or found.there is not None or isinstance(found.shape, ChoiceShape) or found.shape is None:
            return _replace_rows(batch, path, column)
        columns = gather.gather(group.block, slice(None))
        Encoder(form).fill(columns, found.shape, mine)
        groups[group.code] = columns, group.rows
    return Batch.assemble(form, rows, groups, batch.ids)


def _column_of(values: Any, rows: int, path: str) -> Sequence[Any]:
    if isinstance(values, np.ndarray | pa.Array | pa.ChunkedArray):
        values = values.tolist() if isinstance(values, np.ndarray) else values.to_pylist()
    if not isinstance(values, list | tuple):
        return [values] * rows
    if len(values) != rows:
        raise InvalidValue(f"{len(values)} values for {rows} rows", path)
    return values


def _replace_rows(batch: Batch, path: str, column: Sequence[Any]) -> Batch:
    """Where a new value may move a row to another case, or lies inside a list: decode and encode again."""
    from milepost.batch.batch import Batch

    made = batch._flat_pylist()
    way = steps(path)
    for row, value in zip(made, column, strict=True):
        place = row
        for step in way[:-1]:
            place = place[step]
            if place is None:
                raise InvalidValue("a part on the way is absent", path)
        place[way[-1]] = value
    if batch.schema.message_type is not None:
        raise InvalidValue("replace the node's list as a whole", path)
    return Batch.encode(batch.schema, made, batch.ids)


def paths(shape: Shape) -> Iterator[str]:
    """The paths of the leaves of a flat-tuple's shape, lists not entered."""
    match shape:
        case TupleShape(_, fields):
            for inner in fields.values():
                yield from paths(inner)
        case ChoiceShape(_, _, _, inner) if inner is not None:
            yield from paths(inner)
        case _:
            yield shape.path


__all__ = ["arrow", "atoms", "column", "find", "paths", "replace", "steps"]
