"""Durable topics in the core: puts are stored before they are acknowledged, and rows are delivered from the log.

An operation that must be committed first is a `Write` effect with a continuation. `DurableTopics.stored` passes the
outcomes to the continuations, in order, and they return the effects that follow. Only continuations acknowledge.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from milepost import limits
from milepost.broker.core.counts import Counts
from milepost.broker.core.effects import Acknowledge, Ask, Effect, Learn, Write
from milepost.broker.core.log.bounds import position_of, start_of
from milepost.broker.core.log.subscriptions import LogSubscriptions
from milepost.broker.core.log.terms import require_subscription_name
from milepost.broker.core.predicates import Uncompiled
from milepost.broker.core.sessions.connection import Connection
from milepost.broker.core.topics.topic import SLOW, Topic
from milepost.errors import (
    BrokerError,
    ConnectionLost,
    Fenced,
    InDoubt,
    LimitExceeded,
    MilepostError,
    NotDurable,
    UnknownTopic,
)
from milepost.operations import (
    Append,
    AppendRows,
    ChangeTopic,
    DropTopic,
    Enrol,
    Entry,
    Made,
    MakeTopic,
    Part,
    Retention,
    RetentionHold,
    TopicRecord,
    Trim,
)
from milepost.wire import Declare, Delete, Look
from milepost.wire import RetentionHold as HoldRequest
from milepost.wire import Trim as TrimRequest

if TYPE_CHECKING:
    from milepost.broker.core.core import Core
    from milepost.broker.core.put import Put, RowPut

log = logging.getLogger("milepost.broker")

_topic_and_schema: Final = itemgetter(2, 3)  # of a `RowPut`
NO_STORE: Final = "this broker keeps nothing: start it with a store (`milepost up --store FILE_OR_URL`)"


class DurableTopics:
    """Durable topics, puts and subscriptions."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.on = False  # the broker has a store
        self.shared = False  # other brokers use the same store
        self.log = 0  # the number of this broker's own log
        self.subscriptions = LogSubscriptions(core, self)
        self.counts = Counts(core)
        self._restoring: dict[str, TopicRecord] = {}  # topics of other brokers that wait for a compilation
        self._learning: list[Callable[[Any], list[Effect]]] = []  # called with the outcome of the `Learn` under way
        self._learners: list[Callable[[Any], list[Effect]]] = []  # wait for the next `Learn`
        self._settled: dict[Connection, int] = {}  # the last put stored in this commit
        self._puts: dict[int, list[Put | RowPut]] = {}  # stored in this commit, by topic; their credit is due

    # Topics

    def restore(self, records: list[TopicRecord]) -> list[Effect]:
        """Add or update topics from the store's records, at the start and when a topic was made or changed."""
        effects: list[Effect] = []
        for record in self._restorable(records):
            self._restore(record, effects)
        return effects

    def _restorable(self, records: list[TopicRecord]) -> list[TopicRecord]:
        """The topics that can be served. Raises `Uncompiled`, before any change, if long compilations are missing."""
        good = []
        catalogue = self.core.catalogue
        # A topic that was made during the query may lack its schemas: the next query has them.
        records = [record for record in records if record.schemas]
        catalogue.predicates.require_schemas(
            text for record in records if not self._known(record) for text in record.schemas
        )
        for record in records:
            try:
                topic = catalogue.topics.get(record.name)
                if not self._known(record) and (topic is None or topic.stored == record.topic):
                    schemas = [catalogue.predicates.schema(text) for text in record.schemas]
                    catalogue.require_compiled(record.name, schemas)
                good.append(record)
            except MilepostError as error:
                log.error("the durable topic %s cannot be served: %s", record.name, error)
        return good

    def _known(self, record: TopicRecord) -> bool:
        """Whether a topic exists here with the same schemas. Other fields change more often, and parsing is slow."""
        topic = self.core.topics.get(record.name)
        return topic is not None and set(topic.announcement().schemas) == set(record.schemas)

    def _restore(self, record: TopicRecord, effects: list[Effect]) -> None:
        catalogue = self.core.catalogue
        topic = catalogue.topics.get(record.name)
        if topic is not None and topic.stored != record.topic:
            return  # a live topic has the name here: it must be deleted first
        if not self._known(record):
            schemas = [catalogue.predicates.schema(text) for text in record.schemas]
            if topic is None:
                topic = catalogue.add(record.name, schemas, record.slow, effects, record.topic)
                topic.entered[self.log] = record.extents[self.log].next if self.log in record.extents else 0
            elif new := [schema for schema in schemas if schema.fingerprint not in topic.versions]:
                catalogue.add_versions(topic, new, effects)
        assert topic is not None
        topic.slow, topic.retention = record.slow, record.retention
        grown = False
        for number, extent in record.extents.items():
            if extent.next > topic.ends.get(number, 0):
                topic.ends[number] = extent.next
                grown = True
        if grown:
            self.core.moves += 1
            topic.moved = self.core.moves
            for subscription in list(topic.log_subscriptions.values()):
                self.subscriptions.pump(subscription, effects)

    def learn(self, then: Callable[[Any], list[Effect]]) -> list[Effect]:
        """Read the topics of a shared store, then call `then` with None or the error.

        Many clients arrive at once when another broker is lost: those that wait share one query.
        """
        self._learners.append(then)
        return [] if self._learning else self._learn()

    def _learn(self) -> list[Effect]:
        self._learning, self._learners = self._learners, []
        return [Learn(self._learned)]

    def _learned(self, outcome: Any) -> list[Effect]:
        learning, self._learning = self._learning, []
        error = outcome if isinstance(outcome, MilepostError) else None
        effects = [] if error is not None else self.restore(outcome)
        for then in learning:
            effects += then(error)
        return effects + self._learn() if self._learners and not self._learning else effects

    def polled(self, records: list[TopicRecord], known: set[int]) -> list[Effect]:
        """Update from all topics of a shared store; `known` are those that this broker knew before the query."""
        effects: list[Effect] = []
        for number in known - {record.topic for record in records}:
            topic = self.core.catalogue.stored.get(number)
            if topic is not None:
                self._forget(topic, effects)
        self._restoring = {record.name: record for record in records if record.name in self._restoring}
        for record in records:
            try:
                effects += self.restore([record])
            except Uncompiled as missing:  # only this topic waits, not the others
                waits = record.name in self._restoring
                self._restoring[record.name] = record
                if not waits:
                    effects += self.core.predicates.put_off(missing, partial(self._restore_newest, record.name))
        return effects

    def _restore_newest(self, name: str) -> list[Effect]:
        record = self._restoring.get(name)
        if record is None:
            return []  # it was deleted
        effects = self.restore([record])
        del self._restoring[name]
        return effects

    def declare(self, connection: Connection, request: Declare) -> list[Effect]:
        """Make or change a durable topic, in the store first."""
        if not self.on:
            raise NotDurable(f"topic {request.name[:80]!r} cannot be durable: {NO_STORE}")
        retention = None if request.retain is None else _retention(request.retain)
        topic = self.core.topics.get(request.name)
        if topic is not None and not topic.stored:
            raise NotDurable(f"topic {topic.name!r} is live; delete it first, or take another name for a durable one")
        if topic is not None and request.durable is False:
            raise BrokerError(f"topic {topic.name!r} is durable; delete it first to make it a live one")
        schema = self.core.catalogue.new_schema(request)
        text = None if schema is None else str(schema.message_type or schema)
        if topic is None:
            assert text is not None
            make = MakeTopic(request.name, (text,), request.slow or SLOW[0], retention or Retention())
            return [Write(make, partial(self._made, connection, request))]
        slow = request.slow if request.slow != topic.slow else None
        if text is None and slow is None and retention in (None, topic.retention):
            return self._declared(connection, request, topic, False)
        change = ChangeTopic(topic.stored, text, slow, retention, versions=len(topic.schemas))
        return [Write(change, partial(self._changed, connection, request, topic, change))]

    def _made(self, connection: Connection, request: Declare, outcome: Any) -> list[Effect]:
        if isinstance(outcome, MilepostError):
            return self.core.reply(connection, request.request, outcome)
        effects = self.restore([outcome.topic])
        topic = self.core.topics.get(request.name)
        if topic is None or not topic.stored:
            error = BrokerError(f"topic {request.name!r} was made as a live one meanwhile; delete that one first")
            return [*effects, *self.core.reply(connection, request.request, error)]
        if not outcome.created:  # another broker made it first: declare an existing topic
            return effects + self._again(connection, request)
        return effects + self._declared(connection, request, topic, True)

    def _again(self, connection: Connection, request: Declare) -> list[Effect]:
        try:
            return self.declare(connection, request)
        except MilepostError as error:
            return self.core.reply(connection, request.request, error)

    def _changed(
        self, connection: Connection, request: Declare, topic: Topic, change: ChangeTopic, outcome: Any
    ) -> list[Effect]:
        if isinstance(outcome, MilepostError):
            return self.core.reply(connection, request.request, outcome)
        effects = self.changed(topic, change, outcome)
        if outcome is not None:  # another broker changed it first: check the request again
            return effects + self._again(connection, request)
        return effects + self._declared(connection, request, topic, False)

    def changed(self, topic: Topic, change: ChangeTopic, outcome: Made | None) -> list[Effect]:
        """Apply a change that is stored; with an outcome, the topic had changed before, and its record is taken."""
        if outcome is not None:
            return self.restore([outcome.topic])
        effects: list[Effect] = []
        if change.schema is not None:
            schema = self.core.catalogue.predicates.schema(change.schema)
            if schema.fingerprint not in topic.versions:
                self.core.catalogue.add_versions(topic, [schema], effects)
        topic.slow = change.slow or topic.slow
        topic.retention = change.retention or topic.retention
        return effects

    def _declared(self, connection: Connection, request: Declare, topic: Topic, created: bool) -> list[Effect]:
        effects: list[Effect] = []
        if connection.open:
            self.core.catalogue.announce(connection, topic, effects)
            value = {"number": topic.number, "created": created}
            effects += self.core.reply(connection, request.request, value)
        return effects

    def delete(self, connection: Connection, request: Delete, topic: Topic) -> list[Effect]:
        """Remove a durable topic, its log and its subscriptions."""
        return [Write(DropTopic(topic.stored), partial(self._deleted, connection, request, topic))]

    def _deleted(self, connection: Connection, request: Delete, topic: Topic, outcome: Any) -> list[Effect]:
        if isinstance(outcome, MilepostError) and not isinstance(outcome, UnknownTopic):
            return self.core.reply(connection, request.request, outcome)
        effects: list[Effect] = []
        removed = self._forget(topic, effects)  # also if another broker has deleted it
        return [*effects, *self.core.reply(connection, request.request, {"subscriptions": removed})]

    def _forget(self, topic: Topic, effects: list[Effect]) -> int:
        """Remove a durable topic that is gone; returns how many subscriptions it had."""
        gone = UnknownTopic(f"the topic {topic.name!r} was deleted, and with it this subscription")
        self._restoring.pop(topic.name, None)
        removed = len(topic.log_subscriptions)
        for subscription in list(topic.log_subscriptions.values()):
            self.subscriptions.end(subscription, gone, effects)
        if self.core.topics.get(topic.name) is topic:
            removed += self.core.catalogue.delete(Delete(request=0, name=topic.name), effects)["subscriptions"]
        return removed

    def look(self, connection: Connection, request: Look) -> list[Effect]:
        """Describe a durable topic: its logs, retention and subscriptions."""
        topic = self.require(request.topic)
        start = None if request.start is None else start_of(request.start)
        return [Ask(topic, start, partial(self._looked, connection, request, topic), connection)]

    def _looked(self, connection: Connection, request: Look, topic: Topic, outcome: Any) -> list[Effect]:
        if isinstance(outcome, MilepostError):
            return self.core.reply(connection, request.request, outcome)
        value = {"retain": topic.retention._asdict(), **outcome}
        unheard = any(extent["next"] > topic.ends.get(extent["log"], 0) for extent in value["logs"])  # of other brokers
        for each in value.get("subscriptions", ()):
            subscription = self.subscriptions.named.get(each["name"])
            each["hold"] = bool(each["options"].get("hold"))
            each["members"] = len(subscription.members) if subscription is not None else 0
            each["coming"] = subscription is not None and (
                subscription.coming or (unheard and subscription.where is None)
            )
            # Use the stored cursor: the one in memory may be ahead of it, and would go back after a crash.
            each["behind"] = sum(
                max(0, extent["next"] - max(extent["start"], each["cursor"].get(extent["log"], 0)))
                for extent in value["logs"]
            )
        return self.core.reply(connection, request.request, value)

    def trim(self, connection: Connection, request: TrimRequest) -> list[Effect]:
        """Remove rows at an operator's request."""
        topic = self.require(request.topic)
        for number, offset in request.before.items():
            end = topic.ends.get(number, -1)
            if not 0 <= offset <= end:
                what = f"no offset {offset}: it ends at {end}" if end >= 0 else "no rows"
                raise BrokerError(f"log {number} of topic {topic.name!r} has {what}")
        then = partial(self._answered, connection, request.request, "rows")
        return [Write(Trim(topic.stored, dict(request.before)), then)]

    def hold(self, connection: Connection, request: HoldRequest) -> list[Effect]:
        """Make a retention hold, a named cursor without consumers, or move it forward: retention keeps later rows.

        It is not kept in memory: the next request may go to any broker of the cell.
        """
        topic = self.require(request.topic)
        if not request.name:
            raise BrokerError("a hold has a name, by which it is moved and removed")
        require_subscription_name(request.name)
        position = None if request.position is None else position_of(request.position)
        then = partial(self._answered, connection, request.request, "position")
        return [Write(RetentionHold(request.name, topic.stored, position), then)]

    def _answered(self, connection: Connection, request: int, key: str, outcome: Any) -> list[Effect]:
        """Reply with the outcome under a key, or with the error."""
        return self.core.reply(connection, request, outcome if isinstance(outcome, MilepostError) else {key: outcome})

    def require(self, name: str) -> Topic:
        topic = self.core.catalogue.require(name)
        if not topic.stored:
            raise NotDurable(f"topic {name!r} is live: nothing of it is kept; declare a durable one")
        return topic

    # Puts

    def append(self, put: Put) -> list[Effect]:
        """Store a put. Parts of an atomic put wait for the last part, and are stored or refused together."""
        connection = put.connection
        if not connection.open:
            return []  # its client gets no reply; it reconnects, learns its high water, and puts the rows again
        if not put.more and connection.atomic is None:
            return self._append(connection, [put])
        if connection.atomic is None:
            connection.atomic = []
        connection.atomic.append(put)
        return [] if put.more else self._together(connection)

    def append_rows(self, rows: list[RowPut]) -> list[Effect]:
        """Store single-row puts, each on its own."""
        effects: list[Effect] = []
        for (topic, schema), run in groupby(rows, key=_topic_and_schema):
            some = [row for row in run if row.connection.open]  # as in `append`
            if some:
                stored = AppendRows(
                    topic.stored, schema, [row.connection.publisher.number for row in some],
                    [row.stamp for row in some], [row.data for row in some],
                )  # fmt: skip
                sessions = tuple([row.connection for row in some])
                effects.append(Write(stored, partial(self._appended_rows, topic, some), sessions))
        return effects

    def _together(self, connection: Connection) -> list[Effect]:
        parts, connection.atomic = connection.atomic or [], None
        wrong = next((part.error for part in parts if part.error is not None), None)
        error: MilepostError | None = None
        if wrong is not None:
            error = BrokerError(f"nothing was stored: another part of the same put was refused: {wrong}")
        elif len(parts) > limits.PUT_PARTS:
            error = LimitExceeded("PUT_PARTS", len(parts), limits.PUT_PARTS, "the parts of one put")
        if error is None:
            return self._append(connection, parts)
        return [effect for part in parts for effect in self.core.tell_refused(part, part.error or error)]

    def _append(self, connection: Connection, parts: list[Put]) -> list[Effect]:
        publisher = connection.publisher
        effects: list[Effect] = []
        if not publisher.enrolled:
            publisher.enrolled = True
            key = publisher.name or f"~{connection.instance.hex() or publisher.number}"
            effects.append(Write(Enrol(key, publisher.number), partial(self._enrolled, connection), connection))
        token = parts[0].key if len(parts) == 1 else next((part.key for part in parts if part.key), b"")
        stored = Append(publisher.number, tuple([Part(part.topic.stored, part.batch) for part in parts]), token)
        effects.append(Write(stored, partial(self._appended, connection, parts), connection))
        return effects

    def _enrolled(self, connection: Connection, outcome: Any) -> list[Effect]:
        if isinstance(outcome, MilepostError):
            connection.publisher.enrolled = False  # the puts behind it fail too, and report the error
            return []
        if outcome.number != connection.publisher.number and connection.open:
            return self.core.refused(connection, ConnectionLost("this publisher's number is taken; connect again"))
        return []

    def _appended(self, connection: Connection, parts: list[Put], outcome: Any) -> list[Effect]:
        if isinstance(outcome, MilepostError):
            return self._not_appended(parts, outcome)
        for part in parts:
            topic, rows = part.topic, len(part.batch)
            topic.rows_in += rows
            topic.batches_in += 1
            topic.bytes_in += part.size
            connection.rows_in += rows
            self._puts.setdefault(topic.number, []).append(part)
        if connection.open:
            self._settled[connection] = parts[-1].number
        self.core.totals["rows_repeated"] += outcome.repeated
        return []

    def _not_appended(self, parts: Sequence[Put | RowPut], error: MilepostError) -> list[Effect]:
        """Refuse puts of one connection."""
        if isinstance(error, Fenced | InDoubt):  # the client learns the outcome from its next high water
            return self.core.refused(parts[0].connection, error)
        return [effect for part in parts for effect in self.core.tell_refused(part, error)]

    def _appended_rows(self, topic: Topic, rows: list[RowPut], outcome: Any) -> list[Effect]:
        effects: list[Effect] = []
        if isinstance(outcome, MilepostError):
            for row in rows:
                effects += self._not_appended([row], outcome)
            return effects
        refused, repeated = outcome
        for place, error in refused.items():
            effects += self._not_appended([rows[place]], error)
        if refused:
            rows = [row for place, row in enumerate(rows) if place not in refused]
        settled = self._settled
        for row in rows:
            connection = row.connection
            connection.rows_in += 1
            if connection.open:
                settled[connection] = row.number
        topic.rows_in += len(rows)
        topic.batches_in += len(rows)
        topic.bytes_in += sum([row.size for row in rows])
        self._puts.setdefault(topic.number, []).extend(rows)
        self.core.totals["rows_repeated"] += repeated
        return effects

    def stored(self, results: list[tuple[Callable[[Any], list[Effect]], Any]], entries: list[Entry]) -> list[Effect]:
        """Called when a commit is done or has failed: run the continuations, and deliver the new rows of the log."""
        effects: list[Effect] = []
        predicates = self.core.predicates
        predicates.results = {}  # as in `Predicates.run`, once for all of them
        for then, outcome in results:
            try:
                effects += then(outcome)
            except Uncompiled as missing:
                effects += predicates.put_off(missing, partial(then, outcome))
            except Exception:  # a broker fault: only this request suffers
                log.exception("the outcome of an operation of the store could not be handled")
        predicates.results = None
        settled, self._settled = self._settled, {}
        if settled:
            effects.append(Acknowledge(settled))
        stored, self._puts = self._puts, {}
        full: dict[int, list[Any]] = {}
        for entry in entries:
            topic = self.core.catalogue.stored.get(entry.topic)
            if topic is not None:
                if entry.staged:  # other rows were counted with their puts
                    topic.rows_in += len(entry.batch)
                    topic.batches_in += 1
                    topic.bytes_in += len(entry.batch.data)
                full.setdefault(topic.number, []).extend(self.subscriptions.entries.entered(topic, entry, effects))
        for number, puts in stored.items():
            topic = self.core.numbered.get(number)
            if topic is not None and topic.unmatched:  # their credit is returned when they are matched
                topic.unmatched[-1].extend(puts)
                continue
            self.core.admission.give_back(puts, full.get(number) or [], effects)
        return effects

    def tick(self, now: float) -> list[Effect]:
        """Called about once a second."""
        return self.subscriptions.tick(now) + self.counts.tick(now)


def _retention(given: dict[str, Any]) -> Retention:
    """The retention of a topic, from a request."""
    unknown = given.keys() - set(Retention._fields)
    if unknown:
        raise BrokerError(f"retention knows age_s, bytes and hold, not {sorted(unknown)[0][:40]!r}")
    age, size, hold = (given.get(name, default) for name, default in Retention._field_defaults.items())
    if age is not None and not (isinstance(age, int | float) and 0 <= age <= 1e11):
        raise BrokerError("age_s, the seconds that a row is kept, is a number from 0 on, or null for ever")
    if size is not None and not (isinstance(size, int) and 0 <= size < 1 << 62):
        raise BrokerError("bytes, the most that a topic keeps, is a whole number from 0 on, or null for any")
    if not isinstance(hold, bool):
        raise BrokerError("hold says whether rows wait for named subscriptions: true or false")
    return Retention(None if age is None else float(age), size, hold)
