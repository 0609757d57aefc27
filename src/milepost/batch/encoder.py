"""Rows of Python values -> columns.

Values move a column at a time: one pass picks a field out of every row, one call packs it. Only if a row does not
fit are the rows tried one by one, to name it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from milepost import limits
from milepost.batch import atoms
from milepost.batch.block import OFFSET
from milepost.batch.columns import Columns, pack_bits
from milepost.batch.format import WRAPPED, Format
from milepost.batch.layout import Layout
from milepost.errors import InvalidValue, did_you_mean
from milepost.schema.flat import AtomShape, BoxShape, ChoiceShape, ListShape, Shape, TupleShape, case_of, field_of
from milepost.schema.types import Atom, Ref, Tuple

Values = Sequence[Any]


class Encoder:
    """Fills columns from values of one schema. `depth` counts the dynamic values around this one."""

    def __init__(self, form: Format, depth: int = 0) -> None:
        limits.require("DYNAMIC_DEPTH", depth, f"{form.schema.name}: values within values")
        self.form = form
        self.depth = depth

    def columns(self, layout: Layout, values: Values) -> Columns:
        """The columns of values at one level."""
        columns = Columns(layout, len(values))
        self.fill(columns, layout.root, values)
        return columns

    def fill(self, columns: Columns, shape: Shape, values: Values) -> None:
        """Fill the slots of one shape and of the shapes inside it."""
        match shape:
            case AtomShape():
                self._atom(columns, shape, values)
            case TupleShape():
                self._tuple(columns, shape, values)
            case ListShape():
                self._list(columns, shape, values)
            case ChoiceShape():
                self._choice(columns, shape, values)
            case BoxShape():
                self._box(columns, shape, values)

    def _present(self, columns: Columns, valid: int | None, values: Values, default: Any) -> Values:
        """Write the validity bits, if there are any, and put the default in place of absent values."""
        if valid is None:
            return values
        columns.bits[valid] = pack_bits([value is not None and value is not _ABSENT for value in values])
        return [default if value is None else value for value in values]

    def _atom(self, columns: Columns, shape: AtomShape, values: Values) -> None:
        kind = shape.type
        if not isinstance(kind, Atom):
            cells = [self._cell(shape, value) for value in self._present(columns, shape.valid, values, _ABSENT)]
            columns.var[shape.slot] = _offsets(map(len, cells), len(cells)), b"".join(cells)
            return
        default = atoms.DEFAULTS[kind.kind]
        values = self._present(columns, shape.valid, values, default)
        try:
            _pack(columns, shape, kind, values)
        except atoms.REFUSED:
            # Only now find out whether a tuple around this field is absent in some rows: valid rows do not pay for it.
            filled = [default if value is _ABSENT else value for value in values]
            try:
                _pack(columns, shape, kind, filled)
            except atoms.REFUSED:
                raise atoms.bad_value(kind, filled, shape.path) from None

    def _cell(self, shape: AtomShape, value: Any) -> bytes:
        """A dynamic value: the bytes of a batch of one row."""
        from milepost.batch.batch import Batch  # circular: a batch may be inside a batch
        from milepost.batch.dynamic import DynamicValue

        if value is _ABSENT:
            return b""
        if isinstance(shape.type, Ref):
            schema = self.form.referred(shape.type)
            if value is None:
                raise InvalidValue(f"missing; {shape.type} is required here", shape.path)
            wrapped = value if isinstance(self.form.schema.resolve(shape.type), Tuple) else {WRAPPED: value}
            return bytes(Batch.encode(schema, [wrapped], _depth=self.depth + 1).data)
        if not isinstance(value, DynamicValue):
            raise InvalidValue(f"a dynamic value is written DynamicValue(schema, value); got {value!r:.60}", shape.path)
        return value.encoded(self.depth + 1)

    def _tuple(self, columns: Columns, shape: TupleShape, values: Values) -> None:
        values = self._present(columns, shape.valid, values, _ABSENT)
        if not shape.fields:
            return
        for inner, column in zip(shape.fields.values(), _pick(shape, values), strict=True):
            self.fill(columns, inner, column)

    def _list(self, columns: Columns, shape: ListShape, values: Values) -> None:
        values = self._present(columns, shape.valid, values, ())
        if not set(map(type, values)) <= _LISTS:
            values = [_as_list(value, shape.path) for value in values]
        item = self.columns(columns.layout.items[shape.slot], list(chain.from_iterable(values)))
        columns.lists[shape.slot] = _offsets(map(len, values), len(values)), item

    def _choice(self, columns: Columns, shape: ChoiceShape, values: Values) -> None:
        if shape.shape is None:
            return  # the code of the group means absence
        if any(value is None for value in values):
            raise InvalidValue("missing; a variant is required here", shape.path)
        inner = [self._inside(shape, value) for value in values]
        self.fill(columns, shape.shape, inner)

    def _inside(self, shape: ChoiceShape, value: Any) -> Any:
        if value is _ABSENT:
            return _ABSENT
        name, inner = case_of(shape.variant, value, shape.path)
        assert name == shape.case, "rows are grouped by case before they are encoded"
        return inner

    def _box(self, columns: Columns, shape: BoxShape, values: Values) -> None:
        tags = bytearray(len(values))
        for position, value in enumerate(values):
            if value is None and not shape.optional:
                raise InvalidValue("missing; a variant is required here", shape.path)
            if value is not None and value is not _ABSENT:
                tags[position] = 1 + shape.cases.code(value)
        columns.fixed[shape.slot] = bytes(tags)
        columns.boxes[shape.index] = {}  # `replace` fills columns again
        for tag in set(tags) - {0}:
            chosen = [value for value, mine in zip(values, tags, strict=True) if mine == tag]
            columns.boxes[shape.index][tag] = self.columns(columns.layout.case(shape, tag), chosen)


class _Absent:
    """The value of every field of an absent tuple: packed as zeros, whatever the type."""


_ABSENT = _Absent()
_BOOLS = {bool, np.bool_}
_LISTS = {list, tuple}


def _pack(columns: Columns, shape: AtomShape, kind: Atom, values: Values) -> None:
    match kind.kind:
        case "bool":
            if not set(map(type, values)) <= _BOOLS:
                raise TypeError
            columns.bits[shape.slot] = pack_bits(values)
        case "string":
            text = "".join(values)
            data = text.encode()
            sizes = map(len, values) if len(data) == len(text) else (len(value.encode()) for value in values)
            columns.var[shape.slot] = _offsets(sizes, len(values)), data
        case "bytes":
            if set(map(type, values)) != {bytes}:
                values = [bytes(memoryview(value)) for value in values]  # `len` of a buffer may count items
            columns.var[shape.slot] = _offsets(map(len, values), len(values)), b"".join(values)
        case name:
            columns.fixed[shape.slot] = atoms.PACKERS[name](kind, values)


def _offsets(sizes: Iterable[int], count: int) -> npt.NDArray[np.int32]:
    ends = np.zeros(count + 1, np.int64)
    np.cumsum(np.fromiter(sizes, np.int64, count), out=ends[1:])
    limits.require("BATCH_BYTES", int(ends[-1]), "the size of one column")
    return ends.astype(OFFSET)


def _as_list(value: Any, path: str) -> Values:
    if value is _ABSENT:
        return ()
    if isinstance(value, np.ndarray):
        return value.tolist()  # type: ignore[no-any-return]
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        return value
    if value is None:
        raise InvalidValue("missing; a list is required here (it may be empty)", path)
    raise InvalidValue(f"expected a list, got {value!r:.60}", path)


def _pick(shape: TupleShape, values: Values) -> Sequence[Values]:
    """The fields of some tuples, a sequence of values for each field."""
    names = tuple(shape.fields)
    if not values:
        return [()] * len(names)
    if set(map(type, values)) == {dict}:
        try:
            picked = _columns(itemgetter(*names), names, values)
            if set(map(len, values)) == {len(names)}:
                return picked
        except KeyError:
            pass  # optional fields may be left out
        _known(shape, set().union(*values))
        return [[value.get(name) for value in values] for name in names]
    if not any(issubclass(kind, NOT_OBJECTS) for kind in set(map(type, values))):
        try:
            return _columns(attrgetter(*names), names, values)
        except AttributeError:
            pass  # optional attributes may be missing
    rows = [_row(shape, value) for value in values]
    return list(zip(*rows, strict=True))


def _columns(getter: Any, names: tuple[str, ...], values: Values) -> Sequence[Values]:
    picked = map(getter, values)
    return [tuple(picked)] if len(names) == 1 else list(zip(*picked, strict=True))


# Objects whose attributes are not their fields. A view of another batch is a Mapping: its fields are items.
NOT_OBJECTS = (Mapping, _Absent, str, bytes, int, float, list, tuple, set, frozenset, type(None))


def _row(shape: TupleShape, value: Any) -> list[Any]:
    if value is _ABSENT:
        return [_ABSENT] * len(shape.fields)
    if isinstance(value, Mapping):
        _known(shape, set(value))
        return [field_of(value, name) for name in shape.fields]
    if isinstance(value, NOT_OBJECTS) or not any(hasattr(value, name) for name in shape.fields):
        names = ", ".join(shape.fields) or "no fields"
        what = f"missing; a dict with {names} is required here"
        if value is not None:
            what = f"expected a dict with {names}, got {value!r:.60}"
        raise InvalidValue(what, shape.path)
    return [getattr(value, name, None) for name in shape.fields]


def _known(shape: TupleShape, names: set[Any]) -> None:
    if unknown := names - shape.fields.keys():
        name = min(unknown, key=str)
        raise InvalidValue(f"there is no field {name!r}{did_you_mean(str(name), shape.fields)}", shape.path)
