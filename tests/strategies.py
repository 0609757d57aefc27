"""Hypothesis strategies for schemas, message types and their values, shared by all tests.

::

    schemas(...)        a Schema; the keywords of `types` narrow what it may hold
    values(schema)      a message of it in the plain form, edges included
    types(...)          a Type alone, without references
    message_types(...)  a MessageType
    graphs(mt)          a message of it: a graph of dicts, with sharing and cycles
    identical(a, b)     whether two plain values are the same: NaN equals NaN, 0.0 is not -0.0
    identical_graphs    the same for graphs, which `==` cannot compare because they are cyclic

The strategies never reject what they draw, so they may be used freely inside other strategies.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache, lru_cache
from typing import Any

from hypothesis import strategies as st

from milepost.schema import types as t
from milepost.schema.messagetype import Attribute, MessageType, NodeType, Reference

# Words of the notations and of the query language among them, and names that differ only in case.
NAMES = ["a", "b", "c", "d", "e", "price", "Price", "x1", "_y", "name", "date", "int"]
NAMES += ["check", "index", "order", "end", "node"]
SCHEMA_NAMES = ["m", "quote", "com.example.order", "check", "index", "tree", "line_item", "define"]


@cache
def names() -> st.SearchStrategy[str]:
    """Names of fields, cases, nodes and attributes; none is a Python keyword."""
    return st.sampled_from(NAMES)


# -- types ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contents:
    """What a generated type may hold: the keywords of `types` and `schemas`."""

    max_fields: int = 4  # of a tuple, or cases of a variant
    variants: bool = True
    lists: bool = True
    optionals: bool = True
    dynamic: bool = True
    unnamed: bool = True  # fields and cases called `_0`, `_1`, …
    atoms: Sequence[t.Atom] = ()  # only these atomic types; every one when empty
    field_names: st.SearchStrategy[str] | None = None  # instead of `names()`


@cache
def atoms() -> st.SearchStrategy[t.Atom]:
    """Every atomic type, decimals of all sizes."""
    return st.sampled_from(list(t.ATOMS.values())) | st.builds(
        lambda precision, scale: t.decimal(precision, min(scale, precision)), st.integers(1, 38), st.integers(0, 38)
    )


# What is drawn over and over is a strategy that is made once, and what is nested is drawn by plain functions: making
# and checking strategies, and strategies within strategies, would take most of the time of the tests that use these.

BOOLEANS = st.booleans()


@lru_cache(maxsize=1024)
def _one_of(choices: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    return st.sampled_from(choices)


@lru_cache(maxsize=256)
def _integers(low: int, high: int) -> st.SearchStrategy[int]:
    return st.integers(low, high)


@lru_cache(maxsize=64)
def _unique(items: st.SearchStrategy[Any], least: int, most: int) -> st.SearchStrategy[list[Any]]:
    return st.lists(items, unique=True, min_size=least, max_size=most)


@st.composite
def types(draw: st.DrawFn, *, max_depth: int = 3, **contents: Any) -> t.Type:
    """A type without references; at `max_depth` 0 atomic or dynamic. The other keywords are those of `Contents`."""
    return _type(draw, Contents(**contents), max_depth)


def _type(
    draw: st.DrawFn,
    contents: Contents,
    depth: int,
    plain_refs: tuple[str, ...] = (),
    guarded_refs: tuple[str, ...] = (),
) -> t.Type:
    """`plain_refs` may stand anywhere; `guarded_refs` lead back, so only where a value can end."""
    kinds = ["atom", "atom"] + ["dynamic"] * contents.dynamic + ["ref"] * bool(plain_refs)
    kinds += ["guarded"] * (bool(guarded_refs) and (contents.optionals or contents.lists))
    if depth > 0:
        kinds += ["tuple", "tuple"] + ["list"] * contents.lists + ["variant"] * contents.variants
        kinds += ["optional"] * contents.optionals

    def inner() -> t.Type:
        return _type(draw, contents, depth - 1, plain_refs, guarded_refs)

    def leaf() -> t.Type:
        return t.Tuple(()) if draw(BOOLEANS) else _type(draw, contents, 0)

    match draw(_one_of(tuple(kinds))):
        case "tuple":
            return t.Tuple(_fields(draw, contents, inner, min_size=0))
        case "list":
            return t.List(_not_empty(inner()))
        case "variant":
            # The first case always ends, so that the others may lead back.
            return t.Variant(_fields(draw, contents, inner, min_size=1, first=leaf))
        case "optional":
            return t.Optional(_not_optional(inner()))
        case "ref":
            return t.Ref(draw(_one_of(plain_refs)))
        case "guarded":
            target = t.Ref(draw(_one_of(guarded_refs)))
            guards = [t.Optional] * contents.optionals + [t.List] * contents.lists
            made: t.Type = draw(_one_of(tuple(guards)))(target)
            return made
        case "dynamic":
            return t.DYNAMIC
        case _:
            return draw(_one_of(tuple(contents.atoms)) if contents.atoms else atoms())


def _not_empty(kind: t.Type) -> t.Type:
    return t.Tuple((t.Field("only", t.INT32),)) if kind == t.Tuple(()) else kind


def _not_optional(kind: t.Type) -> t.Type:
    return kind.type if isinstance(kind, t.Optional) else kind


def _fields(
    draw: st.DrawFn,
    contents: Contents,
    inner: Callable[[], t.Type],
    min_size: int,
    first: Callable[[], t.Type] | None = None,
) -> tuple[t.Field, ...]:
    chosen = draw(_unique(contents.field_names or names(), min_size, contents.max_fields))
    fields = []
    for position, name in enumerate(chosen):
        if contents.unnamed and draw(_integers(0, 4)) == 4:
            name = t.positional(position)
        fields.append(t.Field(name, first() if first is not None and position == 0 else inner()))
    return tuple(fields)


@st.composite
def schemas(
    draw: st.DrawFn,
    *,
    max_depth: int = 3,
    min_fields: int = 0,
    references: bool = True,
    recursion: bool = True,
    checks: bool = False,
    indexes: bool = False,
    **contents: Any,
) -> t.Schema:
    """A schema; with `references` it has up to two definitions, which `recursion` lets lead back.

    The rules of `checks` are right in their syntax only: they name fields that need not be there; `indexes` are on
    what is there. The other keywords are those of `Contents`.
    """
    holding = Contents(**contents)
    count = draw(_integers(0, 2)) if references else 0
    name, *defined = draw(_unique(_one_of(tuple(SCHEMA_NAMES)), count + 1, count + 1))
    back = (name, *defined) if references and recursion and draw(BOOLEANS) else ()

    def inner() -> t.Type:
        return _type(draw, holding, max_depth - 1, tuple(defined), back)

    message = t.Tuple(_fields(draw, holding, inner, min_size=max(min_fields, len(back) > 0)))
    definitions = []
    for position, definition in enumerate(defined):
        kind = _type(draw, holding, max_depth - 1, tuple(defined[position + 1 :]), back)
        if isinstance(kind, t.Optional | t.Ref) or kind == t.Tuple(()):
            kind = t.Tuple((t.Field("only", kind),))  # a definition that may stand in any place
        definitions.append(t.Field(definition, kind))
    rules = draw(st.lists(st.sampled_from(_RULES), max_size=2)) if checks else ()
    made = t.Schema(name, message, tuple(definitions), tuple(rules))
    return replace(made, indexes=draw(some_of(indexable(made)))) if indexes else made


def some_of(paths: list[str]) -> st.SearchStrategy[tuple[str, ...]]:
    """The indexes of a schema, from what it may have one on."""
    return st.lists(st.sampled_from(paths), unique=True, max_size=2).map(tuple) if paths else st.just(())


def indexable(schema: t.Schema) -> list[str]:
    """The paths of atomic values, through tuples and lists."""
    found: list[str] = []

    def visit(kind: t.Type, path: str) -> None:
        match kind:
            case t.Atom():
                found.append(path)
            case t.Tuple(fields):
                for item in fields:
                    visit(item.type, f"{path}.{item.name}" if path else item.name)
            case t.List(inner) | t.Optional(inner):
                visit(inner, path)
            case t.Ref(name) if name not in schema.recursive:
                visit(schema.resolve(kind), path)

    visit(schema.type, "")
    return found


_RULES = ["a > 1", "name like '%(' and (a in (1, 2))", 'x = "y)" or true', "a = '#'", "it = 'it''s'"]


# -- values --------------------------------------------------------------------------------------------------------


@st.composite
def values(draw: st.DrawFn, schema: t.Schema, *, max_items: int = 3, max_recursion: int = 2) -> dict[str, Any]:
    """A message in the plain form. Lists have up to `max_items` items; recursion goes `max_recursion` deep."""
    made: dict[str, Any] = _value(draw, schema.type, schema, max_items, max_recursion)
    return made


def _value(draw: st.DrawFn, kind: t.Type, schema: t.Schema, items: int, left: int) -> Any:
    """`left` is how many more references may be followed before the shortest way out is taken."""
    match kind:
        case t.Atom():
            return draw(atom_values(kind))
        case t.Dynamic():
            return draw(DYNAMIC_VALUES)
        case t.Tuple(fields):
            return {item.name: _value(draw, item.type, schema, items, left) for item in fields}
        case t.List(item):
            size = draw(_integers(0, items)) if left > 0 else 0
            return [_value(draw, item, schema, items, left) for _ in range(size)]
        case t.Optional(inner):
            present = left > 0 and draw(BOOLEANS)
            return _value(draw, inner, schema, items, left) if present else None
        case t.Variant(cases):
            case = draw(_one_of(cases)) if left > 0 else cases[0]
            return {case.name: _value(draw, case.type, schema, items, left)}
        case t.Ref(name):
            return _value(draw, schema.resolve(kind), schema, items, left - (name in schema.recursive))
    raise AssertionError(kind)


@cache
def atom_values(atom: t.Atom) -> st.SearchStrategy[Any]:
    """Values of an atomic type: extremes, NaN, -0.0 and infinities, characters outside the BMP, times before 1970."""
    if atom.kind in t.INTEGER_RANGES:
        low, high = t.INTEGER_RANGES[atom.kind]
        return st.sampled_from([low, high, 0]) | st.integers(low, high)
    if atom.kind == "decimal":
        largest = 10**atom.precision - 1
        units = st.sampled_from([-largest, largest, 0]) | st.integers(-largest, largest)
        return units.map(lambda value: _decimal(value, atom.scale))
    return _ATOM_VALUES[atom.kind]


def _decimal(units: int, scale: int) -> Decimal:
    # Not scaleb(): it rounds to the context's 28 digits.
    return Decimal((int(units < 0), tuple(map(int, str(abs(units)))), -scale))


_ATOM_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "float": st.sampled_from([math.nan, -0.0, math.inf, -math.inf]) | st.floats(width=32),
    "double": st.sampled_from([math.nan, -0.0, math.inf, -math.inf]) | st.floats(),
    "string": st.sampled_from(["", "😀", "e\u0301", "A\0b"]) | st.text(max_size=8),
    "bytes": st.binary(max_size=8),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(datetime.UTC)),
    "uuid": st.uuids(),
}


@st.composite
def _dynamic_values(draw: st.DrawFn) -> Any:
    from milepost.batch import DynamicValue

    schema = draw(SMALL_SCHEMAS)
    return DynamicValue(schema, _value(draw, schema.type, schema, 3, 2))


SMALL_SCHEMAS = schemas(max_depth=1, max_fields=2, dynamic=False, references=False)
DYNAMIC_VALUES = _dynamic_values()


def identical(a: Any, b: Any) -> bool:
    """Whether two plain values are the same in every bit that counts; a missing key is None."""
    if isinstance(a, dict) and isinstance(b, dict):
        return all(identical(a.get(key), b.get(key)) for key in a.keys() | b.keys())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(identical, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if isinstance(a, Decimal) and isinstance(b, Decimal):
        return a.as_tuple() == b.as_tuple() or (a == b == 0 and a.as_tuple().exponent == b.as_tuple().exponent)
    return type(a) is type(b) and bool(a == b)


# -- message types -------------------------------------------------------------------------------------------------


@st.composite
def message_types(
    draw: st.DrawFn, *, max_nodes: int = 4, max_members: int = 4, checks: bool = False, indexes: bool = False
) -> MessageType:
    """A message type; references may point anywhere, so graphs of it may share nodes and be cyclic."""
    node_names = draw(st.lists(names(), unique=True, min_size=1, max_size=max_nodes))
    nodes = []
    for node in node_names:
        members: list[Attribute | Reference] = []
        for name in draw(st.lists(names(), unique=True, min_size=1, max_size=max_members)):
            if draw(st.booleans()):
                members.append(Reference(name, draw(st.sampled_from(node_names))))
            else:
                atom = draw(atoms())
                members.append(Attribute(name, t.Optional(atom) if draw(st.booleans()) else atom))
        nodes.append(NodeType(node, tuple(members)))
    rules = draw(st.lists(st.sampled_from(_RULES), max_size=2)) if checks else ()
    paths = [f"{node.name}.{item.name}" for node in nodes for item in node.members if isinstance(item, Attribute)]
    indexed = draw(some_of(paths)) if indexes else ()
    root = draw(st.sampled_from(node_names))
    return MessageType(draw(st.sampled_from(SCHEMA_NAMES)), tuple(nodes), root, tuple(rules), indexed)


@st.composite
def graphs(draw: st.DrawFn, message_type: MessageType, *, max_nodes: int = 4) -> dict[str, Any]:
    """The root of a message: dicts with lists of dicts. Up to `max_nodes` of each type, not all of them reachable."""
    made: dict[str, list[dict[str, Any]]] = {}
    for kind in message_type.nodes:
        count = draw(st.integers(1 if kind.name == message_type.root else 0, max_nodes))
        made[kind.name] = [{} for _ in range(count)]
    for kind in message_type.nodes:
        for node in made[kind.name]:
            for member in kind.members:
                if isinstance(member, Reference):
                    places = st.lists(st.integers(0, max_nodes - 1), unique=True, max_size=max_nodes)
                    targets = made[member.target]
                    node[member.name] = [targets[place] for place in draw(places) if place < len(targets)]
                elif isinstance(member.type, t.Optional):
                    node[member.name] = draw(st.none() | atom_values(member.type.type))
                else:
                    node[member.name] = draw(atom_values(member.type))
    return made[message_type.root][0]


def identical_graphs(message_type: MessageType, a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Whether two graphs have the same values and the same shape, sharing included."""
    partner: dict[int, int] = {id(a): id(b)}
    back: dict[int, int] = {id(b): id(a)}
    todo = [(message_type.node(message_type.root), a, b)]
    while todo:
        kind, left, right = todo.pop()
        for member in kind.members:
            if isinstance(member, Attribute):
                if not identical(left.get(member.name), right.get(member.name)):
                    return False
                continue
            lefts, rights = left.get(member.name) or [], right.get(member.name) or []
            if len(lefts) != len(rights):
                return False
            for one, other in zip(lefts, rights, strict=True):
                if id(one) not in partner and id(other) not in back:
                    partner[id(one)], back[id(other)] = id(other), id(one)
                    todo.append((message_type.node(member.target), one, other))
                elif partner.get(id(one)) != id(other):
                    return False
    return True
