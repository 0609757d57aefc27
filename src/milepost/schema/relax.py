"""What a reader of one version gets from messages of another: its own schema, with what may be missing optional.

A field that the writer did not know is absent, never a default. A variant in a case that the reader does not know
is absent too. Nothing else changes, so code written for the reader's schema reads the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from milepost.errors import IncompatibleSchema
from milepost.schema.evolution import breaks
from milepost.schema.messagetype import Attribute, Member, MessageType, NodeType
from milepost.schema.types import Field, List, Optional, Ref, Schema, Tuple, Type, Variant


def relaxed(reader: Schema, writer: Schema) -> Schema:
    """The reader's schema as far as the writer's messages can fill it; itself when they can fill all of it."""
    if reader == writer:
        return reader
    if (wrong := breaks(writer, reader)) and breaks(reader, writer):
        paths = tuple(item.path for item in wrong)
        first = wrong[0]
        raise IncompatibleSchema(f"{writer.name} cannot be read as {reader.name}: {first.path}: {first.reason}", paths)
    if reader.message_type is not None and writer.message_type is not None:
        return _message_type(reader.message_type, writer.message_type).schema
    return _Relaxing(reader, writer).schema()


def known(schema: Schema, value: Any) -> Any:
    """A plain value of another version as far as this schema knows it; what it lacks is absent."""

    def part(kind: Type, value: Any) -> Any:
        if value is None:
            return None
        match kind:
            case Ref():
                return part(schema.resolve(kind), value)
            case Optional(inner):
                return part(inner, value)
            case Tuple(fields):
                return {item.name: part(item.type, value.get(item.name)) for item in fields}
            case List(item):
                return [part(item, element) for element in value]
            case Variant(cases):
                ((name, inside),) = value.items()
                return next(({name: part(item.type, inside)} for item in cases if item.name == name), None)
        return value

    return part(schema.type, value)


def _message_type(reader: MessageType, writer: MessageType) -> MessageType:
    known = {node.name: {member.name for member in node.members} for node in writer.nodes}

    def member(node: NodeType, item: Member) -> Member:
        if node.name in known and item.name not in known[node.name] and isinstance(item, Attribute):
            return Attribute(item.name, _optional(item.type))
        return item  # a reference that the writer did not know leads nowhere, which a list can say

    nodes = (NodeType(node.name, tuple(member(node, item) for item in node.members)) for node in reader.nodes)
    return replace(reader, nodes=tuple(nodes), checks=())


class _Relaxing:
    """Walks both schemas in step, and collects the relaxed definitions on the way."""

    def __init__(self, reader: Schema, writer: Schema) -> None:
        self.reader = reader
        self.writer = writer
        self.definitions: dict[str, Type] = {}

    def schema(self) -> Schema:
        """The outcome; checks stay behind, since a message of another version need not obey them."""
        reader = self.reader
        self.definitions[reader.name] = reader.type
        root = self._type(reader.type, self.writer.type)
        named = [item.name for item in reader.definitions if item.name in self.definitions]
        used = tuple(Field(name, self.definitions[name]) for name in named)
        changed = root != reader.type or any(self.definitions[name] != reader.resolve(Ref(name)) for name in named)
        return Schema(reader.name, root, used) if changed else reader

    def _type(self, kind: Type, written: Type) -> Type:
        written = self._written(written)
        match kind, written:
            case Ref(name), _:
                if name not in self.definitions:
                    self.definitions[name] = self.reader.resolve(kind)  # ends the recursion
                    self.definitions[name] = self._type(self.reader.resolve(kind), written)
                return kind
            case Optional(inner), Optional(other):
                return _optional(self._type(inner, other))
            case Tuple(fields), Tuple(others):
                return Tuple(self._fields(fields, others))
            case List(item), List(other):
                return List(self._type(item, other))
            case Variant(cases), Variant(others):
                known = {item.name: item.type for item in others}
                inside = (
                    Field(item.name, self._type(item.type, known[item.name])) if item.name in known else item
                    for item in cases
                )
                made = Variant(tuple(inside))
                return Optional(made) if known.keys() - {item.name for item in cases} else made
        return kind

    def _fields(self, fields: Sequence[Field], others: Sequence[Field]) -> tuple[Field, ...]:
        known = {item.name: item.type for item in others}
        return tuple(
            Field(item.name, self._type(item.type, known[item.name]) if item.name in known else _optional(item.type))
            for item in fields
        )

    def _written(self, kind: Type) -> Type:
        while isinstance(kind, Ref):
            kind = self.writer.resolve(kind)
        return kind


def _optional(kind: Type) -> Type:
    return kind if isinstance(kind, Optional) else Optional(kind)
