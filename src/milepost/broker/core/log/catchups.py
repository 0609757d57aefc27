"""Catch-ups: the rows of durable topics that a plain subscription missed while its client was disconnected.

The index matches incoming rows to plain subscriptions at a cost that is the same for one and for ten thousand of them.
When a client reconnects, it names its position in each log. If a topic has grown since, its log is read from that
position, as for a replay, and sent in HAND frames. At the end of the log the subscription enters the index in the same
event: the next row that is stored is delivered by the index, and no earlier row is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from milepost import limits
from milepost.broker.core.effects import Effect, Say
from milepost.broker.core.log.bounds import position_of, require_there
from milepost.broker.core.log.reach import Reach
from milepost.broker.core.log.subscription import LogSubscription
from milepost.broker.core.topics.pattern import is_pattern
from milepost.errors import MilepostError, UnknownTopic
from milepost.wire import CaughtUp, Subscribe
from milepost.wire.control import failure

if TYPE_CHECKING:
    from milepost.broker.core.core import Core
    from milepost.broker.core.sessions.connection import Connection, PlainSubscription
    from milepost.broker.core.topics.topic import Topic


def is_behind(topic: Topic, request: Subscribe) -> bool:
    """Whether a resumed subscription has missed rows of a topic."""
    if request.resume is None or not topic.stored:
        return False
    position = request.resume.get(topic.stored, {})
    return any(position.get(log, 0) < end for log, end in topic.position.items())


class CatchUps:
    """The catch-ups that are open: one `LogSubscription` for each resumed subscription and topic."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.open: Final[dict[int, LogSubscription]] = {}  # by their identity

    def require(self, request: Subscribe) -> None:
        """Raise for positions of a reconnecting client that do not exist."""
        for number, position in (request.resume or {}).items():
            topic = self._core.catalogue.stored.get(number)
            if topic is not None:
                require_there(topic, ("position", position_of(position)))

    def subscribed(self, connection: Connection, request: Subscribe, value: dict[str, Any]) -> list[Effect]:
        """Reply to the client of a new plain subscription, then read the rows that it missed."""
        assert connection.subscriptions is not None
        subscription = connection.subscriptions[request.subscription]
        begun = []
        for name in value["behind"]:
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
        effects = self._core.reply(connection, request.request, value)
        for catch_up in begun:
            self._core.durable.subscriptions.pump(catch_up, effects)
        return effects

    def may_read(self, catch_up: LogSubscription, effects: list[Effect]) -> bool:
        """Whether this catch-up may read now: the catch-ups of a connection read one piece each, round robin."""
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
        """Called when a catch-up has nothing to read; once it is at the end of all logs, its subscription goes live."""
        topic, subscription = catch_up.topic, catch_up.resumed
        assert subscription is not None
        reached = {log: catch_up.reach(log).next for log in topic.ends}
        if any(reached[log] < end for log, end in topic.ends.items()):
            return  # rows wait for earlier ones of their publisher, in a log this broker has not heard of yet
        if any(reached.get(log, 0) != end for log, end in topic.entered.items()):
            return  # rows that were read are still being delivered to plain subscriptions
        self._remove(catch_up)
        connection = subscription.connection
        try:
            with self._core.predicates.at_once():  # the predicate was compiled before, and is most often still there
                topic.subscribe(subscription)
        except MilepostError as error:
            self._fail(subscription, error, effects)
        else:
            effects.append(Say(connection, CaughtUp(subscription.number, topic.stored, reached)))
        for following in list((connection.catchups or {}).values())[:1]:
            self._core.durable.subscriptions.pump(following, effects)

    def ended(self, catch_up: LogSubscription, error: MilepostError | None, effects: list[Effect]) -> None:
        """Called when a catch-up cannot go on: its topic was deleted, or its log is damaged."""
        subscription = catch_up.resumed
        assert subscription is not None
        self._remove(catch_up)
        if error is not None and not (is_pattern(subscription.pattern) and isinstance(error, UnknownTopic)):
            self._fail(subscription, error, effects)

    def positions(self, connection: Connection) -> dict[int, dict[int, int]]:
        """Positions in the durable topics that have grown since the client was last told; it resumes from them.

        Otherwise a client whose predicate no row satisfies would resume from its start, and a long log would be read.
        """
        if connection.backlog is not None:
            return {}  # rows in the backlog are before these positions
        since, connection.positioned = connection.positioned, self._core.moves
        known = [self._core.numbered.get(number) for number in connection.announced or ()]
        return {topic.stored: topic.position for topic in known if topic and topic.stored and topic.moved > since}

    def left(self, connection: Connection, subscription: int | None = None) -> None:
        """Remove the catch-ups of a client, or of one of its subscriptions."""
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
