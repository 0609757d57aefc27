"""How many rows a micro-batch may have, so that it takes about as long as it should.

A micro-batch of Spark has a fixed cost, which wants large ones; and while one runs nothing is seen of it, and nothing
can be changed, which wants short ones. How many rows are short depends on the machine, the rules and what else runs, so
the bound follows the last micro-batches. Their fixed cost is told apart from what rows cost by how both go together: a
bound that took the one for the other would shrink on a slow machine, and make it slower still. What is learnt of it is
how many rows a micro-batch costs before its first: a hog makes both dearer, and leaves that as it is.
"""

from __future__ import annotations

from typing import Final

STEP: Final = 2.0  # the most that one micro-batch changes the bound by: it may have been an odd one
WEIGHT: Final = 0.15  # of the last micro-batch, in what is known of them
APART: Final = 0.1  # of the mean: rows that vary by less do not tell fixed from other costs
SLOWLY: Final = 0.1  # the weight of one micro-batch in what is known of the fixed cost: noise and hogs look like rows
UTMOST: Final = 5.0  # times the rows there are: what a fixed cost may amount to, where rows seem to cost nothing
SMALLER: Final = 0.75  # every second micro-batch, of the bound: so that there is something to tell from
WORTH: Final = 3.0  # times its fixed cost: what a micro-batch may take, however long that is


class BatchPace:
    """The bound of one query's micro-batches. Times are in seconds, by any clock."""

    def __init__(self, seconds: float, least: int, most: int, first: int = 0) -> None:
        """`first`: the bound before anything is known; by default the least."""
        self._seconds = seconds
        self._least, self._most = least, most
        self._under_way: tuple[float, int] | None = None
        self._means: list[float] | None = None  # of rows, seconds, their squares' and their product's
        self._before = float(least)  # rows that cost as much as a micro-batch without any
        self._bound = self.rows = min(max(least, first, 1), most)
        self._whole = True  # whether `rows` is the whole bound

    def began(self, now: float, rows: int) -> None:
        """A micro-batch of so many rows begins."""
        self._under_way = now, rows

    def asked(self, now: float) -> None:
        """Spark asks for the next one: the one before is over."""
        if self._under_way is None:
            return
        began, rows = self._under_way
        self._under_way = None
        self.learn(rows, now - began)

    def learn(self, rows: int, seconds: float) -> None:
        """A micro-batch is over."""
        took = max(seconds, 1e-3)
        new = [float(rows), took, float(rows) * rows, rows * took]
        old = self._means or new
        self._means = [before + WEIGHT * (after - before) for before, after in zip(old, new, strict=True)]
        self._tell_apart()
        each = self._means[1] / (self._before + self._means[0])
        wanted = max(self._seconds / each, WORTH * self._before) - self._before
        wanted = min(max(wanted, self._bound / STEP), self._bound * STEP)
        self._bound = round(min(max(wanted, self._least), self._most))
        self._whole = not self._whole
        self.rows = self._bound if self._whole else max(self._least, round(SMALLER * self._bound))

    def _tell_apart(self) -> None:
        """What the last micro-batches say about their fixed cost, if they say anything."""
        assert self._means is not None
        rows, took, squares, products = self._means
        variance = squares - rows * rows
        if rows < 1 or variance <= (APART * rows) ** 2:
            return
        each = min(max((products - rows * took) / variance, 1e-9), took / rows)
        before = min((took - each * rows) / each, UTMOST * rows)
        # That `least` are too few says that half as many cost less than a micro-batch: a hog's noise must not undo it.
        self._before = max(self._before + SLOWLY * (before - self._before), self._least / 2)
