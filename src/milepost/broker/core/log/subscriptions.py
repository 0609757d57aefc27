"""The durable subscriptions that clients are attached to: attach and leave, reads, deliveries, acknowledgements."""

from __future__ import annotations

import logging
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from milepost import limits
from milepost.broker.core.effects import Ask, Effect, ReadLog, Say, Write
from milepost.broker.core.log.acknowledgements import Acknowledgements, Sending
from milepost.broker.core.log.bounds import begin_of, gone, require_there, start_of, stop_of
from milepost.broker.core.log.dead_letters import DeadLetters
from milepost.broker.core.log.entries import Entries
from milepost.broker.core.log.ranges import Seen, seen_of
from milepost.broker.core.log.reach import Chosen, Reach
from milepost.broker.core.log.releases import Releases
from milepost.broker.core.log.subscription import LogSubscription
from milepost.broker.core.log.terms import require_terms, require_token
from milepost.broker.core.sessions.connection import Connection
from milepost.broker.core.topics.topic import Topic
from milepost.errors import (
    BrokerError,
    MilepostError,
    ServedElsewhere,
    SubscriptionExists,
    UnknownSubscription,
    UnknownTopic,
)
from milepost.operations import Attach, Position, Remove, Start
from milepost.wire import Dropped, Ended, Subscribe, Unsubscribe, hand_parts
from milepost.wire.control import failure

if TYPE_CHECKING:
    from milepost.broker.core.core import Core
    from milepost.broker.core.log.topics import DurableTopics

# How long rows that were handed on before a restart wait for a client that hands on, before other clients get them.
RESERVED_S: Final = 300.0

log = logging.getLogger("milepost.broker")

FED: Final = 4  # starved subscriptions that may read after another one has


