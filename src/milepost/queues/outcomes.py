"""The ends of transactions: commit and rollback of their messages."""

from __future__ import annotations

from typing import Final

from milepost.operations.queues import Renew, Undo
from milepost.operations.steps import Done
from milepost.queues import rows, statements, states
from milepost.queues.catalogue import Queue, QueueCatalogue
from milepost.queues.engine import engine_of
from milepost.queues.messages import discard, make_groups, move
from milepost.storage.database import Session
from milepost.storage.execution import WorkContext, execute

OUTCOME_US: Final = 600_000_000  # microseconds that an ended transaction is remembered: clients repeat within seconds


def finish(session: Session, known: QueueCatalogue, number: int, s: int, commit: bool, counted: bool) -> set[int]:
    """Carry out the transitions of a transaction's end. Returns the queues in which messages became visible.

    `counted`: returned messages count one more abort, and may become dead letters.
    """
    touched: set[int] = set()
    logged = {(kind, queue) for kind, queue, _ in session.rows(statements.UNLOG, number=number)}
    gone: dict[int, list[int]] = {}
    reserved = False
    for kind, queue_number in sorted(logged):
        queue = known.queues[queue_number]
        arc = (states.COMMIT if commit else states.ROLLBACK)[kind]
        values = {"counted": int(counted)} if arc.old == states.DEQUEUED and arc.new is not None else {}
        changed = session.rows(states.ending(arc, queue.table), owner=number, **values)
        if arc.new is None:
            for row in changed:
                gone.setdefault(row[1], []).append(row[0])
        elif changed:
            touched.add(queue.number)
            if kind == "e" and queue.group:
                make_groups(session, queue, [s if queue.group == "s" else number])
            if kind == "d" and counted and queue.max_deliveries:
                dying = [row[0] for row in changed if row[3] >= queue.max_deliveries]
                if dying:
                    touched |= to_dead_letters(session, known, queue, dying)
        if queue.group and kind == "d":
            reserved = True
            if commit:
                touched.add(queue.number)  # the other messages of its groups are no longer reserved
                if queue.group == "t":
                    session.run(statements.REMOVE_BLOCKS, owner=number, queue=queue.number)
    if reserved:
        session.run(statements.RELEASE, owner=number)
    for type_number, mids in gone.items():
        rows.remove(session, known.types[type_number].tables, mids)
    return touched


def to_dead_letters(session: Session, known: QueueCatalogue, queue: Queue, mids: list[int]) -> set[int]:
    """Move messages to the dead-letter queue, or delete them if there is none. Returns the queues that got some."""
    if queue.dead_letter is None:
        discard(session, known, queue, mids)
        return set()
    move(session, queue, known.queues[queue.dead_letter], mids, aborts="aborts")
    return {queue.dead_letter}


# Operations


@execute.register
def _(operation: Renew, session: Session, place: WorkContext) -> list[int]:
    numbers = session.numbers(operation.numbers)
    found = session.rows(statements.RENEW, numbers=numbers, lease_us=operation.lease_us, time_us=place.time_us)
    return sorted(row[0] for row in found)


@execute.register
def _(operation: Undo, session: Session, place: WorkContext) -> Done:
    return undo(session, place, operation.number)


def undo(session: Session, place: WorkContext, number: int, *, counted: bool = True) -> Done:
    """Undo a transaction, unless it has ended or is prepared."""
    engine = engine_of(session, place)
    row = session.row(statements.LOCK_TRANSACTION, number=number)
    place.later(lambda: engine.learn(number, None))
    if row is None or row[0] != "a":
        return Done(repeated=True)
    known = engine.known(session, None)
    session.run(statements.END, number=number, state="x", lease_us=OUTCOME_US, time_us=place.time_us)
    touched = finish(session, known, number, 0, commit=False, counted=counted)
    return Done(touched=known.names(touched))
