"""The model of what a message may contain: a tree of types with a name.

All three notations (`text`, `ddl`, `dataclass`) read into this model and print from it. The model is
immutable and hashable. `str()` of a type or a schema is Gryphon's notation, which is also the canonical form
for the fingerprint.

::

    Type = Atom      bool, int8 … uint64, float, double, decimal(p,s), string, bytes, date, timestamp, uuid, ident
         | Dynamic   a value of a schema known only at run time
         | Tuple     [name: Type, …]
         | List      *(Type)*
         | Variant   {case: Type | …}
         | Optional  Type?
         | Ref       the name of another definition; may be recursive
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, TypeAlias

from milepost import limits
from milepost.errors import SchemaError, did_you_mean
from milepost.schema.components import circular, components

if TYPE_CHECKING:
    from milepost.schema.messagetype import MessageType

FIELD_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
POSITIONAL_NAME: Final = re.compile(r"_[0-9]+\Z")  # of a field written without a name
SCHEMA_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*\Z")


@dataclass(frozen=True, slots=True)
class Atom:
    """An atomic type. `kind` is its canonical name; only decimals have digits."""

    kind: str
    precision: int = 0  # total decimal digits
    scale: int = 0  # of these, digits after the point

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})" if self.kind == "decimal" else self.kind


BOOL: Final = Atom("bool")
INT8: Final = Atom("int8")
INT16: Final = Atom("int16")
INT32: Final = Atom("int")
INT64: Final = Atom("long")
UINT8: Final = Atom("uint8")
UINT16: Final = Atom("uint16")
UINT32: Final = Atom("uint32")
UINT64: Final = Atom("uint64")
FLOAT: Final = Atom("float")
DOUBLE: Final = Atom("double")
STRING: Final = Atom("string")
BYTES: Final = Atom("bytes")
DATE: Final = Atom("date")  # days since 1970-01-01, proleptic Gregorian, years 1 to 9999
TIMESTAMP: Final = Atom("timestamp")  # microseconds since 1970-01-01T00:00:00Z, years 1 to 9999
UUID: Final = Atom("uuid")
IDENT: Final = Atom("ident")  # JPMQ's IDENT: a 64-bit identity; it compares, but does not calculate

ATOMS: Final[Mapping[str, Atom]] = {
    atom.kind: atom
    for atom in (
        BOOL, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64,
        FLOAT, DOUBLE, STRING, BYTES, DATE, TIMESTAMP, UUID, IDENT,
    )
}  # fmt: skip
ALIASES: Final[Mapping[str, Atom]] = {
    "boolean": BOOL,
    "byte": INT8,
    "short": INT16,
    "int32": INT32,
    "int64": INT64,
}
# The whole range of each integer kind, both ends included.
INTEGER_RANGES: Final[Mapping[str, tuple[int, int]]] = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "int": (-(1 << 31), (1 << 31) - 1),
    "long": (-(1 << 63), (1 << 63) - 1),
    "uint8": (0, (1 << 8) - 1),
    "uint16": (0, (1 << 16) - 1),
    "uint32": (0, (1 << 32) - 1),
    "uint64": (0, (1 << 64) - 1),
    "ident": (-(1 << 63), (1 << 63) - 1),
}


def decimal(precision: int = 38, scale: int = 9) -> Atom:
    """A decimal type; bare `decimal` has 38 digits, nine of them after the point."""
    if not (1 <= precision <= limits.DECIMAL_DIGITS and 0 <= scale <= precision):
        raise SchemaError(
            f"decimal({precision},{scale}) is not valid: precision goes from 1 to {limits.DECIMAL_DIGITS}, "
            "and scale from 0 to the precision"
        )
    return Atom("decimal", precision, scale)


@dataclass(frozen=True, slots=True)
class Dynamic:
    """A value whose schema is known only at run time; it carries that schema's fingerprint."""

    def __str__(self) -> str:
        return "dynamic"


DYNAMIC: Final = Dynamic()


@dataclass(frozen=True, slots=True)
class Field:
    """A named type: a tuple's field or a variant's case."""

    name: str
    type: Type

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"


@dataclass(frozen=True, slots=True)
class Tuple:
    """Fields in order. A field written without a name is called `_0`, `_1`, … after its position."""

    fields: tuple[Field, ...]

    def __str__(self) -> str:
        return f"[{', '.join(map(_shown, range(len(self.fields)), self.fields))}]"


