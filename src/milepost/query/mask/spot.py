"""Spots: the ends of paths in the columns of a batch, for all rows of a frame at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from milepost.batch.block import Block
from milepost.query.mask.vector import Array, Bools, Index, both
from milepost.query.typed import CaseStep, ElementStep, FieldStep, Step
from milepost.schema.flat import BoxShape, ChoiceShape, ListShape, Shape, TupleShape


@dataclass(slots=True)
class Spot:
    """Elements of a block: for each row the element at `index` (None: row i is element i), where the row is `known`.

    `rows` are the rows of the frame that the spot covers; None for all of them. The index of a row that is not known is
    that of some existing element.
    """

    block: Block
    shape: Shape
    index: Index | None = None
    known: Bools | None = None
    rows: Index | None = None

    def at(self, rows: Index) -> Spot:
        """The spot of other rows, given as rows of this one."""
        return Spot(
            self.block,
            self.shape,
            rows if self.index is None else self.index[rows],
            None if self.known is None else self.known[rows],
        )

    def chosen(self, column: Array) -> Array:
        """The values of a block's column for the rows."""
        return column if self.index is None else column[self.index]

    def present(self) -> Bools | None:
        """Which rows have a value here, by the validity along the path and its own; None when all have."""
        shape = self.shape
        if isinstance(shape, ChoiceShape):
            return self.known if shape.case is not None else np.zeros(self.size, np.bool_)
        if isinstance(shape, BoxShape):
            return both(self.known, self.chosen(self.block.tags(shape)) != 0)
        valid = self.block.valid(shape)
        return self.known if valid is None else both(self.known, self.chosen(valid))

    @property
    def plain(self) -> bool:
        """Whether rows and elements are the same, and nothing along the path is optional."""
        return self.index is None and self.known is None and self.rows is None

    @property
    def size(self) -> int:
        """The number of rows of the spot."""
        return self.block.n if self.index is None else len(self.index)


def follow(spot: Spot, steps: tuple[Step, ...]) -> list[Spot]:
    """The spots at the end of steps. Rows that are in no spot of the result are null.

    Mostly there is one spot. There are several after a boxed variant, whose cases are in blocks of their own, and none
    where the case of the group lacks the path.
    """
    if not spot.size:
        return []
    for position, step in enumerate(steps):
        shape = spot.shape
        # No match statement: this runs for every path of every batch, and class patterns cost a microsecond each.
        if isinstance(shape, TupleShape) and isinstance(step, FieldStep):
            spot = Spot(spot.block, shape.fields[step.name], spot.index, spot.present(), spot.rows)
        elif isinstance(shape, ChoiceShape) and isinstance(step, CaseStep):
            if shape.case != step.name or shape.shape is None:
                return []
            spot = Spot(spot.block, shape.shape, spot.index, spot.known, spot.rows)
        elif isinstance(shape, BoxShape) and isinstance(step, CaseStep):
            return [end for part in unboxed(spot, shape) for end in follow(part, steps[position:])]
        else:
            assert isinstance(shape, ListShape)
            assert isinstance(step, ElementStep)
            element = _element(spot, shape, step.index)
            if element is None:
                return []
            spot = element
    return [spot]


def _element(spot: Spot, shape: ListShape, index: int) -> Spot | None:
    offsets, block = spot.block.list(shape)
    starts, ends = spot.chosen(offsets[:-1]), spot.chosen(offsets[1:])
    inside = ends - starts > index
    if not inside.any():
        return None
    places = np.where(inside, starts.astype(np.int64) + index, 0)
    return Spot(block, block.layout.root, places, both(spot.present(), inside), spot.rows)


def unboxed(spot: Spot, shape: BoxShape) -> list[Spot]:
    """A boxed variant, one spot for each tag that occurs among the rows. Each is at a `ChoiceShape`."""
    all_tags, all_ranks, blocks = spot.block.box(shape)
    tags, ranks = spot.chosen(all_tags), spot.chosen(all_ranks)
    if spot.known is not None:
        tags = np.where(spot.known, tags, 0)
    parts = []
    for tag, block in blocks.items():
        mine = np.flatnonzero(tags == tag)
        if len(mine):
            rows = mine if spot.rows is None else spot.rows[mine]
            parts.append(Spot(block, block.layout.root, ranks[mine].astype(np.int64), None, rows))
    return parts
