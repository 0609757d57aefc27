"""Spots: where a path leads in the columns of a batch, for all rows of a frame at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from milepost.batch.block import Block
from milepost.query.mask.vector import Array, Bools, Index, both
from milepost.query.typed import At, Get, InCase, Step
from milepost.schema.flat import BoxShape, ChoiceShape, ListShape, Shape, TupleShape


@dataclass(slots=True)
class Spot:
    """Elements of a block: for each row the one at `index` (None: row i is element i), where it is `known` to be.

    `rows` are the rows of the frame that this spot is about; None when it is all of them. Where a row is not known,
    its index is some element that exists.
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
        """The part of a block's column that belongs to the rows."""
        return column if self.index is None else column[self.index]

    def present(self) -> Bools | None:
        """Which rows have a value here, by the validity of the way to it and of its own; None when all have."""
        match self.shape:
            case ChoiceShape(case=None):
                return np.zeros(self.size, np.bool_)
            case ChoiceShape():
                return self.known
            case BoxShape() as box:
                return both(self.known, self.chosen(self.block.tags(box)) != 0)
            case shape:
                valid = self.block.valid(shape)
                return self.known if valid is None else both(self.known, self.chosen(valid))

    @property
    def size(self) -> int:
        """How many rows the spot is about."""
        return self.block.n if self.index is None else len(self.index)


def follow(spot: Spot, steps: tuple[Step, ...]) -> list[Spot]:
    """Where steps lead. Rows that are in no spot of the result are null.

    Mostly there is one spot. There are several behind a boxed variant, whose cases are in blocks of their own, and
    none where the case of the group lacks the path.
    """
    for position, step in enumerate(steps):
        if not spot.size:
            return []
        match spot.shape, step:
            case TupleShape(fields=fields), Get(name):
                spot = Spot(spot.block, fields[name], spot.index, spot.present(), spot.rows)
            case ChoiceShape(case=case, shape=shape), InCase(name):
                if case != name or shape is None:
                    return []
                spot = Spot(spot.block, shape, spot.index, spot.known, spot.rows)
            case ListShape() as shape, At(index):
                found = _element(spot, shape, index)
                if found is None:
                    return []
                spot = found
            case BoxShape() as shape, InCase():
                return [end for part in unboxed(spot, shape) for end in follow(part, steps[position:])]
            case shape, _:
                raise AssertionError(f"{step} from {shape}")
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
