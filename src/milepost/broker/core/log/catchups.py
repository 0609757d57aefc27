"""Plain subscriptions that come back after a lost connection: what they missed of durable topics, out of the logs.

A plain subscription is matched by the index and delivered to as rows come in, which costs the same for one and for ten
thousand of them. On a new connection the client says how far it was in each log. A topic that has grown since is read
for it from there on, as for a replay, in HAND frames. When nothing is left to read, the subscription goes into the
index, in the same event: the next row that is stored is delivered, and no row before it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from milepost import limits
from milepost.broker.core.effects import Effect, Say
from milepost.broker.core.log.reach import Reach
from milepost.broker.core.log.starts import position_of, require_there
from milepost.broker.core.log.subscription import LogSubscription
from milepost.broker.core.topics.pattern import is_pattern
from milepost.errors import MilepostError, UnknownTopic
from milepost.wire import CaughtUp, Reply, Subscribe
from milepost.wire.control import failure

if TYPE_CHECKING:
    from milepost.broker.core.core import Core
    from milepost.broker.core.sessions.connection import Connection, PlainSubscription
    from milepost.broker.core.topics.topic import Topic


def is_behind(topic: Topic, request: Subscribe) -> bool:
    """Whether a subscription that is resumed has missed rows of a topic."""
    if request.resume is None or not topic.stored:
        return False
    position = request.resume.get(topic.stored, {})
    return any(position.get(log, 0) < end for log, end in topic.position.items())


class CatchUps:
    """Streams of plain subscriptions that are behind."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.open: Final[dict[int, LogSubscription]] = {}  # by their identity

    def require(self, request: Subscribe) -> None:
        """Raise what is wrong with the positions that a client comes back with."""
        for number, position in (request.resume or {}).items():
            topic = self._core.catalogue.stored.get(number)
            if topic is not None:
                require_there(topic, ("position", position_of(position)))

    def subscribed(self, connection: Connection, request: Subscribe, value: dict[str, Any]) -> list[Effect]:
        """A plain subscription is there: its client is told, and what it missed is read behind that."""
        behind = self.begin(connection, request, value["behind"])
        effects: list[Effect] = [Say(connection, Reply(request=request.request, value=value))]
        for catch_up in behind:
            self._core.durable.subscriptions.pump(catch_up, effects)
        return effects

    def begin(self, connection: Connection, request: Subscribe, topics: Iterable[str]) -> list[LogSubscription]:
        """Read for a subscription what it missed of topics: streams that are to be pumped behind the reply."""
        assert connection.subscriptions is not None
        subscription = connection.subscriptions[request.subscription]
        begun = []
        for name in topics:
            topic = self._core.topics.get(name)
            if topic is None:
                continue  # deleted a moment ago
            position = (request.resume or {}).get(topic.stored, {})
            catch_up = LogSubscription(
                topic, "", request.where, {log: Reach(offset) for log, offset in position.items()}
            )
            catch_up.resumed = subscription
            topic.serve(catch_up)
            catch_up.join(connection, request.subscription, connection.instance, limits.BATCH_ROWS, 0)
            if connection.catchups is None:
                connection.catchups = {}
            connection.catchups[request.subscription, topic.number] = self.open[id(catch_up)] = catch_up
            connection.keys += 1
            begun.append(catch_up)
        return begun

    def may_read(self, catch_up: LogSubscription, effects: list[Effect]) -> bool:
        """Whether it is its turn: catch-ups of a connection read one piece each in turn, as there may be many."""
        assert catch_up.resumed is not None
        waiting = catch_up.resumed.connection.catchups or {}
        key, first = next(iter(waiting.items()))
        if first is not catch_up:
            return False
        if catch_up.had_turn and len(waiting) > 1:
            catch_up.had_turn = False
            waiting[key] = waiting.pop(key)
            self._core.durable.subscriptions.pump(next(iter(waiting.values())), effects)
            return False
        catch_up.had_turn = True
        return True

    def reached(self, catch_up: LogSubscription, effects: list[Effect]) -> None:
        """Nothing is left to read for a catch_up: if it has all that there is, its subscription is delivered to now."""
        topic, subscription = catch_up.topic, catch_up.resumed
        assert subscription is not None
        reached = {log: catch_up.reach(log).next for log in topic.ends}
        if any(reached[log] < end for log, end in topic.ends.items()):
            return  # rows wait for others of their publisher, in a log that this broker will hear of
        if any(reached.get(log, 0) != end for log, end in topic.entered.items()):
            return  # rows were read that are still on their way to plain subscriptions
        self._remove(catch_up)
        connection = subscription.connection
        try:
            topic.subscribe(subscription)
        except MilepostError as error:
            self._fail(subscription, error, effects)
        else:
            effects.append(Say(connection, CaughtUp(subscription.number, topic.stored, reached)))
        for following in list((connection.catchups or {}).values())[:1]:
            self._core.durable.subscriptions.pump(following, effects)

    def ended(self, catch_up: LogSubscription, error: MilepostError | None, effects: list[Effect]) -> None:
        """A catch_up cannot go on: its topic was deleted, or its log is damaged."""
        subscription = catch_up.resumed
        assert subscription is not None
        self._remove(catch_up)
        if error is not None and not (is_pattern(subscription.pattern) and isinstance(error, UnknownTopic)):
            self._fail(subscription, error, effects)

    def positions(self, connection: Connection) -> dict[int, dict[int, int]]:
        """How far plain subscriptions of a connection are in durable topics that have moved since it was last told.

        A predicate that nothing satisfies would leave its client where it began, and a lot to be read for it later.
        """
        if connection.backlog is not None:
            return {}  # what waits is before these positions
        since, connection.positioned = connection.positioned, self._core.moves
        known = [self._core.numbered.get(number) for number in connection.announced or ()]
        return {topic.stored: topic.position for topic in known if topic and topic.stored and topic.moved > since}

    def left(self, connection: Connection, subscription: int | None = None) -> None:
        """A client is gone, or one of its subscriptions."""
        for (number, _), catch_up in list((connection.catchups or {}).items()):
            if subscription in (None, number):
                self._remove(catch_up)

    def _fail(self, subscription: PlainSubscription, error: MilepostError, effects: list[Effect]) -> None:
        connection = subscription.connection
        self.left(connection, subscription.number)
        self._core.catalogue.drop(subscription)
        (connection.subscriptions or {}).pop(subscription.number, None)
        self._core.errors[error.code] += 1
        effects.append(Say(connection, failure(error, subscription=subscription.number)))

    def _remove(self, catch_up: LogSubscription) -> None:
        assert catch_up.resumed is not None
        connection = catch_up.resumed.connection
        assert connection.catchups is not None
        del connection.catchups[catch_up.resumed.number, catch_up.topic.number], self.open[id(catch_up)]
        connection.keys -= 1
        catch_up.topic.leave(catch_up)
        catch_up.members.clear()
        catch_up.pending.clear()
