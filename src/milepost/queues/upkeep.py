"""What has to be done now and then: recovery after a crash, leases and messages whose time is over."""

from __future__ import annotations

from typing import Final

from milepost.operations.steps import Done
from milepost.queues import ending, picking
from milepost.queues.catalogue import NEVER_US, Queue
from milepost.queues.engine import engine_of
from milepost.storage.database import Session
from milepost.storage.execution import WorkContext
from milepost.storage.statement import Statement

SWEPT: Final = 1_000  # rows in one sweep: it stands between the writes of others
SWEPT_OUTCOMES: Final = 20_000  # of these more, as there are as many as transactions; each takes some microseconds
SWEPT_QUEUES: Final = 50  # looked at in one sweep, each some 200 microseconds; with more, each has its turn
_LEFT: Final = Statement("""
    SELECT number FROM queue_transactions WHERE log = :log AND state = 'a' ORDER BY number {for_update}""")
# The time is asked for in a SELECT of its own: once, and so that the index can be used; and the order is the index's.
_LAPSED: Final = Statement("""
    SELECT number FROM queue_transactions WHERE lease_us < (SELECT {now}) AND state = 'a' ORDER BY lease_us LIMIT :most
    {skip_locked}""")
# Has a transaction taken messages of a queue that is transferred?
_TRANSFERRED: Final = Statement("""
    SELECT 1 FROM queue_log JOIN queue_transfers ON queue_transfers.queue = queue_log.queue
    WHERE queue_log.transaction_number = :number AND queue_log.kind = 'd' LIMIT 1""")
_OLD: Final = Statement("""
    DELETE FROM queue_transactions WHERE number IN (SELECT number FROM queue_transactions
    WHERE lease_us < (SELECT {now}) AND state IN ('c', 'x') ORDER BY lease_us LIMIT :most)""")

_GROUPS: Final = Statement("""
    SELECT count(*) FROM (SELECT 1 FROM queue_groups WHERE queue = :queue LIMIT :most) AS counted""")


def recover(session: Session, place: WorkContext) -> Done:
    """Undo what transactions of this process had done when it ended: without a broker, that was the reader itself."""
    touched: set[str] = set()
    for (number,) in session.rows(_LEFT, log=place.log):
        touched.update(_undo(session, place, number))
    engine_of(session, place)
    return Done(touched=tuple(sorted(touched)))


def sweep(session: Session, place: WorkContext) -> Done:
    """Undo transactions of clients and brokers that are gone, let messages go whose time is over, forget outcomes."""
    touched: set[str] = set()
    lapsed = session.rows(_LAPSED, most=SWEPT, time_us=place.time_us)
    for (number,) in lapsed:
        touched.update(_undo(session, place, number))
    more = session.run(_OLD, most=SWEPT_OUTCOMES, time_us=place.time_us) >= SWEPT_OUTCOMES or len(lapsed) >= SWEPT
    engine = engine_of(session, place)
    known = engine.known(session, None)
    for queue in engine.turn(SWEPT_QUEUES):
        mids = _expired(session, queue, place)
        if mids:
            touched.update(known.queues[each].name for each in ending.bury(session, known, queue, mids))
            more |= len(mids) >= SWEPT
        _without_messages(session, queue)
        if queue.group:
            engine.groups[queue.number] = session.row(_GROUPS, queue=queue.number, most=picking.FEW_GROUPS + 1)[0]
    return Done(touched=tuple(sorted(touched)), more=more)


def _undo(session: Session, place: WorkContext, number: int) -> tuple[str, ...]:
    """Undo a transaction whose client, or broker, is gone. That counts as an abort: a message may have ended them.

    What is on its way to another broker was given to no application, and counts nothing.
    """
    return ending.undo(session, place, number, counted=session.row(_TRANSFERRED, number=number) is None).touched


def _expired(session: Session, queue: Queue, place: WorkContext) -> list[int]:
    """Messages that nobody may take any more. Of a block that somebody reads, the end is his to wait for."""
    held = (
        f"AND NOT EXISTS (SELECT 1 FROM queue_groups g WHERE g.queue = :queue AND g.member = q.{queue.group} "
        "AND g.owner <> 0)"
        if queue.group
        else ""
    )
    locking = "FOR UPDATE OF q SKIP LOCKED" if session.connection.dialect.name == "postgresql" else ""
    statement = Statement(
        f"SELECT q.mid FROM {queue.table} q WHERE q.ends_us <= :now AND q.ends_us < {NEVER_US} AND q.lsf = 'c' {held} "
        f"ORDER BY q.ends_us LIMIT :most {locking}"  # as the index has them: by number, all that wait were looked at
    )
    values = {"queue": queue.number} if queue.group else {}
    return [row[0] for row in session.rows(statement, now=place.time_us, most=SWEPT, **values)]


def _without_messages(session: Session, queue: Queue) -> None:
    """Remove groups that have no committed messages; whoever commits some makes them again.

    He holds their rows until then: it is looked again once they are locked.
    """
    if not queue.group:
        return
    some = Statement(
        f"SELECT member FROM queue_groups WHERE queue = :queue AND owner = 0 AND NOT EXISTS "
        f"(SELECT 1 FROM {queue.table} q WHERE q.{queue.group} = member AND q.lsf = 'c') ORDER BY member LIMIT :most "
        "{skip_locked}"
    )
    members = [row[0] for row in session.rows(some, queue=queue.number, most=SWEPT)]
    if members:
        session.run(
            Statement(
                f"DELETE FROM queue_groups WHERE queue = :queue AND member {{in members}} AND owner = 0 AND NOT EXISTS "
                f"(SELECT 1 FROM {queue.table} q WHERE q.{queue.group} = member AND q.lsf = 'c')"
            ),
            queue=queue.number,
            members=session.numbers(members),
        )
