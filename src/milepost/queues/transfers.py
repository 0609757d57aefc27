"""Transfers in the store: their queues, targets and brokers, and transactions in doubt.

Registers the operations of `milepost.operations.transfers` with the store. `transfer` moves the messages.
"""

from __future__ import annotations

from typing import Final

from milepost import limits
from milepost.address import masked
from milepost.errors import InvalidValue
from milepost.operations.transfers import (
    DeleteTransfer,
    HeldMessages,
    Holding,
    KeepTransfers,
    Settle,
    SetTransfer,
    TransferRecord,
    Transfers,
)
from milepost.queues import outcomes, statements
from milepost.queues.engine import engine_of
from milepost.storage.database import Session
from milepost.storage.execution import WorkContext, execute

ADDRESS_CHARS: Final = 2_000  # most of a target's address: enough for some dozens of brokers of a cell
ERROR_CHARS: Final = 500  # most of an error that is stored for operators


@execute.register
def _(operation: SetTransfer, session: Session, context: WorkContext) -> None:
    """`InvalidValue` when the queue is transferred to another target."""
    number = engine_of(session, context).known(session, None).queue(operation.queue).number
    if len(operation.address) > ADDRESS_CHARS:
        raise InvalidValue(f"an address of {len(operation.address)} characters: takes {ADDRESS_CHARS}")
    limits.require("NAME_CHARS", len(operation.target), "the characters of a queue's name")
    session.run(
        statements.SET_TRANSFER,
        queue=number,
        address=operation.address,
        target=operation.target,
        time_us=context.time_us,
    )
    found = session.row(statements.FIND_TRANSFER, queue=number)
    if (found[0], found[1]) != (operation.address, operation.target):
        raise InvalidValue(
            f"queue {operation.queue!r} is transferred to {masked(found[0])}/{found[1]}: one queue goes to one place; "
            "stop that first"
        )


@execute.register
def _(operation: DeleteTransfer, session: Session, context: WorkContext) -> None:
    """`InvalidValue` when the queue is not transferred."""
    number = engine_of(session, context).known(session, None).queue(operation.queue).number
    if not session.run(statements.DELETE_TRANSFER, queue=number):
        raise InvalidValue(f"queue {operation.queue!r} is not transferred")


@execute.register
def _(operation: Transfers, session: Session, context: WorkContext) -> list[TransferRecord]:
    """All transfers, by the name of the queue."""
    return [TransferRecord(*row) for row in session.rows(statements.TRANSFERS)]


@execute.register
def _(operation: KeepTransfers, session: Session, context: WorkContext) -> list[TransferRecord]:
    """The transfers that this broker runs."""
    for each in operation.reports:
        session.run(
            statements.REPORT_TRANSFER, queue=each.number, created_us=each.created_us, messages=each.messages,
            error=each.error[:ERROR_CHARS].replace("\0", " "), log=context.log,
        )  # fmt: skip
    if not operation.lease_us:
        session.run(statements.LEAVE_TRANSFERS, log=context.log)
        return []
    found = [TransferRecord(*row) for row in session.rows(statements.TRANSFERS)]
    if not found:
        return []
    session.run(statements.TAKE_TRANSFERS, log=context.log, lease_us=operation.lease_us, time_us=context.time_us)
    return [TransferRecord(*row) for row in session.rows(statements.TRANSFERS) if row[5] == context.log]


# Transactions over two stores


@execute.register
def _(operation: Settle, session: Session, context: WorkContext) -> tuple[bool, tuple[str, ...]]:
    """Whether to commit, and the queues in which messages became visible."""
    # Lock the transaction's row first: in a shared store, another broker may be committing it.
    done = outcomes.undo(session, context, operation.number, counted=False)
    return session.row(statements.DECIDED, gid=operation.gid) is not None, done.touched


@execute.register
def _(operation: Holding, session: Session, context: WorkContext) -> HeldMessages:
    """Over all queues from which the transaction has taken messages."""
    known = engine_of(session, context).known(session, None)
    remaining = 0
    ends: list[tuple[int, int]] = []
    for (number,) in session.rows(statements.QUEUES_TAKEN_FROM, number=operation.number):
        queue = known.queues[number]
        found = session.rows(statements.about(statements.TAKEN_ENDS, queue.table), owner=operation.number)
        ends += [(row[0], row[1]) for row in found]
        if queue.blocks:
            rest = statements.about(statements.COUNT_REST_OF_BLOCKS, queue.table)
            remaining += session.row(rest, owner=operation.number, now=context.time_us)[0]
    return HeldMessages(remaining, ends)
