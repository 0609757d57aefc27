"""Matches stored rows: at once if that is short, otherwise in a thread; the rows of a topic in order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from milepost.errors import BrokerError, MilepostError

if TYPE_CHECKING:
    from milepost.broker.core.effects import Effect, Match
    from milepost.broker.core.topics.topic import Topic
    from milepost.broker.scheduler import Scheduler
    from milepost.match import Matches

Matched: TypeAlias = "tuple[Matches | None, Matches | None]"
"""The matches of plain subscriptions, and those of durable ones."""

log = logging.getLogger("milepost.broker")


def is_long(effect: Match) -> bool:
    """Whether a match may take too long for the event loop."""
    _, _, batch, plain, durable, _ = effect
    return (plain is not None and plain.long(len(batch))) or (durable is not None and durable.long(len(batch)))


def match(effect: Match, pause: Callable[[], None] | None = None) -> Matched:
    """The matches, in any thread. `pause` is called from time to time, so that other threads can run."""
    _, version, batch, plain, durable, _ = effect
    view = version.view(batch)
    return (
        None if plain is None else plain.match(view, pause),
        None if durable is None else durable.match(view, pause),
    )


class Matcher:
    """Carries out `Match`. Runs in the event loop, except `_work`."""

    def __init__(self, thread: Scheduler, run: Callable[[list[Effect]], None]) -> None:
        self._thread = thread
        self._run = run
        self._waiting: dict[Topic, int] = {}  # matches of a topic that the thread has, or has just finished

    def run(self, effect: Match) -> None:
        """Match, and run the effects that follow; a short match is done before this returns."""
        topic = effect.topic
        if topic in self._waiting or is_long(effect):
            self._waiting[topic] = self._waiting.get(topic, 0) + 1
            self._thread.give(topic, self._work(effect), partial(self._matched, effect))
            return
        outcome: Matched | MilepostError
        try:
            outcome = match(effect)
        except MilepostError as error:
            outcome = error
        except Exception as error:  # a broker fault: only these rows are affected
            log.exception("rows of %s could not be matched", topic.name)
            outcome = BrokerError(f"the broker failed: {type(error).__name__}; its log says more")
        self._run(effect.then(outcome))

    def _work(self, effect: Match) -> Generator[None, None, Matched]:
        """In the matching thread."""
        yield
        return match(effect, self._thread.pause)

    def _matched(self, effect: Match, outcome: Any) -> None:
        self._waiting[effect.topic] -= 1
        if not self._waiting[effect.topic]:
            del self._waiting[effect.topic]
        self._run(effect.then(outcome))
