"""Transfers in the store: which queue goes where, who does it, and what transactions over two stores leave behind.

How the store carries out the operations of `milepost.operations.transfers`. How messages go over: `transfer`.
"""

from __future__ import annotations

from typing import Final

from milepost import limits
from milepost.address import masked
from milepost.errors import InvalidValue
from milepost.operations.transfers import (
    DeleteTransfer,
    Held,
    Holding,
    KeepTransfers,
    Settle,
    SetTransfer,
    TransferRecord,
    Transfers,
)
from milepost.queues import ending
from milepost.queues.catalogue import NEVER_US
from milepost.queues.engine import engine_of
from milepost.storage.database import Session
from milepost.storage.execution import WorkContext, execute
from milepost.storage.statement import Statement

ADDRESS_CHARS: Final = 2_000  # of a target: some dozens of brokers of a cell
ERROR_CHARS: Final = 500  # of what is in the way, as it is kept for people

_FIND: Final = Statement("SELECT address, target FROM queue_transfers WHERE queue = :queue")
_SET: Final = Statement("""
    INSERT INTO queue_transfers (queue, address, target, created_us, runner, lease_us, messages, error)
    VALUES (:queue, :address, :target, :time_us, 0, 0, 0, '') ON CONFLICT (queue) DO NOTHING""")
_DROP: Final = Statement("DELETE FROM queue_transfers WHERE queue = :queue")
_TELL: Final = Statement("""
    UPDATE queue_transfers SET messages = messages + :messages, error = :error
    WHERE queue = :queue AND created_us = :created_us AND runner = :log""")
_TAKE: Final = Statement("""
    UPDATE queue_transfers SET runner = :log, lease_us = {now} + :lease_us
    WHERE runner = :log OR lease_us < {now}""")
_LEAVE: Final = Statement("UPDATE queue_transfers SET lease_us = 0 WHERE runner = :log")
_ALL: Final = Statement("""
    SELECT q.name, f.queue, f.address, f.target, f.created_us, f.runner, f.messages, f.error
    FROM queue_transfers f JOIN queues q ON q.number = f.queue ORDER BY q.name""")
_DECIDED: Final = Statement("SELECT 1 FROM queue_decisions WHERE gid = :gid")
_TAKEN: Final = Statement("SELECT DISTINCT queue FROM queue_log WHERE transaction_number = :number AND kind = 'd'")


@execute.register
def _(operation: SetTransfer, session: Session, context: WorkContext) -> None:
    """`InvalidValue` when the queue goes elsewhere."""
    number = engine_of(session, context).known(session, None).queue(operation.queue).number
    if len(operation.address) > ADDRESS_CHARS:
        raise InvalidValue(f"an address of {len(operation.address)} characters: takes {ADDRESS_CHARS}")
    limits.require("NAME_CHARS", len(operation.target), "the characters of a queue's name")
    session.run(_SET, queue=number, address=operation.address, target=operation.target, time_us=context.time_us)
    found = session.row(_FIND, queue=number)
    if (found[0], found[1]) != (operation.address, operation.target):
        raise InvalidValue(
            f"queue {operation.queue!r} is transferred to {masked(found[0])}/{found[1]}: one queue goes to one place; "
            "stop that first"
        )


@execute.register
def _(operation: DeleteTransfer, session: Session, context: WorkContext) -> None:
    """`InvalidValue` when it was not transferred."""
    number = engine_of(session, context).known(session, None).queue(operation.queue).number
    if not session.run(_DROP, queue=number):
        raise InvalidValue(f"queue {operation.queue!r} is not transferred")


@execute.register
def _(operation: Transfers, session: Session, context: WorkContext) -> list[TransferRecord]:
    """By name."""
    return [TransferRecord(*row) for row in session.rows(_ALL)]


@execute.register
def _(operation: KeepTransfers, session: Session, context: WorkContext) -> list[TransferRecord]:
    """Those that this broker is to run."""
    for each in operation.reports:
        session.run(
            _TELL, queue=each.number, created_us=each.created_us, messages=each.messages,
            error=each.error[:ERROR_CHARS].replace("\0", " "), log=context.log,
        )  # fmt: skip
    if not operation.lease_us:
        session.run(_LEAVE, log=context.log)
        return []
    found = [TransferRecord(*row) for row in session.rows(_ALL)]
    if not found:
        return []
    session.run(_TAKE, log=context.log, lease_us=operation.lease_us, time_us=context.time_us)
    return [TransferRecord(*row) for row in session.rows(_ALL) if row[5] == context.log]


# Transactions over two stores


@execute.register
def _(operation: Settle, session: Session, context: WorkContext) -> tuple[bool, tuple[str, ...]]:
    """And the queues in which others may find more now."""
    # The row of the transaction first: where brokers share the store, another one may be committing it just now.
    done = ending.undo(session, context, operation.number, counted=False)
    return session.row(_DECIDED, gid=operation.gid) is not None, done.touched


@execute.register
def _(operation: Holding, session: Session, context: WorkContext) -> Held:
    """Over all queues that it has taken from."""
    known = engine_of(session, context).known(session, None)
    remaining = 0
    ends: list[tuple[int, int]] = []
    for (number,) in session.rows(_TAKEN, number=operation.number):
        queue = known.queues[number]
        found = session.rows(
            Statement(
                f"SELECT mid, ends_us FROM {queue.table} WHERE owner = :owner AND owner <> 0 "
                f"AND ends_us < {NEVER_US} ORDER BY mid"
            ),
            owner=operation.number,
        )
        ends += [(row[0], row[1]) for row in found]
        if queue.blocks:
            remaining += session.row(
                Statement(
                    f"SELECT count(*) FROM {queue.table} WHERE lsf = 'c' AND ends_us > :now AND t IN "
                    f"(SELECT DISTINCT t FROM {queue.table} WHERE owner = :owner AND owner <> 0 AND lsf = 'd')"
                ),
                owner=operation.number,
                now=context.time_us,
            )[0]
    return Held(remaining, ends)
