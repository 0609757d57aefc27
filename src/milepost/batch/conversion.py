"""Rows of one version of a schema as columns of another: whole columns are moved, and absent ones are zeros.

Schemas with variants are converted through Arrow instead, which costs ten times as much for a few rows.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from milepost.batch.block import OFFSET, Block
from milepost.batch.columns import Bytes, Columns, pack_bits
from milepost.batch.format import Format, format_of
from milepost.batch.layout import Layout
from milepost.schema.flat import WIDTHS, AtomShape, ListShape, Shape, TupleShape, width
from milepost.schema.relax import relaxed
from milepost.schema.types import Atom, Schema

CONVERSIONS: Final = 1_024  # pairs of versions kept

_Bits = int | tuple[int, ...] | None  # a bit column of the writer; or several, joined by `and`; None: zeros


class Converted(NamedTuple):
    """How a reader of one schema gets rows of another: the format, and the conversion if whole columns can be moved."""

    form: Format
    columns: Conversion | None


@lru_cache(maxsize=CONVERSIONS)
def converted(reader: Schema, writer: Schema) -> Converted:
    """How rows of `writer` are read as `reader`. Raises `IncompatibleSchema` when they do not agree."""
    form, written = format_of(relaxed(reader, writer)), format_of(writer)
    if form.has_cases or written.has_cases or form.schema.recursive or writer.recursive:
        return Converted(form, None)
    return Converted(form, Conversion.between(form.layout(), written.layout()))


class Conversion:
    """One level: for each column of the reader the one of the writer, or None where the writer has none."""

    def __init__(self, reader: Layout) -> None:
        self.layout: Final = reader
        self.fixed: Final[list[AtomShape | None]] = [None] * len(reader.flat.fixed)
        self.bits: Final[list[_Bits]] = [None] * len(reader.flat.bits)
        self.var: Final[list[AtomShape | None]] = [None] * len(reader.flat.var)
        self.lists: Final[list[tuple[ListShape, Conversion] | None]] = [None] * len(reader.flat.lists)

    @classmethod
    def between(cls, reader: Layout, writer: Layout) -> Conversion | None:
        """The conversion between two layouts; None where one has boxes, since their cases are numbered differently."""
        if reader.flat.boxes or writer.flat.boxes:
            return None
        made = cls(reader)
        return made if made._match(reader.root, writer.root, writer, ()) else None

    def _match(self, shape: Shape, written: Shape, writer: Layout, around: tuple[int, ...]) -> bool:
        """Record the source of a part; `around` are the validity bits of the writer's tuples around it."""
        match shape, written:
            case AtomShape(), AtomShape():
                self._valid(shape, written, around)
                if shape.type == Atom("bool"):
                    self.bits[shape.slot] = written.slot
                elif isinstance(shape.type, Atom) and shape.type.kind in WIDTHS:
                    self.fixed[shape.slot] = written
                else:
                    self.var[shape.slot] = written
                return True
            case TupleShape(), TupleShape():
                around = self._valid(shape, written, around)
                return all(
                    self._match(inner, written.fields[name], writer, around)
                    for name, inner in shape.fields.items()
                    if name in written.fields
                )
            case ListShape(), ListShape():
                self._valid(shape, written, around)
                inside = Conversion.between(self.layout.items[shape.slot], writer.items[written.slot])
                if inside is None:
                    return False
                self.lists[shape.slot] = written, inside
                return True
        return False

    def _valid(
        self,
        shape: AtomShape | TupleShape | ListShape,
        written: AtomShape | TupleShape | ListShape,
        around: tuple[int, ...],
    ) -> tuple[int, ...]:
        if shape.valid is not None:
            self.bits[shape.valid] = around if written.valid is None else written.valid
        return around if written.valid is None else (*around, written.valid)

    def columns(self, block: Block) -> Columns:
        """The reader's columns of the writer's block."""
        n, data, base, layout = block.n, memoryview(block.data), block.base, block.layout
        made = Columns(self.layout, n)
        size = (n + 7) >> 3
        for slot, shape in enumerate(self.fixed):
            if shape is None:
                made.fixed[slot] = bytes(n * width(self.layout.flat.fixed[slot]))
            else:
                at = base + layout.fixed_at(shape, n)
                made.fixed[slot] = data[at : at + n * width(shape)]
        for slot, bits in enumerate(self.bits):
            made.bits[slot] = self._bits(block, bits, size)
        for slot, text in enumerate(self.var):
            made.var[slot] = (np.zeros(n + 1, OFFSET), b"") if text is None else block.var(text)
        for slot, item in enumerate(self.lists):
            if item is None:
                made.lists[slot] = np.zeros(n + 1, OFFSET), _nothing(self.layout.items[slot])
            else:
                made.lists[slot] = block.list_offsets(item[0]), item[1].columns(block.items[item[0].slot])
        return made

    def _bits(self, block: Block, bits: _Bits, size: int) -> Bytes:
        if bits is None:
            return bytes(size)
        if isinstance(bits, int):
            at = block.base + block.layout.bit_at(bits, block.n)
            return memoryview(block.data)[at : at + size]
        present = np.ones(block.n, np.bool_)
        for slot in bits:
            present &= block.bits(slot)
        return pack_bits(present)


def _nothing(layout: Layout) -> Columns:
    """The columns of no elements."""
    made = Columns(layout, 0)
    made.lists = [(np.zeros(1, OFFSET), _nothing(item)) for item in layout.items]
    return made
