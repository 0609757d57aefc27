"""Numbers for the texts that subscriptions name, so that the equality of texts becomes an equality of numbers.

Only UUIDs and texts that are too long for a start code (see `codes`) are numbered. The number of a text never changes;
texts that no subscription names any more are dropped when the table is rebuilt.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

_FIRST_SLOTS: Final = 64
_FIRST_BYTES: Final = 1024


class TextTable(NamedTuple):
    """A hash table for kernels: slots of hash, number and place, and the bytes at those places.

    New texts are entered into the same arrays. A reader with an older snapshot may find them; none of its terms has
    their numbers. Slots and bytes are replaced together, so places are always valid.
    """

    slots: npt.NDArray[np.int64]
    pool: npt.NDArray[np.uint8]


class Texts:
    """The numbers of texts, from 1 on."""

    def __init__(self) -> None:
        self.seed: Final = int.from_bytes(os.urandom(7), "little")  # so that no sender can choose texts that collide
        self._numbers: dict[bytes, int] = {}
        self._next = 1
        self._used = 0
        self._table = TextTable(np.zeros((_FIRST_SLOTS, 3), np.int64), np.zeros(_FIRST_BYTES, np.uint8))
        self._waiting: list[tuple[int, bytes]] = []  # numbered, but not in the table yet

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def size(self) -> int:
        """Bytes of the table, with an estimate for the dictionary."""
        return self._table.slots.nbytes + self._table.pool.nbytes + 150 * len(self._numbers)

    @property
    def table(self) -> TextTable:
        """The table of all texts so far. They are entered here, not one by one: there may be no kernels earlier."""
        if self._waiting:
            size = sum(len(text) for _, text in self._waiting)
            if 2 * len(self._numbers) > len(self._table.slots) or self._used + size > len(self._table.pool):
                self._remake()
            else:
                self._enter(self._waiting)
            self._waiting = []
        return self._table

    def number(self, text: bytes) -> int:
        """The number of a text; a new one if the text is new."""
        found = self._numbers.get(text)
        if found is None:
            found = self._numbers[text] = self._next
            self._next += 1
            self._waiting.append((found, text))
        return found

    def keep(self, numbers: Iterable[int]) -> None:
        """Drop all texts but these."""
        wanted = set(numbers)
        self._numbers = {text: number for text, number in self._numbers.items() if number in wanted}
        self._waiting = []
        self._remake()

    def _remake(self) -> None:
        size = _FIRST_SLOTS
        while size < 4 * len(self._numbers):
            size *= 2
        room = max(_FIRST_BYTES, 2 * sum(map(len, self._numbers)))
        self._table = TextTable(np.zeros((size, 3), np.int64), np.zeros(room, np.uint8))
        self._used = 0
        self._enter([(number, text) for text, number in self._numbers.items()])

    def _enter(self, texts: list[tuple[int, bytes]]) -> None:
        from milepost.match.decoder import fill_slots

        slots, pool = self._table
        sizes = np.array([len(text) for _, text in texts], np.int64)
        starts = self._used + np.cumsum(sizes) - sizes
        joined = b"".join(text for _, text in texts)
        pool[self._used : self._used + len(joined)] = np.frombuffer(joined, np.uint8)
        self._used += len(joined)
        fill_slots(np.array([number for number, _ in texts], np.int64), starts, sizes, pool, self.seed, slots)
