"""How far a durable subscription has got in one log: which rows were handed out, to whom, and which are done.

::

    consumed            │ handed out, some of it done        │ not read yet
    ────────────────────┼────────────────────────────────────┼──────────────►  offsets
                      cursor                                next

What is stored is the cursor, and the rows above it that are done already: those alone say what must come again. Beside
them stand earlier deliveries of rows that are not done, and, of a subscription that counts them, the rows that are in
the hands of clients: whoever reads a stored state counts those as delivered once more.
"""

from __future__ import annotations

import zlib
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from milepost.errors import CorruptLog

LOT_ROWS: Final = 4_096  # of a lot that single rows gather in
LATE_ROWS: Final = 65_536  # done above a row that is not: stored with each acknowledgement, so no more are handed out
_STATE_BYTES: Final = 16 << 20  # of a state, unpacked

Offsets = npt.NDArray[np.uint64]
NOBODY: Final = 0  # as the owner of a row that is to be read and handed out again
WAITING: Final = -1  # as the owner of a row that was read and is not handed out yet
DYING: Final = -2  # as the owner of a row that was handed out too often, until it is stored among the dead


class Lot:
    """Rows that were read one after the other, as columns. The first `count` places are in use."""

    __slots__ = ("count", "done", "head", "left", "offsets", "owners", "publishers", "touched", "tried", "tries")

    def __init__(self, room: int) -> None:
        self.offsets: Offsets = np.zeros(room, np.uint64)
        self.owners: npt.NDArray[np.int64] = np.zeros(room, np.int64)
        self.publishers: npt.NDArray[np.uint32] = np.zeros(room, np.uint32)
        self.tries: npt.NDArray[np.uint32] = np.zeros(room, np.uint32)  # deliveries before the one under way
        self.done: npt.NDArray[np.bool_] = np.zeros(room, np.bool_)
        self.count = 0
        self.head = 0  # rows before it are done
        self.left = 0  # rows that are not
        self.tried = False  # some may have been delivered before
        self.touched = 0  # the move of the cursor that last changed it

    def finish(self, places: npt.NDArray[np.intp], move: int) -> None:
        """Rows that were not done are."""
        self.done[places] = True
        self.left -= len(places)
        self.touched = move

    def reopen(self, places: npt.NDArray[np.intp]) -> None:
        """Rows that were done are not."""
        self.done[places] = False
        self.left += len(places)
        self.head = min(self.head, int(places.min()))

    def advance(self) -> bool:
        """Move the head over what is done; whether all is."""
        if not self.left:
            self.head = self.count
        elif self.head < self.count:
            rest = self.done[self.head : self.count]
            step = int(rest.argmin())
            self.head = self.count if rest[step] else self.head + step
        return self.head == self.count


class Chosen(NamedTuple):
    """Some rows of a lot."""

    lot: Lot
    places: npt.NDArray[np.intp]


