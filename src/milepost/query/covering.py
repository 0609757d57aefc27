"""Covering: whether one predicate is true for every message for which another is.

Brokers of a network use it to hold back filters: a link that already carries `price > 10` needs no `price > 20`. The
answer is sound, not complete: `covers` may say no where the answer is yes, and never yes where it is no. So an
undecided question costs a filter, and never a message.

A predicate becomes alternatives, each a conjunction. A conjunction bounds operands: the values that each of them may
have for the predicate to be true. Terms that bound nothing (`a < b`, `any(lines, …)`) are compared as they are. One
predicate covers another when each alternative of the other lies within an alternative of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import chain
from typing import Any, Final

from milepost.query import typed
from milepost.query.kinds import BOOLEAN, Scalar
from milepost.query.like import Pattern
from milepost.query.typed import Typed

ALTERNATIVES: Final = 64  # of one predicate at most: `or` within `and` multiplies them. Beyond, only equals cover it

_NOT: Final = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_LAST: Final = 0x10FFFF  # code point
_SURROGATES: Final = range(0xD800, 0xE000)  # no text has them


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of an interval."""

    value: Any
    closed: bool


@dataclass(frozen=True, slots=True)
class Allowed:
    """Values that an operand may have. Null is never among them."""

    low: Bound | None = None
    high: Bound | None = None
    values: frozenset[Any] | None = None  # None: any value within the bounds
    without: frozenset[Any] = frozenset()
    like: frozenset[Pattern] = frozenset()
    unlike: frozenset[Pattern] = frozenset()

    def __contains__(self, value: Any) -> bool:
        return (
            (self.values is None or value in self.values)
            and (self.low is None or value > self.low.value or (self.low.closed and value == self.low.value))
            and (self.high is None or value < self.high.value or (self.high.closed and value == self.high.value))
            and value not in self.without
            and all(pattern.matches(value) for pattern in self.like)
            and not any(pattern.matches(value) for pattern in self.unlike)
        )

    def both(self, other: Allowed) -> Allowed:
        """The values that both allow. Without values only when nothing is left for certain."""
        values = self.values
        if other.values is not None:
            values = other.values if values is None else values & other.values
        low, high = _inner(self.low, other.low, 1), _inner(self.high, other.high, -1)
        if values is None and low is not None and high is not None:
            if low.value == high.value and low.closed and high.closed:
                values = frozenset((low.value,))
            elif low.value >= high.value:
                values = frozenset()
        made = Allowed(
            low, high, values, self.without | other.without, self.like | other.like, self.unlike | other.unlike
        )
        # The values alone say it all, so that equal sets are equal.
        return made if values is None else Allowed(values=frozenset(value for value in values if value in made))

    def within(self, other: Allowed) -> bool:
        """Whether the other allows all of these values, as far as that can be told."""
        if self.values is not None:
            return all(value in other for value in self.values)
        return (
            other.values is None
            and (other.low is None or (self.low is not None and _inner(self.low, other.low, 1) == self.low))
            and (other.high is None or (self.high is not None and _inner(self.high, other.high, -1) == self.high))
            and all(value not in self for value in other.without)
            and other.like <= self.like
            and other.unlike <= self.unlike
        )


def _inner(one: Bound | None, other: Bound | None, sign: int) -> Bound | None:
    """The bound that allows less: of two lower ends (`sign` 1) the greater one, of two upper ends (-1) the less one."""
    if one is None or other is None:
        return one or other
    if one.value == other.value:
        return other if one.closed else one
    return one if (one.value > other.value) == (sign > 0) else other


@dataclass(frozen=True, slots=True)
class Conjunction:
    """Bounds of operands that all hold, and terms with the boolean that each must be."""

    bounds: dict[Typed, Allowed] = field(default_factory=dict)
    terms: frozenset[tuple[Typed, bool]] = frozenset()

    def both(self, other: Conjunction) -> Conjunction | None:
        """What holds when both do; None if they exclude each other."""
        bounds = dict(self.bounds)
        for operand, allowed in other.bounds.items():
            known = bounds.get(operand)
            allowed = allowed if known is None else known.both(allowed)
            if allowed.values is not None and not allowed.values:
                return None
            bounds[operand] = allowed
        return Conjunction(bounds, self.terms | other.terms)

    def within(self, other: Conjunction) -> bool:
        """Whether the other holds wherever this one does."""
        if not other.terms <= self.terms:
            return False
        bounds = self.bounds
        return all(operand in bounds and bounds[operand].within(allowed) for operand, allowed in other.bounds.items())


class _TooMany(Exception):
    """More than `ALTERNATIVES`."""


def alternatives(root: Typed) -> tuple[Conjunction, ...] | None:
    """The conjunctions of which one holds wherever a predicate is true; None when they are too many."""
    try:
        return tuple(_alternatives(root, True))
    except _TooMany:
        return None


def covers(cover: Typed, other: Typed) -> bool:
    """Whether `cover` is true wherever `other` is. No means that it is not known."""
    if cover == other:
        return True
    wide, narrow = alternatives(cover), alternatives(other)
    return wide is not None and narrow is not None and within(narrow, wide)


def within(narrow: Iterable[Conjunction], wide: Iterable[Conjunction]) -> bool:
    """Whether each alternative of one predicate lies within one of another."""
    return all(any(one.within(other) for other in wide) for one in narrow)


