"""Registers how the store carries out operations on queues. Import it before a store is given one.

`transfers` registers the operations on transfers; it is imported here for that.
"""

from __future__ import annotations

from milepost.errors import MilepostError
from milepost.operations import queues as ops
from milepost.operations.records import Counted, QueueRecord, TypeRecord
from milepost.operations.steps import Done, Got, Performed
from milepost.queues import admin, decisions, inspection, outcomes, transactions, transfers, upkeep
from milepost.queues.catalogue import Wanted
from milepost.queues.selection import Criteria
from milepost.storage.execution import Promise, WorkContext, execute
from milepost.storage.session import Session

__all__ = ["execute", "transfers"]


@execute.register
def _(operation: ops.Perform, session: Session, context: WorkContext) -> Performed | Promise | MilepostError:
    return transactions.perform(session, context, operation.transaction, operation.steps)


@execute.register
def _(operation: ops.Renew, session: Session, context: WorkContext) -> list[int]:
    return outcomes.renew(session, context, operation.numbers, operation.lease_us)


@execute.register
def _(operation: ops.Undo, session: Session, context: WorkContext) -> Done:
    return outcomes.undo(session, context, operation.number)


@execute.register
def _(operation: ops.Recover, session: Session, context: WorkContext) -> Done:
    return upkeep.recover(session, context)


@execute.register
def _(operation: ops.Sweep, session: Session, context: WorkContext) -> Done:
    return upkeep.sweep(session, context)


# Transactions over several stores


@execute.register
def _(operation: ops.Decide, session: Session, context: WorkContext) -> Done:
    return decisions.decide(session, context, operation.gid, operation.commit)


@execute.register
def _(operation: ops.Prepared, session: Session, context: WorkContext) -> list[tuple[str, str]]:
    return decisions.prepared(session, operation.coordinator)


@execute.register
def _(operation: ops.Decisions, session: Session, context: WorkContext) -> list[tuple[str, str]]:
    return decisions.decisions(session)


@execute.register
def _(operation: ops.ForgetDecision, session: Session, context: WorkContext) -> None:
    decisions.forget(session, operation.gid)


# Queries


@execute.register
def _(operation: ops.Peek, session: Session, context: WorkContext) -> Got:
    criteria = Criteria(operation.type, operation.where, operation.order)
    return inspection.peek(
        session, context, operation.queue, criteria, operation.count, operation.most_bytes, operation.owner
    )


@execute.register
def _(operation: ops.Browse, session: Session, context: WorkContext) -> Got:
    return inspection.browse(
        session, context, operation.queue, operation.type, operation.where, operation.after, operation.count,
        operation.most_bytes,
    )  # fmt: skip


@execute.register
def _(operation: ops.Queues, session: Session, context: WorkContext) -> list[QueueRecord]:
    return inspection.queues(session, context, operation.name, operation.counted)


@execute.register
def _(operation: ops.Count, session: Session, context: WorkContext) -> Counted:
    return inspection.count(session, context, operation.after, operation.listed)


@execute.register
def _(operation: ops.Types, session: Session, context: WorkContext) -> list[TypeRecord]:
    return inspection.types(session, context)


# Administration


@execute.register
def _(operation: ops.DeclareType, session: Session, context: WorkContext) -> TypeRecord:
    return admin.declare_type(session, context, operation.text)


@execute.register
def _(operation: ops.DeleteType, session: Session, context: WorkContext) -> None:
    admin.delete_type(session, context, operation.name)


@execute.register
def _(operation: ops.DeclareQueue, session: Session, context: WorkContext) -> QueueRecord:
    wanted = Wanted(
        operation.name, operation.types, operation.level, operation.direction, operation.priority,
        dict(operation.functions), operation.dead_letter, operation.max_deliveries,
    )  # fmt: skip
    return admin.declare_queue(session, context, wanted)


@execute.register
def _(operation: ops.DeleteQueue, session: Session, context: WorkContext) -> None:
    admin.delete_queue(session, context, operation.name)


@execute.register
def _(operation: ops.MoveMessages, session: Session, context: WorkContext) -> int:
    return admin.move(
        session, context, operation.source, operation.target, operation.type, operation.where, operation.count
    )


@execute.register
def _(operation: ops.Purge, session: Session, context: WorkContext) -> int:
    return admin.purge(session, context, operation.queue, operation.type, operation.where, operation.count)