@dataclass(frozen=True, slots=True)
class List:
    """Zero or more of one type."""

    item: Type

    def __str__(self) -> str:
        return f"*({self.item})*"


@dataclass(frozen=True, slots=True)
class Variant:
    """Exactly one of the cases. A case written without a name is named after its position, as a field is."""

    cases: tuple[Field, ...]

    def __str__(self) -> str:
        # `{[] | int}` means `int?`, so a case that holds nothing is always shown with its name.
        return f"{{{' | '.join(map(_shown_case, range(len(self.cases)), self.cases))}}}"


@dataclass(frozen=True, slots=True)
class Optional:
    """A type or nothing. Absent and null are the same. Never directly inside another Optional."""

    type: Type

    def __str__(self) -> str:
        return f"{self.type}?"


@dataclass(frozen=True, slots=True)
class Ref:
    """The name of a definition of the same schema; the schema's own name makes it recursive."""

    name: str

    def __str__(self) -> str:
        return self.name


Type: TypeAlias = Atom | Dynamic | Tuple | List | Variant | Optional | Ref


def _shown(position: int, item: Field) -> str:
    return str(item.type) if item.name == positional(position) else str(item)


def _shown_case(position: int, item: Field) -> str:
    return str(item) if item.type == Tuple(()) else _shown(position, item)


def positional(position: int) -> str:
    """The name of a field that was written without one."""
    return f"_{position}"


@dataclass(frozen=True)
class Schema:
    """A named message: a tuple type, the definitions it refers to, the rules its messages obey, and its indexes.

    The constructor checks names, limits, references, and that a value can exist.
    """

    name: str
    type: Type
    definitions: tuple[Field, ...] = ()  # the targets of Refs, without the schema itself
    checks: tuple[str, ...] = ()  # predicates in the query language; a message may not make one false
    message_type: MessageType | None = None  # set when compiled from nodes
    indexes: tuple[str, ...] = ()  # paths, with dots, each with an index in a queue's tables

    def __post_init__(self) -> None:
        _Checker(self).check()

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Schema) and self.canonical == other.canonical)

    def __hash__(self) -> int:
        return self.fingerprint  # the generated hash would walk the whole tree at every look-up

    def __repr__(self) -> str:
        return f"Schema({self.canonical!r})"

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.type}"]
        lines[0] += "".join(f" index ({path})" for path in self.indexes)
        lines[0] += "".join(f" check ({rule})" for rule in self.checks)
        lines += [str(definition) for definition in self.definitions]
        return "\n".join(lines)

    def resolve(self, ref: Ref) -> Type:
        """The type a reference stands for."""
        return self._named[ref.name]

    @cached_property
    def _named(self) -> dict[str, Type]:
        return {self.name: self.type} | {item.name: item.type for item in self.definitions}

    @cached_property
    def recursive(self) -> frozenset[str]:
        """The names through which a definition reaches itself; references to them are stored as dynamic values."""
        return circular({name: references(kind) for name, kind in self._named.items()})

    @cached_property
    def canonical(self) -> str:
        """The text that the fingerprint hashes: the schema in the notation it was made from."""
        return str(self.message_type) if self.message_type is not None else str(self)

    @cached_property
    def fingerprint(self) -> int:
        """64 bits that identify this schema on the wire and in the log; they cover checks and indexes."""
        return int.from_bytes(blake2b(self.canonical.encode(), digest_size=8).digest(), "little")


def children(kind: Type) -> tuple[Type, ...]:
    """The types directly inside a type."""
    match kind:
        case Tuple(fields) | Variant(fields):
            return tuple(item.type for item in fields)
        case List(item) | Optional(item):
            return (item,)
        case _:
            return ()


def walk(kind: Type) -> Iterator[Type]:
    """A type and every type inside it, references not followed."""
    stack = [kind]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(reversed(children(top)))


def references(kind: Type) -> set[str]:
    """The names that a type mentions."""
    return {item.name for item in walk(kind) if isinstance(item, Ref)}


