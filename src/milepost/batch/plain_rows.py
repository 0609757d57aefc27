"""Plain rows: dicts that fit their schema exactly, for a consumer in the same process that needs no batch.

Rows that go into a database table next need not become a batch first. Only simple rows are taken: dicts with all
members and no others, each value of exactly the type in the schema. All other rows become a batch, or are refused
when they are encoded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, NamedTuple

from milepost.batch.batch import Batch
from milepost.schema.types import INTEGER_RANGES, Atom, List, Optional, Schema, Tuple

ROWS: Final = 1_000  # with more, the cost of a batch hardly counts
CHARS: Final = 1 << 20  # of one column
PLANS: Final = 256  # schemas whose plans are kept


@dataclass(slots=True, eq=False)
class PlainRows:
    """Made by `plain_rows`."""

    schema: Schema
    rows: list[dict[str, Any]]
    columns: list[Sequence[Any]]  # in the order of the members
    size: int  # in bytes, an estimate

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self) -> Batch:
        """The rows as a batch."""
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
    if schema.message_type is not None:  # one node type without references
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
    if len(members) < 2:  # `itemgetter` would return no tuple, and such messages are rare
        return None
    return _Plan(itemgetter(*(field.name for field in kind.fields)), tuple(members))


def plain_rows(schema: Schema, rows: list[Any]) -> PlainRows | None:
    """Rows that need no batch; None when they have to become one."""
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
