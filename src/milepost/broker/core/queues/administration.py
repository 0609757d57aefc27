"""Requests about queues and message types outside of transactions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from milepost.broker.core.effects import Effect, Inspect, Write
from milepost.broker.core.sessions.connection import Connection
from milepost.errors import MilepostError
from milepost.operations import Look
from milepost.queues.requests import answer_to, operation_of
from milepost.wire import Browse, Decide, DeclareType, DeleteTransfer, Dequeue, SetTransfer

if TYPE_CHECKING:
    from milepost.broker.core.core import Core


def administer(core: Core, connection: Connection, request: Any) -> list[Effect]:
    """Have the store carry out a request; raises for errors that show without the store."""
    core.queues.require_store()
    operation, then = operation_of(request), partial(_answered, core, connection, request)
    # A look does not wait for writes, nor hold them up: a queue may be long.
    if isinstance(operation, Look):
        return [Inspect(operation, then, connection)]
    return [Write(operation, then)]


def _answered(core: Core, connection: Connection, request: Any, outcome: Any) -> list[Effect]:
    durable, queues = core.durable, core.queues
    if isinstance(outcome, MilepostError):
        return durable.failed(connection, request.request, outcome)
    value, visible = answer_to(request, outcome)
    effects: list[Effect] = []
    match request:
        case DeclareType():
            queues.learn_type(outcome.schema)
        case Dequeue() | Browse():
            return queues.looked(connection, request.request, value, outcome.groups)
        case Decide():
            queues.decided(request.gid, request.commit)
        case SetTransfer() | DeleteTransfer():
            core.transfers_changed()
    queues.waiting.notify(visible.queues, effects, visible.counted)
    return [*durable.replied(connection, request.request, value), *effects]