class _Checker:
    """The rules a schema must obey, each with its error message."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.nodes = 0
        self.names: dict[str, Type] = {}

    def check(self) -> None:
        schema = self.schema
        self._define(schema.name, schema.type)
        for item in schema.definitions:
            self._define(item.name, item.type)
        for name, kind in self.names.items():
            self._visit(kind, name, 1)
        if not isinstance(schema.type, Tuple):
            raise SchemaError(f"{schema.name}: a message is a tuple; write {schema.name}: [value: {schema.type}]")
        for rule in schema.checks:
            self._rule(rule)
        self._finite()
        self._hidden()
        self._expanded()
        self._indexes()

    def _define(self, name: str, kind: Type) -> None:
        limits.require("SCHEMA_NAME_CHARS", len(name), "the name of a schema")
        if not SCHEMA_NAME.match(name):
            raise SchemaError(f"{name!r} is no schema name: use letters, digits, _ and dots")
        if name in ATOMS or name in ALIASES or name in ("dynamic", "decimal"):
            raise SchemaError(f"{name!r} is the name of a built-in type; choose another for the schema")
        if name in self.names:
            raise SchemaError(f"{name!r} is defined twice")
        self.names[name] = kind

    def _visit(self, kind: Type, path: str, depth: int) -> None:
        self.nodes += 1
        limits.require("SCHEMA_NODES", self.nodes, f"{self.schema.name}: number of types")
        limits.require("SCHEMA_DEPTH", depth, f"{path}: depth of nesting")
        match kind:
            case Tuple(fields) | Variant(fields):
                self._distinct(fields, path)
                if isinstance(kind, Variant):
                    limits.require("VARIANT_CASES", len(fields), f"{path}: number of cases")
                    if not fields:
                        raise SchemaError(f"{path}: a variant needs at least one case")
                for item in fields:
                    self._visit(item.type, f"{path}.{item.name}", depth + 1)
            case List(item):
                if item == Tuple(()):
                    raise SchemaError(f"{path}: a list of empty tuples says nothing but its length; use an integer")
                self._visit(item, f"{path}[]", depth + 1)
            case Optional(inner):
                if isinstance(inner, Optional):
                    raise SchemaError(f"{path}: optional twice; absent and null are the same, so one ? is enough")
                self._visit(inner, path, depth + 1)
            case Ref(name):
                if name not in self.names:
                    near = did_you_mean(name, self.names) or f"; define it beside {self.schema.name}"
                    raise SchemaError(f"{path}: nothing is called {name!r}{near}")
            case Atom("decimal", precision, scale):
                decimal(precision, scale)
            case Atom(name):
                if ATOMS.get(name) != kind:
                    raise SchemaError(f"{path}: there is no atomic type {kind}")
            case Dynamic():
                pass

    def _distinct(self, fields: tuple[Field, ...], path: str) -> None:
        seen = set()
        for position, item in enumerate(fields):
            limits.require("SCHEMA_NAME_CHARS", len(item.name), f"{path}: the name of a field")
            if not FIELD_NAME.match(item.name):
                raise SchemaError(f"{path}: {item.name!r} is no field name: use letters, digits and _")
            if POSITIONAL_NAME.match(item.name) and item.name != positional(position):
                raise SchemaError(f"{path}: {item.name!r} is the name of an unnamed field at another position")
            if item.name in seen:
                raise SchemaError(f"{path}: two fields called {item.name!r}")
            seen.add(item.name)

    def _rule(self, rule: str) -> None:
        """Require balanced parentheses and quotes: only such a check can be printed and parsed again."""
        depth = 0
        for token in re.findall(r"""'[^']*'|"[^"]*"|[()'"]""", rule):
            depth += (token == "(") - (token == ")")
            if depth < 0 or token in ("'", '"'):
                break
        else:
            if depth == 0 and rule == rule.strip() != "":
                return
        raise SchemaError(
            f"{self.schema.name}: check ({rule[:80]}) is not valid: it must not be empty, "
            "and its parentheses and quotes must close"
        )

    def _indexes(self) -> None:
        """An index is on an atomic value; tuples and lists may be on the way to it."""
        seen: set[str] = set()
        known: dict[int, dict[str, Type]] = {}  # fields by name, of the tuples met so far: there may be many indexes
        for path in self.schema.indexes:
            what = f"{self.schema.name}: an index on {path[:80]}"
            if path in seen:
                raise SchemaError(f"{what} is there already; one is enough")
            seen.add(path)
            kind = self._around(self.schema.type)
            for step in path.split("."):
                inside = known.get(id(kind))
                if inside is None:
                    fields = kind.fields if isinstance(kind, Tuple) else ()
                    inside = known[id(kind)] = {item.name: item.type for item in fields}
                if step not in inside:
                    near = did_you_mean(step, inside) or f"; before it stands {_described(kind)}"
                    raise SchemaError(f"{what}: there is no field {step[:80]!r}{near}")
                kind = self._around(inside[step])
            if not isinstance(kind, Atom):
                raise SchemaError(f"{what}, which is {_described(kind)}; an index is on an atomic value")

    def _around(self, kind: Type) -> Type:
        """The type inside lists, optionals and references; a recursive reference is returned as it is."""
        while isinstance(kind, List | Optional) or (isinstance(kind, Ref) and kind.name not in self.schema.recursive):
            kind = self.names[kind.name] if isinstance(kind, Ref) else children(kind)[0]
        return kind

    def _finite(self) -> None:
        """Refuse a definition whose every value would contain itself.

        Tells each type's parent once that the type has a finite value. This is linear. On a hostile schema, following
        references takes exponential time, and visiting every definition again after each answer quadratic time.
        """
        waiting: dict[str, list[_Waiter]] = {name: [] for name in self.names}
        finite: list[str] = []

        def settle(waiter: _Waiter | None) -> None:
            while waiter is not None:
                waiter.missing -= 1
                if waiter.missing != 0:
                    return
                if waiter.name is not None:
                    finite.append(waiter.name)
                waiter = waiter.parent

        for name, kind in self.names.items():
            todo = [(kind, _Waiter(None, 1, name))]
            while todo:
                kind, parent = todo.pop()
                match kind:
                    case Ref(target):
                        waiting[target].append(parent)
                    case Tuple(fields) if fields:
                        waiter = _Waiter(parent, len(fields))
                        todo += [(item.type, waiter) for item in fields]
                    case Variant(cases):
                        waiter = _Waiter(parent, 1)
                        todo += [(item.type, waiter) for item in cases]
                    case _:
                        settle(parent)
        for name in finite:  # grows during the loop
            for waiter in waiting[name]:
                settle(waiter)
        if endless := self.names.keys() - set(finite):
            name = min(endless)
            raise SchemaError(f"{name}: every value would contain itself; make one step optional, a list or a variant")

    def _hidden(self) -> None:
        """Refuse types behind references that would be refused if they were written out."""
        meant: dict[str, Type] = {}  # by name, with references to references followed to their end
        for name in self.names:
            chain = [name]
            while isinstance(kind := self.names[chain[-1]], Ref) and kind.name not in meant:
                chain.append(kind.name)
            meant |= dict.fromkeys(chain, meant[kind.name] if isinstance(kind, Ref) else kind)
        for name, kind in self.names.items():
            for item in walk(kind):
                match item:
                    case Optional(Ref(target)) if isinstance(meant[target], Optional):
                        raise SchemaError(f"{name}: {item} is optional twice, because {target} is optional already")
                    case List(Ref(target)) if meant[target] == Tuple(()):
                        raise SchemaError(f"{name}: {item} is a list of empty tuples; use an integer")

    def _expanded(self) -> None:
        """Bound the tree that remains when references are followed: twenty doublings would make a million fields."""
        recursive = self.schema.recursive
        known: dict[str, tuple[int, int]] = {}

        def measure(kind: Type) -> tuple[int, int]:
            """Nodes and depth; the targets of references are measured before."""
            if isinstance(kind, Ref):
                nodes, depth = (0, 0) if kind.name in recursive else known[kind.name]
                return 1 + nodes, 1 + depth
            inner = [measure(child) for child in children(kind)]
            return 1 + sum(nodes for nodes, _ in inner), 1 + max((depth for _, depth in inner), default=0)

        for component in components({name: references(kind) for name, kind in self.names.items()}):
            for name in component:
                nodes, depth = known[name] = measure(self.names[name])
                limits.require("SCHEMA_NODES", nodes, f"{name}: number of types with references followed")
                limits.require("SCHEMA_DEPTH", depth, f"{name}: depth with references followed")


def _described(kind: Type) -> str:
    match kind:
        case Tuple():
            return "a tuple"
        case Variant():
            return "a variant"
        case Ref(name):
            return f"a {name}, which contains itself"
        case _:
            return str(kind)


@dataclass(slots=True, eq=False)
class _Waiter:
    """A type that has a finite value once `missing` of the types inside it have one."""

    parent: _Waiter | None
    missing: int
    name: str | None = None  # of the definition that the type is, at the top of its tree