class LogSubscriptions:
    """Handles requests about durable subscriptions, and reads and delivers their rows."""

    def __init__(self, core: Core, durable: DurableTopics) -> None:
        self.core = core
        self.durable = durable
        self.named: dict[str, LogSubscription] = {}
        self.acks = Acknowledgements(self)
        self._dead_letters = DeadLetters(core, self)
        self.entries = Entries(core, self)
        self._serving: dict[int, LogSubscription] = {}  # with replays, by `id`
        self._starved: dict[int, LogSubscription] = {}  # those whose reads wait for memory
        self._attaching: Counter[str] = Counter()  # name -> requests that the store has not answered
        self.releases = Releases()

    # Attaching and leaving

    def subscribe(self, connection: Connection, request: Subscribe) -> list[Effect]:
        """Attach a client to a durable subscription, and make it if needed; or begin a replay."""
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
        # With a shared store, this broker may not know the ends of all logs yet; for a read, the store is asked.
        if topic is not None and request.create and stop is None and not self.durable.shared:
            require_there(topic, start)
        if request.name and self._has(connection, request.name):
            raise SubscriptionExists(f"this client is attached to {request.name!r} already: once is enough")
        if request.dead_letter and topic is not None:
            self._dead_letters.require(request.dead_letter, topic)
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
            # The dead-letter topic is made before the subscription.
            return [self._dead_letters.make(request.dead_letter, topic), attach]
        return [attach]

    def _topic(self, request: Subscribe) -> Topic | None:
        """The topic of a request; None when it names an existing subscription and no topic."""
        if request.pattern or not request.name or request.create:
            return self.durable.require(request.pattern)
        if not self.durable.on:
            raise UnknownSubscription(f"no durable subscription is called {request.name!r}: this broker keeps nothing")
        return None

    def _has(self, connection: Connection, name: str) -> bool:
        """Whether a client is attached to a name, or about to be: acknowledgements are numbered per client and name."""
        for found in (connection.members or {}).values():
            if (found.name if isinstance(found, Subscribe) else found[0].name) == name:
                return True
        return False

    def _attach(self, connection: Connection, request: Subscribe, topic: Topic | None, start: Start) -> Write:
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
        return Write(attach, partial(self._attached, connection, request, topic))

    def _attached(self, connection: Connection, request: Subscribe, topic: Topic | None, outcome: Any) -> list[Effect]:
        name = request.name
        if self.named.get(name) is None and not isinstance(outcome, MilepostError) and outcome.where is not None:
            served = topic or self.core.catalogue.stored.get(outcome.topic)
            if served is not None:
                served.require_compiled([outcome.where])  # it may differ from the request's
        self._attaching[name] -= 1
        if not self._attaching[name]:
            del self._attaching[name]
        effects: list[Effect] = []
        waits = connection.open and (connection.members or {}).get(request.subscription) is request
        subscription = self.named.get(name)
        if not isinstance(outcome, MilepostError):
            epoch = outcome.subscription, outcome.epoch
            if subscription is not None and (subscription.stored, subscription.epoch) != epoch:
                # Another broker has served it meanwhile: the state here is stale.
                self.end(
                    subscription, ServedElsewhere(f"{name!r} was served elsewhere meanwhile; subscribe again"), effects
                )
                subscription = None
            if subscription is None and self.releases.pending.get(name) == epoch and waits:
                # It was released meanwhile, and the store's answer may be stale: attach again, under a new epoch.
                self._attaching[name] += 1
                return [*effects, self._attach(connection, request, topic, start_of(request.start))]
            if subscription is None:
                # Even if this client is gone: another may be attaching, and is served under the same epoch.
                try:
                    if topic is None:
                        effects += self.durable.restore([outcome.record])  # another broker may have just made it
                        topic = self.core.catalogue.stored.get(outcome.topic)
                    if topic is None:
                        raise UnknownTopic(f"the topic of {name!r} cannot be served here: a live one has its name")
                    subscription = self._begin(topic, name, outcome)
                except MilepostError as error:
                    effects.append(self.releases.give(name, epoch))
                    outcome = error
        if isinstance(outcome, MilepostError) or not waits:
            if subscription is not None:
                self.let_go(subscription, effects)
            if isinstance(outcome, MilepostError):
                effects += self._unattached(connection, request, outcome)
            return effects
        assert subscription is not None
        cursors = {log: cursor.offset for log, cursor in outcome.cursors.items()} | subscription.cursors()
        value = {
            "created": outcome.created,
            "position": cursors,
            "sequence": outcome.sequence,
            "where": subscription.where,
        }
        if not subscription.members and subscription.broken is None:
            subscription.again = True  # it may still have rows of clients that left
        return [*effects, *self._join(connection, request, subscription, outcome.sequence, value)]

    def _begin(self, topic: Topic, name: str, outcome: Any) -> LogSubscription:
        reaches = {log: Reach(cursor.offset, cursor.state) for log, cursor in outcome.cursors.items()}
        subscription = LogSubscription(topic, name, outcome.where, reaches)
        subscription.stored, subscription.epoch = outcome.subscription, outcome.epoch
        subscription.most = int(outcome.options.get("most", 0))
        subscription.dead = str(outcome.options.get("dead", ""))
        for log, end in topic.ends.items() if subscription.most and outcome.unreleased else ():
            subscription.reach(log).doubtful = end
        topic.serve(subscription)
        self.named[name] = subscription
        self._serving[id(subscription)] = subscription
        return subscription

    def _replaying(
        self, connection: Connection, request: Subscribe, topic: Topic, stop: Position | None, outcome: Any
    ) -> list[Effect]:
        if isinstance(outcome, MilepostError):
            return self._unattached(connection, request, outcome)
        if not connection.open or (connection.members or {}).get(request.subscription) is not request:
            return []
        position = outcome["position"]
        if request.where is not None:
            topic.require_compiled([request.where])  # a version may have been added meanwhile
        try:
            if stop is not None:
                position = begin_of(topic, position, stop, outcome["logs"])
            subscription = LogSubscription(
                topic, "", request.where, {log: Reach(offset) for log, offset in position.items()}, stop
            )
            topic.serve(subscription)
        except MilepostError as error:
            return self._unattached(connection, request, error)
        self._serving[id(subscription)] = subscription
        value = {"created": True, "position": position, "sequence": 0, "where": request.where}
        return self._join(connection, request, subscription, 0, value)

    def _join(
        self,
        connection: Connection,
        request: Subscribe,
        subscription: LogSubscription,
        sequence: int,
        value: dict[str, Any],
    ) -> list[Effect]:
        prefetch = request.prefetch if subscription.stored else limits.BATCH_ROWS
        hands = request.hands and bool(subscription.stored)
        member = subscription.join(
            connection, request.subscription, connection.instance, prefetch, sequence, hands=hands
        )
        if hands:
            last = {
                log: reach.acknowledged for log, reach in subscription.reaches.items() if reach.acknowledged is not None
            }
            value |= {"handed": subscription.handed_on(member), "acknowledged": last}
        assert connection.members is not None
        connection.members[request.subscription] = (subscription, member)
        effects: list[Effect] = []
        self.core.catalogue.announce(connection, subscription.topic, effects)
        value |= {"topics": [subscription.topic.name], "skipped": {}}
        effects += self.core.reply(connection, request.request, value)
        self.pump(subscription, effects)
        return effects

    def _unattached(self, connection: Connection, request: Subscribe, error: MilepostError) -> list[Effect]:
        if connection.members is not None and connection.members.get(request.subscription) is request:
            del connection.members[request.subscription]
            connection.keys -= 1
        return self.core.reply(connection, request.request, error)

    def unsubscribe(self, connection: Connection, request: Unsubscribe) -> list[Effect]:
        """Detach a client; or remove a durable subscription for good."""
        if not request.name:
            effects: list[Effect] = []
            self._leave(connection, request.subscription, effects, seen_of(request))
            return effects + self.core.reply(connection, request.request, {})
        if not self.durable.on:
            raise UnknownSubscription(
                f"there is no durable subscription {request.name[:80]!r}: this broker keeps nothing"
            )
        limits.require("NAME_CHARS", len(request.name), "the characters of a subscription's name")
        require_token(request.token)
        return [Write(Remove(request.name, request.token), partial(self._removed, connection, request))]

    def _removed(self, connection: Connection, request: Unsubscribe, outcome: Any) -> list[Effect]:
        if isinstance(outcome, MilepostError):
            return self.core.reply(connection, request.request, outcome)
        effects: list[Effect] = []
        subscription = self.named.get(request.name)
        if subscription is not None:
            gone = UnknownSubscription(f"the durable subscription {request.name!r} was removed")
            self.end(subscription, gone, effects, but=connection)
        return [*effects, *self.core.reply(connection, request.request, {})]

    def left(self, connection: Connection) -> list[Effect]:
        """Detach a client that is gone: other clients get its rows, or the rows wait for it."""
        effects: list[Effect] = []
        for number in list(connection.members or {}):
            self._leave(connection, number, effects)
        connection.members = None
        connection.atomic = None
        return effects

    def _leave(self, connection: Connection, number: int, effects: list[Effect], seen: Seen | None = None) -> None:
        if connection.members is None or number not in connection.members:
            return
        found = connection.members.pop(number)
        connection.keys -= 1
        if isinstance(found, Subscribe):
            return  # when the store answers, the request is no longer in `members`
        subscription, member = found
        if member.key in subscription.members:
            subscription.leave(member, seen)
        if subscription.members:
            self.pump(subscription, effects)
            return
        self.core.memory.ended(subscription)
        subscription.release()
        subscription.put_back()
        self.let_go(subscription, effects)

    def let_go(self, subscription: LogSubscription, effects: list[Effect]) -> None:
        """Stop serving a subscription if no client is attached and no read or write of it is under way.

        Otherwise the end of that read or write calls this again. Stopping earlier gives the next client old cursors.
        """
        if (
            subscription.members
            or subscription.ended
            or (subscription.stored and not self._stored(subscription, effects))
        ):
            return
        self._stop_serving(subscription, bool(subscription.stored), effects)

    def _stop_serving(self, subscription: LogSubscription, release: bool, effects: list[Effect]) -> None:
        subscription.ended = True
        subscription.topic.leave(subscription)
        self._serving.pop(id(subscription), None)
        if self.named.get(subscription.name) is subscription:
            del self.named[subscription.name]
        if release:
            effects.append(self.releases.give(subscription.name, (subscription.stored, subscription.epoch)))

    def _stored(self, subscription: LogSubscription, effects: list[Effect]) -> bool:
        """Whether the store has the whole state of a subscription without clients; begins to write what is missing."""
        if (
            self._attaching[subscription.name]
            or subscription.reading
            or subscription.busy
            or subscription.failed
            or subscription.broken is not None
        ):
            return False
        if self._read_spent(subscription, effects):
            return False
        self.acks.save(subscription, effects)
        return not subscription.moving

    def abandon(self, subscription: LogSubscription, error: MilepostError, effects: list[Effect]) -> None:
        """End a subscription whose stored state is in doubt: its clients reconnect, and the state is read again."""
        connections = {member.connection: None for member in subscription.members.values()}
        self.end(subscription, error, effects, told=False)
        for connection in connections:
            effects += self.core.refused(connection, error)

    def end(
        self,
        subscription: LogSubscription,
        error: MilepostError | None,
        effects: list[Effect],
        but: Connection | None = None,
        *,
        told: bool = True,
    ) -> None:
        """End a subscription and tell its clients the error; None: a read is complete."""
        if subscription.resumed is not None:
            self.core.catchups.ended(subscription, error, effects)
            return
        release = bool(subscription.stored) and not isinstance(error, ServedElsewhere)
        self._stop_serving(subscription, release, effects)
        self.core.memory.ended(subscription)
        members, subscription.members = subscription.members, {}
        subscription.pending.clear()
        for member in members.values():
            connection = member.connection
            if connection.members is not None and connection.members.pop(member.number, None) is not None:
                connection.keys -= 1
            if told and connection.open and connection is not but:
                number = member.number
                over = Ended(number) if error is None else failure(error, subscription=number)
                effects.append(Say(connection, over))
        self.acks.release(subscription, effects, ended=True)

    # Rows

    def pump(self, subscription: LogSubscription, effects: list[Effect]) -> None:
        """Hand out rows as far as members have room, and begin to read more."""
        if subscription.spent and not subscription.ended:
            spent, subscription.spent = subscription.spent, []
            self._dead_letters.take(subscription, spent, effects)
        if not subscription.members:
            return
        self._hand_out(subscription, effects)
        if subscription.members and (subscription.pending or subscription.reading or subscription.held):
            self.core.memory.pending(subscription)

    def _hand_out(self, subscription: LogSubscription, effects: list[Effect]) -> None:
        topic = subscription.topic
        sending: list[Sending] = []
        for member, log, batch, offsets, tries, counted_first in subscription.hand_out():
            parts = hand_parts(topic.number, member.number, log, offsets, tries, batch.data)
            size = len(parts[0]) + len(parts[1])
            deliver = self.core.delivery.send([member.connection], parts, size, len(batch), topic, batch)
            if counted_first:
                sending.append(Sending(member, deliver, size, len(batch)))
            else:
                effects.append(deliver)
        if sending:
            self.acks.when_free(subscription, partial(self.acks.count_first, subscription, sending), effects)
        if subscription.uncounted:
            self.acks.count(subscription, effects)
        if subscription.over:
            self.end(subscription, subscription.doom, effects)
            return
        if not subscription.idle:
            return
        if not subscription.wants:
            self._read_spent(subscription, effects)
            return
        if not self.core.memory.may_read(subscription):
            self._starved[id(subscription)] = subscription
            return
        if subscription.resumed is not None and not self.core.catchups.may_read(subscription, effects):
            return
        if subscription.again:
            found = subscription.returned()
            if found is not None:
                self._read_returned(subscription, *found, effects)
                return
            subscription.again = False
        behind = subscription.behind()
        if behind is not None:
            subscription.reading = True
            self.core.memory.reads += 1
            offset = subscription.reach(behind).next
            then = partial(self._read, subscription, behind)
            stop = None if subscription.stop is None else subscription.stop[behind]
            effects.append(ReadLog(topic, subscription.where, behind, offset, None, then, stop))
        elif subscription.resumed is not None:
            self.core.catchups.reached(subscription, effects)

    def _read_spent(self, subscription: LogSubscription, effects: list[Effect]) -> bool:
        """Read rows that were delivered too often, if there are any: they need no member with room."""
        wanted = subscription.most and subscription.again and subscription.doom is None
        spent = subscription.returned(spent=True) if wanted else None
        if spent is not None:
            self._read_returned(subscription, *spent, effects)
        return spent is not None

    def _read_returned(self, subscription: LogSubscription, log: int, chosen: Chosen, effects: list[Effect]) -> None:
        only = chosen.lot.offsets[chosen.places]
        subscription.reading = True
        self.core.memory.reads += 1
        then = partial(self._read_again, subscription, log, chosen, subscription.returns)
        effects.append(ReadLog(subscription.topic, subscription.where, log, int(only[0]), only, then))

    def _read(self, subscription: LogSubscription, log: int, outcome: Any) -> list[Effect]:
        effects: list[Effect] = []
        subscription.reading = False
        self.core.memory.reads -= 1
        if not subscription.members:
            self.let_go(subscription, effects)
            return effects
        if isinstance(outcome, MilepostError):
            return self.unread(subscription, outcome)
        self.core.memory.pending(subscription)
        before = subscription.reach(log).next
        for found in outcome:
            expected = subscription.reach(log).next
            if found.start > expected and subscription.stop is not None:
                subscription.doom = gone(subscription.topic, log, expected, min(found.start, subscription.stop[log]))
                break  # a read is complete, or ends with an error
            if found.start > expected:
                self._tell_lost(subscription, log, expected, found.start, found.start - expected, effects)
            if not subscription.take(found):
                break
        if subscription.reach(log).next == before and subscription.reach(log).blocked is None:
            subscription.failed = True  # the expected rows were not found: the next tick reads again
        self._feed(effects)
        self.pump(subscription, effects)
        return effects

    def _feed(self, effects: list[Effect]) -> None:
        """Let some subscriptions read whose reads waited for memory, oldest first."""
        for key in list(self._starved)[:FED]:
            self.pump(self._starved.pop(key), effects)

    def _read_again(
        self, subscription: LogSubscription, log: int, chosen: Chosen, returns: int, outcome: Any
    ) -> list[Effect]:
        effects: list[Effect] = []
        subscription.reading = False
        self.core.memory.reads -= 1
        if subscription.ended:
            return effects
        if isinstance(outcome, MilepostError):
            return self.unread(subscription, outcome)
        if subscription.returns != returns:
            self.pump(subscription, effects)
            self.let_go(subscription, effects)
            return effects
        gone = subscription.take_again(chosen, outcome)
        if len(gone):
            self._tell_lost(subscription, log, int(gone[0]), int(gone[-1]) + 1, len(gone), effects)
            lot = chosen.lot
            subscription.dead_letter(
                lot, np.flatnonzero(np.isin(lot.offsets[: lot.count], gone)), subscription.moves + 1
            )
            self.acks.save(subscription, effects)
        self.pump(subscription, effects)
        if not subscription.members:
            subscription.put_back()
            self.let_go(subscription, effects)
        return effects

    def unread(self, subscription: LogSubscription, error: MilepostError) -> list[Effect]:
        """Called when rows of a subscription could not be read or matched: it retries at the next tick, or ends."""
        if error.retriable:
            subscription.failed = True  # until the next tick
            return []
        effects: list[Effect] = []
        subscription.doom = error
        self.end_doomed(subscription, effects)
        return effects

    def end_doomed(self, subscription: LogSubscription, effects: list[Effect]) -> None:
        """End a subscription with a `doom`, once all rows before the damage are acknowledged and that is stored."""
        held = (
            subscription.pending or subscription.moving or any(member.rows for member in subscription.members.values())
        )
        if subscription.doom is not None and not held:
            self.end(subscription, subscription.doom, effects)

    def _tell_lost(
        self, subscription: LogSubscription, log: int, first: int, after: int, rows: int, effects: list[Effect]
    ) -> None:
        self.core.totals["rows_lost"] += rows
        for member in subscription.members.values():
            lost = [[member.number, log, first, after]]
            effects.append(Say(member.connection, Dropped({member.number: rows}, lost)))

    def tick(self, now: float) -> list[Effect]:
        """Called about once a second: retry failed reads, and store cursors that moved without an acknowledgement."""
        effects: list[Effect] = []
        self._starved.clear()
        for subscription in [*self._serving.values(), *self.core.catchups.open.values()]:
            subscription.failed = False
            if subscription.reserved:
                subscription.reserved_until = subscription.reserved_until or now + RESERVED_S
                if now >= subscription.reserved_until:
                    subscription.release()
            for member in subscription.members.values():
                member.waited += 1
            self.pump(subscription, effects)
            moved = subscription.stored and not subscription.moving and subscription.broken is None
            if moved and any(reach.cursor() != reach.stored for reach in subscription.reaches.values()):
                self.acks.save(subscription, effects)
            self.let_go(subscription, effects)
        return [*effects, *self.releases.again()]
