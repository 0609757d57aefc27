"""Rows that were delivered too often go to a topic of their own, in one commit with the cursor's move."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from milepost import limits
from milepost.broker.core.effects import Effect, Store
from milepost.broker.core.member import NO_MEMBER
from milepost.broker.core.pattern import require_name
from milepost.broker.core.portion import Portion
from milepost.broker.core.stream import Stream, Taken
from milepost.broker.core.topic import SLOW, Topic
from milepost.errors import BrokerError, MilepostError, NotDurable
from milepost.storage.operations import ChangeTopic, MakeTopic, Part, Retention

if TYPE_CHECKING:
    from milepost.broker.core.core import Core
    from milepost.broker.core.streams import Streams

log = logging.getLogger("milepost.broker")


class Burial:
    """Sees to it that the topic for the dead is there, and takes whatever their own does."""

    def __init__(self, core: Core, streams: Streams) -> None:
        self._core = core
        self._streams = streams

    def require(self, name: str, topic: Topic) -> None:
        """Refuse a name for the dead rows of a topic that cannot be one."""
        dead = self._core.topics.get(name)
        if dead is None:
            require_name(name)
            limits.require("TOPICS", len(self._core.topics) + 1, "the topics of this broker")
            return
        if not dead.stored:
            raise NotDurable(f"topic {dead.name!r} is live, and dead rows are to be kept; take another name")
        for schema in topic.schemas:  # a version that came since then is added with the first row of it
            if schema.fingerprint not in dead.versions and dead.family.misfits(schema):
                raise BrokerError(f"topic {dead.name!r} cannot take the schemas of {topic.name!r}; take another name")

    def make(self, name: str, topic: Topic) -> Store:
        """The topic for the dead rows of another."""
        return self._make(name, topic, self._made)

    def _make(self, name: str, topic: Topic, then: Callable[[Any], list[Effect]]) -> Store:
        return Store(MakeTopic(name, tuple(topic.announcement().schemas), SLOW[0], Retention()), then)

    def _made(self, outcome: Any) -> list[Effect]:
        return [] if isinstance(outcome, MilepostError) else self._core.keeper.restore([outcome.topic])

    def bury(self, stream: Stream, dead: list[Portion], effects: list[Effect]) -> None:
        """Rows that were delivered too often go to the dead-letter topic, which takes whatever their own does.

        A subscription that has ended stores nothing: whoever serves it next reads the rows, and how often they came.
        """
        if stream.ended:
            return
        topic = self._core.topics.get(stream.dead)
        if topic is None:
            stream.burying += 1
            effects.append(self._make(stream.dead, stream.topic, partial(self._graveyard, stream, dead)))
            return
        if topic.stored:
            missing = [part.batch.schema for part in dead if part.batch.schema.fingerprint not in topic.versions]
            if not missing:
                self._bury_in(topic, stream, dead, effects)
                return
            try:
                self._core.catalogue.require_follows(topic, missing[0])
            except MilepostError:
                pass
            else:
                text = str(missing[0].message_type or missing[0])
                change = ChangeTopic(topic.stored, text, versions=len(topic.schemas))
                stream.burying += 1
                effects.append(Store(change, partial(self._widened, stream, dead, topic, change)))
                return
        log.error("%s cannot take the dead rows of %s: they come again for ever", stream.dead, stream.name)
        stream.most = 0
        stream.spare(dead)

    def _graveyard(self, stream: Stream, dead: list[Portion], outcome: Any) -> list[Effect]:
        stream.burying -= 1
        if isinstance(outcome, MilepostError):
            return self._spared(stream, dead)
        effects = self._core.keeper.restore([outcome.topic])
        self.bury(stream, dead, effects)
        self._streams.let_go(stream, effects)
        return effects

    def _widened(
        self, stream: Stream, dead: list[Portion], topic: Topic, change: ChangeTopic, outcome: Any
    ) -> list[Effect]:
        stream.burying -= 1
        if isinstance(outcome, MilepostError):
            return self._spared(stream, dead)
        effects = self._core.keeper.changed(topic, change, outcome)
        self.bury(stream, dead, effects)
        self._streams.let_go(stream, effects)
        return effects

    def _spared(self, stream: Stream, dead: list[Portion]) -> list[Effect]:
        stream.spare(dead)
        stream.failed = True  # until the next tick
        return []

    def _bury_in(self, topic: Topic, stream: Stream, dead: list[Portion], effects: list[Effect]) -> None:
        if self._streams.acks.blocked(stream):
            stream.deferred.append(partial(self._bury_now, topic, stream, dead))
        else:
            self._bury_now(topic, stream, dead, effects)

    def _bury_now(self, topic: Topic, stream: Stream, dead: list[Portion], effects: list[Effect]) -> None:
        if stream.ended:
            return
        taken = Taken(NO_MEMBER, 0)
        for part in dead:
            assert part.chosen is not None
            stream.bury(part.chosen.lot, part.chosen.places, stream.moves + 1)
            taken.rows.append((part.chosen, part.log))
        self._streams.acks.move(stream, taken, effects, dead=tuple(Part(topic.stored, part.batch) for part in dead))
