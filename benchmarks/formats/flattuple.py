"""Milepost's own: a batch of one row, without message IDs."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.formats.format import Format, Reader
from benchmarks.messages import Shape, Values
from milepost.batch import Batch, projection, reader
from milepost.schema.text import parse


class FlatTuple(Format):
    """Readers trust their bytes: a batch is validated once, on arrival. `validate_ns` says what that costs."""

    name = "milepost"

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.schema = parse(shape.text())

    def write(self, values: Values) -> bytes:
        return bytes(Batch.encode(self.schema, [self.shape.nest(values)]).data)

    def reader(self, field: int) -> Reader:
        return reader(self.schema, ".".join(self.shape.path(field)))

    def projection(self, fields: Sequence[int]) -> Reader:
        return projection(self.schema, [".".join(self.shape.path(field)) for field in fields])
