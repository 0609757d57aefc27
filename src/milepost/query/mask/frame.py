"""Frames: the rows an expression is evaluated for, and the spots of their variables in the columns of a batch.

The outermost frame has one row for each message of a group. A quantifier makes an inner frame with one row for each
element; `parents` has the row of the outer frame for each, so that outer values can be repeated for each element. Only
values that an expression reads are repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Final

import numpy as np

from milepost.batch.block import Block
from milepost.query.budget import Budget
from milepost.query.mask.spot import Spot
from milepost.query.mask.vector import Index, Packed, Vector
from milepost.query.typed import ROOT
from milepost.schema.flat import ListShape, TupleShape
from milepost.schema.types import Schema


class Origin:
    """The part that all frames of one evaluation share: the group's block, its rows, the header, and the budget.

    The budget is None when only one column is read.
    """

    def __init__(
        self, schema: Schema, block: Block, header: Mapping[str, Vector], budget: Budget | None = None
    ) -> None:
        self.block = block
        self.spend: Final = _nothing if budget is None else budget.spend
        self.header = header
        self._message_type = schema.message_type
        self._nodes: dict[str, tuple[Index, Block]] = {}

    def nodes(self, name: str) -> tuple[Index, Block]:
        """The nodes of one type: where the nodes of each message start, and the block of all."""
        if name not in self._nodes:
            root = self.block.layout.root
            assert isinstance(root, TupleShape)
            shape = root.fields[name]
            assert isinstance(shape, ListShape)
            offsets, block = self.block.list(shape)
            self._nodes[name] = offsets.astype(np.int64), block
        return self._nodes[name]

    def root(self, rows: Index | None) -> Spot:
        """The spot of the message, or of the root node, for these rows of the group."""
        if self._message_type is None:
            return Spot(self.block, self.block.layout.root, rows)
        starts, block = self.nodes(self._message_type.root)
        places = starts[:-1] if rows is None else starts[:-1][rows]
        return Spot(block, block.layout.root, places)


def _nothing(steps: int) -> None: ...


class RowFrame:
    """One level of rows."""

    def __init__(
        self,
        origin: Origin,
        n: int,
        outer: RowFrame | None = None,
        parents: Callable[[], Index] | None = None,
        messages: Index | None = None,
    ) -> None:
        self.origin = origin
        self.n = n
        self.outer = outer
        self.memo: dict[int, Vector | None] = {}  # columns read so far, by the compiler's number of the path
        self.pending: list[Packed] = []  # validity of columns that were read unchecked, still to be checked
        self._parents = parents
        self._messages = messages
        self._spots: dict[int, Spot] = {}

    @classmethod
    def outermost(cls, origin: Origin, rows: Index | None) -> RowFrame:
        """The frame of a group's messages, or of some of them."""
        frame = cls(origin, origin.block.n if rows is None else len(rows), messages=rows)
        frame.bind(ROOT, origin.root(rows))
        return frame

    @cached_property
    def parents(self) -> Index:
        """The row of the outer frame that each row here belongs to."""
        assert self._parents is not None
        return self._parents()

    @cached_property
    def messages(self) -> Index | None:
        """The row of the group that each row here belongs to; None when they are the same."""
        if self.outer is None:
            return self._messages
        outer = self.outer.messages
        return self.parents if outer is None else outer[self.parents]

    def bind(self, variable: int, spot: Spot) -> None:
        """Set the spot of a variable."""
        self._spots[variable] = spot

    def spot(self, variable: int) -> Spot:
        """The spot of a variable, for each row here."""
        found = self._spots.get(variable)
        if found is None:
            assert self.outer is not None
            found = self._spots[variable] = self.outer.spot(variable).at(self.parents)
        return found

    def within(self, rows: Index) -> RowFrame:
        """Some of the rows, as a frame of their own."""
        return RowFrame(self.origin, len(rows), self, lambda: rows)
