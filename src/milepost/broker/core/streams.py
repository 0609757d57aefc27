"""The durable subscriptions that clients are attached to: who is, what is read for them, what they acknowledge."""

from __future__ import annotations

import logging
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from milepost import limits
from milepost.broker.core.acknowledging import Acknowledging, Sending
from milepost.broker.core.bounds import begin_of, gone, stop_of
from milepost.broker.core.burial import Burial
from milepost.broker.core.connection import Connection
from milepost.broker.core.effects import Ask, Deliver, Effect, Read, Say, Store
from milepost.broker.core.entries import Entries
from milepost.broker.core.ranges import Seen, seen_of
from milepost.broker.core.reach import Chosen, Reach
from milepost.broker.core.releases import Releases
from milepost.broker.core.start import require_there, start_of
from milepost.broker.core.stream import Stream
from milepost.broker.core.terms import require_terms, require_token
from milepost.broker.core.topic import Topic
from milepost.errors import (
    BrokerError,
    MilepostError,
    ServedElsewhere,
    SubscriptionExists,
    UnknownSubscription,
    UnknownTopic,
)
from milepost.storage.operations import (
    Attach,
    Position,
    Remove,
    Start,
)
from milepost.wire import Ack, Dropped, Ended, Reply, Subscribe, Unsubscribe, hand_parts
from milepost.wire.control import failure

if TYPE_CHECKING:
    from milepost.broker.core.core import Core
    from milepost.broker.core.keeper import Keeper

# That rows which were handed on before a restart wait for a client that hands on, before others get them.
RESERVED_S: Final = 300.0

log = logging.getLogger("milepost.broker")

FED: Final = 4  # streams that are read for when one has been


