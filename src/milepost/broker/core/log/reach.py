"""How far a durable subscription has got in one log: which rows were handed out, to whom, and which are done.

::

    consumed            │ handed out, some of it done        │ not read yet
    ────────────────────┼────────────────────────────────────┼──────────────►  offsets
                      cursor                                next

What is stored is the cursor, and the rows above it that are done already: those alone say what must come again. So are
hand-outs: rows that a client of ours has handed on to a client of its own, which may acknowledge them after a restart.
Beside them stand earlier deliveries of rows that are not done, and, of a subscription that counts them, the rows that
are in the hands of clients: whoever reads a stored state counts those as delivered once more.
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
RESERVED: Final = -3  # as the owner of a row that was handed on before a restart, and whose client may come back


class Lot:
    """Rows that were read one after the other, as columns. The first `count` places are in use."""

    __slots__ = (
        "count", "done", "handed", "head", "left", "offsets", "owners", "publishers", "touched", "tried", "tries"
    )  # fmt: skip

    def __init__(self, room: int) -> None:
        self.offsets: Offsets = np.zeros(room, np.uint64)
        self.owners: npt.NDArray[np.int64] = np.zeros(room, np.int64)
        self.publishers: npt.NDArray[np.uint32] = np.zeros(room, np.uint32)
        self.tries: npt.NDArray[np.uint32] = np.zeros(room, np.uint32)  # deliveries before the one under way
        self.done: npt.NDArray[np.bool_] = np.zeros(room, np.bool_)
        self.handed: npt.NDArray[np.bool_] | None = None  # rows that were handed on; None: none was
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

    def hand(self, places: npt.NDArray[np.intp], handed: bool) -> None:
        """Rows were handed on, or that is over."""
        if self.handed is None:
            self.handed = np.zeros(len(self.offsets), np.bool_)
        self.handed[places] = handed

    def handed_on(self) -> npt.NDArray[np.intp]:
        """The places of rows that were handed on and are not done."""
        if self.handed is None or not self.left:
            return np.zeros(0, np.intp)
        part = slice(self.head, self.count)
        return np.flatnonzero(self.handed[part] & ~self.done[part]) + self.head

    def held(self) -> Offsets:
        """The rows that clients have and have not handed on: if one of them ends now, they were delivered."""
        part = slice(self.head, self.count)
        mine = (self.owners[part] > NOBODY) & ~self.done[part]
        if self.handed is not None:
            mine &= ~self.handed[part]
        return self.offsets[part][mine]

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
        found = unpacked(state)
        self._skip, self._tries = found.late, found.tries  # done, or tried, before this broker began to read
        self._earlier = self._handed_earlier(found)
        # The row that was handed on and acknowledged last, by the move of the cursor that stored it.
        self._acknowledged: dict[int, int] = {} if found.acknowledged is None else {0: found.acknowledged}

    def _handed_earlier(self, found: State) -> Lot | None:
        """Rows that were handed on before this broker began to read: they are in no other lot."""
        offsets = sorted(found.handed | found.left)
        if not offsets:
            return None
        lot = Lot(len(offsets))
        lot.offsets[:] = offsets
        for place, offset in enumerate(offsets):
            lot.owners[place] = RESERVED if offset in found.handed else NOBODY
            lot.publishers[place] = found.handed.get(offset, found.left.get(offset, 0))
            lot.tries[place] = self._tries.pop(offset, 0)
        lot.hand(np.arange(len(offsets)), True)
        lot.tried = bool(lot.tries.any())
        lot.count = lot.left = len(offsets)
        return lot

    @property
    def lots(self) -> list[Lot]:
        """All rows that were read, or handed on, and may not be done."""
        return self._lots if self._earlier is None else [self._earlier, *self._lots]

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
        if lot.handed is not None:
            lot.handed[place] = False
        lot.tries[place] = 0 if tries is None else tries
        lot.tried |= tries is not None
        lot.count += rows
        lot.left += rows
        return Chosen(lot, np.arange(start, start + rows))

    def fresh(self, offsets: Offsets) -> tuple[npt.NDArray[np.intp] | None, npt.NDArray[np.uint32] | None]:
        """Of rows that were read: which are to be handed out (None: all), and how often each was already."""
        keep = None
        passed = self._skip if self._earlier is None else np.concatenate([self._skip, self._earlier.offsets])
        if len(passed):
            wanted = ~np.isin(offsets, passed)
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
        for lot in self.lots:
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
        for lot in self.lots:
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

    def handed_on(self, *owners: int) -> list[Chosen]:
        """Rows that were handed on and are not done, of these owners."""
        found = []
        for lot in self.lots:
            places = lot.handed_on()
            places = places[np.isin(lot.owners[places], owners)]
            if len(places):
                found.append(Chosen(lot, places))
        return found

    def handed_offsets(self, owner: int) -> list[int]:
        """The offsets of rows that a member has handed on and that are not done."""
        return [offset for lot, places in self.handed_on(owner) for offset in lot.offsets[places].tolist()]

    @property
    def acknowledged(self) -> int | None:
        """The offset of the row that was handed on and acknowledged last; None: there is none."""
        return next(reversed(self._acknowledged.values()), None)

    def acknowledge(self, chosen: Chosen, move: int) -> None:
        """Rows are done, by this move of the cursor."""
        lot, places = chosen
        lot.finish(places, move)
        if lot.handed is not None and len(mine := places[lot.handed[places]]):
            self._acknowledged[move] = int(lot.offsets[mine[-1]])

    def undo(self, chosen: Chosen, move: int) -> None:
        """That could not be stored."""
        chosen.lot.reopen(chosen.places)
        self._acknowledged.pop(move, None)

    @property
    def done_early(self) -> int:
        """Rows above one that is not done: about as many as `late` has."""
        found, above = len(self._skip), False
        if self._earlier is not None:
            found += self._earlier.count - self._earlier.left
            above = not self._earlier.advance()
        for lot in self._lots:
            if above:
                found += lot.count - lot.left
            elif not lot.advance():
                found += lot.count - lot.head - lot.left
                above = True
        return found

    def undone(self) -> list[Chosen]:
        """All rows that are not done."""
        return [Chosen(lot, np.flatnonzero(~lot.done[lot.head : lot.count]) + lot.head) for lot in self.lots]

    def cursor(self) -> int:
        """Everything before is consumed."""
        earlier = self._earlier
        if earlier is None or earlier.advance():
            return self._read_cursor()
        return min(self._read_cursor(), int(earlier.offsets[earlier.head]))

    def _read_cursor(self) -> int:
        """The same, but for rows that were handed on before this broker began to read."""
        for lot in self._lots:
            if not lot.advance():
                return int(lot.offsets[lot.head])
        return self.next

    def settle(self, move: int) -> None:
        """The cursor's moves up to this one are stored: forget lots that are done."""
        for old in [each for each in self._acknowledged if each <= move][:-1]:
            del self._acknowledged[old]
        earlier = self._earlier
        if earlier is not None and earlier.advance():
            if earlier.touched <= move and self._read_cursor() > int(earlier.offsets[-1]):
                self._earlier = None
        elif earlier is not None and self._read_cursor() > int(earlier.offsets[earlier.head]):
            return  # lots are done above a row that is not
        while self._lots and self._lots[0].touched <= move and self._lots[0].advance():
            if len(self._lots) == 1 and self._lots[0].count < len(self._lots[0].offsets) // 2:
                self._lots[0].count = self._lots[0].head = self._lots[0].left = 0  # there is room: use it again
                self._lots[0].tried = False
                self._lots[0].handed = None
                return
            del self._lots[0]

    def late(self, cursor: int) -> Offsets:
        """Rows above the cursor that are done."""
        if not self.done_early:
            return _NONE
        parts = [self._skip[np.searchsorted(self._skip, np.uint64(cursor)) :]] if len(self._skip) else []
        if parts and not len(parts[0]):
            self._skip, parts = self._skip[:0], []
        for lot in self.lots:
            start = int(np.searchsorted(lot.offsets[: lot.count], np.uint64(cursor)))
            rest = lot.done[start : lot.count]
            if rest.any():
                parts.append(lot.offsets[start : lot.count][rest])
        if not parts:
            return _NONE
        return parts[0] if len(parts) == 1 else np.unique(np.concatenate(parts))

    def state(self, cursor: int, *, counted: bool = False) -> bytes:
        """What is to be stored beside the cursor; `counted`: with the rows that are in the hands of clients."""
        tries = dict(self._tries)
        handed: dict[int, int] = {}
        left: dict[int, int] = {}
        held: list[Offsets] = []
        for lot in self.lots:
            for place in lot.handed_on().tolist() if lot.handed is not None else ():
                kept = lot.owners[place] > NOBODY or lot.owners[place] == RESERVED
                (handed if kept else left)[int(lot.offsets[place])] = int(lot.publishers[place])
            if not lot.left:
                continue
            if counted:
                held.append(lot.held())
            if not lot.tried:
                continue
            some = np.flatnonzero((lot.tries[lot.head : lot.count] > 0) & ~lot.done[lot.head : lot.count]) + lot.head
            if len(some):
                tries.update(zip(lot.offsets[some].tolist(), lot.tries[some].tolist(), strict=True))
        state = State(self.late(cursor), tries, handed, left, self.acknowledged)
        return packed(state, np.concatenate(held) if held else _NONE)


