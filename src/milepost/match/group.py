"""Groups: predicates that are not one conjunction of terms, with the subscribers that share them.

A conjunction of terms has its subscriber in its entry. Any other predicate is held once, however many subscribers it
has: several postings may find it for one row, or it has to be evaluated. Its entry, if it has one, points to the group,
and the group to the keys.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from milepost.match.segment import ALIVE, address
from milepost.query import Predicate

_FIRST: Final = 4  # initial room for keys: most predicates have one subscriber


class PredicateGroup:
    """One predicate. `keys` only grows, and `died` marks removed ones; so snapshots share it, as they do segments."""

    __slots__ = ("count", "dead", "died", "evaluated", "indexed", "keys", "number", "places", "predicate")

    def __init__(self, number: int, predicate: Predicate, indexed: bool, evaluated: bool) -> None:
        self.number = number
        self.predicate = predicate
        self.indexed = indexed  # whether an entry points to it; else it is evaluated for all rows
        self.evaluated = evaluated  # whether the predicate has to be evaluated for the rows found
        self.keys = np.empty(_FIRST, np.int32)
        self.died = np.full(_FIRST, ALIVE, np.int64)
        self.count = 0
        self.dead = 0
        self.places: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.places)

    @property
    def bytes(self) -> int:
        return self.keys.nbytes + self.died.nbytes + 100 * len(self.places)

    def add(self, key: int) -> None:
        if self.count == len(self.keys):
            self._remake(2 * (self.count - self.dead) + _FIRST)
        self.keys[self.count] = key
        self.places[key] = self.count
        self.count += 1

    def remove(self, key: int, now: int) -> None:
        self.died[self.places.pop(key)] = now
        self.dead += 1

    def _remake(self, room: int) -> None:
        alive = np.flatnonzero(self.died[: self.count] == ALIVE)
        keys, died = np.empty(room, np.int32), np.full(room, ALIVE, np.int64)
        keys[: len(alive)] = self.keys[alive]
        self.keys, self.died, self.count, self.dead = keys, died, len(alive), 0
        self.places = {int(key): place for place, key in enumerate(keys[: len(alive)])}

    def row(self) -> tuple[int, int, int]:
        """The row for `assemble`: the address of the keys, the address of their times of death, and their number."""
        return address(self.keys), address(self.died), self.count
