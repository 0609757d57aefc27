"""How many rows a micro-batch may have, so that it takes about as long as it should.

A micro-batch of Spark has a fixed cost, which wants large ones; and while one runs nothing is seen of it, and nothing
can be changed, which wants short ones. How many rows are short depends on the machine, the rules and what else runs, so
the bound follows the last micro-batches: it grows while full ones are short, and shrinks as soon as one is long.
"""

from __future__ import annotations

from typing import Final

STEP: Final = 2.0  # the most that one micro-batch changes the bound by: it may have been an odd one
FULL: Final = 0.5  # of the bound: fewer rows say nothing about as many as the bound allows


class Pace:
    """The bound of one query's micro-batches. Times are in seconds, by any clock."""

    def __init__(self, seconds: float, least: int, most: int) -> None:
        self._seconds = seconds
        self._least, self._most = least, most
        self._under_way: tuple[float, int] | None = None
        self.rows = min(max(least, 1), most)

    def began(self, now: float, rows: int) -> None:
        """A micro-batch of so many rows begins."""
        self._under_way = now, rows

    def asked(self, now: float) -> None:
        """Spark asks for the next one: the one before is over."""
        if self._under_way is None:
            return
        began, rows = self._under_way
        self._under_way = None
        took = max(now - began, 1e-3)
        wanted = min(max(self._seconds / took, 1 / STEP), STEP)
        if wanted > 1 and rows < FULL * self.rows:
            return
        self.rows = min(max(round(self.rows * wanted), self._least), self._most)
