"""Retention holds: named cursors without consumers. Retention removes only rows before them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from milepost.broker.core.effects import Effect, Write
from milepost.broker.core.log.starts import position_of
from milepost.broker.core.log.terms import require_subscription_name
from milepost.broker.core.sessions.connection import Connection
from milepost.errors import BrokerError, MilepostError
from milepost.operations import RetentionHold
from milepost.wire import RetentionHold as HoldRequest

if TYPE_CHECKING:
    from milepost.broker.core.log.topics import DurableTopics


def move_hold(durable: DurableTopics, connection: Connection, request: HoldRequest) -> list[Effect]:
    """Make a hold, or move it forward. It is not kept in memory: the next request may go to any broker of the cell."""
    topic = durable.require(request.topic)
    if not request.name:
        raise BrokerError("a hold has a name, by which it is moved and removed")
    require_subscription_name(request.name)
    position = None if request.position is None else position_of(request.position)
    wanted = RetentionHold(request.name, topic.stored, position)
    return [Write(wanted, partial(_held, durable, connection, request))]


def _held(durable: DurableTopics, connection: Connection, request: HoldRequest, outcome: Any) -> list[Effect]:
    if isinstance(outcome, MilepostError):
        return durable.failed(connection, request.request, outcome)
    return durable.replied(connection, request.request, {"position": outcome})
