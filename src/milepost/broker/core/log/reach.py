"""The progress of a durable subscription in one log: which rows were handed out, to which client, and which are done.

::

    consumed            │ handed out, some of it done        │ not read yet
    ────────────────────┼────────────────────────────────────┼──────────────►  offsets
                      cursor                                next

The store keeps the cursor and the rows above it that are done: together they say which rows must be redelivered. It
also keeps the rows that a client has handed on to a client of its own, which may acknowledge them after a restart, and
the number of earlier deliveries of rows that are not done. If the subscription counts deliveries, the store also keeps
the rows that clients hold; a broker that reads the stored state counts one more delivery for each of them.
"""

from __future__ import annotations

import zlib
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from milepost.errors import CorruptLog

LOT_ROWS: Final = 4_096  # the least capacity of a lot, so that single rows share one
LATE_ROWS: Final = 65_536  # limit of rows done above one that is not: each acknowledgement stores all of them
_STATE_BYTES: Final = 16 << 20  # the most bytes of an unpacked list of offsets

Offsets = npt.NDArray[np.uint64]
NO_OFFSETS: Final[Offsets] = np.zeros(0, np.uint64)
NOBODY: Final = 0  # owner of a row that is to be read and handed out again
WAITING: Final = -1  # owner of a row that was read and is not handed out yet
DYING: Final = -2  # owner of a row that was delivered too often, until it is stored in the dead-letter topic
RESERVED: Final = -3  # owner of a row that was handed on before a restart, while its client may reconnect


