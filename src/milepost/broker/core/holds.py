"""Holds, as clients ask for them: named cursors that nobody is served from, and before which alone rows may go."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from milepost.broker.core.connection import Connection
from milepost.broker.core.effects import Effect, Store
from milepost.broker.core.start import position_of
from milepost.broker.core.terms import require_subscription_name
from milepost.errors import BrokerError, MilepostError
from milepost.storage.operations import Hold
from milepost.wire import Hold as HoldRequest

if TYPE_CHECKING:
    from milepost.broker.core.keeper import Keeper


def move_hold(keeper: Keeper, connection: Connection, request: HoldRequest) -> list[Effect]:
    """Make a hold, or move it forward. It is not kept in memory: any broker of a cell may be asked the next time."""
    topic = keeper.durable(request.topic)
    if not request.name:
        raise BrokerError("a hold has a name, by which it is moved and removed")
    require_subscription_name(request.name)
    position = None if request.position is None else position_of(request.position)
    wanted = Hold(request.name, topic.stored, position)
    return [Store(wanted, partial(_held, keeper, connection, request))]


def _held(keeper: Keeper, connection: Connection, request: HoldRequest, outcome: Any) -> list[Effect]:
    if isinstance(outcome, MilepostError):
        return keeper.failed(connection, request.request, outcome)
    return keeper.replied(connection, request.request, {"position": outcome})
