"""The position of every column of a flat-tuple, as a function of the number of elements.

::

    n elements of one level
    ┌────────────────┬────────────────┬─────────────┬────────────────┬─────────────┬──────┬────────┐
    │ 16-, 8-, 4-    │ list offsets   │ var offsets │ 2- and 1-byte  │ bit columns │ var  │ levels │
    │ byte columns   │ (n + 1)·4 each │ (V·n + 1)·4 │ columns        │ ⌈n/8⌉ each  │ data │ below  │
    └────────────────┴────────────────┴─────────────┴────────────────┴─────────────┴──────┴────────┘
    (V: the number of variable-length columns; without any, no var offsets)

Widths fall from left to right, so every value is aligned to its width and no byte is padding. Offsets are
four-byte columns and stand among them; behind the one-byte columns they would need padding for most values of n.
Everything up to the bit columns is a linear function of n; with n = 1 it is a constant, and so is the place of
each field.

All V variable-length columns share one run of offsets, since the end of one column is the start of the next:
column k of them is the n + 1 offsets from k·n on. They are positions in the bytes of the batch, so that a string is
sliced without arithmetic, and Arrow takes them unchanged, with the whole batch as the data.
Levels below (the elements of lists, then the cases of boxes that occur) follow the data, each aligned to 8 bytes.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

from milepost.batch import atoms
from milepost.batch.row_codec import RowCodec
from milepost.schema.flat import AtomShape, BoxShape, FlatTuple, ListShape, width
from milepost.schema.types import Atom


def aligned(position: int) -> int:
    """The next multiple of eight, where levels, groups and stamps begin."""
    return (position + 7) & ~7


class Layout:
    """The places of one flat-tuple's columns. Positions count from the start of the level."""

    def __init__(self, flat: FlatTuple) -> None:
        self.flat: Final = flat
        self.root: Final = flat.root
        self._prefix: list[int] = []  # per fixed column: bytes per element of the columns before it in its region
        wide = narrow = 0
        for shape in flat.fixed:
            size = width(shape)
            if size >= 4:
                self._prefix.append(wide)
                wide += size
            else:
                self._prefix.append(narrow)
                narrow += size
        # Whether elements take no bytes, so that any number of them would fit.
        self.empty: Final = not (flat.fixed or flat.bits or flat.var or flat.lists)
        self.wide: Final = wide  # bytes per element of the 16-, 8- and 4-byte columns
        self.narrow: Final = narrow  # … of the 2- and 1-byte columns
        self.row_class: type[Any] | None = None  # the class of this layout's messages: made by `row`, kept here

    # For the validator, which would otherwise compute it for each batch

    @cached_property
    def row_codec(self) -> RowCodec | None:
        """The codec that checks a single element; None where it holds more than atoms."""
        return RowCodec.compile(self, 0)

    @cached_property
    def ranged(self) -> tuple[AtomShape, ...]:
        """The fixed-width columns in which some numbers are invalid."""
        atoms_ = [shape for shape in self.flat.fixed if isinstance(shape, AtomShape) and isinstance(shape.type, Atom)]
        return tuple(each for each in atoms_ if each.type.kind in atoms.RANGES or each.type.kind == "decimal")  # type: ignore[union-attr]

    @cached_property
    def demanding(self) -> bool:
        """Whether it has required variants or dynamic values: present wherever the tuples around them are."""
        boxes, cells = self.flat.boxes, self.flat.var
        return any(not box.optional for box in boxes) or any(not isinstance(cell.type, Atom) for cell in cells)

    @cached_property
    def items(self) -> tuple[Layout, ...]:
        """The layouts of the lists' elements."""
        return tuple(Layout(shape.item) for shape in self.flat.lists)

    def case(self, box: BoxShape, tag: int) -> Layout:
        """The layout of a box's elements that carry `tag`; derived when first seen."""
        key = (box.index, tag)
        if key not in self._cases:
            self._cases[key] = Layout(box.case(tag))
        return self._cases[key]

    @cached_property
    def _cases(self) -> dict[tuple[int, int], Layout]:
        return {}  # at most 255 per box: bounded by the schema

    def fixed_at(self, shape: AtomShape | BoxShape, n: int) -> int:
        """Where a fixed-width column starts."""
        start = n * self._prefix[shape.slot]
        return start if width(shape) >= 4 else self.narrow_at(n) + start

    def list_at(self, shape: ListShape, n: int) -> int:
        """Where a list's n + 1 offsets start."""
        return n * self.wide + 4 * shape.slot * (n + 1)

    def var_at(self, n: int) -> int:
        """Where the offsets shared by the variable-length columns start."""
        return n * self.wide + 4 * len(self.flat.lists) * (n + 1)

    def narrow_at(self, n: int) -> int:
        """Where the 2- and 1-byte columns start."""
        shared = 4 * (len(self.flat.var) * n + 1) if self.flat.var else 0
        return self.var_at(n) + shared

    def bit_at(self, slot: int, n: int) -> int:
        """Where a bit column starts."""
        return self.narrow_at(n) + n * self.narrow + slot * ((n + 7) >> 3)

    def data_at(self, n: int) -> int:
        """Where the variable-length data starts: the size of the parts that depend only on n."""
        return self.bit_at(len(self.flat.bits), n)
