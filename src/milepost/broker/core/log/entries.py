"""Rows that were just stored: they go to plain subscribers, and to durable subscriptions at the end of the log.

Matching them is an effect. When many predicates must be evaluated, the shell evaluates them in a thread. Later rows of
the topic wait meanwhile (`Topic.unmatched`), so that rows are delivered in the order of the log.
"""

from __future__ import annotations

import logging
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from milepost.broker.core.effects import Effect, Match
from milepost.broker.core.log.portion import Portion
from milepost.broker.core.log.subscription import LogSubscription
from milepost.broker.core.topics.backlog import Place
from milepost.broker.core.topics.topic import Topic
from milepost.errors import MilepostError
from milepost.operations import Entry

if TYPE_CHECKING:
    from milepost.broker.core.core import Core
    from milepost.broker.core.log.subscriptions import LogSubscriptions

log = logging.getLogger("milepost.broker")

_FIRST_ROW: Final = np.zeros(1, np.int64)


class Entries:
    """Matches and delivers newly stored rows."""

    def __init__(self, core: Core, subscriptions: LogSubscriptions) -> None:
        self._core = core
        self._subscriptions = subscriptions

    def entered(self, topic: Topic, entry: Entry, effects: list[Effect]) -> list[Any]:
        """Deliver newly stored rows to plain subscribers and subscriptions at the log's end; returns full backlogs.

        If a predicate has to be evaluated, the rows are matched first, and `Topic.unmatched` has an item until then.
        """
        topic.ends[entry.log] = entry.first + len(entry.batch)
        version = topic.versions.get(entry.batch.schema.fingerprint)
        if version is None:
            topic.entered[entry.log] = topic.ends[entry.log]
            return []
        plain = version.index.snapshot() if topic.subscriptions else None
        durable, following = None, {}
        if version.followers is not None:
            # Other subscriptions read these rows from the log later: they need no match now.
            following = {
                key: each for key, each in topic.log_subscriptions.items() if each.follows and each.idle and each.wants
            }
            if following:
                durable = version.followers.snapshot()
        if plain is None and durable is None and not topic.unmatched:
            return self._enter(topic, entry, None, None, following, effects)
        topic.examining += 1
        topic.unmatched.append([])
        then = partial(self._matched, topic, entry, following)
        effects.append(Match(topic, version, entry.batch, plain, durable, then))
        return []

    def _matched(
        self, topic: Topic, entry: Entry, subscriptions: dict[int, LogSubscription], outcome: Any
    ) -> list[Effect]:
        effects: list[Effect] = []
        puts = topic.unmatched.popleft()
        topic.examined()
        full: list[Any] = []
        if self._core.numbered.get(topic.number) is topic:
            if isinstance(outcome, MilepostError):  # a broker fault; durable subscriptions read the rows later
                log.error("rows of %s did not reach its plain subscribers: %s", topic.name, outcome)
                outcome, subscriptions = (None, None), {}
            matches, found = outcome
            full = self._enter(topic, entry, matches, found, subscriptions, effects)
        self._core.admission.give_back(puts, full, effects)
        return effects

    def _enter(
        self,
        topic: Topic,
        entry: Entry,
        matches: Any,
        found: Any,
        subscriptions: dict[int, LogSubscription],
        effects: list[Effect],
    ) -> list[Any]:
        """Deliver; `matches` are those of plain subscriptions, `found` those of durable ones (`subscriptions`)."""
        batch, end = entry.batch, entry.first + len(entry.batch)
        topic.entered[entry.log] = end
        self._core.moves += 1
        topic.moved = self._core.moves
        full: list[Any] = []
        if topic.receivers:
            place = Place(entry.log, entry.first, end)
            full = self._core.delivery.distribute(topic, batch, matches, effects, place)
        wanted: dict[int, np.ndarray] | None = None
        if not topic.log_subscriptions:
            return full
        failed: dict[int, MilepostError] = {}
        offsets = np.arange(entry.first, end, dtype=np.uint64)
        for key, subscription in list(topic.log_subscriptions.items()):
            if subscription.stop is not None:
                continue  # all rows of a read exist when it begins
            reach = subscription.reach(entry.log)
            at_end = (
                subscription.idle
                and not subscription.again
                and reach.next == entry.first
                and not subscription.full(reach)
            )
            if at_end and subscription.wants and (subscription.where is None or subscriptions.get(key) is subscription):
                part = Portion(entry.log, entry.first, end, batch, offsets, entry.after)
                if subscription.where is not None:
                    if wanted is None:
                        wanted = {} if found is None else _by_key(found)
                        failed = {} if found is None else dict(found.failed)
                    if key in failed:
                        effects += self._subscriptions.unread(subscription, failed[key])
                        continue
                    rows = wanted.get(key)
                    if rows is None:
                        part.batch = None
                    elif len(rows) < len(batch):
                        part.batch, part.offsets = batch.take(rows), offsets[rows]
                subscription.take(part)
            self._subscriptions.pump(subscription, effects)
        return full


def _by_key(matches: Any) -> dict[int, np.ndarray]:
    """Rows by key, ascending."""
    if len(matches.offsets) == 2:  # fast path for one row: sorting would take most of the time
        return dict.fromkeys(matches.keys.tolist(), _FIRST_ROW)
    owners = np.repeat(np.arange(len(matches.offsets) - 1), np.diff(matches.offsets))
    order = np.argsort(matches.keys, kind="stable")
    keys, rows = matches.keys[order], owners[order]
    cuts = [0, *(np.flatnonzero(np.diff(keys)) + 1).tolist(), len(keys)]
    return {int(keys[a]): rows[a:b] for a, b in pairwise(cuts) if a < b}
