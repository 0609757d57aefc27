"""The durable subscriptions that clients are attached to: who is, what is read for them, what they acknowledge."""

from __future__ import annotations

import logging
from collections import Counter
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from milepost import limits
from milepost.broker.core.acknowledging import Acknowledging
from milepost.broker.core.bounds import begin_of, gone, stop_of
from milepost.broker.core.burial import Burial
from milepost.broker.core.connection import Connection
from milepost.broker.core.effects import Ask, Deliver, Effect, Read, Say, Store
from milepost.broker.core.pattern import require_name
from milepost.broker.core.reach import Chosen, Reach
from milepost.broker.core.start import require_there, start_of
from milepost.broker.core.stream import Found, Stream
from milepost.broker.core.terms import require_terms, require_token
from milepost.broker.core.topic import SLOW, Topic
from milepost.errors import (
    BrokerError,
    MilepostError,
    NotDurable,
    ServedElsewhere,
    StoreError,
    SubscriptionExists,
    UnknownSubscription,
    UnknownTopic,
)
from milepost.storage.operations import (
    Attach,
    Entry,
    MakeTopic,
    Position,
    Release,
    Remove,
    Retention,
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


class Streams:
    """Requests about durable subscriptions, and the rows that go to them."""

    def __init__(self, core: Core, keeper: Keeper) -> None:
        self.core = core
        self.keeper = keeper
        self.named: dict[str, Stream] = {}
        self.acks = Acknowledging(self)
        self._burial = Burial(core, self)
        self._serving: dict[int, Stream] = {}  # replays too, by their identity
        self._attaching: Counter[str] = Counter()  # by name: requests that the store has not answered
        self._unreleased: set[tuple[int, int]] = (
            set()
        )  # subscriptions and epochs that others may serve, and do not know it

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
        if request.dead and topic is not None:
            self._require_dead(request.dead, topic)
        if connection.members is None:
            connection.members = {}
        connection.members[request.subscription] = request
        connection.keys += 1
        if not request.name:
            assert topic is not None
            return [Ask(topic, start, partial(self._replaying, connection, request, topic, stop))]
        self._attaching[request.name] += 1
        attach = self._attach(connection, request, topic, start)
        if request.dead and topic is not None and request.dead not in self.core.topics:
            # The topic for dead rows is there before the subscription is.
            texts = tuple(topic.announcement().schemas)
            return [Store(MakeTopic(request.dead, texts, SLOW[0], Retention()), self._made_dead), attach]
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

    def _require_dead(self, name: str, topic: Topic) -> None:
        dead = self.core.topics.get(name)
        if dead is None:
            require_name(name)
            limits.require("TOPICS", len(self.core.topics) + 1, "the topics of this broker")
        elif not dead.stored:
            raise NotDurable(f"topic {dead.name!r} is live, and dead rows are to be kept; take another name")
        elif any(schema.fingerprint not in dead.versions for schema in topic.schemas):
            raise BrokerError(f"topic {dead.name!r} does not have the schemas of {topic.name!r}; take another name")

    def _made_dead(self, outcome: Any) -> list[Effect]:
        return [] if isinstance(outcome, MilepostError) else self.keeper.restore([outcome.topic])

    def _attach(self, connection: Connection, request: Subscribe, topic: Topic | None, start: Start) -> Store:
        options = {"most": request.most, "dead": request.dead}
        attach = Attach(
            request.name,
            topic.stored if topic is not None else 0,
            request.where,
            start,
            request.create,
            request.token,
            options,
            connection.instance,
        )
        return Store(attach, partial(self._attached, connection, request, topic))

    def _attached(self, connection: Connection, request: Subscribe, topic: Topic | None, outcome: Any) -> list[Effect]:
        name = request.name
        self._attaching[name] -= 1
        last = not self._attaching[name]
        if last:
            del self._attaching[name]
        effects: list[Effect] = []
        stream = self.named.get(name)
        waits = connection.open and (connection.members or {}).get(request.subscription) is request
        if isinstance(outcome, MilepostError) or not waits:
            if stream is not None and not stream.members and last:
                self._close(stream, effects)
            elif stream is None and not isinstance(outcome, MilepostError):
                self._release(outcome.subscription, outcome.epoch, effects)
            if isinstance(outcome, MilepostError):
                effects += self._unattached(connection, request, outcome)
            return effects
        if stream is None:
            try:
                if topic is None:
                    effects += self.keeper.restore([outcome.record])  # perhaps another broker made it just now
                    topic = self.core.catalogue.stored.get(outcome.topic)
                if topic is None:
                    raise UnknownTopic(f"the topic of {name!r} cannot be served here: a live one has its name")
                stream = self._begin(topic, name, outcome)
            except MilepostError as error:
                self._release(outcome.subscription, outcome.epoch, effects)
                return effects + self._unattached(connection, request, error)
        stream.epoch = outcome.epoch
        cursors = {log: cursor.offset for log, cursor in outcome.cursors.items()} | stream.cursors()
        value = {
            "created": outcome.created,
            "position": cursors,
            "sequence": outcome.sequence,
            "where": stream.where,
        }
        if not stream.members and stream.broken is None:
            stream.again = True  # it was kept for this one, and may have rows of whoever left
        return self._join(connection, request, stream, outcome.sequence, value)

    def _begin(self, topic: Topic, name: str, outcome: Any) -> Stream:
        reaches = {log: Reach(cursor.offset, cursor.state) for log, cursor in outcome.cursors.items()}
        stream = Stream(topic, name, outcome.where, reaches)
        stream.subscription, stream.epoch = outcome.subscription, outcome.epoch
        stream.most = int(outcome.options.get("most", 0))
        stream.dead = str(outcome.options.get("dead", ""))
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
            self._leave(connection, request.subscription, effects)
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

    def _leave(self, connection: Connection, number: int, effects: list[Effect]) -> None:
        if connection.members is None or number not in connection.members:
            return
        found = connection.members.pop(number)
        connection.keys -= 1
        if isinstance(found, Subscribe):
            return  # the store has not answered yet, and will find that nobody waits
        stream, member = found
        if member.key in stream.members:
            stream.leave(member)
        if stream.members:
            self.pump(stream, effects)
            return
        self._close(stream, effects)

    def _close(self, stream: Stream, effects: list[Effect]) -> None:
        """Nobody is attached any more. With somebody on the way, it stays: what the store told them may be old."""
        stream.release()
        stream.pending.clear()
        if stream.subscription and stream.broken is None:
            self.acks.save(stream, effects)
        self.acks.release(stream, effects, ended=True)
        if self._attaching[stream.name] and stream.subscription:
            return
        stream.topic.leave(stream)
        self._serving.pop(id(stream), None)
        if self.named.get(stream.name) is stream:
            del self.named[stream.name]
        if stream.subscription:
            self._release(stream.subscription, stream.epoch, effects)

    def _release(self, subscription: int, epoch: int, effects: list[Effect]) -> None:
        """Let other brokers serve a subscription; again and again, until the store has taken it."""
        if not self.keeper.shared:
            return
        self._unreleased.add((subscription, epoch))

        def released(outcome: Any) -> list[Effect]:
            if not isinstance(outcome, StoreError):
                self._unreleased.discard((subscription, epoch))
            return []

        effects.append(Store(Release(subscription, epoch), released))

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
        stream.topic.leave(stream)
        self._serving.pop(id(stream), None)
        if self.named.get(stream.name) is stream:
            del self.named[stream.name]
        members, stream.members = stream.members, {}
        stream.pending.clear()
        if stream.subscription and not isinstance(error, ServedElsewhere):
            self._release(stream.subscription, stream.epoch, effects)
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

    def entered(self, topic: Topic, entry: Entry, effects: list[Effect]) -> list[Any]:
        """Rows are in the log: give them to whoever is at its end, and to plain subscribers."""
        batch, end = entry.batch, entry.first + len(entry.batch)
        topic.ends[entry.log] = end
        version = topic.versions.get(batch.schema.fingerprint)
        full = self.core.distribute(topic, version, batch, effects) if version is not None and topic.receivers else []
        if not topic.streams or version is None:
            return full
        wanted: dict[int, np.ndarray] | None = None
        offsets = np.arange(entry.first, end, dtype=np.uint64)
        for key, stream in list(topic.streams.items()):
            if stream.stop is not None:
                continue  # all that it reads was there when it began
            reach = stream.reach(entry.log)
            at_end = stream.idle and not stream.again and reach.next == entry.first and not stream.full(reach)
            if at_end and stream.wants:
                found = Found(entry.log, entry.first, end, batch, offsets, entry.after)
                if stream.where is not None:
                    if wanted is None:
                        wanted = _by_key(version.streams.snapshot().match(version.view(batch)))
                    rows = wanted.get(key)
                    if rows is None:
                        found = found._replace(batch=None)
                    elif len(rows) < len(batch):
                        found = found._replace(batch=batch.take(rows), offsets=offsets[rows])
                stream.take(found)
            self.pump(stream, effects)
        return full

    def pump(self, stream: Stream, effects: list[Effect]) -> None:
        """Hand out what is here, as far as members have room, and see to it that more is read."""
        if not stream.members:
            return
        topic = stream.topic
        for member, log, batch, offsets, tries in stream.hand_out():
            parts = hand_parts(topic.number, member.number, log, offsets, tries, batch.data)
            size = len(parts[0]) + len(parts[1])
            member.connection.spend(size, len(batch))
            topic.rows_out += len(batch)
            topic.bytes_out += size
            effects.append(Deliver(parts, [member.connection]))
        if stream.over:
            self.end(stream, stream.doom, effects)
            return
        if not stream.idle or not stream.wants:
            return
        if stream.again:
            found = stream.returned()
            if found is not None:
                log, chosen = found
                only = chosen.lot.offsets[chosen.places]
                stream.reading = True
                then = partial(self._read_again, stream, log, chosen, stream.returns)
                effects.append(Read(topic, stream.where, log, int(only[0]), only, then))
                return
            stream.again = False
        behind = stream.behind()
        if behind is not None:
            stream.reading = True
            offset = stream.reach(behind).next
            then = partial(self._read, stream, behind)
            stop = None if stream.stop is None else stream.stop[behind]
            effects.append(Read(topic, stream.where, behind, offset, None, then, stop))

    def _read(self, stream: Stream, log: int, outcome: Any) -> list[Effect]:
        effects: list[Effect] = []
        stream.reading = False
        if not stream.members:
            return effects
        if isinstance(outcome, MilepostError):
            return self._unread(stream, outcome)
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
        self.pump(stream, effects)
        return effects

    def _read_again(self, stream: Stream, log: int, chosen: Chosen, returns: int, outcome: Any) -> list[Effect]:
        effects: list[Effect] = []
        stream.reading = False
        if not stream.members:
            return effects
        if isinstance(outcome, MilepostError):
            return self._unread(stream, outcome)
        if stream.returns != returns:
            self.pump(stream, effects)
            return effects
        dead, gone = stream.take_again(log, chosen, outcome)
        if len(gone):
            self._tell_lost(stream, log, int(gone[0]), int(gone[-1]) + 1, effects, len(gone))
            lot = chosen.lot
            stream.bury(lot, np.flatnonzero(np.isin(lot.offsets[: lot.count], gone)), stream.moves + 1)
            self.acks.save(stream, effects)
        if dead:
            self._burial.bury(stream, dead, effects)
        self.pump(stream, effects)
        return effects

    def _unread(self, stream: Stream, error: MilepostError) -> list[Effect]:
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
        for stream in list(self._serving.values()):
            stream.failed = False
            if stream.reserved:
                stream.reserved_until = stream.reserved_until or now + RESERVED_S
                if now >= stream.reserved_until:
                    stream.release()
            self.pump(stream, effects)
            moved = stream.subscription and not stream.moving and stream.broken is None
            if moved and any(reach.cursor() != reach.stored for reach in stream.reaches.values()):
                self.acks.save(stream, effects)
        for subscription, epoch in list(self._unreleased):
            self._release(subscription, epoch, effects)
        return effects


def _by_key(matches: Any) -> dict[int, np.ndarray]:
    """Rows by key, ascending."""
    owners = np.repeat(np.arange(len(matches.offsets) - 1), np.diff(matches.offsets))
    order = np.argsort(matches.keys, kind="stable")
    keys, rows = matches.keys[order], owners[order]
    cuts = [0, *(np.flatnonzero(np.diff(keys)) + 1).tolist(), len(keys)]
    return {int(keys[a]): rows[a:b] for a, b in pairwise(cuts) if a < b}