_NONE: Final[Offsets] = np.zeros(0, np.uint64)


class State(NamedTuple):
    """What is stored beside a cursor."""

    late: Offsets  # rows above the cursor that are done
    tries: dict[int, int]  # offset -> deliveries before the one under way
    handed: dict[int, int]  # rows that were handed on and are not done: offset -> publisher
    left: dict[int, int]  # … by a client that is gone: anybody may have them
    acknowledged: int | None  # the row that was handed on and acknowledged last


def packed(state: State, held: Offsets = _NONE) -> bytes:
    """A state as bytes, with rows in the hands of clients; empty when there is nothing to say, as there mostly is."""
    hands = bool(state.handed or state.left or state.acknowledged is not None)
    if not (len(state.late) or state.tries or hands or len(held)):
        return b""
    told: dict[str, Any] = {"late": _compressed(state.late), "tries": state.tries}
    if hands:
        told |= {"handed": state.handed, "left": state.left, "acknowledged": state.acknowledged}
    if len(held):
        told["held"] = _compressed(held)
    return msgspec.msgpack.encode(told)


def unpacked(state: bytes) -> State:
    """The same back. Rows that were in the hands of clients count as delivered once more."""
    if not state:
        return State(_NONE, {}, {}, {}, None)
    try:
        found = msgspec.msgpack.decode(state, type=dict[str, Any], strict=False)
        tries, handed, left = (
            {int(offset): int(value) for offset, value in found.get(name, {}).items()}
            for name in ("tries", "handed", "left")
        )
        for offset in _expanded(found["held"]).tolist() if "held" in found else ():
            tries[offset] = tries.get(offset, 0) + 1
        last = found.get("acknowledged")
        return State(_expanded(found["late"]), tries, handed, left, None if last is None else int(last))
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