class Reach:
    """Progress in one log."""

    def __init__(self, offset: int, state: bytes = b"") -> None:
        self.next = offset  # the first row that was not read
        self.stored = offset  # the cursor as the store has it
        self.given: bytes | None = state  # the state that was last given to the store; None: it may have another
        self.doubtful = 0  # rows before it may have been handed out by a broker that could not store that
        self.blocked: tuple[int, int] | None = None  # a log, and the offset to be reached there first
        self._lots: list[Lot] = []
        self._skip, self._tries = unpacked(state)  # done, or tried, before this broker began to read

    def add(self, offsets: Offsets, publishers: npt.NDArray[np.uint32], tries: Any) -> Chosen:
        """Rows that were read for the first time: they wait to be handed out. Their offsets are above all others'."""
        rows = len(offsets)
        lot = self._lots[-1] if self._lots else None
        if lot is None or lot.count + rows > len(lot.offsets):
            lot = Lot(max(rows, LOT_ROWS))
            self._lots.append(lot)
        start = lot.count
        place = slice(start, start + rows)
        lot.offsets[place] = offsets
        lot.owners[place] = WAITING
        lot.publishers[place] = publishers
        lot.done[place] = False
        lot.tries[place] = 0 if tries is None else tries
        lot.tried |= tries is not None
        lot.count += rows
        lot.left += rows
        return Chosen(lot, np.arange(start, start + rows))

    def fresh(self, offsets: Offsets) -> tuple[npt.NDArray[np.intp] | None, npt.NDArray[np.uint32] | None]:
        """Of rows that were read: which are to be handed out (None: all), and how often each was already."""
        keep = None
        if len(self._skip):
            wanted = ~np.isin(offsets, self._skip)
            if not wanted.all():
                keep = np.flatnonzero(wanted)
                offsets = offsets[keep]
        tries = None
        if self._tries:
            tries = np.array([self._tries.get(offset, 0) for offset in offsets.tolist()], np.uint32)
            last = int(offsets[-1]) if len(offsets) else -1  # rows before it that did not come are gone from the log
            self._tries = {offset: count for offset, count in self._tries.items() if offset > last}
        return keep, tries

    def chosen(self, first: int, last: int, owner: int) -> list[Chosen]:
        """The rows between two offsets, both included, that a member has and that are not done."""
        found = []
        for lot in self._lots:
            if not lot.count or int(lot.offsets[lot.count - 1]) < first or int(lot.offsets[0]) > last:
                continue
            start, stop = np.searchsorted(lot.offsets[: lot.count], np.array([first, last + 1], np.uint64)).tolist()
            start = max(start, lot.head)
            places = np.flatnonzero((lot.owners[start:stop] == owner) & ~lot.done[start:stop]) + start
            if len(places):
                found.append(Chosen(lot, places))
        return found

    def ranges(self, pairs: Offsets, owner: int) -> tuple[list[Chosen], int]:
        """The rows of ranges, both ends included, ascending and disjoint, that a member has and that are not done.

        And how many offsets the ranges name.
        """
        found = []
        for lot in self._lots:
            offsets = lot.offsets[: lot.count]
            if not lot.left or int(offsets[-1]) < pairs[0, 0] or int(offsets[0]) > pairs[-1, 1]:
                continue
            starts = np.searchsorted(offsets, pairs[:, 0])
            stops = np.searchsorted(offsets, pairs[:, 1], side="right")
            first, after = int(starts[0]), int(stops[-1])
            mine = (lot.owners[first:after] == owner) & ~lot.done[first:after]
            if len(pairs) > 1:
                steps = np.zeros(after - first + 1, np.int64)
                np.add.at(steps, starts - first, 1)
                np.add.at(steps, stops - first, -1)
                mine &= np.cumsum(steps[:-1]) > 0
            places = np.flatnonzero(mine) + first
            if len(places):
                found.append(Chosen(lot, places))
        return found, int((pairs[:, 1] - pairs[:, 0]).sum()) + len(pairs)

    def held(self, owner: int) -> list[Chosen]:
        """All rows that a member has."""
        return self.chosen(0, (1 << 63) - 1, owner)

    @property
    def done_early(self) -> int:
        """Rows above one that is not done: about as many as `late` has."""
        found, above = len(self._skip), False
        for lot in self._lots:
            if above:
                found += lot.count - lot.left
            elif not lot.advance():
                found += lot.count - lot.head - lot.left
                above = True
        return found

    def undone(self) -> list[Chosen]:
        """All rows that are not done."""
        return [Chosen(lot, np.flatnonzero(~lot.done[lot.head : lot.count]) + lot.head) for lot in self._lots]

    def cursor(self) -> int:
        """Everything before is consumed."""
        for lot in self._lots:
            if not lot.advance():
                return int(lot.offsets[lot.head])
        return self.next

    def settle(self, move: int) -> None:
        """The cursor's moves up to this one are stored: forget lots that are done."""
        while self._lots and self._lots[0].touched <= move and self._lots[0].advance():
            if len(self._lots) == 1 and self._lots[0].count < len(self._lots[0].offsets) // 2:
                self._lots[0].count = self._lots[0].head = self._lots[0].left = 0  # there is room: use it again
                self._lots[0].tried = False
                return
            del self._lots[0]

    def late(self, cursor: int) -> Offsets:
        """Rows above the cursor that are done."""
        if not self.done_early:
            return _NONE
        parts = [self._skip[np.searchsorted(self._skip, np.uint64(cursor)) :]] if len(self._skip) else []
        if parts and not len(parts[0]):
            self._skip, parts = self._skip[:0], []
        above = False
        for lot in self._lots:
            if not above and lot.advance():
                continue  # below the cursor
            # A lot may have been the first, and moved its head, before an earlier one was reopened.
            start, above = 0 if above else lot.head, True
            rest = lot.done[start : lot.count]
            if rest.any():
                parts.append(lot.offsets[start : lot.count][rest])
        if not parts:
            return _NONE
        return parts[0] if len(parts) == 1 else np.unique(np.concatenate(parts))

    def state(self, cursor: int, *, counted: bool = False) -> bytes:
        """What is to be stored beside the cursor; `counted`: with the rows that are in the hands of clients."""
        tries = dict(self._tries)
        held: list[Offsets] = []
        for lot in self._lots:
            if not lot.left:
                continue
            if counted:
                rest = slice(lot.head, lot.count)
                held.append(lot.offsets[rest][(lot.owners[rest] > 0) & ~lot.done[rest]])
            if not lot.tried:
                continue
            some = np.flatnonzero((lot.tries[lot.head : lot.count] > 0) & ~lot.done[lot.head : lot.count]) + lot.head
            if len(some):
                tries.update(zip(lot.offsets[some].tolist(), lot.tries[some].tolist(), strict=True))
        return packed(self.late(cursor), tries, np.concatenate(held) if held else _NONE)


_NONE: Final[Offsets] = np.zeros(0, np.uint64)


def packed(late: Offsets, tries: dict[int, int], held: Offsets = _NONE) -> bytes:
    """A state as bytes; empty when there is nothing to say, as there mostly is."""
    if not len(late) and not tries and not len(held):
        return b""
    state: dict[str, Any] = {"late": _compressed(late), "tries": tries}
    if len(held):
        state["held"] = _compressed(held)
    return msgspec.msgpack.encode(state)


def unpacked(state: bytes) -> tuple[Offsets, dict[int, int]]:
    """The rows above the cursor that are done, and the deliveries of others. Rows that are held were delivered too."""
    if not state:
        return _NONE, {}
    try:
        found = msgspec.msgpack.decode(state, type=dict[str, Any], strict=False)
        tries = {int(offset): int(count) for offset, count in found["tries"].items()}
        if "held" in found:
            for offset in _expanded(found["held"]).tolist():
                tries[offset] = tries.get(offset, 0) + 1
        return _expanded(found["late"]), tries
    except (msgspec.DecodeError, zlib.error, KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptLog(f"the stored state of a cursor cannot be read: {error}; restore the database") from None


def _compressed(offsets: Offsets) -> bytes:
    return zlib.compress(np.diff(offsets, prepend=np.uint64(0)).astype("<u8").tobytes(), 1)


def _expanded(data: bytes) -> Offsets:
    reader = zlib.decompressobj()
    steps = reader.decompress(data, _STATE_BYTES)
    if reader.unconsumed_tail or not reader.eof:
        raise ValueError("it is too long, or cut off")
    return np.cumsum(np.frombuffer(steps, "<u8"), dtype=np.uint64)
