"""One level of a batch as columns over its bytes, with as few copies as possible.

A block trusts its bytes. `validator` checks bytes from outside first, and reads them with the same block.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from milepost.batch.header import Buffer
from milepost.batch.layout import Layout, aligned
from milepost.schema.flat import AtomShape, BoxShape, ListShape, TupleShape
from milepost.schema.types import Atom

Array = npt.NDArray[Any]

DTYPES: Final[dict[str, np.dtype[Any]]] = {
    "long": np.dtype("<i8"), "uint64": np.dtype("<u8"), "double": np.dtype("<f8"),
    "timestamp": np.dtype("<i8"), "ident": np.dtype("<i8"),
    "int": np.dtype("<i4"), "uint32": np.dtype("<u4"), "float": np.dtype("<f4"), "date": np.dtype("<i4"),
    "int16": np.dtype("<i2"), "uint16": np.dtype("<u2"), "int8": np.dtype("i1"), "uint8": np.dtype("u1"),
    "uuid": np.dtype("V16"), "decimal": np.dtype("V16"),
}  # fmt: skip
OFFSET: Final = np.dtype("<i4")


def arrow_type(kind: Any) -> pa.DataType:
    """The Arrow type of a leaf; dynamic values are bytes to Arrow."""
    if not isinstance(kind, Atom):
        return pa.binary()
    if kind.kind == "decimal":
        return pa.decimal128(kind.precision, kind.scale)
    return _ARROW[kind.kind]


_ARROW: Final[dict[str, pa.DataType]] = {
    "bool": pa.bool_(), "int8": pa.int8(), "int16": pa.int16(), "int": pa.int32(), "long": pa.int64(),
    "uint8": pa.uint8(), "uint16": pa.uint16(), "uint32": pa.uint32(), "uint64": pa.uint64(),
    "float": pa.float32(), "double": pa.float64(), "string": pa.string(), "bytes": pa.binary(),
    "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"), "uuid": pa.binary(16), "ident": pa.int64(),
}  # fmt: skip


Below: TypeAlias = "tuple[tuple[Block, ...], tuple[dict[int, Block], ...], int]"
"""The elements of each list, the elements of each tag of each box, and the end of all their bytes."""


class Block:
    """`n` elements of one flat-tuple, at `base` in `data`."""

    def __init__(self, layout: Layout, data: Buffer, base: int, n: int, below: Below | None = None) -> None:
        self.layout = layout
        self.data = data
        self.base = base
        self.n = n
        self.asked: dict[Any, int] = {}  # by shape: how many values were read one by one …
        self.read: dict[Any, list[Any]] = {}  # … until the whole column was; see `row`
        if below is not None:
            self._below = below  # the caller has walked the levels below already

    def values(self, shape: AtomShape) -> Array:
        """A fixed-width column (a view), or a bool column (unpacked). Slots of absent values hold zeros."""
        if shape.type == Atom("bool"):
            return self.bits(shape.slot)
        assert isinstance(shape.type, Atom)
        dtype = DTYPES[shape.type.kind]
        return np.frombuffer(self.data, dtype, self.n, self.base + self.layout.fixed_at(shape, self.n))

    def words(self, shape: AtomShape) -> npt.NDArray[np.int64]:
        """A decimal column as (n, 2) words, low then high, a view."""
        at = self.base + self.layout.fixed_at(shape, self.n)
        return np.frombuffer(self.data, np.dtype("<i8"), 2 * self.n, at).reshape(self.n, 2)

    def bits(self, slot: int) -> npt.NDArray[np.bool_]:
        """A bit column, one bool an element."""
        packed = np.frombuffer(self.data, np.uint8, (self.n + 7) >> 3, self.base + self.layout.bit_at(slot, self.n))
        return np.unpackbits(packed, count=self.n, bitorder="little").view(np.bool_)

    def valid(self, shape: AtomShape | TupleShape | ListShape) -> npt.NDArray[np.bool_] | None:
        """Which elements are present by this shape's own validity bit; None if it is not optional."""
        return None if shape.valid is None else self.bits(shape.valid)

    def var(self, shape: AtomShape) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
        """A variable-length column: n + 1 offsets, which are positions in the bytes of the whole batch, and these."""
        at = self.base + self.layout.var_at(self.n) + 4 * shape.slot * self.n
        return np.frombuffer(self.data, OFFSET, self.n + 1, at), self._bytes

    @cached_property
    def _bytes(self) -> npt.NDArray[np.uint8]:
        return np.frombuffer(self.data, np.uint8)

    @property
    def var_end(self) -> int:
        """Where the data of the variable-length columns ends: the last shared offset."""
        if not self.layout.flat.var:
            return self.base + self.layout.data_at(self.n)
        at = self.base + self.layout.var_at(self.n) + 4 * len(self.layout.flat.var) * self.n
        return int.from_bytes(self.data[at : at + 4], "little")

    def list(self, shape: ListShape) -> tuple[npt.NDArray[np.int32], Block]:
        """A list column: n + 1 offsets into the elements, and the elements."""
        return self.list_offsets(shape), self.items[shape.slot]

    def list_offsets(self, shape: ListShape) -> npt.NDArray[np.int32]:
        """The n + 1 offsets of a list column."""
        at = self.base + self.layout.list_at(shape, self.n)
        return np.frombuffer(self.data, OFFSET, self.n + 1, at)

    def box(self, shape: BoxShape) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32], dict[int, Block]]:
        """A boxed variant: a tag per element, its position within its tag's block, and the blocks by tag.

        Tag 0 is absence. The root shape of a block is a `ChoiceShape` that names the case.
        """
        tags = self.tags(shape)
        if shape.index not in self._ranks:
            ranks = np.zeros(self.n, np.int32)
            for tag, block in self.boxes[shape.index].items():
                ranks[tags == tag] = np.arange(block.n, dtype=np.int32)
            self._ranks[shape.index] = ranks
        return tags, self._ranks[shape.index], self.boxes[shape.index]

    @cached_property
    def _ranks(self) -> dict[int, npt.NDArray[np.int32]]:
        return {}

    def tags(self, shape: BoxShape) -> npt.NDArray[np.uint8]:
        """The tags of a boxed variant, a view."""
        return np.frombuffer(self.data, np.uint8, self.n, self.base + self.layout.fixed_at(shape, self.n))

    @property
    def items(self) -> tuple[Block, ...]:
        """The elements of each list of this level."""
        return self._below[0]

    @property
    def boxes(self) -> tuple[dict[int, Block], ...]:
        """For each boxed variant of this level, the elements of each tag that occurs."""
        return self._below[1]

    @property
    def end(self) -> int:
        """The end of the bytes of this level and of all below it."""
        return self._below[2]

    @cached_property
    def _below(self) -> Below:
        """The levels below. Each starts where the one before ends, so all are walked."""
        end = self.var_end
        items = []
        for shape, layout in zip(self.layout.flat.lists, self.layout.items, strict=True):
            block = Block(layout, self.data, aligned(end), int(self.list_offsets(shape)[-1]))
            end = block.end
            items.append(block)
        boxes = []
        for box in self.layout.flat.boxes:
            counts = np.bincount(self.tags(box), minlength=1)
            cases = {}
            for tag in np.flatnonzero(counts[1:]) + 1:
                block = Block(self.layout.case(box, int(tag)), self.data, aligned(end), int(counts[tag]))
                end = block.end
                cases[int(tag)] = block
            boxes.append(cases)
        return tuple(items), tuple(boxes), end

    @cached_property
    def _buffer(self) -> pa.Buffer:
        """The bytes as an Arrow buffer, made once for all columns."""
        return pa.py_buffer(self.data)

    def arrow(self, shape: AtomShape) -> pa.Array:
        """A leaf column as an Arrow array over the same bytes."""
        whole = self._buffer
        n, base = self.n, self.base

        def bits(slot: int) -> pa.Buffer:
            return whole.slice(base + self.layout.bit_at(slot, n), (n + 7) >> 3)

        valid = None if shape.valid is None else bits(shape.valid)
        kind = arrow_type(shape.type)
        word = shape.type.kind if isinstance(shape.type, Atom) else ""
        if word == "bool":
            buffers = [valid, bits(shape.slot)]
        elif word in DTYPES:
            size = n * DTYPES[word].itemsize
            buffers = [valid, whole.slice(base + self.layout.fixed_at(shape, n), size)]
        else:
            at = base + self.layout.var_at(n) + 4 * shape.slot * n
            buffers = [valid, whole.slice(at, 4 * (n + 1)), whole]
        return pa.Array.from_buffers(kind, n, buffers)
