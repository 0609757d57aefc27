"""One schema with the fields of two versions: filters are written against it, and readers of both versions see it.

A field keeps the type of its version, so a message of one version lacks the fields that only the other has; `relax`
defines how such a message is read. Checks and indexes belong to versions: a merged schema has none.
"""

from __future__ import annotations

from dataclasses import replace

from milepost import limits
from milepost.errors import IncompatibleSchema
from milepost.schema.evolution import compatible, conflicts
from milepost.schema.messagetype import MessageType, NodeType
from milepost.schema.types import Field, List, Optional, Ref, Schema, Tuple, Type, Variant, references


def merged(one: Schema, other: Schema) -> Schema:
    """The schema with the fields of both; one of them when it extends the other. Conflicts: `IncompatibleSchema`."""
    if compatible(one, other):
        return other
    if compatible(other, one):
        return one
    if found := conflicts(one, other):
        paths = tuple(item.path for item in found)
        raise IncompatibleSchema(
            f"{other.name} does not agree with {one.name}: {found[0].path}: {found[0].reason}", paths
        )
    if one.message_type is not None and other.message_type is not None:
        return _message_type(one.message_type, other.message_type).schema
    return _Merging(one, other).schema()


def _message_type(one: MessageType, other: MessageType) -> MessageType:
    nodes = {node.name: {member.name: member for member in node.members} for node in one.nodes}
    for node in other.nodes:
        nodes[node.name] = nodes.get(node.name, {}) | {member.name: member for member in node.members}
    made = tuple(NodeType(name, tuple(members.values())) for name, members in nodes.items())
    return replace(one, nodes=made, checks=(), indexes=())


class _Merging:
    """Walks two schemas without conflicts in step. Definitions of one name become one definition."""

    def __init__(self, one: Schema, other: Schema) -> None:
        self.one = one
        self.other = other
        self.inside: set[tuple[Type, Type]] = set()  # pairs with a reference that are being written out
        self.work = 0

    def schema(self) -> Schema:
        """The merged schema. Definitions of the same name must agree, since a name has one meaning in a schema."""
        one, other = self.one, self.other
        if one.name != other.name and any(
            other.name in references(kind) for kind in (other.type, *(item.type for item in other.definitions))
        ):
            raise self._refused(f"the schema contains itself, as {other.name}, and cannot be merged with {one.name}")
        theirs = {item.name: item.type for item in other.definitions}
        made = [
            Field(item.name, self._type(item.type, theirs.pop(item.name)) if item.name in theirs else item.type)
            for item in one.definitions
        ]
        made += [Field(name, kind) for name, kind in theirs.items()]
        return Schema(one.name, self._type(one.type, other.type), tuple(made))

    def _type(self, one: Type, other: Type) -> Type:
        if one == other and isinstance(one, Ref):
            return one  # the definitions themselves are merged once
        if isinstance(one, Ref) or isinstance(other, Ref):
            return self._written_out(one, other)
        match one, other:
            case Tuple(fields), Tuple(others):
                return Tuple(self._fields(fields, others))
            case Variant(cases), Variant(others):
                return Variant(self._fields(cases, others))
            case List(item), List(other_item):
                return List(self._type(item, other_item))
            case Optional(item), Optional(other_item):
                return Optional(self._type(item, other_item))
        if one != other:
            raise self._refused("definitions of one name differ")  # used in two places, and so never compared
        return one

    def _fields(self, fields: tuple[Field, ...], others: tuple[Field, ...]) -> tuple[Field, ...]:
        theirs = {item.name: item.type for item in others}
        mine = {
            item.name: self._type(item.type, theirs[item.name]) if item.name in theirs else item.type for item in fields
        }
        return tuple(Field(name, kind) for name, kind in (mine | theirs | mine).items())

    def _written_out(self, one: Type, other: Type) -> Type:
        """The merge of references of two names, or of a reference and a type; it has no name of its own."""
        pair = (one, other)
        self.work += 1
        limits.require("SCHEMA_COMPARISONS", self.work, f"{self.other.name}: merging two versions")
        limits.require("SCHEMA_DEPTH", len(self.inside), f"{self.other.name}: depth of references under two names")
        if pair in self.inside:
            raise self._refused("a part contains itself under two names; give it the same name in both")
        self.inside.add(pair)
        meant = self.one.resolve(one) if isinstance(one, Ref) else one
        made = self._type(meant, self.other.resolve(other) if isinstance(other, Ref) else other)
        self.inside.discard(pair)
        return made

    def _refused(self, why: str) -> IncompatibleSchema:
        return IncompatibleSchema(f"{self.other.name} cannot be merged with {self.one.name}: {why}", (self.one.name,))
