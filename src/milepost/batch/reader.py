"""Fields straight out of the bytes of a one-row batch: Gryphon's constant-time access.

With one row, the place of every field is a constant of the schema's case. A reader is compiled once for a schema
and a path; calling it costs one unpacking, however deep the field is nested. The bytes must have been validated.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from milepost.batch import atoms
from milepost.batch.block import Block
from milepost.batch.format import BOXED, Format, format_of
from milepost.batch.layout import Layout
from milepost.batch.row import FROM_BYTES, read
from milepost.errors import InvalidValue
from milepost.schema.flat import AtomShape, ChoiceShape, Shape, TupleShape
from milepost.schema.types import Atom, Schema

Reader = Callable[[bytes], Any]
Projection = Callable[[bytes], tuple[Any, ...]]

_CODE_AT: Final = 16  # number of groups and code, in a schema with cases
_CODE: Final = struct.Struct(f"<{_CODE_AT}xII")


def reader(schema: Schema, path: str) -> Reader:
    """Compile the access to one field; the result takes the bytes of a batch of one row."""
    form = format_of(schema)
    names = path.split(".")
    if not form.has_cases:
        return _leaf(form, form.layout(), names, path)
    return _by_case(form, lambda layout: _leaf(form, layout, names, path))


def projection(schema: Schema, paths: Sequence[str]) -> Projection:
    """Compile the access to a set of fields, read in one call; the result is a tuple in the order of the paths."""
    form = format_of(schema)
    ways = [(path, path.split(".")) for path in paths]
    if not form.has_cases:
        return _project(form, form.layout(), ways)
    return _by_case(form, lambda layout: _project(form, layout, ways))


def _by_case(form: Format, compiled: Callable[[Layout], Callable[[bytes], Any]]) -> Callable[[bytes], Any]:
    """One compiled access for each case, made when the case first comes."""
    made: dict[int, Callable[[bytes], Any]] = {}

    def access(data: bytes) -> Any:
        groups, code = _CODE.unpack_from(data)
        if not groups:
            code = BOXED
        if code not in made:
            made[code] = compiled(form.boxed if code == BOXED else form.layout(code))
        return made[code](data)

    if form.cases.count:  # check the path now, not when the first message comes
        compiled(form.boxed)
    return access


def _find(layout: Layout, names: Sequence[str], path: str) -> tuple[Shape | None, list[int]]:
    """The shape at a path, and the validity bits on the way to it."""
    shape: Shape | None = layout.root
    bits: list[int] = []
    for name in names:
        match shape:
            case TupleShape(_, fields) if name in fields:
                shape = fields[name]
            case ChoiceShape(_, variant, case, inner) if any(item.name == name for item in variant.cases):
                shape = inner if name == case else None
            case None:
                return None, bits
            case _:
                raise InvalidValue(f"there is no field {name!r} here", path)
        if isinstance(shape, TupleShape | AtomShape) and shape.valid is not None:
            bits.append(shape.valid)
    return shape, bits
