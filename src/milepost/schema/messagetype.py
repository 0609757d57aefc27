"""Message types as JPMQ defines them: node types with attributes and references, and a root.

A message of such a type is a graph of nodes that starts at one root node. References are set-valued, may share
nodes and may be cyclic. A message type compiles to an ordinary schema, so that batches, queries and evolution
need to know only one model: one list of tuples per node type, a reference being a list of positions in the
list of its target. The root is at position 0 of its list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

from milepost import limits
from milepost.errors import SchemaError, did_you_mean
from milepost.schema.types import (
    ALIASES,
    ATOMS,
    BOOL,
    DOUBLE,
    FIELD_NAME,
    INT64,
    POSITIONAL_NAME,
    UINT32,
    Atom,
    Field,
    List,
    Optional,
    Schema,
    Tuple,
    Type,
)

# The DDL's names of atomic types: every name of the text notation, and these three of JPMQ. INTEGER has 64 bits
# because JPMQ's own example keeps an EAN in one, and thirteen decimal digits do not fit in 32 bits.
_JPMQ_WORDS: Final = {"INTEGER": INT64, "REAL": DOUBLE, "BOOLEAN": BOOL}
ATOM_WORDS: Final[Mapping[str, Atom]] = {
    **{name.upper(): atom for name, atom in [*ATOMS.items(), *ALIASES.items()]},
    **_JPMQ_WORDS,
}
_PRINTED: Final[Mapping[Atom, str]] = {atom: word for word, atom in _JPMQ_WORDS.items()}


@dataclass(frozen=True, slots=True)
class Attribute:
    """A value of a node: of an atomic type, or of an optional one."""

    name: str
    type: Type

    def __str__(self) -> str:
        return f"{self.name}: {_words(self.type)};"


@dataclass(frozen=True, slots=True)
class Reference:
    """The nodes of one target type that a node points to: a set, in order, possibly empty."""

    name: str
    target: str

    def __str__(self) -> str:
        return f"{self.name}: REFERENCE TO {self.target};"


Member: TypeAlias = Attribute | Reference


@dataclass(frozen=True)
class NodeType:
    """A kind of node and its members, in order."""

    name: str
    members: tuple[Member, ...]

    def __post_init__(self) -> None:
        _require_name(self.name, "node type")
        if not self.members:
            raise SchemaError(f"node {self.name} has no members; give it an attribute or a reference")
        for member in self.members:
            _require_name(member.name, f"member of node {self.name}")
            if isinstance(member, Attribute) and not _atomic(member.type):
                raise SchemaError(
                    f"{self.name}.{member.name}: an attribute holds an atomic value, not {member.type}; "
                    "put the structure into a node type of its own and refer to it"
                )
        _require_distinct((member.name for member in self.members), f"node {self.name} has two members")

    def member(self, name: str) -> Member:
        """The attribute or reference of that name."""
        try:
            return self._by_name[name]
        except KeyError:
            raise SchemaError(f"node {self.name} has no member {name!r}{did_you_mean(name, self._by_name)}") from None

    @cached_property
    def _by_name(self) -> dict[str, Member]:
        return {member.name: member for member in self.members}

    def __str__(self) -> str:
        return "\n".join([f"NODE {self.name};", *(f"  {member}" for member in self.members), "END;"])


@dataclass(frozen=True)
class MessageType:
    """Node types, one of them the root. Checked when made; node types that the root cannot reach are allowed."""

    name: str
    nodes: tuple[NodeType, ...]
    root: str
    checks: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()  # node.attribute, each with an index in a queue's tables

    def __post_init__(self) -> None:
        limits.require("SCHEMA_NODES", len(self.nodes), f"{self.name}: number of node types")
        _require_distinct((node.name for node in self.nodes), f"{self.name} has two node types")
        if self.root not in self._by_name:
            raise SchemaError(
                f"{self.name}: the root {self.root!r} is no node type{did_you_mean(self.root, self._by_name)}"
            )
        for node in self.nodes:
            for member in node.members:
                if isinstance(member, Reference) and member.target not in self._by_name:
                    raise SchemaError(
                        f"{self.name}: {node.name}.{member.name} refers to {member.target!r}, which is no node type"
                        f"{did_you_mean(member.target, self._by_name)}"
                    )
        for path in self.indexes:
            self._require_attribute(path)
        # Compiling the schema checks the rest: the name, the checks, the size.
        self.schema  # noqa: B018

    def node(self, name: str) -> NodeType:
        """The node type of that name."""
        try:
            return self._by_name[name]
        except KeyError:
            raise SchemaError(f"{self.name} has no node type {name!r}{did_you_mean(name, self._by_name)}") from None

    @cached_property
    def refers(self) -> bool:
        """Whether any node refers to others."""
        return any(isinstance(member, Reference) for node in self.nodes for member in node.members)

    def _require_attribute(self, path: str) -> None:
        node, _, name = path.partition(".")
        if not name:
            raise SchemaError(
                f"{self.name}: an index on {path[:80]!r}; write which attribute of which node: node.attribute"
            )
        if isinstance(self.node(node).member(name), Reference):
            raise SchemaError(
                f"{self.name}: an index on {path[:80]}, which is a reference; an index is on an attribute"
            )

    @cached_property
    def schema(self) -> Schema:
        """What batches store: for each node type, in order, the list of its nodes."""
        return Schema(
            self.name,
            Tuple(tuple(Field(node.name, List(Tuple(_fields(node)))) for node in self.nodes)),
            checks=self.checks,
            message_type=self,
            indexes=self.indexes,
        )

    @cached_property
    def _by_name(self) -> dict[str, NodeType]:
        return {node.name: node for node in self.nodes}

    def __str__(self) -> str:
        lines = [f"DEFINE MESSAGETYPE {self.name};", *(str(node) for node in self.nodes), f"ROOT {self.root};"]
        lines += [*(f"INDEX {path};" for path in self.indexes), *(f"CHECK ({rule});" for rule in self.checks)]
        return "\n".join([*lines, "END;"])


def _fields(node: NodeType) -> tuple[Field, ...]:
    return tuple(
        Field(member.name, member.type if isinstance(member, Attribute) else List(UINT32)) for member in node.members
    )


def _atomic(kind: Type) -> bool:
    return isinstance(kind.type if isinstance(kind, Optional) else kind, Atom)


def _words(kind: Type) -> str:
    """An attribute's type in the DDL."""
    if isinstance(kind, Optional):
        return f"{_words(kind.type)}?"
    return _PRINTED.get(kind) or str(kind).upper() if isinstance(kind, Atom) else str(kind)


def _require_name(name: str, what: str) -> None:
    limits.require("SCHEMA_NAME_CHARS", len(name), f"the name of a {what}")
    if not FIELD_NAME.match(name) or POSITIONAL_NAME.match(name):
        raise SchemaError(f"{name!r} cannot name a {what}: use letters, digits and _, and not _ with digits alone")


def _require_distinct(names: Iterable[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise SchemaError(f"{what} called {name!r}")
        seen.add(name)
