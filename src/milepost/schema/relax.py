"""The schema in which a reader of one version sees messages of another: its own, with missing fields optional.

A field that the writer did not know is absent, never a default. A variant in a case that the reader does not know
is absent too, and so may be a field that was already relaxed to another version. Nothing else changes, so code
written for the reader's schema reads the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from milepost.errors import IncompatibleSchema
from milepost.schema.evolution import unreadable
from milepost.schema.messagetype import Attribute, Member, MessageType, NodeType
from milepost.schema.types import Field, List, Optional, Ref, Schema, Tuple, Type, Variant

RELAXED: Final = 1_024  # pairs of versions kept; comparing two takes longer than reading a thousand rows


@lru_cache(maxsize=RELAXED)
def relaxed(reader: Schema, writer: Schema) -> Schema:
    """The reader's schema, with the fields optional that the writer lacks; the same object when it lacks none.

    Raises `IncompatibleSchema` if a field that both have differs.
    """
    if reader == writer:
        return reader
    if wrong := unreadable(writer, reader):
        paths = tuple(item.path for item in wrong)
        first = wrong[0]
        raise IncompatibleSchema(f"{writer.name} cannot be read as {reader.name}: {first.path}: {first.reason}", paths)
    if reader.message_type is not None and writer.message_type is not None:
        made = _message_type(reader.message_type, writer.message_type)
        return reader if made.nodes == reader.message_type.nodes else made.schema
    return _Relaxing(reader, writer).schema()


def known(schema: Schema, value: Any) -> Any:
    """A plain value of another version without the fields that this schema does not know; missing ones are absent."""

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
    known = {node.name: {member.name: member for member in node.members} for node in writer.nodes}

    def member(node: NodeType, item: Member) -> Member:
        if node.name in known and isinstance(item, Attribute):
            written = known[node.name].get(item.name)
            if written is None or (isinstance(written, Attribute) and isinstance(written.type, Optional)):
                return Attribute(item.name, _optional(item.type))
        return item  # a reference that the writer did not know is an empty list

    nodes = (NodeType(node.name, tuple(member(node, item) for item in node.members)) for node in reader.nodes)
    return replace(reader, nodes=tuple(nodes), checks=(), indexes=())


class _Relaxing:
    """Walks both schemas in step. A definition that is used in several places is relaxed once, for all of them."""

    def __init__(self, reader: Schema, writer: Schema) -> None:
        self.reader = reader
        self.writer = writer
        self.definitions = {item.name: item.type for item in (Field(reader.name, reader.type), *reader.definitions)}
        self.met: set[tuple[str, int]] = set()  # definitions, each with the writer's type that it is compared with
        self.todo: list[tuple[str, Type]] = [(reader.name, writer.type)]

    def schema(self) -> Schema:
        """The relaxed schema, without indexes and without checks: messages of another version need not obey them."""
        while self.todo:
            name, written = self.todo.pop()
            self.definitions[name] = self._type(self.definitions[name], written)
        made = {name: self._tidy(kind) for name, kind in self.definitions.items()}
        reader = self.reader
        if all(made[item.name] == item.type for item in (Field(reader.name, reader.type), *reader.definitions)):
            return reader
        others = tuple(Field(item.name, made[item.name]) for item in reader.definitions)
        return Schema(reader.name, made[reader.name], others)

    def _type(self, kind: Type, written: Type) -> Type:
        written = self._written(written)
        if isinstance(written, Optional) and not isinstance(kind, Optional | Ref):
            return _optional(self._type(kind, written.type))
        match kind:
            case Ref(name):
                if (name, id(written)) not in self.met:
                    self.met.add((name, id(written)))
                    self.todo.append((name, written))
                return kind
            case Optional(inner):
                # A field that was relaxed before is optional here and required there.
                return _optional(self._type(inner, written.type if isinstance(written, Optional) else written))
            case Tuple(fields) if isinstance(written, Tuple):
                return Tuple(self._fields(fields, written.fields))
            case List(item) if isinstance(written, List):
                return List(self._type(item, written.item))
            case Variant(cases) if isinstance(written, Variant):
                known = {item.name: item.type for item in written.cases}
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

    def _tidy(self, kind: Type) -> Type:
        """The type without a second `?`, where a definition has become optional itself."""
        match kind:
            case Optional(inner):
                made = self._tidy(inner)
                target = made
                while isinstance(target, Ref):
                    target = self.definitions[target.name]
                return made if isinstance(target, Optional) else Optional(made)
            case Tuple(fields) | Variant(fields):
                return type(kind)(tuple(Field(item.name, self._tidy(item.type)) for item in fields))
            case List(item):
                return List(self._tidy(item))
        return kind


def _optional(kind: Type) -> Type:
    return kind if isinstance(kind, Optional) else Optional(kind)
