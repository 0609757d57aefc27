"""Transactions over several stores: what a participant is told, and what a coordinator remembers."""

from __future__ import annotations

from typing import Final

from milepost.errors import NoTransaction
from milepost.operations.steps import Done
from milepost.queues.ending import END, OUTCOME_US, PREPARED, finish
from milepost.queues.engine import engine_of
from milepost.storage.database import Session
from milepost.storage.execution import WorkContext
from milepost.storage.statement import Statement

_WRITER: Final = Statement("SELECT s FROM queue_transactions WHERE number = :number")
_ALL_PREPARED: Final = Statement("""
    SELECT gid, coordinator FROM queue_transactions WHERE state = 'p' AND gid IS NOT NULL ORDER BY number""")
_DECISIONS: Final = Statement("SELECT gid, participant FROM queue_decisions ORDER BY decided_us, gid")
_FORGET: Final = Statement("DELETE FROM queue_decisions WHERE gid = :gid")


def decide(session: Session, place: WorkContext, gid: str, commit: bool) -> Done:
    """See `operations.Decide`."""
    engine = engine_of(session, place)
    row = session.row(PREPARED, gid=gid)
    if row is None:
        if commit:
            raise NoTransaction(f"no transaction is known as {gid!r}: it was never prepared here, or is long over")
        return Done(repeated=True)
    number, state = row
    if state != "p":
        if (state == "c") != commit:
            raise NoTransaction(f"transaction {gid!r} was {'committed' if state == 'c' else 'undone'} before")
        return Done(repeated=True)
    known = engine.known(session, None)
    s = session.row(_WRITER, number=number)[0]
    session.run(END, number=number, state="c" if commit else "x", lease_us=OUTCOME_US, time_us=place.time_us)
    touched = finish(session, known, number, s, commit, counted=False)
    return Done(touched=tuple(sorted(known.queues[each].name for each in touched)))


def prepared(session: Session, coordinator: str | None) -> list[tuple[str, str]]:
    """See `operations.Prepared`."""
    found = [(row[0], row[1]) for row in session.rows(_ALL_PREPARED)]
    return found if coordinator is None else [each for each in found if each[1] == coordinator]


def decisions(session: Session) -> list[tuple[str, str]]:
    """See `operations.Decisions`."""
    return [(row[0], row[1]) for row in session.rows(_DECISIONS)]


def forget(session: Session, gid: str) -> None:
    """See `operations.ForgetDecision`."""
    session.run(_FORGET, gid=gid)
