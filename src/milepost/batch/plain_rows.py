"""Loose rows: plain values that fit their schema as they are, for somebody in the same process who wants them so.

What is to be written into the table of a database next need not become a batch before. Only rows are taken that leave
nothing to be said: dicts with all members and no other, each value of the very type that the schema has. Everything
else becomes a batch, or is refused with the words that belong to that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, NamedTuple

from milepost.batch.batch import Batch
from milepost.schema.types import INTEGER_RANGES, Atom, List, Optional, Schema, Tuple

ROWS: Final = 1_000  # with more, a batch costs little beside the rest
CHARS: Final = 1 << 20  # of one column
PLANS: Final = 256  # schemas whose members are kept worked out


class PlainRows:
    """Made by `plain_rows`."""

    __slots__ = ("columns", "rows", "schema", "size")

    def __init__(self, schema: Schema, rows: list[dict[str, Any]], columns: list[Sequence[Any]], size: int) -> None:
        self.schema = schema
        self.rows = rows
        self.columns = columns  # in the order of the members
        self.size = size  # bytes, more or less

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self) -> Batch:
        """The same as a batch."""
        return Batch.encode(self.schema, self.rows)


class _Member(NamedTuple):
    optional: bool
    kinds: frozenset[type]
    low: int = 0  # of a number
    high: int = 0


class _Plan(NamedTuple):
    pick: Callable[[dict[str, Any]], tuple[Any, ...]]
    members: tuple[_Member, ...]


_PLAIN: Final = {"string": str, "double": float, "bool": bool}


@lru_cache(maxsize=PLANS)
def _plan(schema: Schema) -> _Plan | None:
    kind = schema.type
    if schema.checks or not isinstance(kind, Tuple):
        return None
    if schema.message_type is not None:  # one kind of node, which refers to nothing
        (only, *more) = kind.fields
        if more or not isinstance(only.type, List) or not isinstance(only.type.item, Tuple):
            return None
        kind = only.type.item
    members = []
    for field in kind.fields:
        optional = isinstance(field.type, Optional)
        atom = field.type.type if isinstance(field.type, Optional) else field.type
        if not isinstance(atom, Atom):
            return None
        if atom.kind in _PLAIN:
            members.append(_Member(optional, frozenset({_PLAIN[atom.kind]})))
        elif atom.kind in INTEGER_RANGES and atom.kind != "uint64":
            members.append(_Member(optional, frozenset({int}), *INTEGER_RANGES[atom.kind]))
        else:
            return None
    if len(members) < 2:  # `itemgetter` gives no tuple then, and nobody has such messages
        return None
    return _Plan(itemgetter(*(field.name for field in kind.fields)), tuple(members))


def plain_rows(schema: Schema, rows: list[Any]) -> PlainRows | None:
    """Rows that can stay as they are; None when they have to become a batch."""
    plan = _plan(schema)
    if plan is None or not 0 < len(rows) <= ROWS:
        return None
    count = len(plan.members)
    for row in rows:
        if type(row) is not dict or len(row) != count:
            return None
    try:
        columns: list[Sequence[Any]] = list(zip(*map(plan.pick, rows), strict=True))
    except KeyError:
        return None
    size = 8 * count * len(rows)
    for member, values in zip(plan.members, columns, strict=True):
        kinds = set(map(type, values))
        given: Sequence[Any] = values
        if type(None) in kinds and member.optional:
            kinds.discard(type(None))
            given = [value for value in values if value is not None]
        if not kinds <= member.kinds:
            return None
        if member.high:
            if given and (min(given) < member.low or max(given) > member.high):
                return None
        elif str in kinds:
            text = "".join(given)
            if len(text) > CHARS or not text.isascii() or "\0" in text:
                return None
            size += len(text)
    return PlainRows(schema, rows, columns, size)
