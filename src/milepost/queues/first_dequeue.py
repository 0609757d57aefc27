"""A dequeue that begins a transaction, whose result arrives with the commit."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from milepost.operations.steps import Got, Performed
from milepost.queues import statements
from milepost.queues.catalogue import Queue, QueueCatalogue
from milepost.queues.engine import Live, QueueEngine
from milepost.queues.messages import got_owned, owned_texts
from milepost.storage import faults
from milepost.storage.database import Session
from milepost.storage.execution import Promise
from milepost.storage.transaction import Stale


def nothing(session: Session, queue: Queue, now: int) -> Got:
    """The result of a dequeue that found nothing, with the time when the next message is due, if any."""
    row = session.row(statements.about(statements.NEXT_DUE, queue.table), now=now)
    return Got([], row[0] if row is not None else None)


class FirstDequeue(Promise):
    """The promised outcome of a dequeue that begins a transaction: `Performed`."""

    def __init__(
        self,
        engine: QueueEngine,
        key: Hashable,
        known: QueueCatalogue,
        queue: Queue,
        number: int,
        now: int,
        plain: bool,
    ) -> None:
        self._engine = engine
        self._key = key
        self._known = known
        self._queue = queue
        self._number = number
        self._now = now
        self._plain = plain
        self._headers: Sequence[Any] | None = None  # None: the answers were lost
        self._rows: list[Sequence[Any]] = []

    def headers(self, answer: Any) -> None:
        """A check that keeps the headers, in any order."""
        if answer.rowcount < 0:  # it raised: this transaction exists already
            self._engine.doubt(self._key)
            raise Stale
        self._headers = answer.fetchall()

    def rows(self, answer: Any) -> None:
        """A check that keeps the rows of the next table."""
        self._rows.append(answer.fetchall())

    def kept(self, session: Session) -> Performed:
        """The outcome, after the commit: see `Promise`."""
        known, queue, number = self._known, self._queue, self._number
        texts = owned_texts(known, queue)
        if self._headers is None or len(self._rows) != len(texts):
            self._headers = session.rows(statements.about(statements.TAKEN_HEADERS, queue.table), owner=number)
            self._rows = session.all_rows(texts, (number,))
        if not self._headers:
            try:
                return Performed(0, (nothing(session, queue, self._now),))
            except faults.DRIVER_ERRORS as error:
                if faults.kind(error) is not faults.FaultKind.AGAIN:
                    raise
                # For example, another broker has deleted the queue since. The queue was empty, which is the answer.
                return Performed(0, (Got([]),))
        taken: dict[int, list[int]] = {}
        for head in self._headers:
            taken.setdefault(head[3], []).append(head[0])
        self._engine.learn(number, Live(1, frozenset({("d", queue.number)}), taken))
        return Performed(number, (got_owned(known, queue, self._headers, self._rows, self._plain),))
