"""A durable subscription that is served: it shares the rows of a topic's log among the clients attached to it.

A single client gets every row. With several, a publisher's rows go to one client while that client holds unacknowledged
rows of the publisher, so that they are processed in order; after that, the publisher may move to another client. An
idle client takes over a publisher from a client that has several. The publisher's new rows wait until the old client
has acknowledged its rows. Rows of a disconnected client, and rows sent back, are read again before new rows.

With `most`, deliveries are counted: a row that was delivered `most` times goes to the dead-letter topic. When a client
crashes, all rows that it holds count as delivered, although most did not cause the crash. So a client gets the last
delivery of a row alone, and holds no other row. Handing rows out stores which rows are held (see `Acknowledgements`).

A subscription without a name is a replay: it has one client, and nothing of it is stored or acknowledged. A replay with
a `stop` is a read: it reads only the logs of `stop`, up to their offsets, and then ends.

A client may hand rows on to clients of its own, as a gateway does. That is stored: after a restart, the rows wait for
the next client that hands rows on, which takes the place of the old one.

The module is long because all these rules change the same columns, a row's owner and its tries, and must hold together.
Parts that do not touch them (members, portions, ranges, progress in a log) have their own modules.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from milepost.batch import Batch
from milepost.broker.core.log.member import ABSENT, PATIENCE, Member
from milepost.broker.core.log.portion import HAND_BYTES, Portion, cut, rows_of
from milepost.broker.core.log.ranges import pairs_of
from milepost.broker.core.log.reach import DYING, LATE_ROWS, NOBODY, RESERVED, WAITING, Chosen, Lot, Offsets, Reach
from milepost.errors import AckMismatch, MilepostError

if TYPE_CHECKING:
    from milepost.broker.core.sessions.connection import Connection, PlainSubscription
    from milepost.broker.core.topics.topic import Topic

PENDING_BYTES: Final = 4 << 20  # of rows that may wait for full members while more are read for the others
AHEAD_BYTES: Final = 2 << 20  # of rows that may wait for the client of a read: half of its window


class Handed(NamedTuple):
    """Rows for one client."""

    member: Member
    log: int
    batch: Batch
    offsets: Offsets
    tries: npt.NDArray[np.uint32] | None
    counted_first: bool = False  # this delivery is stored before it is sent: its rows are in `member.unsent`


@dataclass(slots=True, eq=False)
class Acknowledged:
    """The rows of one acknowledgement, so that it can be undone if the store fails."""

    member: Member
    sequence: int
    rows: list[tuple[Chosen, int]] = field(default_factory=list)  # with the log
    move: int = 0
    handed: list[tuple[Chosen, int]] = field(default_factory=list)  # rows that it says were handed on
    sending: list[Any] = field(default_factory=list)  # a list of `Sending`: rows that are sent when it is stored


class LogSubscription:
    """The state machine of one durable subscription, replay or catch-up; `LogSubscriptions` drives it."""

    def __init__(
        self,
        topic: Topic,
        name: str,
        where: str | None,
        reaches: dict[int, Reach],
        stop: dict[int, int] | None = None,
    ) -> None:
        self.topic = topic
        self.stop = stop  # log -> offset where a read ends; it has a reach for each of these logs
        self.name = name
        self.where = where
        self.stored = 0  # the store's number; 0: a replay
        self.resumed: PlainSubscription | None = None  # the plain subscription of a catch-up
        self.had_turn = False  # of a catch-up: it has read a piece, and the connection's others are next
        self.epoch = 0
        self.most = 0  # deliveries before a row goes to `dead`; 0: no limit
        self.dead = ""  # name of the dead-letter topic
        self.key = 0  # in the topic's index
        self.reaches = reaches
        self.members: dict[int, Member] = {}
        self.pending: deque[Portion] = deque()
        self.again = False  # some rows may have the owner `NOBODY`: they are read before new ones
        self.returns = 0  # how often rows became `NOBODY`'s: a re-read under way at the time may be out of order
        self.reading = False  # a read is under way
        self.failed = False  # the store failed for now: the next tick tries again
        self.doom: MilepostError | None = None  # the reason why it ends once all rows handed out are acknowledged
        self.broken: Any = None  # the error of a failed move, until all moves behind it have failed too
        self.uncounted = False  # rows were handed out or returned, and that is not stored yet
        self.spent: list[Portion] = []  # rows delivered too often, to be moved to the dead-letter topic
        self.dying = 0  # requests to make or change the dead-letter topic that are under way
        self.ended = False  # it is no longer served: nothing more of it is stored
        self.moves = 0  # cursor moves that were begun
        self.moving = 0  # those that are not finished
        self.settling = False  # a transaction's commit is moving the cursors: no other move may begin
        self.deferred: list[Callable[[list[Any]], None]] = []  # moves that wait for that commit
        self.parked: deque[Any] = deque()  # transactions whose commits wait until no move is under way
        self.yields = False  # the last move was a commit: deferred moves go first
        self.rows_out = 0
        self.held = 0  # bytes of `pending` and of a read under way, as `MemoryAccount` counts them
        self.payer: Connection | None = None  # the connection that `held` is charged to
        self.reserved = any(reach.handed_on(RESERVED) for reach in reaches.values())  # some rows are `RESERVED`
        self.reserved_until: float | None = None  # on the core's clock; None: the next tick sets it
        self._keys = 0
        self._owners: dict[int, Member] = {}  # publisher -> the member that holds its rows; only if `_shared`
        self._holding: dict[int, int] = {}  # publisher -> rows held
        self._moving: dict[int, Member] = {}  # publisher -> the member that takes over after its owner

    # Members

    def join(
        self, connection: Connection, number: int, instance: bytes, prefetch: int, sequence: int, *, hands: bool = False
    ) -> Member:
        """Attach a client. One that hands rows on (`hands`) takes over handed-on rows that no client holds."""
        self._keys += 1
        member = Member(self._keys, connection, number, instance, prefetch, sequence)
        self.members[member.key] = member
        if hands:
            self._adopt(member)
        self._regroup()
        return member

    def _adopt(self, member: Member) -> None:
        """Give a client the handed-on rows that no client holds; rows delivered `most` times are read again instead."""
        if any(reach.handed_on(WAITING) for reach in self.reaches.values()):
            self.put_back()
        for reach in self.reaches.values():
            for lot, places in reach.handed_on(NOBODY, RESERVED):
                dead = lot.tries[places] >= self.most if self.most and self.dead else np.zeros(len(places), np.bool_)
                lot.owners[places] = np.where(dead, NOBODY, member.key)
                self.again |= bool(dead.any())
                member.rows += int((~dead).sum())
        self.reserved = False

    def handed_on(self, member: Member) -> dict[int, list[int]]:
        """The offsets of rows that a client has handed on, by log."""
        found: dict[int, list[int]] = {}
        for log, reach in self.reaches.items():
            for lot, places in reach.handed_on(member.key):
                found.setdefault(log, []).extend(lot.offsets[places].tolist())
        return found

    def release(self) -> None:
        """Let any client have the rows that were reserved for one that has not reconnected."""
        self.reserved = False
        for reach in self.reaches.values():
            for chosen in reach.handed_on(RESERVED):
                self._return(chosen)
        self._regroup()

    def leave(self, member: Member, seen: dict[int, Offsets] | None = None) -> None:
        """Detach a client: the rows that it holds are redelivered.

        Each of them counts as delivered, except rows that were not sent yet. If the client says which rows (pairs, by
        log) its application has `seen`, only those count.
        """
        del self.members[member.key]
        for chosen in member.unsent:
            self._return(_of(member, chosen), counted=0)
        for log, pairs in (seen or {}).items():
            for chosen in self.reaches[log].ranges(pairs, member.key)[0] if log in self.reaches else ():
                self._return(chosen)
        for reach in self.reaches.values():
            for chosen in reach.held(member.key):
                self._return(chosen, counted=int(seen is None))
        self._regroup()

    def _return(self, chosen: Chosen, counted: int = 1) -> None:
        """Make rows `NOBODY`'s, and all waiting rows too: no row may overtake another of its publisher."""
        chosen.lot.owners[chosen.places] = NOBODY
        if counted:
            chosen.lot.tries[chosen.places] += counted
            chosen.lot.tried = True
        self.uncounted = bool(self.most)
        self.put_back()

    def put_back(self) -> None:
        """Drop the rows that wait to be handed out: they are read again, after the rows before them."""
        self.again = True
        self.returns += 1
        for portion in self.pending:
            if portion.chosen is not None:
                portion.chosen.lot.owners[portion.chosen.places[portion.given :]] = NOBODY
        self.pending.clear()

    def _regroup(self) -> None:
        """Rebuild the map from publishers to the members that hold their rows, if it is needed."""
        self._owners, self._holding, self._moving = {}, {}, {}
        if not self._shared:
            return
        owners = self.members | {RESERVED: ABSENT} if self.reserved else self.members
        for reach in self.reaches.values():
            for lot, places in reach.undone():
                for key, member in owners.items():
                    mine = places[lot.owners[places] == key]
                    if len(mine):
                        self._count(lot.publishers[mine], member)

    @property
    def _shared(self) -> bool:
        """Whether rows of a publisher may have to wait for another client's acknowledgements."""
        return len(self.members) > 1 or self.reserved

    def _count(self, publishers: npt.NDArray[np.uint32], member: Member) -> None:
        numbers, counts = np.unique(publishers, return_counts=True)
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            self._owners[number] = member
            self._holding[number] = self._holding.get(number, 0) + count

    def _uncount(self, publishers: npt.NDArray[np.uint32]) -> None:
        numbers, counts = np.unique(publishers, return_counts=True)
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            left = self._holding.get(number, 0) - count
            if left > 0:
                self._holding[number] = left
            else:
                self._holding.pop(number, None)
                self._owners.pop(number, None)

    # Reading

    @property
    def follows(self) -> bool:
        """Whether new rows are matched for it: it has a predicate and no `stop`."""
        return self.where is not None and self.stop is None

    @property
    def wants(self) -> bool:
        """Whether rows could be handed out now. Always true for a read, which is read ahead for."""
        return self.stop is not None or any(member.room for member in self.members.values())

    @property
    def idle(self) -> bool:
        """Whether new rows may be taken: no read is under way, and few enough rows wait.

        With several members, a full one holds up only the rows of its own publishers, up to `PENDING_BYTES`. For a read
        with a `stop`, up to `AHEAD_BYTES` are read before its client asks for them.
        """
        if self.reading or self.failed or self.doom is not None:
            return False
        if not self.pending:
            return True
        most = AHEAD_BYTES if self.stop is not None else PENDING_BYTES if self._shared else 0
        return self._pending_bytes < most

    @property
    def _pending_bytes(self) -> int:
        return sum(len(each.batch.data) for each in self.pending)

    def reach(self, log: int) -> Reach:
        """The reach of a log; a log that appears later is read from its beginning."""
        found = self.reaches.get(log)
        if found is None:
            found = self.reaches[log] = Reach(0)
        return found

    def returned(self, *, spent: bool = False) -> tuple[int, Chosen] | None:
        """A log, and rows of one lot that are to be read again; with `spent`, only rows delivered too often."""
        for log, reach in self.reaches.items():
            for lot, places in reach.held(NOBODY):
                found = places[lot.tries[places] >= self.most] if spent else places
                if len(found):
                    return log, Chosen(lot, found)
        return None

    @property
    def busy(self) -> bool:
        """Whether a write of it is under way or waiting."""
        return bool(self.moving or self.settling or self.parked or self.deferred or self.dying)

    def behind(self) -> int | None:
        """A log with unread rows that may be read now; None: there is none."""
        ends = self.topic.ends if self.stop is None else self.stop
        for log in ends:
            first = log
            for _ in ends:  # a log may wait for another that waits too, but never in a circle
                reach = self.reach(first)
                if reach.blocked is None or not self._waits(reach.blocked):
                    break
                first = reach.blocked[0]
            reach = self.reach(first)
            if reach.next < ends.get(first, 0) and not self.full(reach):
                reach.blocked = None
                return first  # otherwise this broker has not heard of those rows yet
        return None

    @property
    def coming(self) -> bool:
        """Whether unread rows exist that will be handed out soon.

        Rows to be read again count. New rows do not count with a predicate, as whether one matches is unknown and the
        search may take long, nor while reading waits for a full member.
        """
        held_up = self._shared and self._pending_bytes >= PENDING_BYTES
        if self.where is None and (self.reading or (self.behind() is not None and not held_up)):
            return True
        return self.returned() is not None

    def _waits(self, after: tuple[int, int]) -> bool:
        """Whether rows must wait for another log to reach an offset; a read waits at most for its own `stop` there."""
        log, offset = after
        if self.stop is not None:
            offset = min(offset, self.stop.get(log, 0))
        return bool(offset) and self.reach(log).next < offset

    @property
    def over(self) -> bool:
        """Whether a read is complete, or cannot go on, and all rows that were read are handed out."""
        if self.stop is None or self.pending or self.reading:
            return False
        return self.doom is not None or all(self.reaches[log].next >= end for log, end in self.stop.items())

    def full(self, reach: Reach) -> bool:
        """Whether too many rows (`LATE_ROWS`) are done above one that is not: no more are handed out then."""
        return bool(self.stored) and reach.done_early > LATE_ROWS

    def take(self, portion: Portion) -> bool:
        """Take new rows that were read; False when rows of another log must come first."""
        reach = self.reach(portion.log)
        if portion.after is not None and self._waits(portion.after):
            reach.blocked = portion.after
            return False
        reach.next = portion.next
        if portion.batch is None or not len(portion.offsets):
            return True
        if not self.stored:
            self.pending.append(portion)
            return True
        keep, tries = reach.fresh(portion.offsets)
        if keep is not None:
            if not len(keep):
                return True
            portion = cut(portion, keep)
        chosen = reach.add(portion.offsets, _publishers(portion.batch), tries)
        if self.again:
            chosen.lot.owners[chosen.places] = NOBODY  # other such rows come first: all are read again, in order
        else:
            self._offer(portion, chosen)
        return True

    def _offer(self, portion: Portion, chosen: Chosen) -> None:
        """Queue rows to be handed out; those delivered too often go to `spent`."""
        portion.chosen = chosen
        lot, places = chosen
        if self.most and self.dead and lot.tried and (spent := lot.tries[places] >= self.most).any():
            lot.owners[places[spent]] = DYING
            self.spent.append(cut(portion, np.flatnonzero(spent)))
            if spent.all():
                return
            portion, places = cut(portion, np.flatnonzero(~spent)), places[~spent]
        lot.owners[places] = WAITING
        self.pending.append(portion)

    def take_again(self, chosen: Chosen, found: list[Portion]) -> Offsets:
        """Queue rows that were read again; returns the offsets of those that are gone from the log."""
        lot, places = chosen
        places = places[lot.offsets[places] < found[-1].next]  # the read may have ended before the last of them
        # The lot may have changed during the read: keep only rows that are still `NOBODY`'s.
        places = places[(lot.owners[places] == NOBODY) & ~lot.done[places]]
        wanted = lot.offsets[places]
        here = [wanted[:0]]
        for part in found:
            if part.batch is None:
                continue
            rows = np.flatnonzero(np.isin(part.offsets, wanted))
            if not len(rows):
                continue
            part = cut(part, rows)
            here.append(part.offsets)
            self._offer(part, Chosen(lot, places[np.searchsorted(wanted, part.offsets)]))
        return np.setdiff1d(wanted, np.concatenate(here))

    # Handing out

    def hand_out(self) -> Iterator[Handed]:
        """The rows that members can be given now. The caller spends the credit of each item before the next one."""
        if self._shared:
            yield from self._hand_out_shared()
            return
        while self.pending and self.members:
            portion = self.pending[0]
            (member,) = self.members.values()
            start = portion.given
            # A plain subscription gets no more than its client's window, plus the frame that exceeds it.
            most = HAND_BYTES if self.resumed is None else min(HAND_BYTES, member.connection.window)
            rows = min(len(portion.offsets) - start, member.room, rows_of(portion.batch, most))
            rows = self._together(member, portion, slice(start, start + rows), rows)
            if not rows:
                return
            portion.given += rows
            if portion.given == len(portion.offsets):
                self.pending.popleft()
            yield self._give(member, portion, slice(start, start + rows))

    def _hand_out_shared(self) -> Iterator[Handed]:
        self._rebalance()
        waiting, self.pending = self.pending, deque()
        held: set[int] = set()  # publishers with rows that must wait: their later rows wait too
        while waiting:
            portion = waiting.popleft()
            rest = yield from self._share_out(cut(portion, np.arange(portion.given, len(portion.offsets))), held)
            if rest is not None:
                self.pending.append(rest)

    def _rebalance(self) -> None:
        """Let idle members take over publishers from members that have several."""
        coming = {member.key for member in self._moving.values()}
        idle = [
            member for member in self.members.values() if not member.rows and member.room and member.key not in coming
        ]
        if not idle:
            return
        owned: dict[int, list[int]] = {}
        for number, owner in self._owners.items():
            if number not in self._moving:
                owned.setdefault(owner.key, []).append(number)
        for member in idle:
            most = max(owned.values(), key=len, default=[])
            if len(most) < 2:
                return
            self._moving[most.pop()] = member

    def _share_out(self, portion: Portion, held: set[int]) -> Generator[Handed, None, Portion | None]:
        """Give each member its publishers' rows, as far as it has room; returns the rows that are left, if any."""
        assert portion.chosen is not None
        publishers = portion.chosen.lot.publishers[portion.chosen.places]
        numbers, inverse = np.unique(publishers, return_inverse=True)
        load = {member.key: member.rows for member in self.members.values() if member.room}
        targets = np.zeros(len(numbers), np.int64)
        counts = np.bincount(inverse, minlength=len(numbers))
        for place, number in enumerate(numbers.tolist()):
            if number in held:
                continue
            owner = self._owners.get(number)
            following = self._moving.get(number)
            if following is not None:
                if owner is not None:
                    continue  # rows that the owner holds come first
                owner = self._moving.pop(number)
            if owner is None and load:
                key = min(load, key=load.__getitem__)
                owner = self.members[key]
                load[key] += int(counts[place])
            targets[place] = owner.key if owner is not None else 0
        keys = targets[inverse]
        left = np.ones(len(keys), np.bool_)
        most = rows_of(portion.batch)
        for key in load:
            member = self.members[key]
            rows = np.flatnonzero(keys == key)
            while len(rows) and (room := min(member.room, most)):
                room = self._together(member, portion, rows[:room], min(room, len(rows)))
                if not room:
                    break
                some, rows = rows[:room], rows[room:]
                left[some] = False
                yield self._give(member, portion, some)
        rest = np.flatnonzero(left)
        if not len(rest):
            return None
        held.update(np.unique(publishers[rest]).tolist())
        return cut(portion, rest)

    def _together(self, member: Member, portion: Portion, rows: Any, count: int) -> int:
        """How many of these `count` rows may be given in one frame: the last delivery of a row is made alone."""
        if not self.most or not count or portion.chosen is None:
            return count
        lot, places = portion.chosen
        if self.most > 1 and not lot.tried:
            return count
        final = np.flatnonzero(lot.tries[places[rows]] >= self.most - 1)
        if not len(final):
            return count
        if final[0]:
            return int(final[0])
        return int(not member.rows or member.waited >= PATIENCE)

    def _give(self, member: Member, portion: Portion, rows: Any) -> Handed:
        offsets = portion.offsets[rows]
        count = len(offsets)
        if count == len(portion.offsets):
            batch = portion.batch
        elif isinstance(rows, slice):
            batch = portion.batch.slice(rows.start, rows.stop)
        else:
            batch = portion.batch.take(rows)
        tries, counted_first = None, False
        if portion.chosen is not None:
            lot, places = portion.chosen
            mine = places[rows]
            lot.owners[mine] = member.key
            if lot.handed is not None:
                lot.hand(mine, False)  # the client that handed it on can no longer acknowledge it
            if lot.tried and (counts := lot.tries[mine]).any():
                tries = counts
            member.rows += count
            member.waited = 0
            if self._shared:
                self._count(lot.publishers[mine], member)
            if self.most:
                member.alone = int(lot.tries[mine[0]]) >= self.most - 1
                # The first delivery of a row is stored after it is sent. Later ones are stored before: otherwise a
                # message that crashes broker and client at once would be redelivered for ever. Order is kept.
                doubtful = int(offsets[0]) < self.reaches[portion.log].doubtful
                counted_first = tries is not None or doubtful or bool(member.unsent)
                if counted_first:
                    member.unsent.append(Chosen(lot, mine))
                self.uncounted = True
        self.rows_out += count
        return Handed(member, portion.log, batch, offsets, tries, counted_first)

    def take_back(self, member: Member, chosen: Chosen) -> None:
        """Take back rows that were not sent because their delivery could not be stored: they are read again."""
        chosen = _of(member, chosen)
        member.rows -= len(chosen.places)
        if self._holding:
            self._uncount(chosen.lot.publishers[chosen.places])
        self._return(chosen, counted=0)

    # Acknowledging

    def choose(self, member: Member, ranges: dict[int, list[list[int]]], what: str) -> list[tuple[Chosen, int]]:
        """The rows that a client names in ranges.

        Raises `AckMismatch` if it does not hold all of them. The client forgets them, so those it holds come again.
        """
        found: list[tuple[Chosen, int]] = []
        wrong = ""
        for log, given in ranges.items():
            pairs = pairs_of(given, what)
            reach = self.reaches.get(log)
            mine, named = reach.ranges(pairs, member.key) if reach is not None else ([], -1)
            if sum(len(chosen.places) for chosen in mine) != named:
                wrong = wrong or f"{what} offsets {pairs[0, 0]} to {pairs[-1, 1]} of log {log}"
            found += [(chosen, log) for chosen in mine]
        if wrong:
            self.send_back(member, found)
            raise AckMismatch(
                f"{wrong}, and not all of them are in this client's hands: it was not given them, has acknowledged "
                "them, or was away and they went to another"
            )
        return found

    def acknowledge(self, taken: Acknowledged) -> None:
        """Mark rows as done, or as handed on."""
        for chosen, log in taken.rows:
            self.reaches[log].acknowledge(chosen, taken.move)
            taken.member.rows -= len(chosen.places)
            taken.member.waited = 0
            if self._holding:
                self._uncount(chosen.lot.publishers[chosen.places])
        for (lot, places), _ in taken.handed:
            lot.hand(places, True)

    def undo(self, taken: Acknowledged) -> None:
        """Undo `acknowledge`: it could not be stored. Rows whose publisher has moved to another member come again."""
        member = self.members.get(taken.member.key)
        for (lot, places), _ in taken.handed:
            lot.hand(places, False)
        for (lot, places), log in taken.rows:
            self.reaches[log].undo(Chosen(lot, places), taken.move)
            if member is None:
                self._return(Chosen(lot, places))
                continue
            member.rows += len(places)
            if self._shared:
                publishers = lot.publishers[places]
                others = [
                    number
                    for number in np.unique(publishers).tolist()
                    if self._owners.get(number, member) is not member
                ]
                elsewhere = np.isin(publishers, others)
                self._count(publishers[~elsewhere], member)
                if elsewhere.any():
                    self._return(Chosen(lot, places[elsewhere]))
                    member.rows -= int(elsewhere.sum())

    def send_back(self, member: Member, rows: list[tuple[Chosen, int]]) -> None:
        """Take rows back from a member: they are redelivered."""
        for chosen, _ in rows:
            self._return(chosen)
            member.rows -= len(chosen.places)
            member.waited = 0
            if self._holding:
                self._uncount(chosen.lot.publishers[chosen.places])

    def dead_letter(self, lot: Lot, places: npt.NDArray[np.intp], move: int) -> None:
        """Mark rows that no client holds as done: they are dead letters, or gone from the log."""
        lot.finish(places[~lot.done[places]], move)

    def spare(self, dead: list[Portion]) -> None:
        """Take back rows that the dead-letter topic could not take: they are read again, and tried again."""
        for portion in dead:
            assert portion.chosen is not None
            portion.chosen.lot.owners[portion.chosen.places] = NOBODY
        self.again = True
        self.returns += 1

    def cursors(self) -> dict[int, int]:
        """The cursor of each log."""
        return {log: reach.cursor() for log, reach in self.reaches.items()}


def _of(member: Member, chosen: Chosen) -> Chosen:
    """The rows that a member still holds and that are not done."""
    lot, places = chosen
    return Chosen(lot, places[(lot.owners[places] == member.key) & ~lot.done[places]])


def _publishers(batch: Batch) -> npt.NDArray[np.uint32]:
    """The publisher of each row."""
    if batch.ids is None:
        return np.zeros(len(batch), np.uint32)
    runs = batch.ids.runs
    if len(runs) == 1:
        return np.full(len(batch), runs[0].publisher, np.uint32)
    ends = np.array([run.end for run in runs])
    return np.repeat(np.array([run.publisher for run in runs], np.uint32), np.diff(ends, prepend=0))
