"""The types of the language: fewer than a schema has, since widths do not matter to a query.

A *kind* is the type of an expression. Scalars can be compared and calculated with; structures only have parts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from milepost import limits
from milepost.schema.types import Atom, Dynamic, Tuple, Type, Variant

INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1
DECIMAL_BOUND: Final = 10**limits.DECIMAL_DIGITS  # the least magnitude that does not fit, in units of the last place


@dataclass(frozen=True, slots=True)
class Scalar:
    """The kind of a single value. Only decimals have digits."""

    name: str
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})" if self.name == "decimal" else self.name


BOOLEAN: Final = Scalar("boolean")
INTEGER: Final = Scalar("integer")
DOUBLE: Final = Scalar("double")
STRING: Final = Scalar("string")
BYTES: Final = Scalar("bytes")
DATE: Final = Scalar("date")
TIMESTAMP: Final = Scalar("timestamp")
UUID: Final = Scalar("uuid")
IDENT: Final = Scalar("ident")
NULL: Final = Scalar("null")  # only of the literal, which takes the kind of the other operand

_INTEGER_DIGITS: Final = 20  # of the largest uint64


def decimal(precision: int, scale: int) -> Scalar:
    """The kind of a decimal; the precision is at most 38 digits, since longer values are null."""
    return Scalar("decimal", min(max(precision, scale, 1), limits.DECIMAL_DIGITS), scale)


@dataclass(frozen=True, slots=True)
class Elements:
    """The kind of a list. It has the schema's type of its elements, since a list may be recursive."""

    item: Type

    def __str__(self) -> str:
        return "list"


@dataclass(frozen=True, slots=True)
class Structure:
    """The kind of a tuple, a variant or a dynamic value."""

    type: Tuple | Variant | Dynamic

    def __str__(self) -> str:
        return {Tuple: "tuple", Variant: "variant", Dynamic: "dynamic value"}[type(self.type)]


@dataclass(frozen=True, slots=True)
class NodeKind:
    """The kind of a variable that stands for a node of a message type."""

    name: str

    def __str__(self) -> str:
        return f"node {self.name}"


@dataclass(frozen=True, slots=True)
class Nodes:
    """The kind of a reference: a set of nodes of one type."""

    target: str

    def __str__(self) -> str:
        return f"reference to {self.target}"


@dataclass(frozen=True, slots=True)
class Message:
    """The kind of the variable that a `from` clause begins with."""

    def __str__(self) -> str:
        return "message"


Kind: TypeAlias = Scalar | Elements | Structure | NodeKind | Nodes | Message

_OF_ATOM: Final = {
    "bool": BOOLEAN, "float": DOUBLE, "double": DOUBLE, "string": STRING, "bytes": BYTES,
    "date": DATE, "timestamp": TIMESTAMP, "uuid": UUID, "ident": IDENT,
}  # fmt: skip


def of_atom(atom: Atom) -> Scalar:
    """The kind of a field."""
    if atom.kind == "decimal":
        return decimal(atom.precision, atom.scale)
    return _OF_ATOM.get(atom.kind, INTEGER)


def is_exact(kind: Kind) -> bool:
    """Whether values are whole numbers of some unit: integers and decimals."""
    return isinstance(kind, Scalar) and kind.name in ("integer", "decimal")


def is_number(kind: Kind) -> bool:
    """Whether values are numbers."""
    return is_exact(kind) or kind == DOUBLE


def comparable(left: Scalar, right: Scalar) -> bool:
    """Whether values of two kinds have an order."""
    if is_number(left) and is_number(right):
        return True
    return left == right or {left, right} == {IDENT, INTEGER}


def summed(kind: Scalar) -> Scalar:
    """The kind of a sum of numbers: a decimal gets all the digits there are."""
    return decimal(limits.DECIMAL_DIGITS, kind.scale) if kind.name == "decimal" else kind


def common(kinds: Iterable[Scalar]) -> Scalar | None:
    """The kind to which values of all these kinds can be converted, for `coalesce`; None when there is none."""
    found = NULL
    for kind in kinds:
        if found in (NULL, kind):
            found = kind
        elif kind == NULL:
            continue
        elif not comparable(found, kind):
            return None
        elif DOUBLE in (found, kind):
            found = DOUBLE
        elif IDENT in (found, kind):
            found = IDENT
        else:
            scale = max(found.scale, kind.scale)
            found = decimal(max(whole_digits(found), whole_digits(kind)) + scale, scale)
    return found


def whole_digits(kind: Scalar) -> int:
    """How many digits an exact number of this kind may have before the point."""
    return _INTEGER_DIGITS if kind == INTEGER else kind.precision - kind.scale
