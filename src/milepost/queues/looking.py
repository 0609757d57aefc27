"""Looking into queues: nothing is taken."""

from __future__ import annotations

from typing import Final

from milepost.queues import messages, picking
from milepost.queues.catalogue import NEVER_US, Catalogue, Queue, QueueRecord, TypeRecord
from milepost.queues.engine import engine_of
from milepost.queues.numbers import enqueued_us
from milepost.queues.picking import Head, Wish
from milepost.queues.steps import Got
from milepost.queues.taking import nothing
from milepost.storage.database import Session
from milepost.storage.operations import Place
from milepost.storage.statement import Statement

__all__ = ["Head", "browse", "committed", "peek", "queues", "types"]

_NOBODY: Final = -1  # a transaction that is none: peeking sees what everybody does


def peek(
    session: Session, place: Place, queue: str, kind: str | None, select: str | None, order: str | None, count: int
) -> Got:
    """See `operations.Peek`."""
    picking.require_count(count)
    known = engine_of(session, place).known(session, None)
    found = picking.pick(
        session, known, known.queue(queue), Wish(kind, select, order), count, _NOBODY, False, place.time_us, lock=False
    )
    return messages.got(session, known, found) if found else nothing(session, known.queue(queue), place.time_us)


def browse(
    session: Session, place: Place, queue: str, kind: str | None, select: str | None, after: int, count: int
) -> Got:
    """See `operations.Browse`."""
    picking.require_count(count)
    known = engine_of(session, place).known(session, None)
    found = committed(session, known, known.queue(queue), Wish(kind, select), after, count, lock=False)
    return messages.got(session, known, found)


def committed(
    session: Session, known: Catalogue, queue: Queue, wish: Wish, after: int, count: int, *, lock: bool
) -> list[Head]:
    """Committed messages that nobody has taken or reserved, due or not, by number."""
    finding = picking.browsing(known, queue, wish, picking.dialect_of(session), lock)
    values = {"after": after, "count": count, "queue": queue.number} | finding.values
    ask = session.bounded if wish.select else session.rows
    return [Head(*row) for row in ask(finding.statement, **values)]


def queues(session: Session, place: Place, name: str | None, counted: bool) -> list[QueueRecord]:
    """See `operations.Queues`."""
    known = engine_of(session, place).known(session, None)
    wanted = list(known.queues.values()) if name is None else [known.queue(name)]
    return [known.record(each, statistics(session, each, place.time_us) if counted else {}) for each in wanted]


def statistics(session: Session, queue: Queue, now: int) -> dict[str, int]:
    """How many messages of a queue are in which state, and when the oldest one came that waits."""
    row = session.row(
        Statement(f"""
            SELECT count(*), coalesce(sum(CASE WHEN lsf = 'e' THEN 1 ELSE 0 END), 0),
                coalesce(sum(CASE WHEN lsf IN ('d', 'b') THEN 1 ELSE 0 END), 0),
                coalesce(sum(CASE WHEN lsf = 'c' AND due_us > :now THEN 1 ELSE 0 END), 0),
                coalesce(sum(CASE WHEN lsf = 'c' AND ends_us <= :now THEN 1 ELSE 0 END), 0),
                min(CASE WHEN lsf = 'c' AND due_us <= :now AND ends_us > :now THEN mid ELSE {NEVER_US} END)
            FROM {queue.table}"""),
        now=now,
    )
    total, uncommitted, taken, delayed, expired = (int(value) for value in row[:5])
    oldest = row[5]
    return {
        "waiting": total - uncommitted - taken - delayed - expired,
        "delayed": delayed,
        "taken": taken,
        "uncommitted": uncommitted,
        "expired": expired,
        "oldest_us": enqueued_us(oldest) if oldest is not None and oldest != NEVER_US else 0,
    }


def types(session: Session, place: Place) -> list[TypeRecord]:
    """See `operations.Types`."""
    known = engine_of(session, place).known(session, None)
    return [TypeRecord(each.number, each.name, each.text, each.schema) for each in known.types.values()]
