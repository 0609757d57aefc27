"""Rows that were delivered too often go to a dead-letter topic, in one commit with the cursor's move."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from milepost.broker.core.effects import Effect, Write
from milepost.broker.core.log.member import NO_MEMBER
from milepost.broker.core.log.portion import Portion
from milepost.broker.core.log.subscription import Acknowledged, LogSubscription
from milepost.broker.core.topics.topic import SLOW, Topic
from milepost.errors import BrokerError, MilepostError, NotDurable
from milepost.operations import ChangeTopic, MakeTopic, Part, Retention

if TYPE_CHECKING:
    from milepost.broker.core.core import Core
    from milepost.broker.core.log.subscriptions import LogSubscriptions

log = logging.getLogger("milepost.broker")


class DeadLetters:
    """Makes dead-letter topics, and adds to them the schemas of the topics whose dead rows they take."""

    def __init__(self, core: Core, subscriptions: LogSubscriptions) -> None:
        self._core = core
        self._subscriptions = subscriptions

    def require(self, name: str, topic: Topic) -> None:
        """Refuse a dead-letter topic that cannot take the rows of a topic."""
        dead = self._core.topics.get(name)
        if dead is None:
            self._core.catalogue.require_new(name)
            return
        if not dead.stored:
            raise NotDurable(f"topic {dead.name!r} is live, and dead rows are to be kept; take another name")
        for schema in topic.schemas:  # a later version is added with its first dead row
            if schema.fingerprint not in dead.versions and dead.family.misfits(schema):
                raise BrokerError(f"topic {dead.name!r} cannot take the schemas of {topic.name!r}; take another name")

    def make(self, name: str, topic: Topic) -> Write:
        """Make the dead-letter topic of another topic."""
        return Write(_dead_topic(name, topic), self._made)

    def _made(self, outcome: Any) -> list[Effect]:
        return [] if isinstance(outcome, MilepostError) else self._core.durable.restore([outcome.topic])

    def take(self, subscription: LogSubscription, dead: list[Portion], effects: list[Effect]) -> None:
        """Move rows that were delivered too often to the dead-letter topic; make it, or add a schema to it, if needed.

        A subscription that has ended stores nothing: the broker that serves it next reads the rows and their tries.
        """
        if subscription.ended:
            return
        topic = self._core.topics.get(subscription.dead)
        if topic is None:
            subscription.dying += 1
            make = _dead_topic(subscription.dead, subscription.topic)
            effects.append(Write(make, partial(self._ready, subscription, dead, None, None)))
            return
        if topic.stored:
            missing = [part.batch.schema for part in dead if part.batch.schema.fingerprint not in topic.versions]
            if not missing:
                move = partial(self._move, topic, subscription, dead)
                self._subscriptions.acks.when_free(subscription, move, effects)
                return
            try:
                self._core.catalogue.require_follows(topic, missing[0])
            except MilepostError:
                pass
            else:
                text = str(missing[0].message_type or missing[0])
                change = ChangeTopic(topic.stored, text, versions=len(topic.schemas))
                subscription.dying += 1
                effects.append(Write(change, partial(self._ready, subscription, dead, topic, change)))
                return
        log.error("%s cannot take the dead rows of %s: they come again for ever", subscription.dead, subscription.name)
        subscription.most = 0
        subscription.spare(dead)

    def _ready(
        self,
        subscription: LogSubscription,
        dead: list[Portion],
        topic: Topic | None,
        change: ChangeTopic | None,
        outcome: Any,
    ) -> list[Effect]:
        """Called when the dead-letter topic is made (None) or changed: move the rows there."""
        subscription.dying -= 1
        if isinstance(outcome, MilepostError):
            subscription.spare(dead)
            subscription.failed = True  # until the next tick
            return []
        durable = self._core.durable
        if topic is None or change is None:
            effects = durable.restore([outcome.topic])
        else:
            effects = durable.changed(topic, change, outcome)
        self.take(subscription, dead, effects)
        self._subscriptions.let_go(subscription, effects)
        return effects

    def _move(self, topic: Topic, subscription: LogSubscription, dead: list[Portion], effects: list[Effect]) -> None:
        if subscription.ended:
            return
        taken = Acknowledged(NO_MEMBER, 0)
        for part in dead:
            assert part.chosen is not None
            subscription.dead_letter(part.chosen.lot, part.chosen.places, subscription.moves + 1)
            taken.rows.append((part.chosen, part.log))
        self._subscriptions.acks.move(
            subscription, taken, effects, dead=tuple(Part(topic.stored, part.batch) for part in dead)
        )


def _dead_topic(name: str, topic: Topic) -> MakeTopic:
    return MakeTopic(name, tuple(topic.announcement().schemas), SLOW[0], Retention())
