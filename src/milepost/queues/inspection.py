"""Queries of queues: they take no messages."""

from __future__ import annotations

import time
from itertools import chain, groupby
from operator import attrgetter
from typing import Final

from milepost.batch import Batch
from milepost.errors import QueryTooCostly
from milepost.operations import Lags
from milepost.operations.queues import Browse, Count, Peek, Queues, Types
from milepost.operations.records import Counted, QueueRecord, TypeRecord
from milepost.operations.steps import Got, Group
from milepost.queues import messages, selection, statements
from milepost.queues.catalogue import Queue, QueueCatalogue
from milepost.queues.engine import engine_of
from milepost.queues.first_dequeue import nothing
from milepost.queues.numbers import enqueued_us
from milepost.queues.selection import Criteria, Head
from milepost.queues.states import NEVER_US
from milepost.storage import lookups
from milepost.storage.database import Session
from milepost.storage.execution import WorkContext, execute

COUNTED: Final = 1_000_000  # most messages counted in one queue: takes some tenths of a second
STEP: Final = 64  # most messages read at once, since their sizes are unknown
_LAGS: Final = 0  # the number of the lags among those of queues, which begin at 1
_NOBODY: Final = -1  # no transaction: a peek sees the messages that all transactions see


@execute.register
def _(operation: Peek, session: Session, place: WorkContext) -> Got:
    count, owner = operation.count, operation.owner
    selection.require_count(count)
    known = engine_of(session, place).known(session, None)
    queue = known.queue(operation.queue)
    criteria = Criteria(operation.type, operation.where, operation.order)
    found = selection.pick(
        session, known, queue, criteria, count, owner or _NOBODY, owner != 0, place.time_us, lock=False
    )
    return _got(session, known, found, operation.most_bytes) if found else nothing(session, queue, place.time_us)


@execute.register
def _(operation: Browse, session: Session, place: WorkContext) -> Got:
    selection.require_count(operation.count)
    known = engine_of(session, place).known(session, None)
    criteria = Criteria(operation.type, operation.where)
    queue = known.queue(operation.queue)
    found = committed(session, known, queue, criteria, operation.after, operation.count, lock=False)
    return _got(session, known, found, operation.most_bytes)


def _got(session: Session, known: QueueCatalogue, found: list[Head], most_bytes: int | None) -> Got:
    """The first messages with their content, about `most_bytes` of them, at least one.

    The size of a message is unknown before it is read. So they are read in steps, which begin small.
    """
    if most_bytes is None:
        return messages.got(session, known, found)
    groups: list[Group] = []
    size, start, step = 0, 0, 1
    while start < len(found) and size < most_bytes:
        some = messages.got(session, known, found[start : start + step]).groups
        size += sum(len(group.batch.data) for group in some)
        groups += some
        start += step
        step = min(2 * step, STEP, max(1, (most_bytes - size) * start // max(1, size) + 1))  # by the average so far
    return Got([_joined(list(run)) for _, run in groupby(groups, key=attrgetter("type"))])


def _joined(groups: list[Group]) -> Group:
    """Groups of one type joined into one."""
    first = groups[0]
    if len(groups) == 1:
        return first
    return Group(
        first.type, first.schema, Batch.concat([each.batch for each in groups]),
        *(list(chain.from_iterable(getattr(each, name) for each in groups)) for name in _COLUMNS),
    )  # fmt: skip


_COLUMNS: Final = ("mids", "s", "t", "priorities", "aborts")  # fields of a group beside its messages


def committed(
    session: Session, known: QueueCatalogue, queue: Queue, criteria: Criteria, after: int, count: int, *, lock: bool
) -> list[Head]:
    """Committed messages that are not taken or reserved, due or not, by number."""
    finding = selection.browsing(known, queue, criteria, session.dialect, lock)
    values = {"after": after, "count": count, "queue": queue.number} | finding.values
    ask = session.bounded if criteria.where else session.rows
    return [Head(*row) for row in ask(finding.statement, **values)]


@execute.register
def _(operation: Queues, session: Session, place: WorkContext) -> list[QueueRecord]:
    known = engine_of(session, place).known(session, None)
    wanted = list(known.queues.values()) if operation.name is None else [known.queue(operation.name)]
    now = place.time_us
    return [known.record(each, statistics(session, each, now) if operation.counted else {}) for each in wanted]


@execute.register
def _(operation: Count, session: Session, place: WorkContext) -> Counted:
    """A queue that is too long for the time left is the first of the next count; if too long even then, it is skipped.

    Lags are counted in the same rotation, under number 0.
    """
    began, after = time.monotonic(), operation.after
    known = engine_of(session, place).known(session, None)
    numbers = [_LAGS, *sorted(known.queues)]
    counted: dict[str, dict[str, int]] = {}
    lags: Lags | None = None
    for number in [each for each in numbers if each > after] + [each for each in numbers if each <= after]:
        try:
            if number == _LAGS:
                lags = lookups.lags(session, operation.listed)
            else:
                queue = known.queues[number]
                counted[queue.name] = statistics(session, queue, place.time_us, COUNTED)
        except QueryTooCostly:
            after = after if counted or lags is not None else number
            break  # the next count continues here
        after = number
    dead = {
        each.name: None if each.dead_letter is None else known.queues[each.dead_letter].name
        for each in known.queues.values()
    }
    return Counted(counted, dead, after, lags, place.time_us, time.monotonic() - began)


def statistics(session: Session, queue: Queue, now: int, most: int | None = None) -> dict[str, int]:
    """The number of messages of a queue in each state, and when the oldest waiting one was enqueued.

    `most`: counts only this many messages, the oldest, and within the time limit of an operation.
    """
    ask = session.rows if most is None else session.bounded
    (row,) = ask(statements.count_states(queue.table, most), now=now)
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


@execute.register
def _(operation: Types, session: Session, place: WorkContext) -> list[TypeRecord]:
    known = engine_of(session, place).known(session, None)
    return [TypeRecord(each.number, each.name, each.text, each.schema) for each in known.types.values()]
