"""Administration: types, queues, and messages that an operator moves or removes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from milepost.errors import InvalidValue, MilepostError, WrongType
from milepost.operations.queues import DeclareQueue, DeclareType, DeleteQueue, DeleteType, MoveMessages, Purge
from milepost.operations.records import QueueRecord, TypeRecord
from milepost.queues import catalogue, inspection
from milepost.queues.catalogue import Queue, QueueCatalogue
from milepost.queues.engine import engine_of
from milepost.queues.messages import discard, move
from milepost.queues.selection import Criteria, Head
from milepost.storage.database import Session
from milepost.storage.execution import Spoiled, WorkContext, execute

MOST: Final = 10_000_000  # most messages that one operation moves or removes, whatever number is given

T = TypeVar("T")


@execute.register
def _(operation: DeclareType, session: Session, place: WorkContext) -> TypeRecord:
    known, number = _change(
        session, place, lambda known: catalogue.declare_type(session, known, operation.text, place.time_us)
    )
    kind = known.types[number]
    return TypeRecord(kind.number, kind.name, kind.text, kind.schema)


@execute.register
def _(operation: DeleteType, session: Session, place: WorkContext) -> None:
    _change(session, place, lambda known: catalogue.delete_type(session, known, operation.name))


@execute.register
def _(operation: DeclareQueue, session: Session, place: WorkContext) -> QueueRecord:
    known, number = _change(
        session, place, lambda known: catalogue.declare_queue(session, known, operation, place.time_us)
    )
    return known.record(known.queues[number], {})


@execute.register
def _(operation: DeleteQueue, session: Session, place: WorkContext) -> None:
    _change(session, place, lambda known: catalogue.delete_queue(session, known, operation.name))


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


@execute.register
def _(operation: MoveMessages, session: Session, place: WorkContext) -> int:
    known = engine_of(session, place).known(session, None)
    source, target = known.queue(operation.source), known.queue(operation.target)
    if source.number == target.number:
        raise InvalidValue(f"queue {source.name!r} is where these messages are")
    found = _chosen(operation, session, place, known, source)
    for number in {head.type for head in found}:
        if number not in target.functions:
            raise WrongType(f"queue {target.name!r} does not take messages of type {known.types[number].name}")
    if found:
        move(session, source, target, [head.mid for head in found])
    return len(found)


@execute.register
def _(operation: Purge, session: Session, place: WorkContext) -> int:
    known = engine_of(session, place).known(session, None)
    queue = known.queue(operation.queue)
    found = _chosen(operation, session, place, known, queue)
    if found:
        discard(session, known, queue, [head.mid for head in found])
    return len(found)


def _chosen(
    operation: MoveMessages | Purge, session: Session, place: WorkContext, known: QueueCatalogue, queue: Queue
) -> list[Head]:
    if operation.count is not None and operation.count < 1:
        raise InvalidValue(f"count = {operation.count}: takes one message at least, or None for all")
    criteria, most = Criteria(operation.type, operation.where), min(operation.count or MOST, MOST)
    return inspection.committed(session, known, queue, criteria, 0, most, lock=place.shared)
