"""Holds: named cursors without a consumer. Retention removes only rows before them.

A hold is a row of the table of subscriptions: so every query for the slowest subscription counts it, and a name is
either a hold or a subscription. Its options mark it as a hold; it has no owner, no epoch and no members.
"""

from __future__ import annotations

import json
from typing import Any

from milepost.errors import BrokerError, SubscriptionExists, TopicMismatch, UnknownTopic
from milepost.operations import Position, RetentionHold
from milepost.storage import lookups, statements
from milepost.storage.database import Session


def is_hold(options: dict[str, Any]) -> bool:
    """Whether these options of a subscription's row mark a hold."""
    return bool(options.get("hold"))


def hold(session: Session, wanted: RetentionHold, time_us: int) -> Position:
    """Make or move a hold, in a transaction that has begun. Returns its position."""
    found = session.row(statements.FIND_SUBSCRIPTION, name=wanted.name)
    if found is None:
        # The lock keeps the topic's rows until the commit: no row that the new hold covers is removed before it.
        if session.row(statements.HOLD_TOPIC, topic=wanted.topic) is None:
            raise UnknownTopic(f"no durable topic has the number {wanted.topic}; it was deleted")
    elif not is_hold(json.loads(found[3])):
        kind = SubscriptionExists if found[1] == wanted.topic else TopicMismatch
        raise kind(f"{wanted.name!r} is a durable subscription, and so no hold; take another name")
    elif found[1] != wanted.topic:
        raise TopicMismatch(f"the hold {wanted.name!r} is one of another topic; take another name")
    extents = lookups.extents(session, wanted.topic).get(wanted.topic, {})
    for log, offset in (wanted.position or {}).items():
        end = extents[log].next if log in extents else 0
        if offset > end:
            raise BrokerError(f"{wanted.name!r} cannot hold offset {offset} of log {log}, which ends at {end}")
    if found is None:
        position = wanted.position
        if position is None:
            position = {log: extent.start for log, extent in extents.items()}
        made = session.row(
            statements.MAKE_SUBSCRIPTION, name=wanted.name, topic=wanted.topic, predicate=None,
            options=statements.HOLD_OPTIONS, token=b"", log=None, opening=0, time_us=time_us,
        )  # fmt: skip
        number, cursors = made[0], {}
    else:
        position = wanted.position or {}
        number = found[0]
        cursors = {log: consumed for log, consumed, _ in session.rows(statements.CURSORS, subscription=number)}
    ahead = {log: offset for log, offset in position.items() if offset > cursors.get(log, 0)}
    if ahead:
        rows = [{"subscription": number, "log": log, "consumed": offset, "state": b""} for log, offset in ahead.items()]
        session.each(statements.MOVE_CURSOR, rows)
    return dict.fromkeys(extents, 0) | cursors | ahead
