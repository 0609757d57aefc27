"""Rebuilds the versions of a topic and their indexes when schemas are added, outside of the event loop.

Each predicate of the topic is compiled again for each version, in rounds. For a round, the core gives the versions and
the pending changes to a thread, and touches neither until the thread returns them. Subscriptions that are added or
removed meanwhile are noted in order. If few changes are left after a round, the event loop makes them itself;
otherwise another round follows.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from milepost.broker.core.predicates import Cache, Predicates, Results, Work
from milepost.errors import MilepostError
from milepost.schema import Versions

if TYPE_CHECKING:
    from milepost.broker.core.topics.topic import Topic, Version

AT_ONCE: Final = 2_000  # characters of predicates, times versions, that the event loop compiles itself: about 5 ms

Change: TypeAlias = tuple[bool, int, str | None]
"""Whether the subscription is durable, its key, and its predicate; None: it was removed."""


class Rebuild:
    """One rebuild; only the core's thread uses it. Several events may wait for it."""

    def __init__(self, topic: Topic, family: Versions, predicates: Predicates) -> None:
        self.family = family
        self._predicates = predicates
        self._versions: dict[int, Version] = {}
        self._round: Round | None = None  # that a thread is working on
        self._changes: list[Change] = [
            *[(False, key, each.where) for key, each in topic.subscriptions.items()],
            *[(True, key, each.where) for key, each in topic.log_subscriptions.items() if each.follows],
        ]

    def note(self, durable: bool, key: int, where: str | None) -> None:
        """Note a subscription that was added, or removed (None)."""
        self._changes.append((durable, key, where))

    @property
    def away(self) -> bool:
        """Whether a thread is working on a round: the versions must not be touched."""
        return self._round is not None

    def prepare(self) -> None:
        """Raise `Uncompiled` while the changes that are left are too many for the event loop."""
        results = self._predicates.results or {}
        if self._round is not None and results.get(self) is self._round:
            self._round = None  # the thread has finished it
        if self._round is None and self._long:
            self._round = self._next_round()
        if self._round is not None:
            self._predicates.require_done(partial(self._round.work, self))
            self._round = None  # it was done at once

    def finish(self) -> dict[int, Version]:
        """Make the remaining changes, and return the versions. Call `prepare` before."""
        for _ in self._next_round().work(self):
            pass
        return self._versions

    def give_up(self) -> None:
        """Stop the round under way: another version was added first."""
        if self._round is not None:
            self._round.stopped = True

    @property
    def _long(self) -> bool:
        most = AT_ONCE // len(self.family.schemas)
        return len(self._changes) > most or sum(len(where or "") + 20 for _, _, where in self._changes) > most

    def _next_round(self) -> Round:
        changes, self._changes = deque(self._changes), []
        return Round(self.family, self._versions, changes, self._predicates.cache)


class Round:
    """Changes that are being made to the indexes.

    All events that wait for a round run its `work` in one thread, a step at a time, and so finish it together.
    """

    def __init__(self, family: Versions, versions: dict[int, Version], changes: deque[Change], cache: Cache) -> None:
        self.stopped = False  # the remaining changes are not needed
        self._family = family
        self._versions = versions
        self._changes = changes
        self._cache = cache

    def work(self, rebuild: Rebuild) -> Work:
        """Make the changes, one at a time; the outcome tells `prepare` that this round is finished."""
        if not self._versions:
            from milepost.broker.core.topics.topic import Version

            merged = self._family.merged
            self._versions |= {each.fingerprint: Version(each, merged) for each in self._family.schemas}
        while self._changes and not self.stopped:
            self._make(*self._changes.popleft())
            yield
        results: Results = {rebuild: self}  # the event that waits keeps the rebuild alive
        return results

    def _make(self, durable: bool, key: int, where: str | None) -> None:
        for version in self._versions.values():
            if where is None:
                index = version.log_index if durable else version.index
                if key in index:
                    index.remove(key)
                continue
            try:
                predicate = self._cache.compile(where, version.read_as)
            except MilepostError:
                continue  # it fits the version it was written for; in this one it matches no row
            (version.log_index if durable else version.index).add(key, predicate)
