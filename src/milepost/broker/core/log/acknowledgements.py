"""Acknowledgements of durable subscriptions: they move cursors, alone or with the commit of a queue transaction.

A stored cursor is the offset before which every row is consumed, plus the consumed rows above it. Each move therefore
includes all earlier acknowledgements, and the moves of a subscription are stored in order. When the store fails a move,
it fails the later ones too (see `effects.Write`). A commit can also fail for other reasons, after which later moves
would succeed. A commit therefore moves the cursors alone: it waits for moves under way, and later moves wait for it.

If a subscription counts deliveries, a move also stores which rows clients hold. The first delivery of a row is stored
by a move right after it, or after the move under way; the delivery does not wait for that move. Rows that were
delivered before, or may have been, are sent only after their move is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from milepost import limits
from milepost.broker.core.effects import Deliver, Effect, Mend, Write
from milepost.broker.core.log.member import NO_MEMBER, Member
from milepost.broker.core.log.ranges import require_apart
from milepost.broker.core.log.reach import Chosen
from milepost.broker.core.log.subscription import Acknowledged, LogSubscription
from milepost.broker.core.sessions.connection import Connection
from milepost.errors import (
    AckMismatch,
    InDoubt,
    LimitExceeded,
    MilepostError,
    NotExpectingAck,
    ServedElsewhere,
    UnknownSubscription,
)
from milepost.operations import Cursor, Move, Part
from milepost.wire import Ack, Subscribe

if TYPE_CHECKING:
    from milepost.broker.core.log.subscriptions import LogSubscriptions
    from milepost.broker.core.topics.topic import Topic
    from milepost.queues.open_transaction import OpenTransaction


class Settling(NamedTuple):
    """An acknowledgement that is stored with a queue transaction's commit."""

    subscription: LogSubscription
    taken: Acknowledged
    cursors: dict[int, Cursor]
    move: Move


class Sending(NamedTuple):
    """Rows that are sent once their delivery is stored; `member.unsent` holds them until then."""

    member: Member
    deliver: Deliver
    size: int  # bytes of the frame
    rows: int


