"""Nested rows that are added one at a time and encoded together.

The counterpart of `Collector` for lists, tuples in tuples and variants. A row is copied, and every value is checked on
the way, so that the columns are sure to take it later. As there, a row that is not plainly valid is refused and left
to `Batch.encode`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from milepost.batch import atoms
from milepost.batch.batch import Batch
from milepost.batch.ids import Ids
from milepost.schema.types import INTEGER_RANGES, Atom, List, Optional, Ref, Schema, Tuple, Type, Variant, walk

ROW_ROOM: Final = 1_024  # bytes of text, and elements of lists, in one row: larger rows gain little
FLOAT_MOST: Final = 3.4028234e38  # the greatest that four bytes hold
INTEGER_MOST: Final = 1 << 53  # integers up to here are exact doubles

Copy = Callable[[Any], Any]


class Copier:
    """Rows of one schema. `add` raises one of `collector.REFUSED` for a row that it refuses, and keeps none of it."""

    def __init__(self, schema: Schema) -> None:
        self.schema: Final = schema
        self.parts: Final[list[Any]] = []
        self.width: Final = 1  # parts of a row
        self._left = ROW_ROOM
        self._row = self._copy(schema.type)

    @classmethod
    def of(cls, schema: Schema) -> Copier | None:
        """A copier for a schema; None for message types, rules, recursion, dynamic values, and empty tuples."""
        if schema.message_type is not None or schema.checks or schema.recursive:
            return None
        types = (schema.type, *(item.type for item in schema.definitions))
        for kind in (part for whole in types for part in walk(whole)):
            if not isinstance(kind, Atom | Tuple | List | Optional | Variant | Ref) or kind == Tuple(()):
                return None
        return cls(schema)

    def __len__(self) -> int:
        return len(self.parts)

    def add(self, row: Any) -> None:
        """Take a row."""
        self._left = ROW_ROOM
        self.parts.append(self._row(row))

    def batch(self, ids: Ids | None = None) -> Batch:
        """The rows as a batch; the copier is empty afterwards."""
        rows = self.parts.copy()
        self.parts.clear()
        return Batch.encode(self.schema, rows, ids)

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise TypeError("a large row")

    def _copy(self, kind: Type) -> Copy:
        match kind:
            case Atom():
                return self._atom(kind)
            case Tuple():
                return self._tuple(kind)
            case List():
                return self._list(self._copy(kind.item))
            case Variant():
                return self._variant({case.name: self._copy(case.type) for case in kind.cases})
            case Optional():
                inner = self._copy(kind.type)
                return lambda value: None if value is None else inner(value)
            case Ref():
                return self._copy(self.schema.resolve(kind))
        raise AssertionError(kind)

    def _tuple(self, kind: Tuple) -> Copy:
        fields = [(item.name, self._copy(item.type)) for item in kind.fields]
        names = frozenset(name for name, _ in fields)

        def copied(value: Any) -> dict[str, Any]:
            if type(value) is not dict:
                raise TypeError
            if len(value) == len(fields):
                return {name: copy(value[name]) for name, copy in fields}
            if not value.keys() <= names:
                raise TypeError
            return {name: copy(value.get(name)) for name, copy in fields}  # optional fields may be left out

        return copied

    def _list(self, copy: Copy) -> Copy:
        def copied(value: Any) -> list[Any]:
            if type(value) is not list and type(value) is not tuple:
                raise TypeError
            self._spend(len(value))
            return [copy(item) for item in value]

        return copied

    def _variant(self, cases: dict[str, Copy]) -> Copy:
        def copied(value: Any) -> dict[str, Any]:
            if type(value) is not dict:
                raise TypeError
            ((name, inner),) = value.items()
            return {name: cases[name](inner)}

        return copied

    def _atom(self, kind: Atom) -> Copy:
        if kind.kind in INTEGER_RANGES:
            return _integer(*INTEGER_RANGES[kind.kind])
        if kind.kind == "string":
            return self._text
        if kind.kind == "bytes":
            return self._bytes
        if kind.kind == "decimal":
            return lambda value: _decimal(kind, value)
        return _PLAIN[kind.kind]

    def _text(self, value: Any) -> str:
        if type(value) is not str:
            raise TypeError
        self._spend(len(value))
        if not value.isascii():
            value.encode()  # raises for a lone surrogate
        return value

    def _bytes(self, value: Any) -> bytes:
        if type(value) is not bytes:
            raise TypeError
        self._spend(len(value))
        return value


def _integer(low: int, high: int) -> Copy:
    def whole(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise TypeError
        return value

    return whole


def _double(value: Any) -> float | int:
    if type(value) is float or (type(value) is int and -INTEGER_MOST <= value <= INTEGER_MOST):
        return value
    raise TypeError


def _float(value: Any) -> float:
    if type(value) is float and (-FLOAT_MOST <= value <= FLOAT_MOST):  # `Batch.encode` takes the rest, NaN included
        return value
    raise TypeError


def _timestamp(value: Any) -> datetime:
    if type(value) is not datetime:
        raise TypeError
    atoms.micros(value)
    return value


def _decimal(kind: Atom, value: Any) -> Decimal | int:
    if type(value) is not Decimal and type(value) is not int:
        raise TypeError
    atoms.unscaled(kind, value)
    return value


_PLAIN: Final[dict[str, Copy]] = {
    "double": _double, "float": _float, "timestamp": _timestamp,
    "bool": atoms.exactly(bool), "date": atoms.exactly(date), "uuid": atoms.exactly(UUID),
}  # fmt: skip
