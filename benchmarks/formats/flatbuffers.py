"""FlatBuffers by Google's Python runtime, with accessors written as its compiler generates them."""

from __future__ import annotations

from typing import Any

import flatbuffers
from flatbuffers.number_types import Int32Flags, UOffsetTFlags
from flatbuffers.table import Table

from benchmarks.formats.format import Parsed
from benchmarks.messages import Shape, Values


class FlatBuffers(Parsed):
    """A table per level. Strings come out as bytes, as generated code gives them, and are decoded to be equal."""

    name = "flatbuffers"

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        root = _table(shape.name, shape.tree(), shape.kind)

        def parse(data: bytes) -> Any:  # generated code calls this GetRootAs
            made = root()
            made.Init(data, flatbuffers.encode.Get(UOffsetTFlags.packer_type, data, 0))
            return made

        self.names = {"parse": parse}

    def write(self, values: Values) -> bytes:
        builder = flatbuffers.Builder(256)
        builder.Finish(self._build(builder, self.shape.tree(), values))
        return bytes(builder.Output())

    def _build(self, builder: Any, tree: dict[str, Any], values: Values) -> int | None:
        """Children first, as FlatBuffers requires; None for a piece that is absent."""
        parts: list[Any] = []
        for item in tree.values():
            if not isinstance(item, int):
                parts.append(self._build(builder, item, values))
            elif self.shape.kind == "string" and values[item] is not None:
                parts.append(builder.CreateString(values[item]))
            else:
                parts.append(values[item])
        if parts == [None]:
            return None
        builder.StartObject(len(parts))
        for slot, (item, part) in enumerate(zip(tree.values(), parts, strict=True)):
            if part is None:
                continue
            if isinstance(item, int) and self.shape.kind == "int":
                builder.PrependInt32Slot(slot, part, 0)
            else:
                builder.PrependUOffsetTRelativeSlot(slot, part, 0)
        written: int = builder.EndObject()
        return written

    def expression(self, field: int) -> str:
        *above, name = self.shape.path(field)
        walk = "root" + "".join(f".{step}()" for step in above)
        scalar = f".{name}()" + (".decode()" if self.shape.kind == "string" else "")
        return f"(p{scalar} if (p := {walk}) is not None else None)" if self.shape.optional(field) else walk + scalar


def _table(name: str, tree: dict[str, Any], kind: str) -> type:
    """The class that flatc would write for a table."""
    members: dict[str, Any] = {"__slots__": ["_tab"], "Init": _init}
    for slot, (key, item) in enumerate(tree.items()):
        place = 4 + 2 * slot  # in the vtable
        if not isinstance(item, int):
            members[key] = _child(place, _table(key, item, kind))
        else:
            members[key] = _int(place) if kind == "int" else _string(place)
    return type(name, (), members)


def _init(self: Any, buf: bytes, pos: int) -> None:
    self._tab = Table(buf, pos)


def _child(place: int, made_of: type) -> Any:
    def child(self: Any) -> Any:
        o = UOffsetTFlags.py_type(self._tab.Offset(place))
        if o != 0:
            x = self._tab.Indirect(o + self._tab.Pos)
            obj: Any = made_of()
            obj.Init(self._tab.Bytes, x)
            return obj
        return None

    return child


def _int(place: int) -> Any:
    def value(self: Any) -> Any:
        o = UOffsetTFlags.py_type(self._tab.Offset(place))
        if o != 0:
            return self._tab.Get(Int32Flags, o + self._tab.Pos)
        return 0

    return value


def _string(place: int) -> Any:
    def value(self: Any) -> Any:
        o = UOffsetTFlags.py_type(self._tab.Offset(place))
        if o != 0:
            return self._tab.String(o + self._tab.Pos)
        return None

    return value
