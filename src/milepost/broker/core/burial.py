"""Rows that were delivered too often go to a topic of their own, in one commit with the cursor's move."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from milepost.broker.core.effects import Effect, Store
from milepost.broker.core.member import NO_MEMBER
from milepost.broker.core.stream import Portion, Stream, Taken
from milepost.broker.core.topic import SLOW, Topic
from milepost.errors import MilepostError
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

    def bury(self, stream: Stream, dead: list[Portion], effects: list[Effect]) -> None:
        """Rows that were delivered too often go to the topic of the dead, which takes whatever their own does.

        A subscription that has ended stores nothing: whoever serves it next reads the rows, and how often they came.
        """
        if stream.ended:
            return
        topic = self._core.topics.get(stream.dead)
        if topic is None:
            texts = tuple(stream.topic.announcement().schemas)
            then = partial(self._graveyard, stream, dead)
            stream.burying += 1
            effects.append(Store(MakeTopic(stream.dead, texts, SLOW[0], Retention()), then))
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
