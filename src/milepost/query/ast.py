"""The AST: a query as it was written, before any name or type is looked up.

Nodes are immutable and compare by content, without `at`, the position of the node in the text. `str()` of a node is
canonical text that parses back to an equal node (see `printer`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Final, TypeAlias
from uuid import UUID

# Keywords: they are names only in double quotes or after a dot.
KEYWORDS: Final = frozenset({
    "and", "asc", "between", "by", "desc", "escape", "false", "from", "in", "is", "like",
    "not", "null", "or", "order", "select", "true", "where",
})  # fmt: skip

LiteralValue: TypeAlias = bool | int | Decimal | float | str | bytes | date | datetime | UUID | None


class _Node:
    __slots__ = ()

    def __str__(self) -> str:
        from milepost.query.printer import printed  # circular: the printer imports every node

        return printed(self)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Literal(_Node):
    """A value; `kind` distinguishes 1, 1.0, 1e0 and true, which are equal in Python."""

    kind: str  # integer, decimal, double, string, bytes, date, timestamp, uuid, boolean or null
    value: LiteralValue
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Path(_Node):
    """A name and the steps from it: fields and cases by name, elements by index. `places` has one `at` per step."""

    name: str
    steps: tuple[str | int, ...] = ()
    at: int = field(default=0, compare=False)
    places: tuple[int, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Negation(_Node):
    """`not`."""

    operand: Expression
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Minus(_Node):
    """The sign; the minus of a number is part of the literal."""

    operand: Expression
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Binary(_Node):
    """A comparison, an arithmetic operation or a concatenation; `at` is the position of the operator."""

    operator: str  # = <> < <= > >= + - * / % ||
    left: Expression
    right: Expression
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Chain(_Node):
    """Two or more terms joined by `and`, or by `or`; no term is a chain of the same sort."""

    operator: str  # and, or
    terms: tuple[Expression, ...]
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Between(_Node):
    """`operand between low and high`, both ends included."""

    operand: Expression
    low: Expression
    high: Expression
    negated: bool = False
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class In(_Node):
    """`operand in (items)`, or `operand in path` when `items` is a path."""

    operand: Expression
    items: tuple[Expression, ...] | Path
    negated: bool = False
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Like(_Node):
    """`operand like pattern escape escape`."""

    operand: Expression
    pattern: str
    escape: str | None = None
    negated: bool = False
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Is(_Node):
    """`operand is null`, `is true` or `is false`; `what` is None, True or False."""

    operand: Expression
    what: bool | None
    negated: bool = False
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Call(_Node):
    """A function, quantifier or aggregate. The argument of an aggregate may be a query."""

    name: str
    arguments: tuple[Expression, ...] | Select
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class FromItem:
    """One variable of a `from` clause and the path that leads to it."""

    path: Path
    variable: str
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class OrderItem:
    """One criterion of an `order by` clause."""

    expression: Expression
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Select(_Node):
    """A query; `selected` is empty for `select *`."""

    selected: tuple[Expression, ...]
    sources: tuple[FromItem, ...]
    where: Expression | None = None
    orders: tuple[OrderItem, ...] = ()
    at: int = field(default=0, compare=False)


Expression: TypeAlias = Literal | Path | Negation | Minus | Binary | Chain | Between | In | Like | Is | Call
