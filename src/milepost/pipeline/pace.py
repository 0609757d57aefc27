"""How many rows a micro-batch may have, so that it takes about as long as intended.

Each micro-batch of Spark has a fixed cost, which favours long ones. While one runs, it shows no result and nothing can
be changed, which favours short ones. How long some rows take depends on the machine, the rules and the other load, so
the bound follows the last micro-batches. The fixed cost is estimated apart from the cost of rows: a bound that confuses
the two would shrink on a slow machine and make it slower still. The estimate is a number of rows with the same cost as
an empty micro-batch: a hog makes both dearer, so their ratio stays.
"""

from __future__ import annotations

from typing import Final

STEP: Final = 2.0  # largest factor of change by one micro-batch, which may have been unusual
WEIGHT: Final = 0.15  # of the last micro-batch in the running means
APART: Final = 0.1  # of the mean: rows that vary by less cannot separate fixed from other costs
SLOWLY: Final = 0.1  # weight of one micro-batch in the estimate of the fixed cost: noise and hogs look like rows
UTMOST: Final = 5.0  # times the rows: largest estimate of the fixed cost, where rows seem to cost nothing
SMALLER: Final = 0.75  # of the bound, for every second micro-batch: sizes must vary to separate the costs
WORTH: Final = 3.0  # times its fixed cost: duration that a micro-batch may always take


class BatchPace:
    """The bound of one query's micro-batches. Times are in seconds, by any clock."""

    def __init__(self, seconds: float, least: int, most: int, first: int = 0) -> None:
        """`first` is the bound before anything is known, by default `least`."""
        self._seconds = seconds
        self._least, self._most = least, most
        self._under_way: tuple[float, int] | None = None
        self._means: list[float] | None = None  # of rows, seconds, rows squared, and rows times seconds
        self._before = float(least)  # rows with the same cost as an empty micro-batch
        self._bound = self.rows = min(max(least, first, 1), most)
        self._whole = True  # whether `rows` is the whole bound

    def began(self, now: float, rows: int) -> None:
        """A micro-batch of so many rows begins."""
        self._under_way = now, rows

    def asked(self, now: float) -> None:
        """Spark asks for the next micro-batch, so the previous one is over."""
        if self._under_way is None:
            return
        began, rows = self._under_way
        self._under_way = None
        self.learn(rows, now - began)

    def learn(self, rows: int, seconds: float) -> None:
        """Adjust the bound to a finished micro-batch."""
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
        """Estimate the fixed cost from the last micro-batches, if they vary enough."""
        assert self._means is not None
        rows, took, squares, products = self._means
        variance = squares - rows * rows
        if rows < 1 or variance <= (APART * rows) ** 2:
            return
        each = min(max((products - rows * took) / variance, 1e-9), took / rows)
        before = min((took - each * rows) / each, UTMOST * rows)
        # `least` exists because half as many rows cost less than the micro-batch itself: a hog's noise must not undo
        # it.
        self._before = max(self._before + SLOWLY * (before - self._before), self._least / 2)
