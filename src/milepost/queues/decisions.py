"""Transactions over several stores: ends of a participant's transactions, and decisions of a coordinator."""

from __future__ import annotations

from milepost.errors import NoTransaction
from milepost.operations.queues import Decide, Decisions, ForgetDecision, Prepared
from milepost.operations.steps import Done
from milepost.queues import statements
from milepost.queues.engine import engine_of
from milepost.queues.outcomes import OUTCOME_US, finish
from milepost.storage.database import Session
from milepost.storage.execution import WorkContext, execute


@execute.register
def _(operation: Decide, session: Session, place: WorkContext) -> Done:
    gid, commit = operation.gid, operation.commit
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
    return Done(touched=known.names(touched))


@execute.register
def _(operation: Prepared, session: Session, place: WorkContext) -> list[tuple[str, str]]:
    found = session.rows(statements.ALL_PREPARED)
    return [(gid, each) for gid, each in found if operation.coordinator in (None, each)]


@execute.register
def _(operation: Decisions, session: Session, place: WorkContext) -> list[tuple[str, str]]:
    return [(gid, participant) for gid, participant in session.rows(statements.DECISIONS)]


@execute.register
def _(operation: ForgetDecision, session: Session, place: WorkContext) -> None:
    session.run(statements.FORGET_DECISION, gid=operation.gid)
