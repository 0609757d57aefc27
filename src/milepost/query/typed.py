"""The typed AST: a query with every name resolved and every type known. A back end is a walk over these nodes.

It is smaller than the AST. All iteration, from `any(lines, …)` to `count(select …)`, is one node, `Fold`. Names are
numbered variables and steps from them, so that two queries that differ only in the names of their variables are equal.
Constant expressions are folded. Nodes are immutable and compare by content.

Values of constants, and of all expressions inside a back end, are plain values, except that a decimal is an integer,
the number of units in its last place: `Const(1990, decimal(4,2))` is 19.90.

::

    Const  ReadPath  HeaderField  CaseName         sources of values
    Negate  Arithmetic  Call  Convert              calculation
    Compare  Between  In  Like  IsNull  IsTrue     tests
    Not  And  Or                                   logic
    Fold                                           iteration
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeAlias

from milepost.query.kinds import BOOLEAN, STRING, Kind, Scalar
from milepost.query.like import Pattern

MIRRORED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}  # for operands that are swapped
ROOT = 0  # the variable of the message, or of the root node of a message type; inner variables count up from it


@dataclass(frozen=True, slots=True)
class FieldStep:
    """The step to a tuple's field or a node's member."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"


@dataclass(frozen=True, slots=True)
class CaseStep:
    """The step to the value of a variant in one case; null in the others."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"


@dataclass(frozen=True, slots=True)
class ElementStep:
    """The step to an element of a list; null after its end."""

    index: int

    def __str__(self) -> str:
        return f"[{self.index}]"


@dataclass(frozen=True, slots=True)
class UnfoldStep:
    """The step into a recursive reference, whose value batches store apart. Plain values need no such step."""

    def __str__(self) -> str:
        return ""


Step: TypeAlias = FieldStep | CaseStep | ElementStep | UnfoldStep


@dataclass(frozen=True, slots=True)
class Const:
    """A constant value; None for null."""

    value: Any
    kind: Scalar


@dataclass(frozen=True, slots=True)
class ReadPath:
    """The value at the end of a path from a variable."""

    variable: int
    steps: tuple[Step, ...]
    kind: Kind
    single: bool = False  # a 32-bit float: plain values may have more digits than are stored


@dataclass(frozen=True, slots=True)
class HeaderField:
    """An administrative attribute of the message."""

    name: str
    kind: Scalar


@dataclass(frozen=True, slots=True)
class CaseName:
    """The name of the case a variant is in."""

    variant: ReadPath
    kind: ClassVar[Scalar] = STRING


@dataclass(frozen=True, slots=True)
class Negate:
    """The number with the other sign."""

    operand: Typed
    kind: Scalar


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """An operation on two numbers, whose kinds may differ from each other and from the result's."""

    operator: str  # + - * / %
    left: Typed
    right: Typed
    kind: Scalar


@dataclass(frozen=True, slots=True)
class Call:
    """A function of the table in `functions`, or `||`."""

    function: str
    arguments: tuple[Typed, ...]
    kind: Scalar


@dataclass(frozen=True, slots=True)
class Convert:
    """A number in another kind of number: an argument of `coalesce` in their common kind."""

    operand: Typed
    kind: Scalar


class _Test:
    __slots__ = ()
    kind: ClassVar[Scalar] = BOOLEAN


@dataclass(frozen=True, slots=True)
class Compare(_Test):
    """A comparison of two values. `docs/query.md` defines it for numbers of different kinds."""

    operator: str  # = <> < <= > >=
    left: Typed
    right: Typed


@dataclass(frozen=True, slots=True)
class Between(_Test):
    """`low <= operand and operand <= high`, with the operand evaluated once."""

    operand: Typed
    low: Typed
    high: Typed


@dataclass(frozen=True, slots=True)
class In(_Test):
    """Whether the operand equals one of the items."""

    operand: Typed
    items: tuple[Typed, ...]


@dataclass(frozen=True, slots=True)
class Like(_Test):
    """Whether a string matches a pattern."""

    operand: Typed
    pattern: Pattern


@dataclass(frozen=True, slots=True)
class IsNull(_Test):
    """Whether there is no value; never null itself. The operand may be a structure."""

    operand: Typed


@dataclass(frozen=True, slots=True)
class IsTrue(_Test):
    """Whether a boolean is known to be `wanted`; never null itself."""

    operand: Typed
    wanted: bool


@dataclass(frozen=True, slots=True)
class Not(_Test):
    """The other boolean."""

    operand: Typed


@dataclass(frozen=True, slots=True)
class And(_Test):
    """False if one term is, else null if one term is, else true."""

    terms: tuple[Typed, ...]


@dataclass(frozen=True, slots=True)
class Or(_Test):
    """True if one term is, else null if one term is, else false."""

    terms: tuple[Typed, ...]


@dataclass(frozen=True, slots=True)
class Binding:
    """A variable that takes each element of a list, or each node of a reference, in turn."""

    variable: int
    source: ReadPath


@dataclass(frozen=True, slots=True)
class Fold:
    """One value from all combinations of the bindings for which `where` is true.

    `any` and `all` join the values of `body` by `or` and `and`. `count` counts the values that are not null, or all
    combinations when there is no body. `sum`, `min`, `max` and `avg` skip nulls. If the first source is null, so is the
    fold. Later bindings may start from the variables of earlier ones.
    """

    operator: str  # any all count sum min max avg
    bindings: tuple[Binding, ...]
    where: Typed | None
    body: Typed | None
    kind: Scalar


Typed: TypeAlias = (
    Const | ReadPath | HeaderField | CaseName | Negate | Arithmetic | Call | Convert | Compare | Between | In | Like
    | IsNull | IsTrue | Not | And | Or | Fold
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sorting:
    """One criterion of an order."""

    key: Typed
    descending: bool


@dataclass(frozen=True, slots=True)
class Selection:
    """A query that returns rows: one for each combination of the bindings that makes `where` true."""

    bindings: tuple[Binding, ...]
    where: Typed | None
    columns: tuple[Typed, ...]
    order: tuple[Sorting, ...]


def scalar(node: Typed) -> Scalar:
    """The kind of a node that has a single value, as the checker has found."""
    assert isinstance(node.kind, Scalar)
    return node.kind


def children(node: Typed) -> Iterator[Typed]:
    """The nodes directly inside a node."""
    match node:
        case Arithmetic(_, left, right) | Compare(_, left, right):
            yield from (left, right)
        case Call(_, nodes) | And(nodes) | Or(nodes):
            yield from nodes
        case CaseName(operand):
            yield operand
        case Negate(operand) | Convert(operand) | Like(operand) | IsNull(operand) | IsTrue(operand) | Not(operand):
            yield operand
        case Between(operand, low, high):
            yield from (operand, low, high)
        case In(operand, nodes):
            yield operand
            yield from nodes
        case Fold(_, bindings, where, body):
            yield from (binding.source for binding in bindings)
            yield from (part for part in (where, body) if part is not None)


def cost(*nodes: Typed | None) -> int:
    """The steps of evaluating expressions once, without the steps that their folds repeat for each element."""
    steps = 0
    stack = [node for node in nodes if node is not None]
    while stack:
        node = stack.pop()
        steps += not isinstance(node, Const)
        if not isinstance(node, Fold):
            stack.extend(children(node))
    return steps


def walk(*nodes: Typed) -> Iterator[Typed]:
    """The nodes and everything inside them, from the outside in."""
    stack = list(reversed(nodes))
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(list(children(node))))
