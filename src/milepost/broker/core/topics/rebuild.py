"""The versions of a topic as they will be with further schemas, and their indexes: made outside of the event loop.

Each subscription of the topic is read anew against each version. That is done in rounds: the core hands the versions
and the subscriptions that are to be added to a thread, and touches neither before they are back. Subscriptions that
come and go meanwhile are noted in order. What is left after a round is little, and the event loop does it itself;
otherwise there is another round.
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

AT_ONCE: Final = 2_000  # characters of predicates, times versions, that are compiled in the event loop: some 5 ms

Change: TypeAlias = tuple[bool, int, str | None]
"""Whether it is a durable subscription, its key, and its predicate; None: it is gone."""


class Rebuild:
    """One of them, for the core's thread. Several events may wait for one."""

    def __init__(self, topic: Topic, family: Versions, predicates: Predicates) -> None:
        self.family = family
        self._predicates = predicates
        self._versions: dict[int, Version] = {}
        self._round: Round | None = None  # elsewhere
        self._changes: list[Change] = [
            *[(False, key, each.where) for key, each in topic.subscriptions.items()],
            *[(True, key, each.where) for key, each in topic.log_subscriptions.items() if each.follows],
        ]

    def note(self, durable: bool, key: int, where: str | None) -> None:
        """A subscription has come, or is gone."""
        self._changes.append((durable, key, where))

    @property
    def away(self) -> bool:
        """Whether a round is elsewhere: the versions are not to be touched."""
        return self._round is not None

    def prepare(self) -> None:
        """Raise `Uncompiled`, as long as what is left is too much for the event loop."""
        results = self._predicates.results or {}
        if self._round is not None and results.get(self) is self._round:
            self._round = None  # it is back
        if self._round is None and self._long:
            self._round = self._next_round()
        if self._round is not None:
            self._predicates.require_done(partial(self._round.work, self))
            self._round = None  # it was done on the spot

    def finish(self) -> dict[int, Version]:
        """Do the rest; the versions. After `prepare`."""
        for _ in self._next_round().work(self):
            pass
        return self._versions

    def give_up(self) -> None:
        """Nobody needs it any more: another version came first."""
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
    """Changes on their way into the indexes.

    Whatever works on it does so in one thread, a step at a time: what waits for the same round helps to finish it.
    """

    def __init__(self, family: Versions, versions: dict[int, Version], changes: deque[Change], cache: Cache) -> None:
        self.stopped = False  # nobody needs the rest
        self._family = family
        self._versions = versions
        self._changes = changes
        self._cache = cache

    def work(self, rebuild: Rebuild) -> Work:
        """Make the changes, one at a time; the outcome says that this round is back."""
        if not self._versions:
            from milepost.broker.core.topics.topic import Version

            merged = self._family.merged
            self._versions |= {each.fingerprint: Version(each, merged) for each in self._family.schemas}
        while self._changes and not self.stopped:
            self._make(*self._changes.popleft())
            yield
        results: Results = {rebuild: self}  # an event that waits for the rebuild keeps it
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
                continue  # it made sense of the version it was written for; here it can be true of no row
            (version.log_index if durable else version.index).add(key, predicate)
