"""Transactions over several stores: ends of a participant's transactions, and decisions of a coordinator."""

from __future__ import annotations

from milepost.errors import NoTransaction
from milepost.operations.steps import Done
from milepost.queues import statements
from milepost.queues.engine import engine_of
from milepost.queues.outcomes import OUTCOME_US, finish
from milepost.storage.database import Session
from milepost.storage.execution import WorkContext


def decide(session: Session, place: WorkContext, gid: str, commit: bool) -> Done:
    """Carry out `operations.queues.Decide`."""
    engine = engine_of(session, place)
    row = session.row(statements.FIND_PREPARED, gid=gid)
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
    s = session.row(statements.WRITER, number=number)[0]
    session.run(statements.END, number=number, state="c" if commit else "x", lease_us=OUTCOME_US, time_us=place.time_us)
    touched = finish(session, known, number, s, commit, counted=False)
    return Done(touched=tuple(sorted(known.queues[each].name for each in touched)))


def prepared(session: Session, coordinator: str | None) -> list[tuple[str, str]]:
    """Carry out `operations.queues.Prepared`."""
    found = [(row[0], row[1]) for row in session.rows(statements.ALL_PREPARED)]
    return found if coordinator is None else [each for each in found if each[1] == coordinator]


def decisions(session: Session) -> list[tuple[str, str]]:
    """Carry out `operations.queues.Decisions`."""
    return [(row[0], row[1]) for row in session.rows(statements.DECISIONS)]


def forget(session: Session, gid: str) -> None:
    """Carry out `operations.queues.ForgetDecision`."""
    session.run(statements.FORGET_DECISION, gid=gid)
