"""Requests of clients to queues as operations of the store, and the store's outcomes as replies.

Used by a broker, and by a client without a broker (`milepost.brokerless`).
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, Final, NamedTuple

from milepost import limits
from milepost.address import masked, parse_broker
from milepost.batch import Batch
from milepost.batch.plain_rows import PlainRows
from milepost.errors import BrokerError, InvalidValue, MilepostError, TransactionAborted
from milepost.operations import queues as operations
from milepost.operations import steps, transfers
from milepost.wire import (
    Browse,
    Decide,
    Decisions,
    DeclareQueue,
    DeclareType,
    DeleteQueue,
    DeleteTransfer,
    DeleteType,
    Dequeue,
    Enqueue,
    Finish,
    ForgetDecision,
    HoldingRequest,
    ListInDoubt,
    MoveMessages,
    Purge,
    Queues,
    Settle,
    SetTransfer,
    Transfers,
    Types,
)

ADMINISTRATION: Final = (
    DeclareType, Types, DeleteType, DeclareQueue, DeleteQueue, Queues, Browse, MoveMessages, Purge, Decide, ListInDoubt,
    Decisions, ForgetDecision, Settle, HoldingRequest, SetTransfer, DeleteTransfer, Transfers,
)  # fmt: skip
ENDS: Final = ("commit", "abort", "prepare", "flush")


# Outside of transactions


def operation_of(request: Any) -> Any:
    """The operation of a request. Raises for errors that can be found without the store."""
    match request:
        case DeclareType():
            limits.require("TOPIC_SCHEMA_CHARS", len(request.text), "the text of a message type")
            return operations.DeclareType(request.text)
        case Types():
            return operations.Types()
        case DeleteType():
            return operations.DeleteType(request.name)
        case DeclareQueue():
            limits.require("QUEUE_TYPES", len(request.types), "the types of a queue")
            for text in request.functions.values():
                limits.require("WHERE_CHARS", len(text), "the characters of a priority function")
            return operations.DeclareQueue(
                request.name, tuple(request.types), request.level, request.direction, request.priority,
                tuple(request.functions.items()), request.dead_letter, request.max_deliveries,
            )  # fmt: skip
        case DeleteQueue():
            return operations.DeleteQueue(request.name)
        case Queues():
            return operations.Queues(request.name, request.counted)
        case Dequeue():
            return operations.Peek(request.queue, request.type, request.count, request.where, request.order)
        case Browse():
            _require(request.where, request.count, "BROWSE_MESSAGES")
            if not 0 <= request.after < 1 << 63:
                raise InvalidValue(f"after = {request.after}: takes the number of a message")
            return operations.Browse(request.queue, request.type, request.where, request.after, request.count)
        case MoveMessages():
            _require(request.where, request.count, None)
            return operations.MoveMessages(request.source, request.target, request.type, request.where, request.count)
        case Purge():
            _require(request.where, request.count, None)
            return operations.Purge(request.queue, request.type, request.where, request.count)
        case Decide():
            return operations.Decide(request.gid, request.commit)
        case Decisions():
            return operations.Decisions()
        case ForgetDecision():
            return operations.ForgetDecision(request.gid)
        case Settle() | HoldingRequest():
            if not 0 < request.number < 1 << 63:
                raise InvalidValue(f"number = {request.number}: takes the number of a transaction")
            if isinstance(request, HoldingRequest):
                return transfers.Holding(request.number)
            return transfers.Settle(request.gid, request.number)
        case SetTransfer():
            for each in request.address.split(","):
                parse_broker(each.strip())
            return transfers.SetTransfer(request.queue, request.address, request.target)
        case DeleteTransfer():
            return transfers.DeleteTransfer(request.queue)
        case Transfers():
            return transfers.Transfers()
    assert isinstance(request, ListInDoubt)
    return operations.Prepared(request.coordinator)


def _require(where: str | None, count: int | None, limit: str | None) -> None:
    if where is not None:
        limits.require("WHERE_CHARS", len(where), "the characters of a predicate")
    if count is not None and count < 1:
        raise InvalidValue(f"count = {count}: takes a number of messages, from 1 on")
    if count is not None and limit is not None:
        limits.require(limit, count, "the messages of one request")


class Visible(NamedTuple):
    """Queues in which messages have become visible, and how many, if that is known."""

    queues: tuple[str, ...] = ()
    counted: Counter[str] | None = None


def answer_to(request: Any, outcome: Any) -> tuple[Any, Visible]:
    """The reply to a request, without messages, and the queues in which it made messages visible."""
    value: Any = None
    match request:
        case DeclareType():
            value = {"name": outcome.name, "text": outcome.text}
        case Types():
            value = [{"name": each.name, "text": each.text} for each in outcome]
        case DeclareQueue():
            value = _described(outcome)
        case Queues():
            value = [_described(each) for each in outcome]
        case Dequeue() | Browse():
            last = max((mid for group in outcome.groups for mid in group.mids), default=0)
            value = {"messages": outcome.count, "after": last}
        case MoveMessages():
            return {"messages": outcome}, Visible((request.target,), Counter({request.target: outcome}))
        case Purge():
            value = {"messages": outcome}
        case Decide():
            return {"repeated": outcome.repeated}, Visible(outcome.touched)
        case ListInDoubt() | Decisions():
            value = [list(each) for each in outcome]
        case Settle():
            return {"commit": outcome[0]}, Visible(outcome[1])
        case HoldingRequest():
            value = {"remaining": outcome.remaining, "ends": [list(each) for each in outcome.ends]}
        case Transfers():
            value = [each._asdict() | {"address": masked(each.address)} for each in outcome]
    return value, Visible()


def _described(queue: Any) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in queue._asdict().items()}


# In transactions


def require_right(request: Dequeue | Finish) -> None:
    """Raise for errors in a request of a transaction that can be found without the store."""
    if isinstance(request, Finish):
        if request.how not in ENDS:
            raise BrokerError(f"a transaction ends by commit, abort or prepare, not by {request.how[:40]!r}")
        decision_of(request)
        return
    if request.count < 1:
        raise InvalidValue(f"count = {request.count}: takes a number of messages, from 1 on")
    limits.require("DEQUEUE_MESSAGES", request.count, "the messages of one dequeue")
    if not 0 <= request.wait_s <= limits.DEQUEUE_WAIT_S:
        raise InvalidValue(f"wait_s = {request.wait_s}: takes 0 to {limits.DEQUEUE_WAIT_S} seconds")
    for text, what in ((request.where, "a predicate"), (request.order, "an ordering")):
        if text is not None:
            limits.require("WHERE_CHARS", len(text), f"the characters of {what}")


def enqueue_of(said: Enqueue, batch: Batch | PlainRows) -> steps.Enqueue:
    """The step of an ENQUEUE."""
    priority = None if math.isnan(said.priority) else said.priority
    return steps.Enqueue(said.queue, batch, priority, said.due_us or None, said.ends_us or None)


def dequeue_of(said: Dequeue, plain: bool = False) -> steps.Dequeue:
    """The step of a dequeue."""
    return steps.Dequeue(said.queue, said.type, said.count, said.where, said.order, plain)


def decision_of(said: Finish) -> steps.Decision | None:
    """The decision that a coordinator stores with a commit, if any."""
    if said.decision is None:
        return None
    try:
        return steps.Decision(str(said.decision["gid"]), str(said.decision["participant"]))
    except KeyError as error:
        raise BrokerError(f"a decision has a gid and a participant; {error} is missing") from None


def undone_by(reason: MilepostError) -> TransactionAborted:
    """The error for a request of a transaction that was undone because of an earlier, reported error."""
    if isinstance(reason, TransactionAborted):
        return reason
    return TransactionAborted(f"this transaction was undone, because one of its steps failed: {reason}")
