"""Finds clients that are gone or stuck: they are silent, do not read, or do not finish a frame.

A scan checks each connection several times per heartbeat; a message only records its time.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from milepost.broker.core.effects import Effect, Say
from milepost.broker.core.memory import PASSED
from milepost.errors import Overloaded, TimedOut
from milepost.wire import Pong

if TYPE_CHECKING:
    from milepost.broker.core.core import Core
    from milepost.broker.core.sessions.connection import Connection

SILENT_HEARTBEATS: Final = 3  # heartbeats without any frame before a client counts as gone
SCANS: Final = 4  # per heartbeat: a client that is gone is noticed up to a quarter of a heartbeat late
LEAST_PROGRESS: Final = 16_384  # bytes that an unfinished frame must grow by in `frame_s`
HEARTBEAT_PING: Final = 0  # number of the pings for which no caller waits

Bytes = Callable[["Connection"], int]


class Liveness:
    """Scans all connections."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._silence_s = SILENT_HEARTBEATS * core.settings.heartbeat_s
        self.interval_s: Final = min(core.settings.heartbeat_s / SCANS, core.settings.frame_s / 2)

    def scan(self, now: float, partial: Bytes, waiting: Bytes = attrgetter("unsent")) -> list[Effect]:
        """Called every `interval_s`. `partial`: bytes of an unfinished frame; `waiting`: bytes that wait to be sent."""
        effects: list[Effect] = []
        for connection in list(self._core.connections.values()):
            if connection.greeted and connection.open:
                effects += self._look(connection, now, partial(connection), waiting(connection))
        return effects

    def _look(self, connection: Connection, now: float, here: int, kept: int) -> list[Effect]:
        effects: list[Effect] = []
        if not connection.blocked or connection.moved or kept < connection.unsent:
            connection.took, connection.moved = now, False
        self._core.memory.unsent(connection, kept)
        if now - connection.took > self._silence_s:
            why = f"nothing of the {kept} bytes that wait for it was read for {self._silence_s:g} s"
            return self._core.refused(connection, TimedOut(why))
        if connection.paused:
            # Its frames are not read, so silence says nothing. Taking answers shows that it is alive.
            if not connection.blocked:
                effects.append(Say(connection, Pong(HEARTBEAT_PING)))  # shows a client that pings that we are alive
            since = now if connection.halted is None or connection.passes == PASSED else connection.halted
            if now - since > self._core.settings.frame_s:
                why = f"{connection.held} bytes are held for it, and the broker has none left (memory_bytes)"
                return effects + self._core.refused(connection, Overloaded(f"{why}; try again later"))
            connection.heard = connection.grown_at = now
            return effects
        if here > connection.partial:
            connection.heard_part = now
        if not connection.partial or here < connection.grown or here - connection.grown >= LEAST_PROGRESS:
            connection.grown, connection.grown_at = here, now
        connection.partial = here
        if now - max(connection.heard, connection.heard_part) > self._silence_s:
            why = f"nothing was heard for {self._silence_s:g} s"
            return self._core.refused(connection, TimedOut(why))
        if here and now - max(connection.heard, connection.grown_at) >= self._core.settings.frame_s:
            return self._core.refused(connection, TimedOut("a frame was begun and not finished"))
        return effects
