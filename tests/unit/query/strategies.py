"""Hypothesis strategies for queries: typed, and driven by a schema and the values of its messages.

::

    EDGES, edge_messages()        a schema with every sort of field, and messages made of awkward values
    questions(schema, messages)   the text of an expression of any scalar type
    predicates(schema, messages)  … of a boolean one
    selects(schema, messages)     a query over a message type

Constants are often values of the messages, so that comparisons come out both ways. A query comes from a seed: drawn
choice by choice, most queries would be the simplest ones, and the same ones again. What a seed gives does not shrink,
but it is small from the start.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import lru_cache
from random import Random
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from milepost.query import ast, kinds
from milepost.query.header import ATTRIBUTES
from milepost.query.kinds import Scalar
from milepost.query.location import Location
from milepost.query.number import scaled
from milepost.query.scope import ElementScope, Scope, VariableScope
from milepost.schema import types as t
from milepost.schema.text import parse

FAMILIES = ["boolean", "integer", "decimal", "double", "string", "bytes", "date", "timestamp", "uuid", "ident"]
NUMBERS = ["integer", "decimal", "double"]
COMPARISONS = ["=", "<>", "<", "<=", ">", ">="]
ATOMS = {
    "boolean": t.BOOL, "integer": t.INT64, "decimal": t.decimal(12, 3), "double": t.DOUBLE, "string": t.STRING,
    "bytes": t.BYTES, "date": t.DATE, "timestamp": t.TIMESTAMP, "uuid": t.UUID, "ident": t.IDENT,
}  # fmt: skip
CONSTANTS: dict[str, list[Any]] = {  # beside those in AWKWARD
    "integer": [3, 10, 2**64 - 1, 10**20],
    "decimal": [Decimal(text) for text in ("0.0", "1.0", "-1.5", "0.001", "99999999999999999.99", "2.50")],
    "string": ["abc", "255.255.255.255", "01.2.3.4", "1.2.3"],
}
NETWORKS = ["10.0.0.0/8", "0.0.0.0/0", "::/0", "::1", "192.168.1.0/24", "255.255.255.255/32"]
PATTERN_PARTS = ["%", "_", "a", "b", "A", "é", "😀", ".", "(", "\n", "ab"]


EDGES = parse(
    "edges: [i8: int8, i: int, l: long, u: uint64, ou: uint64?, f: float, d: double, od: double?, n: decimal(6,2), "
    "w: decimal(38,10), on: decimal(18,4)?, z: decimal(38,0), s: string, os: string?, ip: string, y: bytes, b: bool, "
    "ob: bool?, day: date, oday: date?, at: timestamp, oat: timestamp?, k: uuid, id: ident, ts: *(string)*, "
    "xs: *(long?)*?, ds: *(double)*, us: *(uint64)*, "
    "lines: *([p: decimal(8,2)?, q: int, s: string, r: *(double)*, v: {a: int | b: [s: string, xs: *(int?)*]}?])*, "
    "o: [x: int?, d: double, t: [y: string?, xs: *(int)*]?]?, v: {a: int | b: [s: string?, xs: *(double)*] | c: []}?]"
)
AWKWARD: dict[str, list[Any]] = {
    "bool": [True, False],
    "double": [
        0.0, -0.0, 1.0, -1.5, 0.5, 2.5, 0.1, math.nan, math.inf, -math.inf, 2.0**53, 2.0**63, 2.0**64, 1e308, 5e-324,
    ],
    "float": [0.0, -0.0, 1.5, math.nan, math.inf, 0.10000000149011612, 1e-40],
    "string": [
        "", "a", "A", "ab", "aba", " a ", "é", "Éa", "😀", "a😀b", "a%", "_", "z\n", "Zz", "\0", "10.0.0.1", "::1",
    ],
    "bytes": [b"", b"a", b"\0", b"\xff\0"],
    "date": [date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(2024, 2, 29), date(9999, 12, 31)],
    "timestamp": [
        datetime(1, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
        datetime(1970, 1, 1, tzinfo=UTC), datetime(2024, 2, 29, 12, 30, 15, 1, UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
    ],
    "uuid": [UUID(int=0), UUID(int=1), UUID(int=1 << 127), UUID(int=0xFF00)],
}  # fmt: skip


@lru_cache
def awkward(atom: t.Atom) -> list[Any]:
    """A few values of an atomic type, the troublesome among them."""
    if atom.kind in t.INTEGER_RANGES:
        low, high = t.INTEGER_RANGES[atom.kind]
        some = (low, high, 0, 1, -1, 2, 7, 100, 2**31, 2**53, 2**53 + 1, 2**62, 2**63, high - 1)
        return sorted({value for value in some if low <= value <= high})
    if atom.kind == "decimal":
        largest = 10**atom.precision - 1
        units = {0, 1, -1, 50, 150, -250, largest, -largest, 2**53 + 1, 2**63, 10**18}
        return [scaled(value, atom.scale) for value in sorted(units) if abs(value) <= largest]
    return AWKWARD[atom.kind]


def edge_value(rng: Random, kind: t.Type) -> Any:
    match kind:
        case t.Tuple(fields):
            return {field.name: edge_value(rng, field.type) for field in fields}
        case t.List(item):
            return [edge_value(rng, item) for _ in range(rng.choice([0, 1, 2, 2, 3]))]
        case t.Optional(inner):
            return edge_value(rng, inner) if rng.random() < 0.7 else None
        case t.Variant(cases):
            case = rng.choice(cases)
            return {case.name: edge_value(rng, case.type)}
        case t.Atom():
            return rng.choice(awkward(kind))
    raise AssertionError(kind)


@st.composite
def edge_messages(draw: st.DrawFn) -> list[Any]:
    rng = draw(seeds())
    return [edge_value(rng, EDGES.type) for _ in range(rng.randint(1, 8))]


def seeds() -> st.SearchStrategy[Random]:
    return st.integers(0, 2**64 - 1).map(Random)


def family(kind: kinds.Kind) -> str:
    return kind.name if isinstance(kind, Scalar) else ""


def pool(messages: list[Any]) -> dict[str, list[Any]]:
    """The single values of messages by family; nodes are visited once."""
    found: dict[str, list[Any]] = defaultdict(list)
    seen: set[int] = set()
    stack: list[Any] = list(messages)
    while stack:
        value = stack.pop()
        if isinstance(value, dict | list):
            if id(value) not in seen:
                seen.add(id(value))
                stack.extend(value.values() if isinstance(value, dict) else value)
            continue
        for name, kind in _PYTHON:
            if isinstance(value, kind):
                if not (isinstance(value, float) and not math.isfinite(value)):
                    found[name].append(value)
                break
    found["ident"] = [value for value in found["integer"] if -(2**63) <= value < 2**63]
    return found


_PYTHON: list[tuple[str, type]] = [
    ("boolean", bool), ("integer", int), ("decimal", Decimal), ("double", float), ("string", str), ("bytes", bytes),
    ("timestamp", datetime), ("date", date), ("uuid", UUID),
]  # fmt: skip


@lru_cache(maxsize=64)
def _root(schema: t.Schema) -> Scope:
    return ElementScope(None, Location.root(schema))


@lru_cache(
    maxsize=64
)  # by the scope's identity: there are hundreds of places in a message, and they are asked for often
def places(scope: Scope) -> list[tuple[ast.Path, Location]]:
    found = []
    level: Scope | None = scope
    names: dict[str, Location] = {}
    while level is not None:
        for name in level.names():
            names[name] = scope.find(name)  # which may be the element of an inner level, if it is called `it`
        level = level.outer
    stack = [(ast.Path(name), location, 0) for name, location in names.items()]
    while stack:
        path, location, depth = stack.pop()
        found.append((path, location))
        if depth < 3:
            steps: list[str | int] = [*location.members] + ([0, 1] if isinstance(location.type, t.List) else [])
            stack += [(ast.Path(path.name, (*path.steps, step)), location.step(step), depth + 1) for step in steps]
    return found


class Author:
    """Writes one query. `left` bounds how much; each choice falls back to a leaf when it is spent."""

    def __init__(self, rng: Random, schema: t.Schema, messages: list[Any], size: int) -> None:
        self.rng = rng
        self.schema = schema
        self.pool = pool(messages)
        self.left = size

    def pick(self, items: list[Any]) -> Any:
        return self.rng.choice(items)

    def root(self) -> Scope:
        return _root(self.schema)

    # What the names in scope lead to

    def places(self, scope: Scope) -> list[tuple[ast.Path, Location]]:
        return places(scope)

    def paths(self, scope: Scope, wanted: Callable[[Location], bool]) -> list[ast.Path]:
        return [path for path, location in self.places(scope) if wanted(location)]

    # Leaves

    def leaf(self, scope: Scope, name: str) -> ast.Expression:
        paths: list[ast.Expression] = list(self.paths(scope, lambda location: family(location.kind) == name))
        messages = self.paths(scope, lambda location: location.kind == kinds.Message())
        paths += [
            ast.Path(path.name, (attribute,))
            for path in messages
            for attribute, kind in ATTRIBUTES.items()
            if kind.name == name
        ]
        if paths and self.rng.randint(0, 9) < 7:
            return self.pick(paths)
        if self.rng.randint(0, 19) == 0:
            return ast.Literal("null", None)
        return self.literal(name)

    def literal(self, name: str) -> ast.Literal:
        known = [value for value in awkward(ATOMS[name]) if not (isinstance(value, float) and not math.isfinite(value))]
        sort = "integer" if name == "ident" else name
        return ast.Literal(sort, self.pick([*known, *CONSTANTS.get(name, []), *self.pool[name]]))

    # Expressions of one family

    def expression(self, scope: Scope, name: str) -> ast.Expression:
        self.left -= 1
        if self.left <= 0 or self.rng.randint(0, 9) < 3:
            return self.leaf(scope, name)
        return self.compound(scope, name)

    def compound(self, scope: Scope, name: str) -> ast.Expression:
        match name:
            case "boolean":
                return self.boolean(scope)
            case "integer":
                return self.integer(scope)
            case "decimal" | "double":
                return self.number(scope, name)
            case "string":
                return self.string(scope)
            case "date" if self.flag():
                return ast.Call("date", (self.expression(scope, "timestamp"),))
        return self.folded(scope, name) if self.flag() else self.coalesce(scope, name)

    def boolean(self, scope: Scope) -> ast.Expression:
        match self.rng.randint(0, 12):
            case 0 | 1 | 2:
                left, right, _ = self.comparable(scope)
                return ast.Binary(self.pick(COMPARISONS), left, right)
            case 3:
                left, right, name = self.comparable(scope)
                return ast.Between(left, right, self.expression(scope, name), self.flag())
            case 4:
                left, right, name = self.comparable(scope)
                more = [self.literal(name) for _ in range(self.rng.randint(0, 6))]
                return ast.In(left, (right, *more), self.flag())
            case 5:
                return ast.Like(self.expression(scope, "string"), *self.pattern(), self.flag())
            case 6:
                operand = self.expression(scope, self.pick(FAMILIES))
                structures = self.paths(scope, _may_be_null)
                if structures and self.flag():
                    operand = self.pick(structures)
                return ast.Is(operand, None, self.flag())
            case 7:
                return ast.Is(self.expression(scope, "boolean"), self.flag(), self.flag())
            case 8:
                return ast.Negation(self.expression(scope, "boolean"))
            case 9 | 10:
                terms = [self.expression(scope, "boolean") for _ in range(self.rng.randint(2, 3))]
                return _chain(self.pick(["and", "or"]), terms)
            case 11:
                name = self.pick(["starts_with", "ends_with", "contains", "in_subnet"])
                first = self.expression(scope, "string")
                if name == "in_subnet":
                    return ast.Call(name, (first, ast.Literal("string", self.pick(NETWORKS))))
                return ast.Call(name, (first, self.expression(scope, "string")))
            case _:
                return self.quantified(scope)

    def comparable(self, scope: Scope) -> tuple[ast.Expression, ast.Expression, str]:
        """Two expressions that can be compared, and the family of a third."""
        here = sorted({family(location.kind) for _, location in self.places(scope)} - {""}) or ["integer"]
        name = self.pick(here) if self.rng.randint(0, 3) else self.pick(FAMILIES)
        other = self.pick(NUMBERS) if name in NUMBERS else name
        return self.expression(scope, name), self.expression(scope, other), other

    def flag(self) -> bool:
        return self.rng.random() < 0.5

    def pattern(self) -> tuple[str, str | None]:
        parts = self.rng.choices(PATTERN_PARTS, k=self.rng.randint(0, 5))
        if self.pool["string"] and self.flag():
            text = self.pick(self.pool["string"])
            cut = self.rng.randint(0, len(text))
            parts.insert(self.rng.randint(0, len(parts)), text[:cut].replace("!", ""))
        text = "".join(parts)
        if self.flag():
            return text, None
        return text + self.pick(["", "!%", "!_", "!!"]), "!"

    def integer(self, scope: Scope) -> ast.Expression:
        match self.rng.randint(0, 9):
            case 0 | 1 | 2:
                return self.arithmetic(scope, ["integer"], ["+", "-", "*", "%"])
            case 3:
                return _minus(self.expression(scope, "integer"))
            case 4:
                name = self.pick(["abs", "floor", "ceil", "round"])
                return ast.Call(name, (self.expression(scope, "integer"),))
            case 5:
                return ast.Call("length", (self.expression(scope, self.pick(["string", "bytes"])),))
            case 6:
                name = self.pick(["year", "month", "day", "weekday", "hour", "minute", "second"])
                of = "timestamp" if name in ("hour", "minute", "second") else self.pick(["date", "timestamp"])
                return ast.Call(name, (self.expression(scope, of),))
            case 7:
                return ast.Call("position", (self.expression(scope, "string"), self.expression(scope, "string")))
            case 8:
                days = (self.expression(scope, "date"), self.expression(scope, "date"))
                return ast.Call("days_between", days)
            case _:
                return self.folded(scope, "integer")

    def number(self, scope: Scope, name: str) -> ast.Expression:
        match self.rng.randint(0, 6):
            case 0 | 1 | 2 if name == "double":
                return self.arithmetic(scope, NUMBERS, ["/"] if self.flag() else ["+", "-", "*", "%", "/"], "double")
            case 0 | 1 | 2:
                return self.arithmetic(scope, ["integer", "decimal"], ["+", "-", "*", "%"], "decimal")
            case 3:
                return _minus(self.expression(scope, name))
            case 4:
                return ast.Call(self.pick(["abs", "floor", "ceil", "round"]), (self.expression(scope, name),))
            case 5 if name == "double":
                times = (self.expression(scope, "timestamp"), self.expression(scope, "timestamp"))
                return ast.Call("seconds_between", times)
            case 5:
                return self.coalesce(scope, name)
            case _:
                return self.folded(scope, name)

    def arithmetic(self, scope: Scope, names: list[str], signs: list[str], must: str = "") -> ast.Expression:
        left = self.expression(scope, must or self.pick(names))
        right = self.expression(scope, self.pick(names))
        return ast.Binary(self.pick(signs), *((left, right) if self.flag() else (right, left)))

    def string(self, scope: Scope) -> ast.Expression:
        match self.rng.randint(0, 6):
            case 0:
                return ast.Binary("||", self.expression(scope, "string"), self.expression(scope, "string"))
            case 1 | 2:
                name = self.pick(["lower", "upper", "trim", "ltrim", "rtrim"])
                return ast.Call(name, (self.expression(scope, "string"),))
            case 3:
                start: ast.Expression = ast.Literal("integer", self.rng.randint(-2, 5))
                size: ast.Expression = ast.Literal("integer", self.rng.randint(-1, 5))
                if self.rng.randint(0, 3) == 0:
                    start, size = self.expression(scope, "integer"), self.expression(scope, "integer")
                rest = (start, size) if self.flag() else (start,)
                return ast.Call("substring", (self.expression(scope, "string"), *rest))
            case 4:
                variants = self.paths(scope, lambda location: isinstance(location.type, t.Variant))
                return ast.Call("case", (self.pick(variants),)) if variants else self.leaf(scope, "string")
            case 5:
                return self.coalesce(scope, "string")
            case _:
                return self.folded(scope, "string")

    def coalesce(self, scope: Scope, name: str) -> ast.Expression:
        names = [name] * 2 if name not in NUMBERS else [name, self.pick([name, "integer"])]
        return ast.Call("coalesce", tuple(self.expression(scope, each) for each in names))

    # Lists

    def lists(self, scope: Scope) -> list[tuple[ast.Path, Location]]:
        return [
            (path, location) for path, location in self.places(scope) if isinstance(location.type, t.List | kinds.Nodes)
        ]

    def inside(self, scope: Scope) -> tuple[ast.Path, Scope] | None:
        lists = self.lists(scope)
        if not lists:
            return None
        path, location = self.pick(lists)
        return path, ElementScope(scope, location.element(scope.variables))

    def quantified(self, scope: Scope) -> ast.Expression:
        found = self.inside(scope)
        if found is None:
            return self.leaf(scope, "boolean")
        path, inner = found
        element = inner.location.kind  # type: ignore[attr-defined]
        if isinstance(element, Scalar) and self.flag():
            return ast.In(self.expression(scope, family(element)), path, self.flag())
        return ast.Call(self.pick(["any", "all"]), (path, self.expression(inner, "boolean")))

    def folded(self, scope: Scope, name: str) -> ast.Expression:
        found = self.inside(scope)
        if found is None:
            return self.leaf(scope, name)
        path, inner = found
        if name == "integer" and self.flag():
            return ast.Call("count", (path, self.expression(inner, "boolean")) if self.flag() else (path,))
        names = ["min", "max"] + ["sum"] * (name in NUMBERS)
        if name == "double" and self.flag():
            return ast.Call("avg", (path, self.expression(inner, self.pick(NUMBERS))))
        return ast.Call(self.pick(names), (path, self.expression(inner, name)))

    # Queries over message types

    def select(self, name: str | None) -> ast.Select:
        """A query whose first column is of a family; `select *` when there is none."""
        message_type = self.schema.message_type
        assert message_type is not None
        root = Location.root(self.schema)
        sources = [
            ast.FromItem(ast.Path(self.pick([f"mt_{message_type.name}", f"MT_{message_type.name.upper()}"])), "v"),
            ast.FromItem(ast.Path("v", ("root",)), "v0"),
        ]
        places = {"v": replace(root, type=kinds.Message(), written="v"), "v0": replace(root, written="v0")}
        for number in range(1, self.rng.randint(1, 4)):
            ways = [
                (variable, member)
                for variable, location in places.items()
                for member, kind in location.members.items()
                if isinstance(kind, kinds.Nodes)
            ]
            if ways:
                variable, member = self.pick(ways)
                places[f"v{number}"] = replace(places[variable].step(member).element(number), written=f"v{number}")
                sources.append(ast.FromItem(ast.Path(variable, (member,)), f"v{number}"))
        scope = VariableScope(None, len(places), places)
        where = self.expression(scope, "boolean") if self.flag() else None
        columns: tuple[ast.Expression, ...] = () if name is None else (self.expression(scope, name),)
        return ast.Select(columns, tuple(sources), where)


def _may_be_null(location: Location) -> bool:
    return isinstance(location.kind, kinds.Elements | kinds.Structure)


def _chain(operator: str, terms: list[ast.Expression]) -> ast.Chain:
    flat: list[ast.Expression] = []
    for term in terms:
        flat.extend(term.terms if isinstance(term, ast.Chain) and term.operator == operator else (term,))
    return ast.Chain(operator, tuple(flat))


def _minus(operand: ast.Expression) -> ast.Expression:
    return ast.Minus(operand)


@st.composite
def questions(draw: st.DrawFn, schema: t.Schema, messages: list[Any], size: int = 12) -> str:
    rng = draw(seeds())
    author = Author(rng, schema, messages, size)
    name = rng.choice(["boolean"] * 4 + ["integer", "decimal", "double", "string"] * 2 + FAMILIES)
    if schema.message_type is not None and rng.randrange(4) == 0:
        aggregate = rng.choice(["count", "sum", "min", "max", "avg", "any", "all"])
        inner = {"any": "boolean", "all": "boolean", "sum": "double", "avg": "integer"}.get(aggregate, name)
        return str(ast.Call(aggregate, author.select(inner)))
    return str(author.compound(author.root(), name))


@st.composite
def predicates(draw: st.DrawFn, schema: t.Schema, messages: list[Any], size: int = 12) -> str:
    rng = draw(seeds())
    author = Author(rng, schema, messages, size)
    if schema.message_type is not None and rng.randrange(3) == 0:
        return str(author.select(rng.choice([None, *FAMILIES])))
    return str(author.boolean(author.root()))
