"""What the queues of a store have in memory, between the pieces of work that are done for them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, NamedTuple

from milepost.queues import catalogue, statements
from milepost.queues.catalogue import Queue, QueueCatalogue
from milepost.queues.numbers import Numbers
from milepost.storage.database import Session
from milepost.storage.execution import WorkContext

_NAME: Final = "queues"
DOUBTS: Final = 10_000  # remembered: each belongs to a transaction that is being repeated


class Live(NamedTuple):
    """A transaction under way, as this process has carried it out: what its end will have to do."""

    operations: int
    logged: frozenset[tuple[str, int]]  # kind and queue
    taken: dict[int, list[int]]  # type -> messages that go with its commit
    whole: bool = True  # False: there is more, of an operation that was not committed yet when the next one followed


class QueueEngine:
    """One for each store that is open; used by the thread that writes."""

    def __init__(self, session: Session, place: WorkContext) -> None:
        self.catalogue = catalogue.load(session)
        highest = session.row(statements.HIGHEST_TRANSACTION)[0]
        for queue in self.catalogue.queues.values():
            found = session.row(statements.highest_number(queue.table))
            highest = max(highest, found[0])
        self.numbers: Final = Numbers(place.log, highest)
        self._turn = 0  # the queue that was looked after last
        self.groups: Final[dict[int, int]] = {}  # queue -> how many writers or blocks it had then, up to a bound
        self._changed = False  # by a transaction that is not committed yet, and perhaps never will be
        # Transactions of this process. Operations that were not synced may be taken back by a crash of the database:
        # then it counts fewer of them.
        self.live: Final[dict[int, Live]] = {}
        self.unlearned: Final[set[int]] = set()  # those that went on in a group that is not committed yet
        self._doubted: Final[set[Hashable]] = set()
        self._group: Callable[[Callable[[], None]], None] | None = None  # what is being written, by `WorkContext.later`
        self._careful = False  # this group is written again: now it asks for everything

    def learn(self, number: int, live: Live | None) -> None:
        """A transaction is so far; None: it is over."""
        self.unlearned.discard(number)
        if live is None:
            self.live.pop(number, None)
        else:
            self.live[number] = live

    def trusts(self, what: Hashable) -> bool:
        """Whether what is remembered may be built upon, and be checked when all is sent.

        One round trip less for each thing that is not asked first. A check that finds it wrong says so by `doubt`, and
        raises `Stale`: the group is then carried out again, and asks.
        """
        return not self._changed and not self._careful and what not in self._doubted

    def doubt(self, what: Hashable) -> None:
        """What was assumed about a transaction, or about the catalogue for it, is not so."""
        if len(self._doubted) >= DOUBTS:
            self._doubted.clear()  # those are asked once more than they need to be
        self._doubted.add(what)

    def enter(self, session: Session, place: WorkContext) -> None:
        """A piece of work begins. What the one before it assumed or changed in vain, in another group, is forgotten.

        Clients that were cut off repeat themselves together, and a queue that another broker has dropped is missed by
        all: a group that failed is carried out anew once, and then asks, instead of once for each assumption.
        """
        if self._group == place.later:
            return
        if self._group is not None:  # it was never committed
            self._careful = True
            self.unlearned.clear()
            self.catalogue = catalogue.load(session, self.catalogue)  # it may have been read in that group
            self._changed = False
        self._group = place.later
        place.later(self._committed)

    def _committed(self) -> None:
        self._group = None
        self._careful = False

    def known(self, session: Session, version: int | None) -> QueueCatalogue:
        """The catalogue as the store has it, given its version; None: it is asked for."""
        if version is None:
            version = catalogue.version(session)
        if version != self.catalogue.version or self._changed:
            self.catalogue = catalogue.load(session, self.catalogue)
        return self.catalogue

    def turn(self, count: int) -> list[Queue]:
        """The next queues in turn: those behind the last ones, and after all the first again."""
        numbers = sorted(self.catalogue.queues)
        behind = [number for number in numbers if number > self._turn]
        chosen = (behind + numbers)[: min(count, len(numbers))]
        self._turn = chosen[-1] if chosen else 0
        return [self.catalogue.queues[number] for number in chosen]

    def change(self, place: WorkContext) -> None:
        """Say that this transaction changes the catalogue: until it is committed, the version tells nothing."""
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
