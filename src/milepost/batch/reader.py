"""Fields read directly from the bytes of a one-row batch: Gryphon's constant-time access.

With one row, the place of every field is a constant of the schema's case. A reader is compiled once for a schema
and a path; calling it costs one unpacking, however deep the field is nested. The bytes must have been validated.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from milepost import kernels, limits
from milepost.batch import atoms
from milepost.batch.block import Block
from milepost.batch.column import Step, steps, type_at
from milepost.batch.format import BOXED, Format, format_of
from milepost.batch.layout import Layout
from milepost.batch.row import read
from milepost.errors import InvalidValue
from milepost.schema.flat import AtomShape, ChoiceShape, ListShape, Shape, TupleShape
from milepost.schema.types import Atom, Schema

Reader = Callable[[bytes], Any]
Projection = Callable[[bytes], tuple[Any, ...]]

_CODE_AT: Final = 16  # number of groups and code, in a schema with cases
_CODE: Final = struct.Struct(f"<{_CODE_AT}xII")


def reader(schema: Schema, path: str) -> Reader:
    """Compile the access to one field; the result takes the bytes of a batch of one row.

    The bytes are not checked again: they must come from `decode` or from this process.
    """
    type_at(schema, path)
    form = format_of(schema)
    if not form.has_cases:
        return _leaf(form, form.layout(), path)
    return _by_case(form, lambda layout: _leaf(form, layout, path))


def projection(schema: Schema, paths: Sequence[str]) -> Projection:
    """Compile the access to several fields, read in one call; the result returns a tuple in the order of the paths.

    As with `reader`, the bytes are those of one row and are not checked again.
    """
    if isinstance(paths, str):
        raise InvalidValue("a projection takes a list of paths; use reader() for one field", paths)
    for path in paths:
        type_at(schema, path)
    form = format_of(schema)
    if not form.has_cases:
        return _project(form, form.layout(), paths)
    return _by_case(form, lambda layout: _project(form, layout, paths))


def _by_case(form: Format, compiled: Callable[[Layout], Callable[[bytes], Any]]) -> Callable[[bytes], Any]:
    """One compiled access for each case, made when the case first occurs."""
    made: dict[int, Callable[[bytes], Any]] = {}

    def access(data: bytes) -> Any:
        groups, code = _CODE.unpack_from(data)
        if not groups:
            code = BOXED
        if code not in made:
            if len(made) >= limits.CASE_CACHE:
                made.clear()
            made[code] = compiled(form.boxed if code == BOXED else form.layout(code))
        return made[code](data)

    return access


def _find(form: Format, layout: Layout, path: str) -> tuple[Shape | None, list[int], list[Step]]:
    """The shape at a path (None: in another case), where the validity bits along it are, and the rest of the path.

    The search ends early at a box or a list: a view reads the rest.
    """
    shape: Shape | None = layout.root
    flags: list[int] = []
    way = steps(path)
    for number, step in enumerate(way):
        match shape:
            case TupleShape(_, fields):
                shape = fields[step]  # type: ignore[index]
            case ChoiceShape(_, _, case, inner):
                shape = inner if step == case else None
            case None:
                return None, flags, []
            case _:
                return shape, flags, way[number:]
        if isinstance(shape, TupleShape | AtomShape | ListShape) and shape.valid is not None:
            flags.append(form.body + layout.bit_at(shape.valid, 1))
    return shape, flags, []


def _code_of(shape: Shape | None) -> str | None:
    """The struct code of a number that needs no conversion."""
    if isinstance(shape, AtomShape) and isinstance(shape.type, Atom) and shape.type.kind not in ("date", "timestamp"):
        return atoms.CODES.get(shape.type.kind)
    return None


def _is_text(shape: Shape | None) -> bool:
    return isinstance(shape, AtomShape) and shape.type == Atom("string")


def _leaf(form: Format, layout: Layout, path: str) -> Reader:
    shape, flags, rest = _find(form, layout, path)
    if shape is None:
        return _nothing
    if rest:
        return _walked(_viewed(form, layout, shape, flags), rest)
    start = form.body
    code = _code_of(shape)
    if len(flags) <= 1 and isinstance(shape, AtomShape):
        if code is not None:
            return _number(start + layout.fixed_at(shape, 1), code, flags)
        if _is_text(shape):
            at = start + layout.var_at(1) + 4 * shape.slot
            native, plain = kernels.at_hand("batch", "native"), _text(at, flags)
            if native is None:
                return plain
            words = struct.pack("<III", native.TEXT, at, *(flags or [0]))
            return native.read_text((words, plain, None))  # type: ignore[no-any-return]
    return _viewed(form, layout, shape, flags)


def _nothing(data: bytes) -> None:
    """The field of a case that the message is not in."""


def _number(at: int, code: str, flags: list[int]) -> Reader:
    # The position goes into the format as padding, which saves an argument at every call.
    if not flags:
        unpack = struct.Struct(f"<{at}x{code}").unpack_from
        return lambda data: unpack(data)[0]
    gap = flags[0] - at - struct.calcsize(f"<{code}")
    both = struct.Struct(f"<{at}x{code}{gap}xB").unpack_from

    def optional(data: bytes) -> Any:
        value, there = both(data)
        return value if there else None

    return optional


def _text(at: int, flags: list[int]) -> Reader:
    decode = bytes.decode  # looked up once; the method of the slice would be looked up at every call
    if not flags:
        pair = struct.Struct(f"<{at}xII").unpack_from

        def text(data: bytes) -> str:
            start, end = pair(data)
            return decode(data[start:end])

        return text
    triple = struct.Struct(f"<{at}xII{flags[0] - at - 8}xB").unpack_from

    def optional(data: bytes) -> str | None:
        start, end, there = triple(data)
        return decode(data[start:end]) if there else None

    return optional


def _viewed(form: Format, layout: Layout, shape: Shape, flags: list[int]) -> Reader:
    """Any other shape, through the view that reads it in batches of every size."""
    start = form.body

    def view(data: bytes) -> Any:
        if all(data[at] for at in flags):
            return read(form, Block(layout, data, start, 1), shape, 0)
        return None

    return view


def _walked(view: Reader, rest: list[Step]) -> Reader:
    """The rest of a path behind a list or a box, step by step; None where it ends early."""

    def walk(data: bytes) -> Any:
        value = view(data)
        for step in rest:
            if isinstance(step, int):
                value = value[step] if value is not None and step < len(value) else None
            else:
                value = value[step] if value is not None and step in value else None
        return value

    return walk


def _project(form: Format, layout: Layout, paths: Sequence[str]) -> Projection:
    """One unpacking for all numbers, offsets and validity bits; one decoding for all text.

    The function is generated for its fields, as `dataclasses` generates `__init__`: a loop takes 1.5 times as long. Its
    text contains only numbers from the layout: no name and no value from outside.
    """
    start, base = form.body, form.body + layout.data_at(1)
    wanted: dict[int, str] = {}  # place -> struct code
    terms = []
    scope: dict[str, Any] = {}
    text_end = start + layout.var_at(1) + 4 * layout.flat.strings
    for number, path in enumerate(paths):
        shape, flags, rest = _find(form, layout, path)
        code = None if rest else _code_of(shape)
        if shape is None:
            terms.append("None")
            continue
        if isinstance(shape, AtomShape) and code is not None:
            at = start + layout.fixed_at(shape, 1)
            wanted[at] = code
            term = f"v{at}"
        elif isinstance(shape, AtomShape) and _is_text(shape) and not rest:
            at = start + layout.var_at(1) + 4 * shape.slot
            wanted |= {at: "I", at + 4: "I", text_end: "I"}
            term = f"text[v{at}:v{at + 4}]"
        else:
            scope[f"read{number}"] = _leaf(form, layout, path)
            terms.append(f"read{number}(data)")
            continue
        wanted |= dict.fromkeys(flags, "B")
        terms.append(f"{term} if {' and '.join(f'v{flag}' for flag in flags)} else None" if flags else term)
    unpack = _unpacker(wanted)
    if all(term.startswith("v") and term.isalnum() for term in terms) and terms == [f"v{at}" for at in sorted(wanted)]:
        return unpack
    scope["unpack"] = unpack
    lines = ["def project(data):"]
    if wanted:
        lines.append(f"    {', '.join(f'v{at}' for at in sorted(wanted))}, = unpack(data)")
    if text_end in wanted and any("text[" in term for term in terms):
        scope["one_by_one"] = [_leaf(form, layout, path) for path in paths]
        scope["before"] = " " * base  # offsets count from the start of the batch
        lines.append(f"    text = before + data[{base}:v{text_end}].decode()")
        lines.append("    if not text.isascii():")  # offsets count bytes, and here a character may take several
        lines.append("        return tuple([read(data) for read in one_by_one])")
    lines.append(f"    return ({', '.join(terms)},)" if terms else "    return ()")
    exec("\n".join(lines), scope)  # noqa: S102 - numbers from the layout only, see above
    plain: Projection = scope["project"]
    return _compiled(form, layout, paths, plain) if "text" in lines[-1] or " if " in lines[-1] else plain


_NATIVE: Final = {"i": "INT", "q": "LONG", "I": "UINT32", "Q": "UINT64", "d": "DOUBLE"}


def _compiled(form: Format, layout: Layout, paths: Sequence[str], plain: Projection) -> Projection:
    """The same as a builtin, if it is compiled and supports every field: text takes half the time."""
    native = kernels.at_hand("batch", "native")
    if native is None:
        return plain
    start = form.body
    plan = []
    for path in paths:
        shape, flags, rest = _find(form, layout, path)
        code = _code_of(shape)
        if shape is None:
            plan.append((native.NOTHING, 0, 0))
        elif rest or len(flags) > 1 or not isinstance(shape, AtomShape):
            return plain
        elif _is_text(shape):
            plan.append((native.TEXT, start + layout.var_at(1) + 4 * shape.slot, *(flags or [0])))
        elif code in _NATIVE:
            plan.append((getattr(native, _NATIVE[code]), start + layout.fixed_at(shape, 1), *(flags or [0])))
        else:
            return plain
    words = b"".join(struct.pack("<III", *field) for field in plan)
    return native.project((words, plain, None))  # type: ignore[no-any-return]


def _unpacker(wanted: dict[int, str]) -> Projection:
    """A function that unpacks the values at some positions, in order."""
    parts = ["<"]
    end = 0
    for at, code in sorted(wanted.items()):
        parts.append(f"{at - end}x{code}")
        end = at + struct.calcsize(f"<{code}")
    return struct.Struct("".join(parts)).unpack_from
