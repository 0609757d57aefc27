"""The topics of a broker and the subscriptions to them: what clients declare, delete, subscribe to and list.

Each request adds messages for other clients to `effects`, or raises an error before it changes anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple

from milepost import limits
from milepost.broker.core.effects import Effect, Later, Say
from milepost.broker.core.log.catchups import is_behind
from milepost.broker.core.predicates import Cache, Predicates
from milepost.broker.core.sessions.connection import Connection, PlainSubscription
from milepost.broker.core.statistics import summed
from milepost.broker.core.topics.pattern import covers, is_pattern, require_name, require_pattern
from milepost.broker.core.topics.topic import SLOW, Topic
from milepost.errors import (
    BrokerError,
    IncompatibleSchema,
    MilepostError,
    UnknownSubscription,
    UnknownTopic,
    did_you_mean,
)
from milepost.schema import Schema
from milepost.wire import Declare, Delete, Dropped, Reply, Subscribe, Unsubscribe
from milepost.wire.control import failure

SKIPPED_TOLD: Final = 100  # topics that a reply names because `where` does not fit their schema
SKIPPED_CHARS: Final = 500  # of the reason for each
COVERED_AT_ONCE: Final = 25  # topics subscribed to in one round of the event loop: each takes about 20 to 200 µs
FORGOTTEN_AT_ONCE: Final = 500  # topics unsubscribed from in one round: each takes about 10 µs
NAMES_COMPARED: Final = 200  # topics compared to suggest a name in an error, in the event loop


class Covering(NamedTuple):
    """A subscription that is being added to its topics."""

    subscription: PlainSubscription
    request: Subscribe
    then: Callable[[dict[str, Any]], list[Effect]]  # called with the reply's value when it has all topics
    topics: list[Topic]  # that are still to be added, the first at the end
    skipped: dict[str, str]  # topics whose schema `where` does not fit, with the reason
    behind: dict[str, int]  # durable topics of which it has missed rows -> the store's number
    positions: dict[int, dict[int, int]]  # the store's number -> where it begins in other durable topics


class Catalogue:
    """Topics by name and by number. `connections` belongs to the core, and is only read here."""

    def __init__(self, connections: Mapping[int, Connection], cache: Cache) -> None:
        self.topics: Final[dict[str, Topic]] = {}
        self.numbered: Final[dict[int, Topic]] = {}
        self.stored: Final[dict[int, Topic]] = {}  # durable topics, by the store's number
        self.past: Final[Counter[str]] = Counter()  # totals of topics that were deleted
        self.predicates: Final = Predicates(cache)
        self.connections = connections
        self._numbers = 0
        self._wild: dict[tuple[int, int], PlainSubscription] = {}  # subscriptions to patterns

    def declare(self, connection: Connection, request: Declare, effects: list[Effect]) -> dict[str, Any]:
        """Make or change a live topic; without a schema, only announce a topic."""
        schema = self.new_schema(request)
        topic = self.topics.get(request.name)
        created = topic is None
        if topic is None:
            assert schema is not None
            topic = self.add(request.name, [schema], request.slow or SLOW[0], effects)
        elif request.schema is not None:
            if schema is not None:
                self.add_versions(topic, [schema], effects)
            topic.slow = request.slow or topic.slow
        self.announce(connection, topic, effects)
        return {"number": topic.number, "created": created}

    def new_schema(self, request: Declare) -> Schema | None:
        """The schema of a new topic, or one that is new to its topic; None: the topic is there, and gets none.

        Raises for an invalid request, before anything is changed.
        """
        if request.slow is not None and request.slow not in SLOW:
            raise BrokerError(f"unknown slow-consumer policy {request.slow[:40]!r}; take one of {', '.join(SLOW)}")
        if request.schema is None:
            self.require(request.name)
            return None
        limits.require("TOPIC_SCHEMA_CHARS", len(request.schema), "the text of a topic's schema")
        schema = self.predicates.schema(request.schema)
        topic = self.topics.get(request.name)
        if topic is None:
            self.require_new(request.name)
        elif schema.fingerprint in topic.versions:
            return None
        else:
            self.require_follows(topic, schema)
        return schema

    def require_new(self, name: str) -> None:
        """Raise if a topic of this name cannot be made."""
        require_name(name)
        limits.require("TOPICS", len(self.topics) + 1, "the topics of this broker")

    def add(self, name: str, schemas: list[Schema], slow: str, effects: list[Effect], stored: int = 0) -> Topic:
        """Add a new topic; `stored` is the store's number of a durable one."""
        topic = Topic(self._numbers + 1, name, schemas[0], slow, self.predicates)
        if len(schemas) > 1:
            topic.add_versions(schemas[1:])
        wild = [each for each in self._wild.values() if each.connection.open and covers(each.pattern, name)]
        topic.require_compiled(each.where for each in wild if each.where is not None)
        self._numbers += 1
        topic.stored = stored
        if stored:
            self.stored[stored] = topic
        self.topics[topic.name] = self.numbered[topic.number] = topic
        for subscription in wild:
            if (why := self._cover(subscription, topic, effects)) is not None:
                skipped = {subscription.number: {name: why[:SKIPPED_CHARS]}}
                effects.append(Say(subscription.connection, Dropped({}, skipped=skipped)))
        return topic

    def require_compiled(self, name: str, schemas: list[Schema]) -> None:
        """Raise `Uncompiled` within an attempt, unless a topic or its versions can be added without long work."""
        topic = self.topics.get(name)
        if topic is None:
            planned = Topic(0, name, schemas[0], SLOW[0], self.predicates)
            if len(schemas) > 1:
                planned.add_versions(schemas[1:])
            wild = [each.where for each in self._wild.values() if each.where is not None and covers(each.pattern, name)]
            planned.require_compiled(wild)
        elif new := [each for each in schemas if each.fingerprint not in topic.versions]:
            topic.prepare_versions(new)

    def add_versions(self, topic: Topic, schemas: list[Schema], effects: list[Effect]) -> None:
        """Add versions that `require_follows` has accepted. Raises `Uncompiled` as `Topic.add_versions` does."""
        topic.add_versions(schemas)
        for each in self._interested(topic):
            self.announce(each, topic, effects)

    def require_follows(self, topic: Topic, schema: Schema) -> None:
        limits.require("TOPIC_VERSIONS", len(topic.schemas) + 1, f"the versions of the schema of topic {topic.name}")
        told = sum(len(text) for text in [*topic.announcement().schemas, str(schema.message_type or schema)])
        limits.require("TOPIC_SCHEMA_CHARS", told, f"the texts of all versions of the schema of topic {topic.name}")
        found = topic.family.misfits(schema)
        if found:
            what = "; ".join(f"{each.path}: {each.reason}" if each.path else each.reason for each in found[:5])
            raise IncompatibleSchema(
                f"topic {topic.name!r} has another schema, and this one would break its readers: {what}; "
                "declare the topic with its own schema or one that only adds to it, or take another name; two "
                "extensions of one version stand beside each other when that version is declared before them",
                tuple(each.path for each in found),
            )
        topic.family.joined(schema)  # raises when no merged schema exists

    def delete(self, request: Delete, effects: list[Effect]) -> dict[str, Any]:
        topic = self.require(request.name)
        removed = 0
        for connection in list(self._interested(topic)):
            for subscription in list((connection.subscriptions or {}).values()):
                if topic.number in subscription.keys:
                    topic.unsubscribe(subscription)
                    removed += 1
                    if not is_pattern(subscription.pattern):
                        del (connection.subscriptions or {})[subscription.number]
                        gone = UnknownTopic(f"the topic {topic.name!r} was deleted, and with it this subscription")
                        if connection.open:
                            effects.append(Say(connection, failure(gone, subscription=subscription.number)))
        for connection in self.connections.values():
            if connection.announced is not None:
                connection.announced.pop(topic.number, None)
        del self.topics[topic.name], self.numbered[topic.number]
        self.stored.pop(topic.stored, None)
        self.past.update(summed([topic]))
        return {"subscriptions": removed}

    def subscribe(
        self, connection: Connection, request: Subscribe, then: Callable[[dict[str, Any]], list[Effect]]
    ) -> list[Effect]:
        """Subscribe; to the topics of a pattern, some at a time. `then` makes the reply when all are done."""
        require_pattern(request.pattern)
        mine = connection.subscriptions or {}
        if request.subscription in mine:
            raise BrokerError(f"subscription {request.subscription} is there already; unsubscribe first")
        if not 0 <= request.subscription <= limits.SUBSCRIPTION_NUMBER:
            raise BrokerError(f"{request.subscription} is no number of a subscription: it takes 32 bits")
        limits.require("SUBSCRIPTIONS_PER_CONNECTION", len(mine) + 1, "the subscriptions of one connection")
        limits.require("WHERE_CHARS", len(request.where or ""), "the characters of a subscription's predicate")
        more = len(request.resume or {})
        limits.require("SUBSCRIPTIONS_PER_CONNECTION", connection.keys + more, "the topics of all subscriptions")
        subscription = PlainSubscription(connection, request.subscription, request.pattern, request.where, {}, {})
        texts = [] if request.where is None else [request.where]
        if not is_pattern(request.pattern):
            topics = [self.require(request.pattern)]
        else:
            topics = self.covered(request.pattern)[::-1]
            limits.require("WILDCARD_TOPICS", len(topics), "the topics of one pattern")
        self.predicates.require(
            (text, schema)
            for text in texts
            for topic in topics
            for schema in (topic.family.merged, *(version.read_as for version in topic.versions.values()))
        )
        covering = Covering(subscription, request, then, topics, {}, {}, {})
        effects: list[Effect] = []
        if is_pattern(request.pattern):
            self._wild[connection.number, request.subscription] = subscription
        else:
            topic = topics.pop()
            if is_behind(topic, request):
                if request.where is not None:
                    topic.require(request.where)
                covering.behind[topic.name] = topic.stored
            else:
                topic.subscribe(subscription)
                if topic.stored:
                    covering.positions[topic.stored] = topic.position
            self.announce(connection, topic, effects)
        if connection.subscriptions is None:
            connection.subscriptions = {}
        connection.subscriptions[request.subscription] = subscription
        return effects + self._cover_some(covering)

    def _cover_some(self, covering: Covering) -> list[Effect]:
        """Subscribe to some more topics of a pattern."""
        subscription, request, then, topics, skipped, behind, positions = covering
        connection = subscription.connection
        connection.busy = False
        if not connection.open:
            return []
        effects: list[Effect] = []
        for topic in [topics.pop() for _ in range(min(COVERED_AT_ONCE, len(topics)))]:
            if self.numbered.get(topic.number) is not topic or topic.number in subscription.keys:
                continue  # it was deleted meanwhile, or made again: `add` has subscribed to it then
            if is_behind(topic, request) and topic.fits(request.where):
                behind[topic.name] = topic.stored
                self.announce(subscription.connection, topic, effects)
                continue
            if topic.stored:
                positions[topic.stored] = topic.position
            if (why := self._cover(subscription, topic, effects)) is not None and len(skipped) < SKIPPED_TOLD:
                skipped[topic.name] = why[:SKIPPED_CHARS]
        if topics:
            connection.busy = True
            return [*effects, Later(connection, partial(self._cover_some, covering))]
        names = [self.numbered[number].name for number in subscription.keys]
        value = {"topics": [*names, *behind], "skipped": skipped, "positions": positions, "behind": behind}
        return effects + then(value)

    def _cover(self, subscription: PlainSubscription, topic: Topic, effects: list[Effect]) -> str | None:
        """Add a topic to a subscription to a pattern; returns the reason if that fails, e.g. for the predicate."""
        try:
            limits.require("WILDCARD_TOPICS", len(subscription.keys) + 1, "the topics of one pattern")
            topic.subscribe(subscription)
        except MilepostError as error:
            return str(error)
        self.announce(subscription.connection, topic, effects)
        return None

    def unsubscribe(self, connection: Connection, request: Unsubscribe) -> list[Effect]:
        """Remove a subscription; from the topics of a pattern, some at a time."""
        connection.busy = False
        if not connection.open:
            return []
        mine = connection.subscriptions or {}
        subscription = mine.get(request.subscription)
        if subscription is None:
            raise UnknownSubscription(f"this connection has no subscription {request.subscription}")
        self._forget(subscription, FORGOTTEN_AT_ONCE)
        if subscription.keys:
            connection.busy = True
            return [Later(connection, partial(self.unsubscribe, connection, request))]
        del mine[request.subscription]
        return [Say(connection, Reply(request=request.request, value={}))]

    def forget(self, connection: Connection, then: Callable[[Connection], None]) -> list[Effect]:
        """Remove the subscriptions of a connection that is gone, some at a time, and then call `then`."""
        mine = connection.subscriptions or {}
        left = FORGOTTEN_AT_ONCE
        while mine and left > 0:
            number, subscription = next(iter(mine.items()))
            left -= 1 + self._forget(subscription, left)
            if not subscription.keys:
                del mine[number]
        if mine:
            return [Later(connection, partial(self.forget, connection, then))]
        connection.subscriptions = None
        then(connection)
        return []

    def drop(self, subscription: PlainSubscription) -> None:
        """Remove one subscription from all its topics, at once."""
        self._forget(subscription, len(subscription.keys))

    def _forget(self, subscription: PlainSubscription, most: int) -> int:
        """Remove a subscription from at most this many of its topics; returns from how many."""
        self._wild.pop((subscription.connection.number, subscription.number), None)
        some = list(islice(subscription.keys, most))
        for number in some:
            self.numbered[number].unsubscribe(subscription)
        return len(some)

    def announce(self, connection: Connection, topic: Topic, effects: list[Effect]) -> None:
        """Tell a client about a topic, unless it knows the topic or is gone."""
        if not connection.open:
            return
        if connection.announced is None:
            connection.announced = {}
        if connection.announced.get(topic.number) != len(topic.schemas):
            connection.announced[topic.number] = len(topic.schemas)
            effects.append(Say(connection, topic.announcement()))

    def require(self, name: str) -> Topic:
        """The topic of a name, or `UnknownTopic`."""
        topic = self.topics.get(name)
        if topic is None:
            alike = (each for each in self.topics if abs(len(each) - len(name)) <= 2)
            near = did_you_mean(name[: limits.NAME_CHARS], list(islice(alike, NAMES_COMPARED)))
            raise UnknownTopic(
                f"there is no topic {name[: limits.NAME_CHARS]!r}{near or '; declare it with its schema first'}"
            )
        return topic

    def covered(self, pattern: str) -> list[Topic]:
        """The topics of a pattern."""
        return [topic for name, topic in self.topics.items() if covers(pattern, name)]

    def _interested(self, topic: Topic) -> Iterable[Connection]:
        """The connections that know a topic."""
        return [each for each in self.connections.values() if each.announced and topic.number in each.announced]