def _alternatives(node: Typed, wanted: bool) -> list[Conjunction]:
    """Conjunctions of which one holds wherever the node is `wanted`, and no other value or null."""
    match node:
        case typed.Const(value=value):
            return [Conjunction()] if value is wanted else []
        case typed.Not(operand=operand):
            return _alternatives(operand, not wanted)
        case typed.And(terms=terms) | typed.Or(terms=terms):
            parts = [_alternatives(term, wanted) for term in terms]
            return _product(parts) if isinstance(node, typed.And) == wanted else _union(parts)
        case typed.IsTrue(operand=operand, wanted=truth) if wanted:
            return _alternatives(operand, truth)
        case typed.IsNull(operand=operand) if not wanted and isinstance(operand.kind, Scalar):
            return [Conjunction({operand: Allowed()})]
        case typed.Compare(operator=operator, left=left, right=right):
            if isinstance(left, typed.Const):
                operator, left, right = typed.MIRRORED[operator], right, left
            found = _compared(operator if wanted else _NOT[operator], left, right)
            return _opaque(node, wanted) if found is None else found
        case typed.Between(operand=operand, low=low, high=high):
            ends = [
                _compared(sign, operand, end)
                for sign, end in (((">=", low), ("<=", high)) if wanted else (("<", low), (">", high)))
            ]
            if any(end is None for end in ends):
                return _opaque(node, wanted)
            parts = [end for end in ends if end is not None]
            return _product(parts) if wanted else _union(parts)
        case typed.In(operand=operand, items=items):
            return _listed(node, operand, items, wanted)
        case typed.Like(operand=operand, pattern=pattern):
            return [Conjunction({operand: _like(pattern, wanted)})]
        case typed.ReadPath() | typed.Call() | typed.Fold() if node.kind == BOOLEAN:
            return [Conjunction({node: Allowed(values=frozenset((wanted,)))})]
    return _opaque(node, wanted)


def _opaque(node: Typed, wanted: bool) -> list[Conjunction]:
    return [Conjunction(terms=frozenset(((node, wanted),)))]


def _union(parts: list[list[Conjunction]]) -> list[Conjunction]:
    found = list(chain.from_iterable(parts))
    if len(found) > ALTERNATIVES:
        raise _TooMany
    return found


def _product(parts: list[list[Conjunction]]) -> list[Conjunction]:
    made = [Conjunction()]
    for part in parts:
        if len(made) * len(part) > ALTERNATIVES:
            raise _TooMany
        made = [both for one in made for other in part if (both := one.both(other)) is not None]
    return made


def _compared(operator: str, operand: Typed, limit: Typed) -> list[Conjunction] | None:
    """The alternatives of a comparison with a constant; None when it is no such thing."""
    if not isinstance(limit, typed.Const) or isinstance(operand, typed.Const):
        return None
    if limit.value is None:
        return []
    value = _value(operand, limit)
    if value is None:
        return None
    match operator:
        case "=":
            allowed = Allowed(values=frozenset((value,)))
        case "<>":
            allowed = Allowed(without=frozenset((value,)))
        case "<" | "<=":
            allowed = Allowed(high=Bound(value, operator == "<="))
        case _:
            allowed = Allowed(low=Bound(value, operator == ">="))
    return [Conjunction({operand: allowed})]


def _listed(node: typed.In, operand: Typed, items: tuple[Typed, ...], wanted: bool) -> list[Conjunction]:
    values = set()
    for item in items:
        if not isinstance(item, typed.Const):
            return _opaque(node, wanted)
        if item.value is None:
            if wanted:
                continue  # no value equals null
            return []  # nor is any known to differ from it
        value = _value(operand, item)
        if value is None:
            return _opaque(node, wanted)
        values.add(value)
    if isinstance(operand, typed.Const):
        return _opaque(node, wanted)
    found = frozenset(values)
    if wanted and not found:
        return []
    return [Conjunction({operand: Allowed(values=found) if wanted else Allowed(without=found)})]


def _value(operand: Typed, const: typed.Const) -> Any:
    """A constant as it compares with the operand, exactly; None when it does not."""
    name = const.kind.name
    of = operand.kind.name if isinstance(operand.kind, Scalar) else ""
    if name == "double":
        if of == "decimal":
            return None  # the operand is rounded to a double first
        value = const.value
        return value if value in (float("inf"), float("-inf")) else Fraction(value)
    if name == "decimal":
        exact = Fraction(const.value, 10**const.kind.scale)
        return Fraction(float(exact)) if of == "double" else exact
    if name == "integer" and of in ("double", "decimal"):
        return Fraction(const.value)
    return const.value


def _like(pattern: Pattern, wanted: bool) -> Allowed:
    """The texts that match a pattern, or those that do not."""
    if not wanted:
        return Allowed(unlike=frozenset((pattern,)))
    pieces = pattern.pieces
    if pieces is None:
        return Allowed(like=frozenset((pattern,)))
    if len(pieces) == 1:
        return Allowed(values=frozenset(pieces))
    start = pieces[0]
    made = Allowed(low=Bound(start, True), high=_after(start)) if start else Allowed()
    return made if not any(pieces[1:]) else replace(made, like=frozenset((pattern,)))


def _after(prefix: str) -> Bound | None:
    """The end of the texts with a prefix, in the order of code points; None when no text is greater."""
    kept = prefix.rstrip(chr(_LAST))
    if not kept:
        return None
    following = ord(kept[-1]) + 1
    if following in _SURROGATES:
        following = _SURROGATES.stop
    return Bound(kept[:-1] + chr(following), False)
