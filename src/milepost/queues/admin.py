"""Administration: types, queues, and messages that an operator moves or removes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from milepost.errors import InvalidValue, MilepostError, WrongType
from milepost.operations.records import QueueRecord, TypeRecord
from milepost.queues import catalogue, inspection
from milepost.queues.catalogue import Queue, QueueCatalogue, Wanted
from milepost.queues.engine import engine_of
from milepost.queues.messages import discard
from milepost.queues.messages import move as move_messages
from milepost.queues.selection import Criteria
from milepost.storage.database import Session
from milepost.storage.execution import Spoiled, WorkContext

MOST: Final = 10_000_000  # most messages that one operation moves or removes, whatever number is given

T = TypeVar("T")


def declare_type(session: Session, place: WorkContext, text: str) -> TypeRecord:
    """Carry out `operations.queues.DeclareType`."""
    known, number = _change(session, place, lambda known: catalogue.declare_type(session, known, text, place.time_us))
    kind = known.types[number]
    return TypeRecord(kind.number, kind.name, kind.text, kind.schema)


def delete_type(session: Session, place: WorkContext, name: str) -> None:
    """Carry out `operations.queues.DeleteType`."""
    _change(session, place, lambda known: catalogue.delete_type(session, known, name))


def declare_queue(session: Session, place: WorkContext, wanted: Wanted) -> QueueRecord:
    """Carry out `operations.queues.DeclareQueue`."""
    known, number = _change(
        session, place, lambda known: catalogue.declare_queue(session, known, wanted, place.time_us)
    )
    return known.record(known.queues[number], {})


def delete_queue(session: Session, place: WorkContext, name: str) -> None:
    """Carry out `operations.queues.DeleteQueue`."""
    _change(session, place, lambda known: catalogue.delete_queue(session, known, name))


def _change(session: Session, place: WorkContext, work: Callable[[QueueCatalogue], T]) -> tuple[QueueCatalogue, T]:
    engine = engine_of(session, place)
    catalogue.lock(session)
    known = engine.known(session, None)
    before = known.version
    try:
        done = work(known)
    except MilepostError as error:
        raise Spoiled(error) from error  # it may be half done
    after = catalogue.version(session)
    if after != before:
        engine.change(place)
        known = engine.known(session, after)
    return known, done


def move(
    session: Session,
    place: WorkContext,
    source: str,
    target: str,
    kind: str | None,
    where: str | None,
    count: int | None,
) -> int:
    """Carry out `operations.queues.MoveMessages`."""
    known = engine_of(session, place).known(session, None)
    origin, goal = known.queue(source), known.queue(target)
    if origin.number == goal.number:
        raise InvalidValue(f"queue {source!r} is where these messages are")
    found = _chosen(session, place, known, origin, kind, where, count)
    for number in {head.type for head in found}:
        if number not in goal.functions:
            raise WrongType(f"queue {target!r} does not take messages of type {known.types[number].name}")
    mids = [head.mid for head in found]
    if mids:
        move_messages(session, origin, goal, mids)
    return len(mids)


def purge(
    session: Session, place: WorkContext, queue: str, kind: str | None, where: str | None, count: int | None
) -> int:
    """Carry out `operations.queues.Purge`."""
    known = engine_of(session, place).known(session, None)
    origin = known.queue(queue)
    mids = [head.mid for head in _chosen(session, place, known, origin, kind, where, count)]
    if mids:
        discard(session, known, origin, mids)
    return len(mids)


def _chosen(
    session: Session, place: WorkContext, known: QueueCatalogue, queue: Queue, kind: str | None, where: str | None,
    count: int | None,
) -> list[inspection.Head]:  # fmt: skip
    if count is not None and count < 1:
        raise InvalidValue(f"count = {count}: takes one message at least, or None for all")
    most = min(count or MOST, MOST)
    return inspection.committed(session, known, queue, Criteria(kind, where), 0, most, lock=place.shared)
