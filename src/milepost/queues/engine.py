"""What the queues of a store have in memory, between the pieces of work that are done for them."""

from __future__ import annotations

from typing import Final

from milepost.queues import catalogue
from milepost.queues.catalogue import Catalogue
from milepost.queues.numbers import Numbers
from milepost.storage.database import Session
from milepost.storage.operations import Place
from milepost.storage.statement import Statement

_HIGHEST: Final = Statement("SELECT coalesce(max(number), 0) FROM queue_transactions")
_NAME: Final = "queues"


class Engine:
    """One for each store that is open; used by the thread that writes."""

    def __init__(self, session: Session, place: Place) -> None:
        self.catalogue = catalogue.load(session)
        highest = session.row(_HIGHEST)[0]
        for queue in self.catalogue.queues.values():
            found = session.row(Statement(f"SELECT coalesce(max(mid), 0) FROM {queue.table}"))
            highest = max(highest, found[0])
        self.numbers: Final = Numbers(place.log, highest)
        self._changed = False  # by a transaction that is not committed yet, and perhaps never will be
        # Transactions of this process: how many operations of each were committed. One that was not synced may be taken
        # back by a crash of the database; then the database counts fewer than this.
        self.operations: Final[dict[int, int]] = {}

    def counted(self, number: int, operations: int | None) -> None:
        """So many operations of a transaction are committed; None: it is over."""
        if operations is None:
            self.operations.pop(number, None)
        else:
            self.operations[number] = operations

    def known(self, session: Session, version: int | None) -> Catalogue:
        """The catalogue as the store has it, given its version; None: it is asked for."""
        if version is None:
            version = catalogue.version(session)
        if version != self.catalogue.version or self._changed:
            self.catalogue = catalogue.load(session, self.catalogue)
        return self.catalogue

    def change(self, place: Place) -> None:
        """Say that this transaction changes the catalogue: until it is committed, the version tells nothing."""
        self._changed = True
        place.later(self._settled)

    def _settled(self) -> None:
        self._changed = False


def engine_of(session: Session, place: Place) -> Engine:
    """The engine of the store."""
    found = place.memory.get(_NAME)
    if found is None:
        found = place.memory[_NAME] = Engine(session, place)
    assert isinstance(found, Engine)
    return found