class Acknowledgements:
    """Handles ACK requests and stores the cursors of durable subscriptions."""

    def __init__(self, subscriptions: LogSubscriptions) -> None:
        self._subscriptions = subscriptions
        self._core = subscriptions.core

    def _member(self, connection: Connection, request: Ack) -> tuple[LogSubscription, Member, bool]:
        """The member that acknowledges, and whether the ACK is new. Raises errors that show without looking at rows."""
        found = (connection.members or {}).get(request.subscription)
        if found is None or isinstance(found, Subscribe):
            raise UnknownSubscription(f"this connection has no durable subscription {request.subscription}")
        subscription, member = found
        if not subscription.stored:
            raise NotExpectingAck("a replay has nothing to acknowledge: its position is the application's to keep")
        named = (request.done, request.again, request.handed)
        count = sum(len(pairs) for ranges in named for pairs in ranges.values())
        limits.require("ACK_RANGES", count, "the ranges of one acknowledgement")
        if request.sequence <= member.sequence:
            return subscription, member, False
        if subscription.broken is not None:
            raise subscription.broken
        if not count:
            raise NotExpectingAck("an acknowledgement names what it acknowledges; this one names nothing")
        if request.sequence >= 1 << 63:
            raise AckMismatch(f"the acknowledgements of a client are counted from 1 on; {request.sequence} is none")
        return subscription, member, True

    def acknowledge(self, connection: Connection, request: Ack, *, waits: bool = True) -> list[Effect]:
        """Handle an ACK: rows are done, are to be redelivered, or were handed on."""
        subscription, member, new = self._member(connection, request)
        if not new:
            return self._core.reply(connection, request.request, {"sequence": member.sequence})
        effects: list[Effect] = []
        if waits and self.blocked(subscription):
            subscription.deferred.append(partial(self._acknowledge_late, connection, request))
            return effects
        try:
            done, again, handed = _chosen(subscription, member, request)
        except (AckMismatch, LimitExceeded) as error:
            effects += self._core.reply(connection, request.request, error)
            self._subscriptions.pump(subscription, effects)
            return effects
        member.sequence = request.sequence
        taken = Acknowledged(member, request.sequence, done, handed=handed)
        subscription.send_back(member, again)
        self.move(subscription, taken, effects, connection, request.request)
        self._subscriptions.pump(subscription, effects)
        return effects

    def _acknowledge_late(self, connection: Connection, request: Ack, effects: list[Effect]) -> None:
        if connection.open:
            try:
                effects += self.acknowledge(connection, request, waits=False)
            except MilepostError as error:
                effects += self._core.reply(connection, request.request, error)

    # Moves

    def blocked(self, subscription: LogSubscription) -> bool:
        """Whether a commit is moving the cursors of a subscription, or waits to."""
        return subscription.settling or bool(subscription.parked)

    def when_free(
        self, subscription: LogSubscription, move: Callable[[list[Effect]], None], effects: list[Effect]
    ) -> None:
        """Make a move now, or when no commit is moving the cursors any more."""
        if self.blocked(subscription):
            subscription.deferred.append(move)
        else:
            move(effects)

    def move(
        self,
        subscription: LogSubscription,
        taken: Acknowledged,
        effects: list[Effect],
        connection: Connection | None = None,
        request: int = 0,
        dead: tuple[Part, ...] = (),
        promised: bool = True,
    ) -> None:
        """Store the cursors of a subscription."""
        cursors = self._begin(subscription, taken)
        move = Move(
            subscription.stored, subscription.epoch, cursors, taken.member.instance, taken.sequence, dead, promised
        )
        effects.append(
            Write(move, partial(self._moved, subscription, taken, cursors, connection, request), subscription)
        )

    def _begin(self, subscription: LogSubscription, taken: Acknowledged) -> dict[int, Cursor]:
        subscription.moves += 1
        subscription.moving += 1
        subscription.uncounted = False
        taken.move = subscription.moves
        if taken.member.key:
            subscription.acknowledge(taken)
        touched = {log for _, log in taken.rows}
        cursors = {}
        for log, reach in subscription.reaches.items():
            cursor = reach.cursor()
            state = reach.state(cursor, counted=bool(subscription.most))
            if log in touched or cursor != reach.stored or state != reach.given:
                cursors[log] = Cursor(cursor, state)
                reach.given = state
        return cursors

    def _moved(
        self,
        subscription: LogSubscription,
        taken: Acknowledged,
        cursors: dict[int, Cursor],
        connection: Connection | None,
        request: int,
        outcome: Any,
    ) -> list[Effect]:
        subscriptions = self._subscriptions
        subscription.moving -= 1
        effects: list[Effect] = []
        if isinstance(outcome, MilepostError):
            for reach in subscription.reaches.values():
                reach.given = None
            self._unsent(subscription, taken, effects)
        if isinstance(outcome, InDoubt) and not subscription.ended:
            subscriptions.abandon(subscription, outcome, effects)
        elif isinstance(outcome, MilepostError) and subscription.ended and connection is not None:
            effects += self._core.reply(connection, request, outcome)
        if isinstance(outcome, MilepostError) and subscription.ended:
            return effects if subscription.moving else [*effects, Mend(subscription)]
        if isinstance(outcome, MilepostError):
            if isinstance(outcome, ServedElsewhere | UnknownSubscription):
                subscriptions.end(subscription, outcome, effects)
            else:
                subscription.broken = outcome
                subscription.undo(taken)
                taken.member.sequence = min(taken.member.sequence, taken.sequence - 1)
            self._mend(subscription, effects)
            if connection is not None:
                effects += self._core.reply(connection, request, outcome)
            if subscription.most:
                subscription.uncounted = subscription.failed = True  # the next tick stores the count again
            subscriptions.pump(subscription, effects)
            self.release(subscription, effects)
            return effects
        for log, cursor in cursors.items():
            reach = subscription.reaches[log]
            reach.stored = cursor.offset
            reach.settle(taken.move)
        self._mend(subscription, effects)  # the outcome of a move in doubt comes after the failed ones behind it
        if taken.member is NO_MEMBER:
            self._core.totals["rows_dead"] += sum(len(chosen.places) for chosen, _ in taken.rows)
        if connection is not None:
            effects += self._core.reply(connection, request, {"sequence": taken.sequence})
        self._send(subscription, taken, effects)
        subscriptions.pump(subscription, effects)
        subscriptions.end_doomed(subscription, effects)
        self.release(subscription, effects)
        self.count(subscription, effects)
        subscriptions.let_go(subscription, effects)
        return effects

    def _mend(self, subscription: LogSubscription, effects: list[Effect]) -> None:
        """Let the store take moves again, once every move that was under way at the failure has its outcome."""
        if not subscription.moving and subscription.broken is not None:
            subscription.broken = None
            effects.append(Mend(subscription))

    def save(self, subscription: LogSubscription, effects: list[Effect]) -> None:
        """Store the cursors if the stored ones are behind, e.g. after rows that do not match or failed deliveries."""
        late = not self.blocked(subscription) and any(
            (cursor := reach.cursor()) != reach.stored
            or reach.state(cursor, counted=bool(subscription.most)) != reach.given
            for reach in subscription.reaches.values()
        )
        if late:
            self.move(subscription, Acknowledged(NO_MEMBER, 0), effects)

    # Deliveries

    def count(self, subscription: LogSubscription, effects: list[Effect]) -> None:
        """Store which rows clients hold. Does nothing while a move is under way: its end calls this again."""
        if subscription.uncounted and not (
            subscription.moving or subscription.failed or self.blocked(subscription) or subscription.broken
        ):
            self.move(subscription, Acknowledged(NO_MEMBER, 0), effects, promised=False)

    def count_first(self, subscription: LogSubscription, sending: list[Sending], effects: list[Effect]) -> None:
        """Store which rows clients hold, and send the rows after that; no commit may be moving the cursors."""
        taken = Acknowledged(NO_MEMBER, 0, sending=sending)
        if subscription.ended:
            self._unsent(subscription, taken, effects)
        else:
            self.move(subscription, taken, effects)

    def _send(self, subscription: LogSubscription, taken: Acknowledged, effects: list[Effect]) -> None:
        for sending in taken.sending:
            if sending.member.key in subscription.members:
                sending.member.unsent.popleft()
                effects.append(sending.deliver)
            else:
                self._unspend(subscription.topic, sending, effects)

    def _unsent(self, subscription: LogSubscription, taken: Acknowledged, effects: list[Effect]) -> None:
        for sending in taken.sending:
            subscription.failed = True  # until the next tick
            if sending.member.key in subscription.members:
                subscription.take_back(sending.member, sending.member.unsent.popleft())
            self._unspend(subscription.topic, sending, effects)

    def _unspend(self, topic: Topic, sending: Sending, effects: list[Effect]) -> None:
        """The frame is not written: something else may take its credit."""
        connection, delivery = sending.member.connection, self._core.delivery
        delivery.take_back(connection, sending.size, sending.rows, topic)
        effects += delivery.served(connection)

    # With a commit

    def settle(
        self, connection: Connection, acks: list[Ack], transaction: OpenTransaction, effects: list[Effect]
    ) -> list[Settling] | None:
        """The moves that a commit stores; `settled` is called with its outcome.

        Returns None while another move of the same cursors is under way; the transaction goes on after that move.
        Raises for a wrong ACK, and acknowledges nothing: the client forgets the rows, so they are redelivered.
        """
        found = [(ack, *self._member(connection, ack)) for ack in acks]
        new = [(ack, subscription, member) for ack, subscription, member, is_new in found if is_new]
        if len({id(subscription) for _, subscription, _ in new}) < len(new):
            raise AckMismatch("a commit acknowledges rows of a subscription once: name all of them together")
        for _, subscription, _ in new:
            if subscription.moving or subscription.settling:
                subscription.parked.append(transaction)
                return None
        chosen: list[tuple[LogSubscription, Acknowledged]] = []
        try:
            for ack, subscription, member in new:
                if ack.again or ack.handed:
                    raise AckMismatch("a commit acknowledges what is done; all else about rows is said alone")
                done, _, _ = _chosen(subscription, member, ack)
                chosen.append((subscription, Acknowledged(member, ack.sequence, done)))
        except AckMismatch:
            for subscription, taken in chosen:
                subscription.send_back(taken.member, taken.rows)
            for _, subscription, _ in new:
                self._subscriptions.pump(subscription, effects)
            raise
        settling: list[Settling] = []
        for subscription, taken in chosen:
            taken.member.sequence = taken.sequence
            cursors = self._begin(subscription, taken)
            subscription.settling = True
            move = Move(subscription.stored, subscription.epoch, cursors, taken.member.instance, taken.sequence)
            settling.append(Settling(subscription, taken, cursors, move))
        return settling

    def settled(self, settling: Sequence[Settling], error: MilepostError | None) -> list[Effect]:
        """Called when a commit is stored or has failed."""
        effects: list[Effect] = []
        for subscription, taken, cursors, _ in settling:
            subscription.settling, subscription.yields = False, True
            effects += self._moved(subscription, taken, cursors, None, 0, error)
        return effects

    def release(self, subscription: LogSubscription, effects: list[Effect], *, ended: bool = False) -> None:
        """Run the commits and moves that wait for the cursors, once they are free; all of them if it has `ended`.

        Commits and other moves alternate, so that neither waits for ever.
        """
        while (subscription.parked or subscription.deferred) and (
            ended or not (subscription.settling or subscription.moving)
        ):
            if subscription.parked and not (subscription.yields and subscription.deferred):
                transaction = subscription.parked.popleft()
                transaction.busy = False
                effects += self._core.queues.advance(transaction)
            else:
                subscription.yields = False
                deferred, subscription.deferred = subscription.deferred, []
                for go_on in deferred:
                    go_on(effects)


_Rows: TypeAlias = list[tuple[Chosen, int]]  # with their logs


def _chosen(subscription: LogSubscription, member: Member, request: Ack) -> tuple[_Rows, _Rows, _Rows]:
    """The rows that are done, to be redelivered, and handed on; on an error, all named rows are redelivered."""
    done: _Rows = []
    again: _Rows = []
    handed: _Rows = []
    try:
        require_apart(request.done, request.again, request.handed)
        done = subscription.choose(member, request.done, "acknowledged were")
        again = subscription.choose(member, request.again, "sent back were")
        handed = subscription.choose(member, request.handed, "handed on were")
        if handed:
            count = sum(len(chosen.places) for chosen, _ in handed)
            before = sum(len(lot.handed_on()) for reach in subscription.reaches.values() for lot in reach.lots)
            limits.require("HANDED_ROWS", before + count, "the rows that are handed on and not acknowledged")
        return done, again, handed
    except (AckMismatch, LimitExceeded):
        subscription.send_back(member, done + again + handed)  # the client forgets the rows it named: redeliver them
        raise
