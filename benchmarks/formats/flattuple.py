"""Milepost's own format: a batch of one row, without message IDs. Optional pieces are optional fields, or variants."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.formats.format import Format, Reader
from benchmarks.messages import PRESENT, Shape, Values
from milepost.batch import Batch, projection, reader
from milepost.schema.text import parse


class FlatTuple(Format):
    """Readers trust their bytes: a batch is validated once, on arrival. `validate_ns` is its cost."""

    name = "milepost"
    variants = False

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.schema = parse(shape.text(self.variants))

    def write(self, values: Values) -> bytes:
        return bytes(Batch.encode(self.schema, [self.shape.nest(values, self.variants)]).data)

    def reader(self, field: int) -> Reader:
        return reader(self.schema, self._path(field))

    def projection(self, fields: Sequence[int]) -> Reader:
        return projection(self.schema, list(map(self._path, fields)))

    def _path(self, field: int) -> str:
        *above, name = self.shape.path(field)
        return ".".join((*above, *((PRESENT,) if self.variants and self.shape.optional(field) else ()), name))


class FlatTupleVariants(FlatTuple):
    """The same with a variant for each optional piece: sixteen cases, each with a layout of its own."""

    name = "milepost_variants"
    variants = True
