"""Upkeep: recovery after a crash, ended leases, expired messages."""

from __future__ import annotations

from typing import Final

from milepost.operations.queues import Recover, Sweep
from milepost.operations.steps import Done
from milepost.queues import outcomes, selection, statements
from milepost.queues.catalogue import Queue
from milepost.queues.engine import engine_of
from milepost.storage.database import Session
from milepost.storage.execution import WorkContext, execute

SWEPT: Final = 1_000  # most rows of one sweep, which delays other writes
SWEPT_OUTCOMES: Final = 20_000  # more of these, since each transaction leaves one; each takes some microseconds
SWEPT_QUEUES: Final = 50  # most queues of one sweep, round robin; each takes some 200 microseconds


@execute.register
def _(operation: Recover, session: Session, place: WorkContext) -> Done:
    """Undo the transactions that were open in this log when its process ended. A brokerless client is that process."""
    touched: set[str] = set()
    for (number,) in session.rows(statements.LEFT, log=place.log):
        touched.update(_undo(session, place, number))
    engine_of(session, place)
    return Done(touched=tuple(sorted(touched)))


@execute.register
def _(operation: Sweep, session: Session, place: WorkContext) -> Done:
    """Undo transactions of clients and brokers that are gone, remove expired messages, forget old outcomes."""
    touched: set[str] = set()
    lapsed = session.rows(statements.LAPSED, most=SWEPT, time_us=place.time_us)
    for (number,) in lapsed:
        touched.update(_undo(session, place, number))
    more = (
        session.run(statements.FORGET_OUTCOMES, most=SWEPT_OUTCOMES, time_us=place.time_us) >= SWEPT_OUTCOMES
        or len(lapsed) >= SWEPT
    )
    engine = engine_of(session, place)
    known = engine.known(session, None)
    for queue in engine.turn(SWEPT_QUEUES):
        statement = statements.expired(queue.table, queue.group, place.shared)
        values = {"queue": queue.number} if queue.group else {}
        mids = [row[0] for row in session.rows(statement, now=place.time_us, most=SWEPT, **values)]
        if mids:
            touched.update(known.names(outcomes.to_dead_letters(session, known, queue, mids)))
            more |= len(mids) >= SWEPT
        if queue.group:
            _without_messages(session, queue)
            engine.groups[queue.number] = session.row(
                statements.COUNT_GROUPS, queue=queue.number, most=selection.FEW_GROUPS + 1
            )[0]
    return Done(touched=tuple(sorted(touched)), more=more)


def _undo(session: Session, place: WorkContext, number: int) -> tuple[str, ...]:
    """Undo a transaction whose client or broker is gone. It counts as an abort, since a message may have crashed them.

    Messages of a transfer were not given to an application, so their abort does not count.
    """
    return outcomes.undo(
        session, place, number, counted=session.row(statements.TRANSFERRED, number=number) is None
    ).touched


def _without_messages(session: Session, queue: Queue) -> None:
    """Remove groups that have no committed messages; a commit that adds messages makes them again.

    Such a commit locks the groups' rows until it ends, so the groups are checked again once they are locked.
    """
    some = statements.about(statements.EMPTY_GROUPS, queue.table, queue.group)
    members = [row[0] for row in session.rows(some, queue=queue.number, most=SWEPT)]
    if members:
        removed = statements.about(statements.REMOVE_GROUPS, queue.table, queue.group)
        session.run(removed, queue=queue.number, members=session.numbers(members))
