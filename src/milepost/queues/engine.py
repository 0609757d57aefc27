"""The state of a store's queues in memory, kept between operations."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, NamedTuple

from milepost.queues import catalogue, statements
from milepost.queues.catalogue import Queue, QueueCatalogue
from milepost.queues.numbers import Numbers
from milepost.storage.database import Session
from milepost.storage.execution import WorkContext

_NAME: Final = "queues"
DOUBTS: Final = 10_000  # most that are remembered: each belongs to a transaction that is being repeated


class Live(NamedTuple):
    """An open transaction that this process has carried out: what its end has to do."""

    operations: int
    logged: frozenset[tuple[str, int]]  # kind and queue
    taken: dict[int, list[int]]  # type -> messages that its commit removes
    whole: bool = True  # False: incomplete, since an operation was not committed yet when the next one followed


class QueueEngine:
    """One for each open store; used by the writing thread."""

    def __init__(self, session: Session, place: WorkContext) -> None:
        self.catalogue = catalogue.load(session)
        highest = session.row(statements.HIGHEST_TRANSACTION)[0]
        for queue in self.catalogue.queues.values():
            found = session.row(statements.about(statements.HIGHEST_NUMBER, queue.table))
            highest = max(highest, found[0])
        self.numbers: Final = Numbers(place.log, highest)
        self._turn = 0  # the queue that was swept last
        self.groups: Final[dict[int, int]] = {}  # queue -> number of its writers or blocks then, up to a limit
        self._changed = False  # by a transaction that is not committed yet
        # Open transactions of this process. A crash of the database may undo operations that were not synced: then the
        # database counts fewer operations.
        self.live: Final[dict[int, Live]] = {}
        self.unlearned: Final[set[int]] = set()  # those with an operation in a group that is not committed yet
        self._doubted: Final[set[Hashable]] = set()
        self._group: Callable[[Callable[[], None]], None] | None = None  # `WorkContext.later` of the current group
        self._careful = False  # this group is written again, now without assumptions

    def learn(self, number: int, live: Live | None) -> None:
        """Record the state of a transaction after a commit of its group; None: it has ended."""
        self.unlearned.discard(number)
        if live is None:
            self.live.pop(number, None)
        else:
            self.live[number] = live

    def trusts(self, what: Hashable) -> bool:
        """Whether remembered state may be assumed, and checked by the statements that rely on it.

        Each assumption saves a round trip. A check that finds it wrong calls `doubt` and raises `Stale`: the group is
        then carried out again, and queries the database first.
        """
        return not self._changed and not self._careful and what not in self._doubted

    def doubt(self, what: Hashable) -> None:
        """Record that an assumption about a transaction, or about the catalogue for it, was wrong."""
        if len(self._doubted) >= DOUBTS:
            self._doubted.clear()  # costs the forgotten ones one more repetition
        self._doubted.add(what)

    def enter(self, session: Session, place: WorkContext) -> None:
        """Called when an operation begins. Forgets assumptions and changes of a previous group that was not committed.

        Clients that were cut off send repetitions together, and a dropped queue affects all its clients: so a failed
        group is repeated once, without assumptions, and not once for each wrong assumption.
        """
        if self._group == place.later:
            return
        if self._group is not None:  # the previous group was not committed
            self._careful = True
            self.unlearned.clear()
            self.catalogue = catalogue.load(session, self.catalogue)  # the catalogue may have been loaded in that group
            self._changed = False
        self._group = place.later
        place.later(self._committed)

    def _committed(self) -> None:
        self._group = None
        self._careful = False

    def known(self, session: Session, version: int | None) -> QueueCatalogue:
        """The current catalogue, given its version; None: the version is queried."""
        if version is None:
            version = catalogue.version(session)
        if version != self.catalogue.version or self._changed:
            self.catalogue = catalogue.load(session, self.catalogue)
        return self.catalogue

    def turn(self, count: int) -> list[Queue]:
        """The next `count` queues, round robin."""
        numbers = sorted(self.catalogue.queues)
        behind = [number for number in numbers if number > self._turn]
        chosen = (behind + numbers)[: min(count, len(numbers))]
        self._turn = chosen[-1] if chosen else 0
        return [self.catalogue.queues[number] for number in chosen]

    def change(self, place: WorkContext) -> None:
        """Record that this transaction changes the catalogue: until the commit, its version cannot be relied on."""
        self._changed = True
        place.later(self._settled)

    def _settled(self) -> None:
        self._changed = False


def engine_of(session: Session, place: WorkContext) -> QueueEngine:
    """The engine of the store."""
    found = place.memory.get(_NAME)
    if found is None:
        found = place.memory[_NAME] = QueueEngine(session, place)
    assert isinstance(found, QueueEngine)
    found.enter(session, place)
    return found
