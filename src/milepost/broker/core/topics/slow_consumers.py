"""Slow consumers: what happens when too many rows wait for a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from milepost.broker.core.effects import Effect, Say
from milepost.errors import SlowConsumer
from milepost.wire import Dropped

if TYPE_CHECKING:
    from milepost.broker.core.core import Core
    from milepost.broker.core.sessions.connection import Connection
    from milepost.broker.core.topics.backlog import Backlog
    from milepost.broker.core.topics.topic import Topic

DROPPED_TOLD: Final = 10_000  # subscriptions in one frame about dropped rows


def overfull(
    core: Core,
    connection: Connection,
    topic: Topic,
    backlog: Backlog,
    most: int,
    effects: list[Effect],
    full: list[Backlog],
) -> None:
    """Apply the slow-consumer policy to a connection for which more than `most` bytes wait.

    To throttle, its backlog is added to `full`: the publisher's credit waits for these backlogs.
    """
    policy = connection.slow or topic.slow
    if policy == "disconnect":
        waiting = f"{backlog.rows} rows in {backlog.bytes} bytes were waiting for it"
        _count(core, connection, backlog.drop_all())
        tell_dropped(connection, effects)
        effects += core.refused(
            connection, SlowConsumer(f"this client did not take its messages as fast as they came: {waiting}")
        )
    elif policy == "drop":
        lost = backlog.drop(most, connection.slow)
        core.memory.queued(connection)
        if backlog.bytes <= core.settings.queue_bytes // 2:
            core.admission.release(backlog, effects)
        _count(core, connection, lost)
        if lost and not connection.blocked:
            # The client reads but gives no credit, so it can be told now.
            tell_dropped(connection, effects)
    else:
        full.append(backlog)


def _count(core: Core, connection: Connection, lost: dict[int, int]) -> None:
    if connection.dropped is None:
        connection.dropped = {}
    for tag, rows in lost.items():
        connection.dropped[tag] = connection.dropped.get(tag, 0) + rows
    dropped = sum(lost.values())
    connection.dropped_rows += dropped
    core.totals["rows_dropped"] += dropped


def tell_dropped(connection: Connection, effects: list[Effect]) -> None:
    """Tell a client of dropped rows that it was not told of yet."""
    if connection.dropped:
        told = list(connection.dropped.items())
        connection.dropped = None
        for start in range(0, len(told), DROPPED_TOLD):
            effects.append(Say(connection, Dropped(dict(told[start : start + DROPPED_TOLD]))))
