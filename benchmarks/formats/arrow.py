"""Arrow IPC: each message one record batch of one row, its schema known beforehand and not in the bytes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from benchmarks.formats.format import Parsed
from benchmarks.messages import Shape, Values


class Arrow(Parsed):
    """Struct columns for the levels, as the schema nests them."""

    name = "arrow"

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.schema = pa.schema(self._fields(shape.tree()))
        schema, read = self.schema, pa.ipc.read_record_batch

        def parse(data: bytes) -> Any:
            return read(data, schema)

        self.names = {"parse": parse}

    def _fields(self, tree: dict[str, Any]) -> list[Any]:
        made = []
        for key, item in tree.items():
            if isinstance(item, int):
                kind = pa.int32() if self.shape.kind == "int" else pa.string()
                made.append(pa.field(key, kind, nullable=self.shape.optional(item)))
            else:
                inner = self._fields(item)
                made.append(pa.field(key, pa.struct(inner), nullable=len(inner) == 1 and inner[0].nullable))
        return made

    def write(self, values: Values) -> bytes:
        batch = pa.RecordBatch.from_pylist([self.shape.nest(values)], schema=self.schema)
        written: bytes = batch.serialize().to_pybytes()
        return written

    def expression(self, field: int) -> str:
        tree: Any = self.shape.tree()
        walk = "root"
        for step in self.shape.path(field):
            position = list(tree).index(step)
            walk += f".{'column' if walk == 'root' else 'field'}({position})"
            tree = tree[step]
        if self.shape.optional(field):  # the struct is null, and then the value of its child has no meaning
            piece, _, value = walk.rpartition(".")
            return f"(None if (p := {piece}).null_count else p.{value}[0].as_py())"
        return f"{walk}[0].as_py()"
