"""The versions of a topic as they will be with further schemas, and their indexes: made outside of the event loop.

Each subscription of the topic is read anew against each version. Subscriptions that come and go meanwhile are noted in
order, and are made up for; what is left when the work is done is little, and the event loop does it itself.
"""

from __future__ import annotations

from collections import deque
from threading import Lock
from typing import TYPE_CHECKING, Final

from milepost.broker.core.predicates import Predicates, Results, Work
from milepost.errors import MilepostError
from milepost.schema import Versions

if TYPE_CHECKING:
    from milepost.broker.core.topics.topic import Topic, Version

AT_ONCE: Final = 2_000  # characters of predicates, times versions, that are compiled in the event loop: some 5 ms


class Rebuild:
    """One of them. `note` and `finish` are for the core's thread, `work` for any."""

    def __init__(self, topic: Topic, family: Versions, predicates: Predicates) -> None:
        self.family = family
        self.versions: dict[int, Version] = {}
        self._predicates = predicates
        self._lock = Lock()  # held while a subscription is added: several may wait for one rebuild, and work on it
        self._done = False
        # Whether it is a durable one, its key, and its predicate; None: it is gone.
        self._waiting: deque[tuple[bool, int, str | None]] = deque(
            [(False, key, each.where) for key, each in topic.subscriptions.items()]
            + [(True, key, each.where) for key, each in topic.log_subscriptions.items() if each.follows]
        )

    def note(self, durable: bool, key: int, where: str | None) -> None:
        """A subscription has come, or is gone."""
        self._waiting.append((durable, key, where))

    @property
    def long(self) -> bool:
        """Whether it is too much for the event loop, as far as it is not done yet."""
        if len(self._waiting) * len(self.family.schemas) > AT_ONCE:
            return True
        if not self._lock.acquire(blocking=False):
            return True  # somebody is at it
        try:
            return sum(len(where or "") + 20 for _, _, where in self._waiting) * len(self.family.schemas) > AT_ONCE
        finally:
            self._lock.release()

    def work(self) -> Work:
        """Do what waits, one subscription at a time."""
        more = True
        while more:
            with self._lock:
                more = self._next()
            yield
        results: Results = {self: self}  # who waits for it keeps it
        return results

    def finish(self) -> dict[int, Version]:
        """Do the rest; the versions."""
        with self._lock:
            while self._next():
                pass
            self._done = True
            return self.versions

    def give_up(self) -> None:
        """Nobody needs it any more: another version came first."""
        self._done = True

    def _next(self) -> bool:
        if self._done:
            return False
        if not self.versions:
            from milepost.broker.core.topics.topic import Version

            self.versions = {each.fingerprint: Version(each, self.family.merged) for each in self.family.schemas}
        try:
            durable, key, where = self._waiting.popleft()
        except IndexError:
            return False
        for version in self.versions.values():
            if where is None:
                index = version.log_index if durable else version.index
                if key in index:
                    index.remove(key)
                continue
            try:
                predicate = self._predicates.compile(where, version.read_as)
            except MilepostError:
                continue  # it made sense of the version it was written for; here it can be true of no row
            (version.log_index if durable else version.index).add(key, predicate)
        return True
