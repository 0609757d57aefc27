"""What clients ask about queues and types outside of transactions."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from milepost import limits
from milepost.broker.core.connection import Connection
from milepost.broker.core.effects import Effect, Inspect, Store
from milepost.errors import InvalidValue, MilepostError
from milepost.queues import forwards, operations
from milepost.transport.address import parse_address
from milepost.wire import (
    Browse,
    CreateQueue,
    Decide,
    Decisions,
    DefineType,
    Dequeue,
    DropForward,
    DropQueue,
    DropType,
    ForgetDecision,
    Forwards,
    Holding,
    InDoubt,
    MoveMessages,
    Purge,
    Queues,
    SetForward,
    Settle,
    Types,
)

if TYPE_CHECKING:
    from milepost.broker.core.core import Core

ADMINISTRATION = (
    DefineType, Types, DropType, CreateQueue, DropQueue, Queues, Browse, MoveMessages, Purge, Decide, InDoubt,
    Decisions, ForgetDecision, Settle, Holding, SetForward, DropForward, Forwards,
)  # fmt: skip


def administer(core: Core, connection: Connection, request: Any) -> list[Effect]:
    """Have the store do what a request asks; raises what is wrong with it as far as can be told without the store."""
    core.queues.require_store()
    operation, then = _operation(request), partial(_answered, core, connection, request)
    # Whoever only looks does not stand between those who write: a queue may be long.
    return [Inspect(operation, then) if isinstance(operation, operations.Look) else Store(operation, then)]


def _operation(request: Any) -> Any:
    match request:
        case DefineType():
            limits.require("TOPIC_SCHEMA_CHARS", len(request.text), "the text of a message type")
            return operations.DefineType(request.text)
        case Types():
            return operations.Types()
        case DropType():
            return operations.DropType(request.name)
        case CreateQueue():
            limits.require("QUEUE_TYPES", len(request.types), "the types of a queue")
            for text in request.functions.values():
                limits.require("WHERE_CHARS", len(text), "the characters of a priority function")
            return operations.CreateQueue(
                request.name, tuple(request.types), request.level, request.direction, request.priority,
                tuple(request.functions.items()), request.dead, request.most_aborts,
            )  # fmt: skip
        case DropQueue():
            return operations.DropQueue(request.name)
        case Queues():
            return operations.Queues(request.name, request.counted)
        case Dequeue():
            return operations.Peek(request.queue, request.type, request.count, request.select, request.order)
        case Browse():
            _require(request.select, request.count, "BROWSE_MESSAGES")
            if not 0 <= request.after < 1 << 63:
                raise InvalidValue(f"after = {request.after}: takes the number of a message")
            return operations.Browse(request.queue, request.type, request.select, request.after, request.count)
        case MoveMessages():
            _require(request.select, request.count, None)
            return operations.MoveMessages(request.source, request.target, request.type, request.select, request.count)
        case Purge():
            _require(request.select, request.count, None)
            return operations.Purge(request.queue, request.type, request.select, request.count)
        case Decide():
            return operations.Decide(request.gid, request.commit)
        case Decisions():
            return operations.Decisions()
        case ForgetDecision():
            return operations.ForgetDecision(request.gid)
        case Settle() | Holding():
            if not 0 < request.number < 1 << 63:
                raise InvalidValue(f"number = {request.number}: takes the number of a transaction")
            if isinstance(request, Holding):
                return forwards.Holding(request.number)
            return forwards.Settle(request.gid, request.number)
        case SetForward():
            for each in request.address.split(","):
                parse_address(each.strip())
            return forwards.SetForward(request.queue, request.address, request.target)
        case DropForward():
            return forwards.DropForward(request.queue)
        case Forwards():
            return forwards.Forwards()
    assert isinstance(request, InDoubt)
    return operations.Prepared(request.coordinator)


def _require(select: str | None, count: int | None, limit: str | None) -> None:
    if select is not None:
        limits.require("WHERE_CHARS", len(select), "the characters of a selection")
    if count is not None and count < 1:
        raise InvalidValue(f"count = {count}: takes a number of messages, from 1 on")
    if count is not None and limit is not None:
        limits.require(limit, count, "the messages of one request")


def _answered(core: Core, connection: Connection, request: Any, outcome: Any) -> list[Effect]:
    keeper, queues = core.keeper, core.queues
    if isinstance(outcome, MilepostError):
        return keeper.failed(connection, request.request, outcome)
    value: Any = None
    effects: list[Effect] = []
    match request:
        case DefineType():
            queues.learn_type(outcome.schema)
            value = {"name": outcome.name, "text": outcome.text}
        case Types():
            value = [{"name": each.name, "text": each.text} for each in outcome]
        case CreateQueue():
            value = _described(outcome)
        case Queues():
            value = [_described(each) for each in outcome]
        case Dequeue() | Browse():
            last = max((mid for group in outcome.groups for mid in group.mids), default=0)
            told = {"messages": outcome.count, "after": last}
            return queues.looked(connection, request.request, told, outcome.groups)
        case MoveMessages() | Purge():
            value = {"messages": outcome}
            if isinstance(request, MoveMessages):
                queues.waiting.stir((request.target,), effects, Counter({request.target: outcome}))
        case Decide():
            value = {"repeated": outcome.repeated}
            queues.waiting.stir(outcome.touched, effects)
        case InDoubt() | Decisions():
            value = [list(each) for each in outcome]
        case Settle():
            value = {"commit": outcome[0]}
            queues.waiting.stir(outcome[1], effects)
        case Holding():
            value = {"remaining": outcome.remaining, "ends": [list(each) for each in outcome.ends]}
        case SetForward() | DropForward():
            core.forwards_changed()
        case Forwards():
            value = [each._asdict() for each in outcome]
    return [*keeper.replied(connection, request.request, value), *effects]


def _described(queue: Any) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in queue._asdict().items()}
