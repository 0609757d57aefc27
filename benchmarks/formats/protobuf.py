"""Protocol Buffers by Google's own runtime (upb, in C), with descriptors made here instead of by protoc: two ways.

- `protobuf`: a new message object for each message, as its documentation does.
- `protobuf_reused`: one message object parsed into again and again. It saves making objects, but upb allocates
  strings and nested messages in an arena that lives as long as the object: measured, memory grows with every message.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from benchmarks.formats.format import Parsed
from benchmarks.messages import Shape, Values

_Field = descriptor_pb2.FieldDescriptorProto


class Protobuf(Parsed):
    """Proto3. Ints are sfixed32: for ints spread over 32 bits that is smaller, and quicker to parse, than varints."""

    name = "protobuf"

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        file = descriptor_pb2.FileDescriptorProto(name=f"{shape.name}.proto", package="bench", syntax="proto3")
        self._declare(file, shape.name, shape.tree())
        pool = descriptor_pool.DescriptorPool()
        pool.Add(file)
        self.type = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"bench.{shape.name}"))
        self.names = {"parse": self.type.FromString}

    def _declare(self, file: Any, name: str, tree: dict[str, Any]) -> None:
        message = file.message_type.add(name=name)
        for number, (key, item) in enumerate(tree.items(), 1):
            field = message.field.add(name=key, number=number, label=_Field.LABEL_OPTIONAL)
            if isinstance(item, int):
                field.type = _Field.TYPE_SFIXED32 if self.shape.kind == "int" else _Field.TYPE_STRING
            else:
                field.type = _Field.TYPE_MESSAGE
                field.type_name = f".bench.{key}"
                self._declare(file, key, item)

    def write(self, values: Values) -> bytes:
        def kwargs(content: dict[str, Any]) -> dict[str, Any]:
            return {key: kwargs(item) if isinstance(item, dict) else item for key, item in content.items()}

        written: bytes = self.type(**kwargs(self.shape.nest(values))).SerializeToString()
        return written

    def expression(self, field: int) -> str:
        *above, name = self.shape.path(field)
        if self.shape.optional(field):
            *above, piece = above
            walk = ".".join(("root", *above))
            return f"(p.{piece}.{name} if (p := {walk}).HasField({piece!r}) else None)"
        return ".".join(("root", *above, name))


class ProtobufReused(Protobuf):
    """One object for all messages."""

    name = "protobuf_reused"

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        root = self.type()
        parse_into = root.ParseFromString

        def parse(data: bytes) -> Any:
            parse_into(data)
            return root

        self.names = {"parse": parse}