class Streams:
    """Requests about durable subscriptions, and the rows that go to them."""

    def __init__(self, core: Core, keeper: Keeper) -> None:
        self.core = core
        self.keeper = keeper
        self.named: dict[str, Stream] = {}
        self.acks = Acknowledging(self)
        self._burial = Burial(core, self)
        self.entries = Entries(core, self)
        self._serving: dict[int, Stream] = {}  # replays too, by their identity
        self._starved: dict[int, Stream] = {}  # those of them for which nothing is read, for want of memory
        self._attaching: Counter[str] = Counter()  # by name: requests that the store has not answered
        self.releases = Releases()

    # Attaching and leaving

    def subscribe(self, connection: Connection, request: Subscribe) -> list[Effect]:
        """Attach a client to a durable subscription, which is made if it is not there; or begin a replay."""
        require_terms(request)
        topic = self._topic(request)
        mine = connection.members or {}
        if request.subscription in mine or request.subscription in (connection.subscriptions or {}):
            raise BrokerError(f"subscription {request.subscription} is there already; unsubscribe first")
        limits.require("SUBSCRIPTIONS_PER_CONNECTION", connection.keys + 1, "the subscriptions of one connection")
        if request.where is not None and topic is not None:
            topic.require(request.where)
        start = start_of(request.start)
        stop = stop_of(request, start)
        # Of what others wrote, this broker may not know the end yet; of a read's range, the store is asked.
        if topic is not None and request.create and stop is None and not self.keeper.shared:
            require_there(topic, start)
        if request.name and self._has(connection, request.name):
            raise SubscriptionExists(f"this client is attached to {request.name!r} already: once is enough")
        if request.dead_letter and topic is not None:
            self._burial.require(request.dead_letter, topic)
        if connection.members is None:
            connection.members = {}
        connection.members[request.subscription] = request
        connection.keys += 1
        if not request.name:
            assert topic is not None
            return [Ask(topic, start, partial(self._replaying, connection, request, topic, stop))]
        self._attaching[request.name] += 1
        attach = self._attach(connection, request, topic, start)
        if request.dead_letter and topic is not None and request.dead_letter not in self.core.topics:
            # The topic for dead rows is there before the subscription is.
            return [self._burial.make(request.dead_letter, topic), attach]
        return [attach]

    def _topic(self, request: Subscribe) -> Topic | None:
        """The topic of a request; None when it is for the subscription of a name, whatever its topic."""
        if request.pattern or not request.name or request.create:
            return self.keeper.durable(request.pattern)
        if not self.keeper.on:
            raise UnknownSubscription(f"no durable subscription is called {request.name!r}: this broker keeps nothing")
        return None

    def _has(self, connection: Connection, name: str) -> bool:
        """Whether a client is attached to a name, or about to be: its acknowledgements are counted once for each."""
        for found in (connection.members or {}).values():
            if (found.name if isinstance(found, Subscribe) else found[0].name) == name:
                return True
        return False

    def _attach(self, connection: Connection, request: Subscribe, topic: Topic | None, start: Start) -> Store:
        options = {"most": request.max_deliveries, "dead": request.dead_letter}
        attach = Attach(
            request.name,
            topic.stored if topic is not None else 0,
            request.where,
            start,
            request.create,
            request.token,
            options,
            connection.instance,
            self.releases.pending.get(request.name),
        )
        return Store(attach, partial(self._attached, connection, request, topic))

    def _attached(self, connection: Connection, request: Subscribe, topic: Topic | None, outcome: Any) -> list[Effect]:
        name = request.name
        if self.named.get(name) is None and not isinstance(outcome, MilepostError) and outcome.where is not None:
            served = topic or self.core.catalogue.stored.get(outcome.topic)
            if served is not None:
                served.require_compiled([outcome.where])  # which may be another than that of the request
        self._attaching[name] -= 1
        if not self._attaching[name]:
            del self._attaching[name]
        effects: list[Effect] = []
        waits = connection.open and (connection.members or {}).get(request.subscription) is request
        stream = self.named.get(name)
        if not isinstance(outcome, MilepostError):
            epoch = outcome.subscription, outcome.epoch
            if stream is not None and (stream.subscription, stream.epoch) != epoch:
                # Another broker has served it meanwhile, and what is known of it here is old.
                self.end(stream, ServedElsewhere(f"{name!r} was served elsewhere meanwhile; subscribe again"), effects)
                stream = None
            if stream is None and self.releases.pending.get(name) == epoch and waits:
                # It was given up since, and what the store told may be old: it is served under another epoch.
                self._attaching[name] += 1
                return [*effects, self._attach(connection, request, topic, start_of(request.start))]
            if stream is None:
                # Also when its client is gone: another one may be on the way, and is served under the same epoch.
                try:
                    if topic is None:
                        effects += self.keeper.restore([outcome.record])  # perhaps another broker made it just now
                        topic = self.core.catalogue.stored.get(outcome.topic)
                    if topic is None:
                        raise UnknownTopic(f"the topic of {name!r} cannot be served here: a live one has its name")
                    stream = self._begin(topic, name, outcome)
                except MilepostError as error:
                    effects.append(self.releases.give(name, epoch))
                    outcome = error
        if isinstance(outcome, MilepostError) or not waits:
            if stream is not None:
                self.let_go(stream, effects)
            if isinstance(outcome, MilepostError):
                effects += self._unattached(connection, request, outcome)
            return effects
        assert stream is not None
        cursors = {log: cursor.offset for log, cursor in outcome.cursors.items()} | stream.cursors()
        value = {
            "created": outcome.created,
            "position": cursors,
            "sequence": outcome.sequence,
            "where": stream.where,
        }
        if not stream.members and stream.broken is None:
            stream.again = True  # it was kept for this one, and may have rows of whoever left
        return [*effects, *self._join(connection, request, stream, outcome.sequence, value)]

    def _begin(self, topic: Topic, name: str, outcome: Any) -> Stream:
        reaches = {log: Reach(cursor.offset, cursor.state) for log, cursor in outcome.cursors.items()}
        stream = Stream(topic, name, outcome.where, reaches)
        stream.subscription, stream.epoch = outcome.subscription, outcome.epoch
        stream.most = int(outcome.options.get("most", 0))
        stream.dead = str(outcome.options.get("dead", ""))
        for log, end in topic.ends.items() if stream.most and outcome.unreleased else ():
            stream.reach(log).doubtful = end
        topic.serve(stream)
        self.named[name] = stream
        self._serving[id(stream)] = stream
        return stream

    def _replaying(
        self, connection: Connection, request: Subscribe, topic: Topic, stop: Position | None, outcome: Any
    ) -> list[Effect]:
        if isinstance(outcome, MilepostError):
            return self._unattached(connection, request, outcome)
        if not connection.open or (connection.members or {}).get(request.subscription) is not request:
            return []
        position = outcome["position"]
        if request.where is not None:
            topic.require_compiled([request.where])  # another version may have come since
        try:
            if stop is not None:
                position = begin_of(topic, position, stop, outcome["logs"])
            stream = Stream(topic, "", request.where, {log: Reach(offset) for log, offset in position.items()}, stop)
            topic.serve(stream)
        except MilepostError as error:
            return self._unattached(connection, request, error)
        self._serving[id(stream)] = stream
        value = {"created": True, "position": position, "sequence": 0, "where": request.where}
        return self._join(connection, request, stream, 0, value)

    def _join(
        self, connection: Connection, request: Subscribe, stream: Stream, sequence: int, value: dict[str, Any]
    ) -> list[Effect]:
        prefetch = request.prefetch if stream.subscription else limits.BATCH_ROWS
        hands = request.hands and bool(stream.subscription)
        member = stream.join(connection, request.subscription, connection.instance, prefetch, sequence, hands=hands)
        if hands:
            last = {log: reach.acknowledged for log, reach in stream.reaches.items() if reach.acknowledged is not None}
            value |= {"handed": stream.handed_on(member), "acknowledged": last}
        assert connection.members is not None
        connection.members[request.subscription] = (stream, member)
        effects: list[Effect] = []
        self.core.catalogue.announce(connection, stream.topic, effects)
        value |= {"topics": [stream.topic.name], "skipped": {}}
        effects.append(Say(connection, Reply(request=request.request, value=value)))
        self.pump(stream, effects)
        return effects

    def _unattached(self, connection: Connection, request: Subscribe, error: MilepostError) -> list[Effect]:
        if connection.members is not None and connection.members.get(request.subscription) is request:
            del connection.members[request.subscription]
            connection.keys -= 1
        return self.keeper.failed(connection, request.request, error)

    def unsubscribe(self, connection: Connection, request: Unsubscribe) -> list[Effect]:
        """Detach a client; or remove a durable subscription for good."""
        if not request.name:
            effects: list[Effect] = []
            self._leave(connection, request.subscription, effects, seen_of(request))
            return [*effects, Say(connection, Reply(request=request.request, value={}))]
        if not self.keeper.on:
            raise UnknownSubscription(
                f"there is no durable subscription {request.name[:80]!r}: this broker keeps nothing"
            )
        limits.require("NAME_CHARS", len(request.name), "the characters of a subscription's name")
        require_token(request.token)
        return [Store(Remove(request.name, request.token), partial(self._removed, connection, request))]

    def _removed(self, connection: Connection, request: Unsubscribe, outcome: Any) -> list[Effect]:
        if isinstance(outcome, MilepostError):
            return self.keeper.failed(connection, request.request, outcome)
        effects: list[Effect] = []
        stream = self.named.get(request.name)
        if stream is not None:
            gone = UnknownSubscription(f"the durable subscription {request.name!r} was removed")
            self.end(stream, gone, effects, but=connection)
        return [*effects, *self.keeper.replied(connection, request.request, {})]

    def left(self, connection: Connection) -> list[Effect]:
        """A client is gone: what it had goes to the others, or waits for it."""
        effects: list[Effect] = []
        for number in list(connection.members or {}):
            self._leave(connection, number, effects)
        connection.members = None
        connection.linked = None
        return effects

    def _leave(self, connection: Connection, number: int, effects: list[Effect], seen: Seen | None = None) -> None:
        if connection.members is None or number not in connection.members:
            return
        found = connection.members.pop(number)
        connection.keys -= 1
        if isinstance(found, Subscribe):
            return  # the store has not answered yet, and will find that nobody waits
        stream, member = found
        if member.key in stream.members:
            stream.leave(member, seen)
        if stream.members:
            self.pump(stream, effects)
            return
        self.core.memory.ended(stream)
        stream.release()
        stream.put_back()
        self.let_go(stream, effects)

    def let_go(self, stream: Stream, effects: list[Effect]) -> None:
        """Serve a subscription no longer, if nobody is attached and nothing of it is under way.

        Otherwise it is tried again when that is over. Else a client on the way, or the next, would have old cursors.
        """
        if stream.members or stream.ended or (stream.subscription and not self._stored(stream, effects)):
            return
        stream.ended = True
        stream.topic.leave(stream)
        self._serving.pop(id(stream), None)
        if self.named.get(stream.name) is stream:
            del self.named[stream.name]
        if stream.subscription:
            effects.append(self.releases.give(stream.name, (stream.subscription, stream.epoch)))

    def _stored(self, stream: Stream, effects: list[Effect]) -> bool:
        """Whether the store has everything of a subscription that nobody is attached to; what it lacks is begun."""
        if self._attaching[stream.name] or stream.reading or stream.busy or stream.failed or stream.broken is not None:
            return False
        if self._read_spent(stream, effects):
            return False
        self.acks.save(stream, effects)
        return not stream.moving

    def abandon(self, stream: Stream, error: MilepostError, effects: list[Effect]) -> None:
        """Nobody knows what the store has of a subscription: its clients come again, and it is read anew."""
        connections = {member.connection: None for member in stream.members.values()}
        self.end(stream, error, effects, told=False)
        for connection in connections:
            effects += self.core.refused(connection, error)

    def end(
        self,
        stream: Stream,
        error: MilepostError | None,
        effects: list[Effect],
        but: Connection | None = None,
        *,
        told: bool = True,
    ) -> None:
        """A subscription cannot go on: its clients are told why; or that a read has had everything (None)."""
        if stream.resumed is not None:
            self.core.catchups.ended(stream, error, effects)
            return
        stream.ended = True
        stream.topic.leave(stream)
        self._serving.pop(id(stream), None)
        if self.named.get(stream.name) is stream:
            del self.named[stream.name]
        self.core.memory.ended(stream)
        members, stream.members = stream.members, {}
        stream.pending.clear()
        if stream.subscription and not isinstance(error, ServedElsewhere):
            effects.append(self.releases.give(stream.name, (stream.subscription, stream.epoch)))
        for member in members.values():
            connection = member.connection
            if connection.members is not None and connection.members.pop(member.number, None) is not None:
                connection.keys -= 1
            if told and connection.open and connection is not but:
                number = member.number
                over = Ended(number) if error is None else failure(error, subscription=number)
                effects.append(Say(connection, over))
        self.acks.release(stream, effects, ended=True)

    # Rows

    def pump(self, stream: Stream, effects: list[Effect]) -> None:
        """Hand out what is here, as far as members have room, and see to it that more is read."""
        if stream.spent and not stream.ended:
            spent, stream.spent = stream.spent, []
            self._burial.bury(stream, spent, effects)
        if not stream.members:
            return
        self._hand_out(stream, effects)
        if stream.members and (stream.pending or stream.reading or stream.held):
            self.core.memory.pending(stream)

    def _hand_out(self, stream: Stream, effects: list[Effect]) -> None:
        topic = stream.topic
        sending: list[Sending] = []
        for member, log, batch, offsets, tries, counted_first in stream.hand_out():
            parts = hand_parts(topic.number, member.number, log, offsets, tries, batch.data)
            size = len(parts[0]) + len(parts[1])
            member.connection.spend(size, len(batch))
            topic.rows_out += len(batch)
            topic.bytes_out += size
            deliver = Deliver(parts, [member.connection])
            if counted_first:
                sending.append(Sending(member, deliver, size, len(batch)))
            else:
                effects.append(deliver)
        if sending:
            self.acks.count_first(stream, sending, effects)
        if stream.uncounted:
            self.acks.count(stream, effects)
        if stream.over:
            self.end(stream, stream.doom, effects)
            return
        if not stream.idle:
            return
        if not stream.wants:
            self._read_spent(stream, effects)
            return
        if not self.core.memory.may_read(stream):
            self._starved[id(stream)] = stream
            return
        if stream.resumed is not None and not self.core.catchups.may_read(stream, effects):
            return
        if stream.again:
            found = stream.returned()
            if found is not None:
                self._read_returned(stream, *found, effects)
                return
            stream.again = False
        behind = stream.behind()
        if behind is not None:
            stream.reading = True
            self.core.memory.reads += 1
            offset = stream.reach(behind).next
            then = partial(self._read, stream, behind)
            stop = None if stream.stop is None else stream.stop[behind]
            effects.append(Read(topic, stream.where, behind, offset, None, then, stop))
        elif stream.resumed is not None:
            self.core.catchups.reached(stream, effects)

    def _read_spent(self, stream: Stream, effects: list[Effect]) -> bool:
        """Read rows that were delivered too often, if there are any: nobody need have room for them."""
        wanted = stream.most and stream.again and stream.doom is None
        spent = stream.returned(spent=True) if wanted else None
        if spent is not None:
            self._read_returned(stream, *spent, effects)
        return spent is not None

    def _read_returned(self, stream: Stream, log: int, chosen: Chosen, effects: list[Effect]) -> None:
        only = chosen.lot.offsets[chosen.places]
        stream.reading = True
        self.core.memory.reads += 1
        then = partial(self._read_again, stream, log, chosen, stream.returns)
        effects.append(Read(stream.topic, stream.where, log, int(only[0]), only, then))

    def _read(self, stream: Stream, log: int, outcome: Any) -> list[Effect]:
        effects: list[Effect] = []
        stream.reading = False
        self.core.memory.reads -= 1
        if not stream.members:
            self.let_go(stream, effects)
            return effects
        if isinstance(outcome, MilepostError):
            return self.unread(stream, outcome)
        self.core.memory.pending(stream)
        before = stream.reach(log).next
        for found in outcome:
            expected = stream.reach(log).next
            if found.start > expected and stream.stop is not None:
                stream.doom = gone(stream.topic, log, expected, min(found.start, stream.stop[log]))
                break  # a range is read whole, or its reader is told
            if found.start > expected:
                self._tell_lost(stream, log, expected, found.start, effects)
            if not stream.take(found):
                break
        if stream.reach(log).next == before and stream.reach(log).blocked is None:
            stream.failed = True  # there was to be something, and is not: the next tick looks again
        self._feed(effects)
        self.pump(stream, effects)
        return effects

    def _feed(self, effects: list[Effect]) -> None:
        """Rows were handed out: read for others that had to wait for that, each in its turn."""
        for key in list(self._starved)[:FED]:
            self.pump(self._starved.pop(key), effects)

    def _read_again(self, stream: Stream, log: int, chosen: Chosen, returns: int, outcome: Any) -> list[Effect]:
        effects: list[Effect] = []
        stream.reading = False
        self.core.memory.reads -= 1
        if stream.ended:
            return effects
        if isinstance(outcome, MilepostError):
            return self.unread(stream, outcome)
        if stream.returns != returns:
            self.pump(stream, effects)
            self.let_go(stream, effects)
            return effects
        gone = stream.take_again(log, chosen, outcome)
        if len(gone):
            self._tell_lost(stream, log, int(gone[0]), int(gone[-1]) + 1, effects, len(gone))
            lot = chosen.lot
            stream.bury(lot, np.flatnonzero(np.isin(lot.offsets[: lot.count], gone)), stream.moves + 1)
            self.acks.save(stream, effects)
        self.pump(stream, effects)
        if not stream.members:
            stream.put_back()
            self.let_go(stream, effects)
        return effects

    def unread(self, stream: Stream, error: MilepostError) -> list[Effect]:
        """Rows of a subscription could not be read, or not be matched: it waits, or ends."""
        if error.retriable:
            stream.failed = True  # until the next tick
            return []
        effects: list[Effect] = []
        stream.doom = error
        self.end_doomed(stream, effects)
        return effects

    def end_doomed(self, stream: Stream, effects: list[Effect]) -> None:
        """End what cannot go on, once everything before the damage is acknowledged, and that is stored."""
        held = stream.pending or stream.moving or any(member.rows for member in stream.members.values())
        if stream.doom is not None and not held:
            self.end(stream, stream.doom, effects)

    def _tell_lost(
        self, stream: Stream, log: int, first: int, after: int, effects: list[Effect], rows: int | None = None
    ) -> None:
        self.core.totals["rows_lost"] += after - first if rows is None else rows
        for member in stream.members.values():
            lost = [[member.number, log, first, after]]
            effects.append(Say(member.connection, Dropped({member.number: rows or after - first}, lost)))

    # Acknowledgements

    def acknowledge(self, connection: Connection, request: Ack) -> list[Effect]:
        """Rows are done, or to come again."""
        return self.acks.acknowledge(connection, request)

    def tick(self, now: float) -> list[Effect]:
        """Once a second or so: read again where that failed, and store cursors that moved by themselves."""
        effects: list[Effect] = []
        self._starved.clear()
        for stream in [*self._serving.values(), *self.core.catchups.streams.values()]:
            stream.failed = False
            if stream.reserved:
                stream.reserved_until = stream.reserved_until or now + RESERVED_S
                if now >= stream.reserved_until:
                    stream.release()
            for member in stream.members.values():
                member.waited += 1
            self.pump(stream, effects)
            moved = stream.subscription and not stream.moving and stream.broken is None
            if moved and any(reach.cursor() != reach.stored for reach in stream.reaches.values()):
                self.acks.save(stream, effects)
            self.let_go(stream, effects)
        return [*effects, *self.releases.again()]
