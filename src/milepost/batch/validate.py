"""The one look at bytes from outside, after which every reader may trust them.

Lengths are compared with what is there before anything is read through them, so nothing outside the buffer is
touched and no memory is taken that the bytes themselves do not fill.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from milepost import limits
from milepost.batch import atoms
from milepost.batch.block import Block
from milepost.batch.format import Format
from milepost.batch.header import Buffer
from milepost.batch.layout import Layout, aligned
from milepost.errors import MalformedBatch
from milepost.schema.flat import AtomShape
from milepost.schema.types import Atom, Ref


class Validator:
    """Walks the levels of one batch. `depth` counts the dynamic values around it."""

    def __init__(self, form: Format, data: Buffer, end: int, depth: int) -> None:
        self.form: Final = form
        self.data: Final = data
        self.end: Final = end  # where groups must end: the IDs, if any, come behind
        self.depth: Final = depth

    def block(self, layout: Layout, base: int, n: int) -> Block:
        """The level of `n` elements at `base`, checked with all below it."""
        what = layout.root.path or self.form.schema.name
        self._fits(base, layout.data_at(n), what)
        block = Block(layout, self.data, base, n)
        flat = layout.flat
        position = base + layout.data_at(n)
        if flat.var:
            self._var(block, what)
            position += block.var_size
        self._bits(block, what)
        for shape in flat.fixed:
            if isinstance(shape, AtomShape):
                self._range(block, shape)
        items = []
        for item, below in zip(flat.lists, layout.items, strict=True):
            offsets = block.list_offsets(item)
            self._ascending(offsets, item.path)
            elements = self._below(below, position, int(offsets[-1]), item.path)
            position = elements.end
            items.append(elements)
        boxes = []
        for box in flat.boxes:
            counts = np.bincount(block.tags(box), minlength=1)
            if len(counts) > box.cases.count + 1:
                raise MalformedBatch(f"{box.path}: case {len(counts) - 2} of {box.cases.count}")
            cases = {}
            for tag in (np.flatnonzero(counts[1:]) + 1).tolist():
                elements = self._below(layout.case(box, tag), position, int(counts[tag]), box.path)
                position = elements.end
                cases[tag] = elements
            boxes.append(cases)
        self._cells(block)
        return Block(layout, self.data, base, n, (tuple(items), tuple(boxes), position))

    def _fits(self, base: int, size: int, what: str) -> None:
        if base + size > self.end:
            raise MalformedBatch(f"{what}: {size} bytes from byte {base} on, but the batch ends at byte {self.end}")

    def _below(self, layout: Layout, position: int, n: int, what: str) -> Block:
        if n > limits.BATCH_BYTES:  # before any multiplication with it
            raise MalformedBatch(f"{what}: {n} elements cannot be")
        self.padding(position)
        return self.block(layout, aligned(position), n)

    def padding(self, position: int) -> None:
        """Bytes up to the next multiple of eight must be there and zero."""
        self._fits(position, aligned(position) - position, "padding")
        if any(self.data[position : aligned(position)]):
            raise MalformedBatch(f"padding at byte {position} is not zero")

    def _ascending(self, offsets: npt.NDArray[np.int32], what: str) -> None:
        if offsets[0] != 0 or (len(offsets) > 1 and bool((offsets[1:] < offsets[:-1]).any())):
            raise MalformedBatch(f"{what}: offsets do not ascend from zero")

    def _var(self, block: Block, what: str) -> None:
        flat, n = block.layout.flat, block.n
        count = len(flat.var) * n + 1
        offsets = np.frombuffer(self.data, "<i4", count, block.base + block.layout.var_at(n))
        self._ascending(offsets, what)
        start = block.base + block.layout.data_at(n)
        self._fits(start, int(offsets[-1]), f"{what}: text and bytes")
        if not flat.strings:
            return
        ends = offsets[: flat.strings * n + 1]
        text = bytes(self.data[start : start + int(ends[-1])])
        if text.isascii():
            return
        try:
            text.decode()
        except UnicodeDecodeError as reason:
            raise MalformedBatch(f"{what}: text is not UTF-8 at byte {start + reason.start}") from None
        # The text as a whole is right; each piece is, when it starts at the start of a character.
        raw = np.frombuffer(text, np.uint8)
        inner = ends[(ends > 0) & (ends < len(raw))]
        if bool(((raw[inner] & 0xC0) == 0x80).any()):
            raise MalformedBatch(f"{what}: a string ends inside a character")

    def _bits(self, block: Block, what: str) -> None:
        if not block.n % 8:
            return
        for slot, path in enumerate(block.layout.flat.bits):
            last = block.base + block.layout.bit_at(slot, block.n) + (block.n >> 3)
            if self.data[last] >> (block.n % 8):
                raise MalformedBatch(f"{path or what}: bits beyond the last element are not zero")

    def _range(self, block: Block, shape: AtomShape) -> None:
        kind = shape.type
        assert isinstance(kind, Atom)
        if not block.n:
            return
        if kind.kind in atoms.RANGES:
            column = block.values(shape)
            low, high = atoms.RANGES[kind.kind]
            if int(column.min()) < low or int(column.max()) > high:
                raise MalformedBatch(f"{shape.path}: a {kind} outside the years 1 to 9999")
        elif kind.kind == "decimal":
            self._digits(block.words(shape), kind, shape.path)

    def _digits(self, words: npt.NDArray[np.int64], kind: Atom, path: str) -> None:
        high = words[:, 1]
        bound = 10**kind.precision
        # One high word covers almost every value; the few at the edge are compared as Python integers.
        edge = np.flatnonzero((high >= bound >> 64) | (high <= ~(bound >> 64)))
        for low_word, high_word in words[edge].tolist():
            if abs((high_word << 64) | (low_word & _LOW)) >= bound:
                raise MalformedBatch(f"{path}: more digits than {kind} has")

    def _cells(self, block: Block) -> None:
        """Values of recursive references, whose schema is known; what is dynamic stays closed until decoded."""
        for shape in block.layout.flat.var:
            if isinstance(shape.type, Ref):
                self._references(block, shape, self.form.referred(shape.type))

    def _references(self, block: Block, shape: AtomShape, schema: Any) -> None:
        from milepost.batch.batch import Batch

        if self.depth >= limits.DYNAMIC_DEPTH:
            raise MalformedBatch(f"{shape.path}: values within values, deeper than {limits.DYNAMIC_DEPTH}")
        offsets, data = block.var(shape)
        valid = block.valid(shape)
        edges = offsets.tolist()
        for row in range(block.n):
            cell = data[edges[row] : edges[row + 1]].data
            if valid is not None and valid[row] and not cell:
                raise MalformedBatch(f"{shape.path}: present, but empty")
            if cell and len(Batch.decode(cell, schema, _depth=self.depth + 1)) != 1:
                raise MalformedBatch(f"{shape.path}: a value is one row")


_LOW: Final = (1 << 64) - 1