class Lot:
    """Rows in the order in which they were read, as columns. The first `count` places are in use."""

    __slots__ = (
        "count", "done", "handed", "head", "left", "offsets", "owners", "publishers", "touched", "tried", "tries"
    )  # fmt: skip

    def __init__(self, room: int) -> None:
        self.offsets: Offsets = np.zeros(room, np.uint64)
        self.owners: npt.NDArray[np.int64] = np.zeros(room, np.int64)
        self.publishers: npt.NDArray[np.uint32] = np.zeros(room, np.uint32)
        self.tries: npt.NDArray[np.uint32] = np.zeros(room, np.uint32)  # deliveries before the one under way
        self.done: npt.NDArray[np.bool_] = np.zeros(room, np.bool_)
        self.handed: npt.NDArray[np.bool_] | None = None  # which rows were handed on; None: no row was
        self.count = 0
        self.head = 0  # rows before it are done
        self.left = 0  # rows that are not done
        self.tried = False  # some rows may have been delivered before
        self.touched = 0  # number of the cursor move that last changed it

    def finish(self, places: npt.NDArray[np.intp], move: int) -> None:
        """Mark rows as done."""
        self.done[places] = True
        self.left -= len(places)
        self.touched = move

    def hand(self, places: npt.NDArray[np.intp], handed: bool) -> None:
        """Mark rows as handed on, or as no longer handed on."""
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
        """The rows that clients hold and have not handed on: if the broker ends now, they count as delivered."""
        part = slice(self.head, self.count)
        mine = (self.owners[part] > NOBODY) & ~self.done[part]
        if self.handed is not None:
            mine &= ~self.handed[part]
        return self.offsets[part][mine]

    def reopen(self, places: npt.NDArray[np.intp]) -> None:
        """Mark rows as not done again."""
        self.done[places] = False
        self.left += len(places)
        self.head = min(self.head, int(places.min()))

    def advance(self) -> bool:
        """Move the head over rows that are done; returns whether all rows are."""
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
        self.next = offset  # the offset of the first row that was not read
        self.stored = offset  # the stored cursor
        self.given: bytes | None = state  # the state last written; None: unknown, as a write failed
        self.doubtful = 0  # rows before this offset may have been delivered by a broker that did not store that
        self.blocked: tuple[int, int] | None = None  # a log, and the offset that must be reached there first
        self._lots: list[Lot] = []
        found = unpacked(state)
        self._skip, self._tries = found.late, found.tries  # rows done, or delivered, before this broker began to read
        self._earlier = self._handed_earlier(found)
        # Number of a cursor move -> the last handed-on row that it acknowledged.
        self._acknowledged: dict[int, int] = {} if found.acknowledged is None else {0: found.acknowledged}

    def _handed_earlier(self, found: State) -> Lot | None:
        """A lot of the rows that were handed on before this broker began to read: no other lot has them."""
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
        """The lots of all rows that were read, or handed on, and may not be done."""
        return self._lots if self._earlier is None else [self._earlier, *self._lots]

    def add(self, offsets: Offsets, publishers: npt.NDArray[np.uint32], tries: Any) -> Chosen:
        """Add rows that were read for the first time and wait to be handed out. Their offsets exceed all earlier."""
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
        """Which of the rows that were read are to be handed out (None: all), and how often each was delivered."""
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
            last = int(offsets[-1]) if len(offsets) else -1  # earlier rows that were not read are gone from the log
            self._tries = {offset: count for offset, count in self._tries.items() if offset > last}
        return keep, tries

    def chosen(self, first: int, last: int, owner: int) -> list[Chosen]:
        """The rows between two offsets, both included, that a member holds and that are not done."""
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
        """The rows of these ranges that a member holds and that are not done, and how many offsets the ranges name.

        Ranges include both ends, ascend and do not overlap.
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
        """All rows that a member holds and that are not done."""
        return self.chosen(0, (1 << 63) - 1, owner)

    def handed_on(self, *owners: int) -> list[Chosen]:
        """The rows of these owners that were handed on and are not done."""
        found = []
        for lot in self.lots:
            places = lot.handed_on()
            places = places[np.isin(lot.owners[places], owners)]
            if len(places):
                found.append(Chosen(lot, places))
        return found

    @property
    def acknowledged(self) -> int | None:
        """The offset of the last handed-on row that was acknowledged; None: there is none."""
        return next(reversed(self._acknowledged.values()), None)

    def acknowledge(self, chosen: Chosen, move: int) -> None:
        """Mark rows as done by this move of the cursor."""
        lot, places = chosen
        lot.finish(places, move)
        if lot.handed is not None and len(mine := places[lot.handed[places]]):
            self._acknowledged[move] = int(lot.offsets[mine[-1]])

    def undo(self, chosen: Chosen, move: int) -> None:
        """Undo `acknowledge`: the move could not be stored."""
        chosen.lot.reopen(chosen.places)
        self._acknowledged.pop(move, None)

    @property
    def done_early(self) -> int:
        """How many rows are done above one that is not: about as many as `late` returns."""
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
        """The offset before which every row is consumed."""
        earlier = self._earlier
        if earlier is None or earlier.advance():
            return self._read_cursor()
        return min(self._read_cursor(), int(earlier.offsets[earlier.head]))

    def _read_cursor(self) -> int:
        """The cursor, ignoring rows that were handed on before this broker began to read."""
        for lot in self._lots:
            if not lot.advance():
                return int(lot.offsets[lot.head])
        return self.next

    def settle(self, move: int) -> None:
        """Forget lots that are done, now that the cursor's moves up to this one are stored."""
        for old in [each for each in self._acknowledged if each <= move][:-1]:
            del self._acknowledged[old]
        earlier = self._earlier
        if earlier is not None and earlier.advance():
            if earlier.touched <= move and self._read_cursor() > int(earlier.offsets[-1]):
                self._earlier = None
        elif earlier is not None and self._read_cursor() > int(earlier.offsets[earlier.head]):
            return  # these lots are above a row that is not done
        while self._lots and self._lots[0].touched <= move and self._lots[0].advance():
            if len(self._lots) == 1 and self._lots[0].count < len(self._lots[0].offsets) // 2:
                self._lots[0].count = self._lots[0].head = self._lots[0].left = 0  # reuse the free space
                self._lots[0].tried = False
                self._lots[0].handed = None
                return
            del self._lots[0]

    def late(self, cursor: int) -> Offsets:
        """Rows above the cursor that are done."""
        if not self.done_early:
            return NO_OFFSETS
        parts = [self._skip[np.searchsorted(self._skip, np.uint64(cursor)) :]] if len(self._skip) else []
        if parts and not len(parts[0]):
            self._skip, parts = self._skip[:0], []
        for lot in self.lots:
            start = int(np.searchsorted(lot.offsets[: lot.count], np.uint64(cursor)))
            rest = lot.done[start : lot.count]
            if rest.any():
                parts.append(lot.offsets[start : lot.count][rest])
        if not parts:
            return NO_OFFSETS
        return parts[0] if len(parts) == 1 else np.unique(np.concatenate(parts))

    def state(self, cursor: int, *, counted: bool = False) -> bytes:
        """The state to store beside the cursor; with `counted`, it includes the rows that clients hold."""
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
        return packed(state, np.concatenate(held) if held else NO_OFFSETS)


class State(NamedTuple):
    """The state that is stored beside a cursor."""

    late: Offsets  # rows above the cursor that are done
    tries: dict[int, int]  # offset -> deliveries before the one under way
    handed: dict[int, int]  # rows that were handed on and are not done: offset -> publisher
    left: dict[int, int]  # the same, by a client that is gone: any client may get them
    acknowledged: int | None  # offset of the last handed-on row that was acknowledged


def packed(state: State, held: Offsets = NO_OFFSETS) -> bytes:
    """A state as bytes, with the rows that clients hold (`held`). Mostly there is nothing to store, and it is empty."""
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
    """The state of `packed` bytes. Rows that clients held count one more delivery."""
    if not state:
        return State(NO_OFFSETS, {}, {}, {}, None)
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
