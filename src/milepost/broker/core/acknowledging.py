"""Acknowledgements of durable subscriptions: cursors that move, alone or with the commit of a transaction on queues.

A cursor says how far everything is consumed, and what is consumed behind it, so each move stores all that was
acknowledged before. Moves of a subscription are therefore stored in order, and when the store fails one, it fails those
behind it (see `effects.Store`). A commit can fail for other reasons too, and those behind it would go on. So while one
has the cursors, nothing else moves them: it waits until nothing is under way, and others wait until it is over.

Of a subscription that counts deliveries, a move also stores which rows are in the hands of clients. When rows are
handed out for the first time, a move follows at once, or when the one under way is over. Nobody waits for it. Rows that
came before, or may have, are sent when their move is stored.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from milepost import limits
from milepost.broker.core.connection import Connection
from milepost.broker.core.dealing import Dealing
from milepost.broker.core.effects import Deliver, Effect, Mend, Say, Store
from milepost.broker.core.member import NO_MEMBER, Member
from milepost.broker.core.ranges import require_apart
from milepost.broker.core.reach import Chosen
from milepost.broker.core.stream import Stream, Taken
from milepost.errors import (
    AckMismatch,
    InDoubt,
    LimitExceeded,
    MilepostError,
    NotExpectingAck,
    ServedElsewhere,
    UnknownSubscription,
)
from milepost.storage.operations import Cursor, Move, Part
from milepost.wire import Ack, Reply, Subscribe

if TYPE_CHECKING:
    from milepost.broker.core.streams import Streams


class Settling(NamedTuple):
    """An acknowledgement that is stored with a commit."""

    stream: Stream
    taken: Taken
    cursors: dict[int, Cursor]
    move: Move


class Sending(NamedTuple):
    """Rows that are sent once their delivery is counted; `member.unsent` has them."""

    member: Member
    deliver: Deliver
    size: int  # bytes of the frame
    rows: int


class Acknowledging:
    """See above."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    def _member(self, connection: Connection, request: Ack) -> tuple[Stream, Member, bool]:
        """Who acknowledges, and whether that is new; raises what is wrong as far as can be told without the rows."""
        found = (connection.members or {}).get(request.subscription)
        if found is None or isinstance(found, Subscribe):
            raise UnknownSubscription(f"this connection has no durable subscription {request.subscription}")
        stream, member = found
        if not stream.subscription:
            raise NotExpectingAck("a replay has nothing to acknowledge: its position is the application's to keep")
        named = (request.done, request.again, request.handed)
        count = sum(len(pairs) for ranges in named for pairs in ranges.values())
        limits.require("ACK_RANGES", count, "the ranges of one acknowledgement")
        if request.sequence <= member.sequence:
            return stream, member, False
        if stream.broken is not None:
            raise stream.broken
        if not count:
            raise NotExpectingAck("an acknowledgement names what it acknowledges; this one names nothing")
        if request.sequence >= 1 << 63:
            raise AckMismatch(f"the acknowledgements of a client are counted from 1 on; {request.sequence} is none")
        return stream, member, True

    def acknowledge(self, connection: Connection, request: Ack, *, waits: bool = True) -> list[Effect]:
        """Rows are done, or to come again, or were handed on."""
        stream, member, new = self._member(connection, request)
        if not new:
            return [Say(connection, Reply(request=request.request, value={"sequence": member.sequence}))]
        effects: list[Effect] = []
        if waits and self.blocked(stream):
            stream.deferred.append(partial(self._acknowledge_late, connection, request))
            return effects
        try:
            done, again, handed = _chosen(stream, member, request)
        except (AckMismatch, LimitExceeded) as error:
            effects += self._streams.keeper.failed(connection, request.request, error)
            self._streams.pump(stream, effects)
            return effects
        member.sequence = request.sequence
        taken = Taken(member, request.sequence, done, handed=handed)
        stream.send_back(member, again)
        self.move(stream, taken, effects, connection, request.request)
        self._streams.pump(stream, effects)
        return effects

    def _acknowledge_late(self, connection: Connection, request: Ack, effects: list[Effect]) -> None:
        if connection.open:
            try:
                effects += self.acknowledge(connection, request, waits=False)
            except MilepostError as error:
                effects += self._streams.keeper.failed(connection, request.request, error)

    # Moves

    def blocked(self, stream: Stream) -> bool:
        """Whether a commit has the cursors of a subscription, or is to have them next."""
        return stream.settling or bool(stream.parked)

    def move(
        self,
        stream: Stream,
        taken: Taken,
        effects: list[Effect],
        connection: Connection | None = None,
        request: int = 0,
        dead: tuple[Part, ...] = (),
        promised: bool = True,
    ) -> None:
        """Store how far a subscription is."""
        cursors = self._begin(stream, taken)
        move = Move(stream.subscription, stream.epoch, cursors, taken.member.instance, taken.sequence, dead, promised)
        effects.append(Store(move, partial(self._moved, stream, taken, cursors, connection, request), stream))

    def _begin(self, stream: Stream, taken: Taken) -> dict[int, Cursor]:
        stream.moves += 1
        stream.moving += 1
        stream.uncounted = False
        taken.move = stream.moves
        if taken.member.key:
            stream.acknowledge(taken)
        touched = {log for _, log in taken.rows}
        cursors = {}
        for log, reach in stream.reaches.items():
            cursor = reach.cursor()
            state = reach.state(cursor, counted=bool(stream.most))
            if log in touched or cursor != reach.stored or state != reach.given:
                cursors[log] = Cursor(cursor, state)
                reach.given = state
        return cursors

    def _moved(
        self,
        stream: Stream,
        taken: Taken,
        cursors: dict[int, Cursor],
        connection: Connection | None,
        request: int,
        outcome: Any,
    ) -> list[Effect]:
        streams = self._streams
        stream.moving -= 1
        effects: list[Effect] = []
        if isinstance(outcome, MilepostError):
            for reach in stream.reaches.values():
                reach.given = None
            self._unsent(stream, taken, effects)
        if isinstance(outcome, InDoubt) and not stream.ended:
            streams.abandon(stream, outcome, effects)
        elif isinstance(outcome, MilepostError) and stream.ended and connection is not None:
            effects += streams.keeper.failed(connection, request, outcome)
        if isinstance(outcome, MilepostError) and stream.ended:
            return effects if stream.moving else [*effects, Mend(stream)]
        if isinstance(outcome, MilepostError):
            if isinstance(outcome, ServedElsewhere | UnknownSubscription):
                streams.end(stream, outcome, effects)
            else:
                stream.broken = outcome
                stream.undo(taken)
                taken.member.sequence = min(taken.member.sequence, taken.sequence - 1)
            self._mend(stream, effects)
            if connection is not None:
                effects += streams.keeper.failed(connection, request, outcome)
            if stream.most:
                stream.uncounted = stream.failed = True  # it is counted again at the next tick
            streams.pump(stream, effects)
            self.release(stream, effects)
            return effects
        for log, cursor in cursors.items():
            reach = stream.reaches[log]
            reach.stored = cursor.offset
            reach.settle(taken.move)
        self._mend(stream, effects)  # one that was in doubt is told after those behind it, which have failed
        if taken.member is NO_MEMBER:
            streams.core.totals["rows_dead"] += sum(len(chosen.places) for chosen, _ in taken.rows)
        if connection is not None:
            effects += streams.keeper.replied(connection, request, {"sequence": taken.sequence})
        self._send(stream, taken, effects)
        streams.pump(stream, effects)
        streams.end_doomed(stream, effects)
        self.release(stream, effects)
        self.count(stream, effects)
        streams.let_go(stream, effects)
        return effects

    def _mend(self, stream: Stream, effects: list[Effect]) -> None:
        """Let the store take moves again, once all are told that were under way when one failed."""
        if not stream.moving and stream.broken is not None:
            stream.broken = None
            effects.append(Mend(stream))

    def save(self, stream: Stream, effects: list[Effect]) -> None:
        """Store the cursors, if the store's are behind: rows that do not match, or deliveries that came to nothing."""
        late = not self.blocked(stream) and any(
            (cursor := reach.cursor()) != reach.stored or reach.state(cursor, counted=bool(stream.most)) != reach.given
            for reach in stream.reaches.values()
        )
        if late:
            self.move(stream, Taken(NO_MEMBER, 0), effects)

    # Deliveries

    def count(self, stream: Stream, effects: list[Effect]) -> None:
        """Store which rows are in the hands of clients. What is under way goes first, and this is called again."""
        if stream.uncounted and not (stream.moving or stream.failed or self.blocked(stream) or stream.broken):
            self.move(stream, Taken(NO_MEMBER, 0), effects, promised=False)

    def count_first(self, stream: Stream, sending: list[Sending], effects: list[Effect]) -> None:
        """The same, before rows are sent."""
        if self.blocked(stream):
            stream.deferred.append(partial(self._count_now, stream, sending))
        else:
            self._count_now(stream, sending, effects)

    def _count_now(self, stream: Stream, sending: list[Sending], effects: list[Effect]) -> None:
        taken = Taken(NO_MEMBER, 0, sending=sending)
        if stream.ended:
            self._unsent(stream, taken, effects)
        else:
            self.move(stream, taken, effects)

    def _send(self, stream: Stream, taken: Taken, effects: list[Effect]) -> None:
        for sending in taken.sending:
            if sending.member.key in stream.members:
                sending.member.unsent.popleft()
                effects.append(sending.deliver)
            else:
                self._unspend(sending, effects)

    def _unsent(self, stream: Stream, taken: Taken, effects: list[Effect]) -> None:
        for sending in taken.sending:
            stream.failed = True  # until the next tick
            if sending.member.key in stream.members:
                stream.take_back(sending.member, sending.member.unsent.popleft())
            self._unspend(sending, effects)

    def _unspend(self, sending: Sending, effects: list[Effect]) -> None:
        """The frame is not written: something else may take its credit."""
        connection = sending.member.connection
        connection.unspend(sending.size, sending.rows)
        effects += self._streams.core.served(connection)

    # With a commit

    def settle(
        self, connection: Connection, acks: list[Ack], dealing: Dealing, effects: list[Effect]
    ) -> list[Settling] | None:
        """The moves that a commit is to carry; `settled` is told what came of it.

        None: something is under way that moves the same cursors, and the transaction goes on when that is done. Raises
        what is wrong, and nothing is acknowledged then: what was named comes again, as its client forgets it.
        """
        found = [(ack, *self._member(connection, ack)) for ack in acks]
        new = [(ack, stream, member) for ack, stream, member, is_new in found if is_new]
        if len({id(stream) for _, stream, _ in new}) < len(new):
            raise AckMismatch("a commit acknowledges rows of a subscription once: name all of them together")
        for _, stream, _ in new:
            if stream.moving or stream.settling:
                stream.parked.append(dealing)
                return None
        chosen: list[tuple[Stream, Taken]] = []
        try:
            for ack, stream, member in new:
                if ack.again or ack.handed:
                    raise AckMismatch("a commit acknowledges what is done; all else about rows is said alone")
                done, _, _ = _chosen(stream, member, ack)
                chosen.append((stream, Taken(member, ack.sequence, done)))
        except AckMismatch:
            for stream, taken in chosen:
                stream.send_back(taken.member, taken.rows)
            for _, stream, _ in new:
                self._streams.pump(stream, effects)
            raise
        settling: list[Settling] = []
        for stream, taken in chosen:
            taken.member.sequence = taken.sequence
            cursors = self._begin(stream, taken)
            stream.settling = True
            move = Move(stream.subscription, stream.epoch, cursors, taken.member.instance, taken.sequence)
            settling.append(Settling(stream, taken, cursors, move))
        return settling

    def settled(self, settling: list[Settling], error: MilepostError | None) -> list[Effect]:
        """A commit is done, or has failed."""
        effects: list[Effect] = []
        for stream, taken, cursors, _ in settling:
            stream.settling, stream.yields = False, True
            effects += self._moved(stream, taken, cursors, None, 0, error)
        return effects

    def release(self, stream: Stream, effects: list[Effect], *, ended: bool = False) -> None:
        """Let those go on who wait for the cursors of a subscription, if nobody has them; all, if it cannot go on.

        Commits and all others take turns, so that neither waits for ever.
        """
        while (stream.parked or stream.deferred) and (ended or not (stream.settling or stream.moving)):
            if stream.parked and not (stream.yields and stream.deferred):
                dealing = stream.parked.popleft()
                dealing.busy = False
                effects += self._streams.core.queues.advance(dealing)
            else:
                stream.yields = False
                deferred, stream.deferred = stream.deferred, []
                for go_on in deferred:
                    go_on(effects)


_Rows: TypeAlias = list[tuple[Chosen, int]]  # with their logs


def _chosen(stream: Stream, member: Member, request: Ack) -> tuple[_Rows, _Rows, _Rows]:
    """The rows that are done, to come again, and handed on; what was named goes back when something is wrong."""
    done: _Rows = []
    again: _Rows = []
    handed: _Rows = []
    try:
        require_apart(request.done, request.again, request.handed)
        done = stream.choose(member, request.done, "acknowledged were")
        again = stream.choose(member, request.again, "sent back were")
        handed = stream.choose(member, request.handed, "handed on were")
        if handed:
            count = sum(len(chosen.places) for chosen, _ in handed)
            before = sum(len(lot.handed_on()) for reach in stream.reaches.values() for lot in reach.lots)
            limits.require("HANDED_ROWS", before + count, "the rows that are handed on and not acknowledged")
        return done, again, handed
    except (AckMismatch, LimitExceeded):
        stream.send_back(member, done + again + handed)  # the client forgets what it named: that comes again
        raise
