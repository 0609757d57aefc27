"""The full validation of bytes from outside. Every reader trusts bytes that passed it.

Each length is compared with the bytes available before it is used, so that nothing outside the buffer is read and no
more memory is allocated than the bytes fill.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from milepost import limits
from milepost.batch import atoms
from milepost.batch.block import Block
from milepost.batch.format import Format
from milepost.batch.header import HEADER, Buffer
from milepost.batch.layout import Layout, aligned
from milepost.errors import MalformedBatch
from milepost.schema.flat import AtomShape, BoxShape, ChoiceShape, Shape, TupleShape
from milepost.schema.types import Atom, Ref, Schema


class Validator:
    """Walks the levels of one batch. `depth` counts the dynamic values around it."""

    def __init__(self, form: Format, data: Buffer, end: int, depth: int) -> None:
        self.form: Final = form
        self.data: Final = data
        self.end: Final = end  # where groups must end: the IDs, if any, follow
        self.depth: Final = depth

    def block(self, layout: Layout, base: int, n: int) -> Block:
        """The level of `n` elements at `base`, checked together with the levels below."""
        if n == 1 and layout.row_codec is not None and (end := layout.row_codec.end(self.data, base)) is not None:
            return Block(layout, self.data, base, 1, ((), (), end))
        what = layout.root.path or self.form.schema.name
        if layout.empty and n > limits.BATCH_EMPTY:
            raise MalformedBatch(f"{what}: {n} elements without any content; at most {limits.BATCH_EMPTY} are allowed")
        self._fits(base, layout.data_at(n), what)
        block = Block(layout, self.data, base, n)
        flat = layout.flat
        if flat.var:
            self._var(block, what)
        position = block.var_end
        self._bits(block, what)
        for shape in layout.ranged:
            self._range(block, shape)
        items = []
        for item, below in zip(flat.lists, layout.items, strict=True):
            offsets = block.list_offsets(item)
            self._ascending(offsets, 0, item.path)
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
        if layout.demanding:
            self._required(block, layout.root, None)
        return Block(layout, self.data, base, n, (tuple(items), tuple(boxes), position))

    def _fits(self, base: int, size: int, what: str) -> None:
        if base + size > self.end:
            raise MalformedBatch(f"{what}: {size} bytes from byte {base} on, but the batch ends at byte {self.end}")

    def _below(self, layout: Layout, position: int, n: int, what: str) -> Block:
        if n > limits.BATCH_BYTES:  # before any multiplication with it
            raise MalformedBatch(f"{what}: {n} elements are too many")
        self.padding(position)
        return self.block(layout, aligned(position), n)

    def padding(self, position: int) -> None:
        """Require zero bytes up to the next multiple of eight."""
        self._fits(position, aligned(position) - position, "padding")
        if any(self.data[position : aligned(position)]):
            raise MalformedBatch(f"padding at byte {position} is not zero")

    def _ascending(self, offsets: npt.NDArray[np.int32], start: int, what: str) -> None:
        if offsets[0] != start or (len(offsets) > 1 and bool((offsets[1:] < offsets[:-1]).any())):
            raise MalformedBatch(f"{what}: offsets do not ascend from {start}")

    def _var(self, block: Block, what: str) -> None:
        flat, n = block.layout.flat, block.n
        count = len(flat.var) * n + 1
        offsets = np.frombuffer(self.data, "<i4", count, block.base + block.layout.var_at(n))
        start = block.base + block.layout.data_at(n)
        self._ascending(offsets, start, what)
        self._fits(start, int(offsets[-1]) - start, f"{what}: text and bytes")
        if not flat.strings:
            return
        ends = offsets[: flat.strings * n + 1]
        text = bytes(self.data[start : int(ends[-1])])
        if text.isascii():
            return
        try:
            text.decode()
        except UnicodeDecodeError as reason:
            raise MalformedBatch(f"{what}: text is not UTF-8 at byte {start + reason.start}") from None
        # The text as a whole is valid; each piece is too, if it starts at the start of a character.
        raw = np.frombuffer(text, np.uint8)
        inner = ends[ends < start + len(raw)] - start
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
        else:
            self._digits(block.words(shape), kind, shape.path)

    def _digits(self, words: npt.NDArray[np.int64], kind: Atom, path: str) -> None:
        low, high = words[:, 0], words[:, 1]
        bound = 10**kind.precision
        if kind.precision <= 18:  # the low word is the value, if the high one only repeats its sign
            if bool(((high != low >> 63) | (low >= bound) | (low <= -bound)).any()):
                raise MalformedBatch(f"{path}: more digits than {kind} has")
            return
        # One high word covers almost every value; the few at the edge are compared as Python integers.
        edge = np.flatnonzero((high >= bound >> 64) | (high <= ~(bound >> 64)))
        for low_word, high_word in words[edge].tolist():
            if abs((high_word << 64) | (low_word & _LOW)) >= bound:
                raise MalformedBatch(f"{path}: more digits than {kind} has")

    def _required(self, block: Block, shape: Shape, outer: npt.NDArray[np.bool_] | None) -> None:
        """Require variants and dynamic values wherever the tuples around them are present."""
        match shape:
            case TupleShape(_, fields):
                valid = block.valid(shape)
                inside = outer if valid is None else valid if outer is None else outer & valid
                for inner in fields.values():
                    self._required(block, inner, inside)
            case ChoiceShape(_, _, _, inner) if inner is not None:
                self._required(block, inner, outer)
            case BoxShape() if not shape.optional:
                absent = block.tags(shape) == 0
                if bool((absent if outer is None else absent & outer).any()):
                    raise MalformedBatch(f"{shape.path}: absent, but required")
            case AtomShape() if not isinstance(shape.type, Atom):
                self._cells(block, shape, outer)

    def _cells(self, block: Block, shape: AtomShape, outer: npt.NDArray[np.bool_] | None) -> None:
        offsets, data = block.var(shape)
        sizes = np.diff(offsets)
        valid = block.valid(shape)
        there = outer if valid is None else valid if outer is None else outer & valid
        if bool((sizes == 0 if there is None else (sizes == 0) & there).any()):
            raise MalformedBatch(f"{shape.path}: present, but empty")
        if bool(((sizes > 0) & (sizes < HEADER.size)).any()):
            raise MalformedBatch(f"{shape.path}: a value is a batch, and has a header of {HEADER.size} bytes")
        if isinstance(shape.type, Ref):
            schema = self.form.referred(shape.type)
            for start, end in zip(offsets.tolist(), offsets[1:].tolist(), strict=False):
                if end > start:
                    self._reference(data[start:end].data, schema, shape.path)

    def _reference(self, cell: Buffer, schema: Schema, path: str) -> None:
        """Check the value of a recursive reference, whose schema is known; dynamic values are checked when decoded."""
        from milepost.batch.batch import Batch

        if self.depth >= limits.DYNAMIC_DEPTH:
            raise MalformedBatch(f"{path}: values within values, deeper than {limits.DYNAMIC_DEPTH}")
        if len(Batch.decode(cell, schema, _depth=self.depth + 1)) != 1:
            raise MalformedBatch(f"{path}: a value is one row")


_LOW: Final = (1 << 64) - 1
