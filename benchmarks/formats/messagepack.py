"""MessagePack by msgspec, decoded into typed Structs: three ways.

- `msgspec`: a Struct for the whole message, encoded as maps (the default), decoded whole.
- `msgspec_array`: the same with `array_like=True`, which leaves the field names out of the bytes.
- `msgspec_partial`: the bytes of `msgspec`, decoded into a Struct that declares only the fields that are wanted; the
  decoder skips over the rest. msgspec's performance notes recommend it where few fields are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from benchmarks.formats.format import Parsed, Reader
from benchmarks.messages import FIELDS, Shape, Values


def _struct(shape: Shape, name: str, tree: dict[str, Any], fields: Sequence[int], array_like: bool) -> type:
    """A Struct for one level of the shape, with the branches that lead to `fields`."""
    members: list[Any] = []
    for key, item in tree.items():
        if isinstance(item, int):
            if item in fields:
                members.append((key, int if shape.kind == "int" else str))
        elif reached := [leaf for leaf in _leaves(item) if leaf in fields]:
            inner = _struct(shape, key, item, fields, array_like)
            optional = shape.optional(reached[0]) and len(list(_leaves(item))) == 1
            members.append((key, inner | None, None) if optional else (key, inner))
    # gc=False: nothing here can be part of a cycle, and the collector is off while the clock runs anyway.
    return msgspec.defstruct(name, members, array_like=array_like, gc=False, omit_defaults=True)


def _leaves(tree: dict[str, Any]) -> list[int]:
    return [leaf for item in tree.values() for leaf in ([item] if isinstance(item, int) else _leaves(item))]


class MessagePack(Parsed):
    """The whole message as one typed Struct."""

    name = "msgspec"
    array_like = False

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.type = _struct(shape, shape.name, shape.tree(), range(FIELDS), self.array_like)
        self.names = {"parse": msgspec.msgpack.Decoder(self.type).decode}

    def write(self, values: Values) -> bytes:
        return msgspec.msgpack.encode(msgspec.convert(self._content(values), self.type))

    def _content(self, values: Values) -> Any:
        return self.shape.nest(values)

    def expression(self, field: int) -> str:
        *above, name = self.shape.path(field)
        walk = ".".join(("root", *above))
        return f"(p.{name} if (p := {walk}) is not None else None)" if self.shape.optional(field) else f"{walk}.{name}"


class MessagePackArray(MessagePack):
    """The same without field names in the bytes."""

    name = "msgspec_array"
    array_like = True

    def _content(self, values: Values) -> Any:
        def row(tree: dict[str, Any]) -> list[Any] | None:
            made = [values[item] if isinstance(item, int) else row(item) for item in tree.values()]
            return None if made == [None] else made

        return row(self.shape.tree())


class MessagePackPartial(MessagePack):
    """The bytes of `MessagePack`, with a decoder made for the fields that are read."""

    name = "msgspec_partial"

    def reader(self, field: int) -> Reader:
        return self._partial([field]).reader_of_all(field)

    def projection(self, fields: Sequence[int]) -> Reader:
        return self._partial(fields).projection_of_all(fields)

    def _partial(self, fields: Sequence[int]) -> MessagePackPartial:
        partial = MessagePackPartial.__new__(MessagePackPartial)
        partial.shape = self.shape
        wanted = _struct(self.shape, self.shape.name, self.shape.tree(), fields, array_like=False)
        partial.names = {"parse": msgspec.msgpack.Decoder(wanted).decode}
        return partial

    reader_of_all = MessagePack.reader
    projection_of_all = MessagePack.projection
