"""Locations: the ends of paths through the types of a schema, with an error message for every wrong step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from milepost.errors import did_you_mean
from milepost.query import kinds
from milepost.query.header import ATTRIBUTES
from milepost.query.typed import ROOT, CaseStep, ElementStep, FieldStep, ReadPath, Step, UnfoldStep
from milepost.schema.messagetype import Attribute
from milepost.schema.types import DYNAMIC, FLOAT, Atom, Dynamic, List, Optional, Ref, Schema, Tuple, Type, Variant

PlaceType: TypeAlias = Type | kinds.NodeKind | kinds.Nodes | kinds.Message

_NAMES_LISTED: Final = 20  # in the message about an unknown name


class WrongStep(Exception):
    """A step that does not exist. The message is for the author of the query."""


@dataclass(frozen=True, slots=True)
class Location:
    """A variable, the steps from it, and the type at their end."""

    schema: Schema
    variable: int
    type: PlaceType  # resolved: neither optional nor a reference to a definition
    steps: tuple[Step, ...] = ()
    written: str = ""  # the path up to here, for messages
    single: bool = False  # a 32-bit float
    folded: bool = False  # at a recursive reference that no step has entered yet
    # By `id()` of a tuple's fields, which the schema keeps alive: many names are looked up in a wide tuple.
    indexes: dict[int, dict[str, PlaceType]] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def root(cls, schema: Schema) -> Location:
        """The start of a plain predicate's paths: the message, or the root node of a message type."""
        message_type = schema.message_type
        return cls(schema, ROOT, schema.type if message_type is None else kinds.NodeKind(message_type.root))

    def _to(self, kind: PlaceType) -> Location:
        """The same location with another type, resolved."""
        folded = False
        seen = set()
        while isinstance(kind, Optional | Ref):
            if isinstance(kind, Optional):
                kind = kind.type
                continue
            if kind.name in seen:
                kind = DYNAMIC  # optional references that only lead to each other: the value is always null
                break
            seen.add(kind.name)
            folded |= kind.name in self.schema.recursive
            kind = self.schema.resolve(kind)
        return replace(self, type=kind, single=kind == FLOAT, folded=folded)

    @property
    def kind(self) -> kinds.Kind:
        """The kind of the value here, for the type checker."""
        match self.type:
            case Atom() as atom:
                return kinds.of_atom(atom)
            case List(item):
                return kinds.Elements(item)
            case Tuple() | Variant() | Dynamic() as structure:
                return kinds.Structure(structure)
            case kinds.NodeKind() | kinds.Nodes() | kinds.Message() as kind:
                return kind
            case _:
                raise AssertionError(self.type)

    @property
    def read(self) -> ReadPath:
        """The node that reads the value here."""
        return ReadPath(self.variable, self.steps, self.kind, self.single)

    @property
    def members(self) -> Mapping[str, PlaceType]:
        """The names that may be the next step, with their types."""
        match self.type:
            case Tuple(fields) | Variant(fields):
                if id(fields) not in self.indexes:
                    self.indexes[id(fields)] = {field.name: field.type for field in fields}
                return self.indexes[id(fields)]
            case kinds.NodeKind(name):
                assert self.schema.message_type is not None
                return {
                    member.name: member.type if isinstance(member, Attribute) else kinds.Nodes(member.target)
                    for member in self.schema.message_type.node(name).members
                }
            case _:
                return {}

    def element(self, variable: int) -> Location:
        """The location of a new variable that takes each element of the list here, or each node of the reference."""
        kind: PlaceType
        match self.type:
            case List(item):
                kind = item
            case kinds.Nodes(target):
                kind = kinds.NodeKind(target)
            case _:
                raise WrongStep(f"{self.written or 'this'} is {described(self.kind)}, and not a list")
        return replace(self, variable=variable, steps=(), written="it")._to(kind)

    def step(self, step: str | int) -> Location:
        """The location one step further. Raises `WrongStep`."""
        return self._index(step) if isinstance(step, int) else self._name(step)

    def _index(self, index: int) -> Location:
        match self.type:
            case List(item):
                return self._further(ElementStep(index), item, f"[{index}]")
            case kinds.Nodes():
                raise WrongStep(f"{self.written} is a reference, whose nodes have no order: {self._advice()}")
            case _:
                raise WrongStep(f"only a list has elements, and {self.written} is {described(self.kind)}")

    def _name(self, name: str) -> Location:
        match self.type:
            case kinds.Nodes():
                raise WrongStep(f"{self.written} is a reference, a set of nodes: {self._advice(name)}")
            case List():
                way = f"any({self.written}, {shown(name)} …) or {self.written}[0].{shown(name)}"
                raise WrongStep(f"{self.written} is a list: write {way}")
            case Dynamic():
                raise WrongStep(f"the type of the dynamic value {self.written} is known only when a message arrives")
            case kinds.Message() if name == "root":
                return replace(Location.root(self.schema), written=f"{self.written}.root", indexes=self.indexes)
            case kinds.Message():
                raise WrongStep(unknown(name, ("root", *ATTRIBUTES), f"{self.written} has no {shown(name)!r}"))
            case Atom():
                raise WrongStep(f"{self.written} is {described(self.kind)}, which has no parts")
        members = self.members
        if name not in members:
            where = f"{self.written} has no {shown(name)!r}" if self.written else f"there is no {shown(name)!r}"
            raise WrongStep(unknown(name, members, where))
        step = CaseStep(name) if isinstance(self.type, Variant) else FieldStep(name)
        return self._further(step, members[name], f".{name}")

    def _advice(self, name: str = "") -> str:
        inner = f"{shown(name)} …" if name else "…"
        return f"write any({self.written}, {inner}), or in a query: from …, {self.written} x"

    def _further(self, step: Step, kind: PlaceType, written: str) -> Location:
        steps = (*self.steps, UnfoldStep(), step) if self.folded else (*self.steps, step)
        return replace(self, steps=steps, written=f"{self.written}{written}".removeprefix("."))._to(kind)

    def entered(self) -> ReadPath:
        """The node that reads the list here for an iteration over its elements."""
        steps = (*self.steps, UnfoldStep()) if self.folded else self.steps
        return ReadPath(self.variable, steps, self.kind)


def unknown(name: str, known: Iterable[str], what: str) -> str:
    """The error message about an unknown name: the nearest name, and the known ones."""
    known = tuple(known)
    more = ", …" if len(known) > _NAMES_LISTED else ""
    listed = ", ".join(known[:_NAMES_LISTED])
    near = did_you_mean(name, known)
    if not known:
        return what
    return f"{what}{near} There are {listed}{more}" if near else f"{what}; there are {listed}{more}"


def shown(text: object) -> str:
    """A name or an expression for an error message, cut to a readable length."""
    whole = str(text)
    return whole if len(whole) <= _CHARS_SHOWN else f"{whole[:_CHARS_SHOWN]}…"


_CHARS_SHOWN: Final = 60


def described(kind: kinds.Kind) -> str:
    """A kind with its article: "an integer"."""
    text = str(kind)
    return text if text == "bytes" else f"{'an' if text[0] in 'aei' else 'a'} {text}"
