"""Which clients are gone or stuck: they say nothing, they do not read, or a frame of theirs does not end.

All three are found by looking at each connection several times a heartbeat; messages only leave a time behind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from milepost.broker.core.effects import Effect, Say
from milepost.broker.core.memory import PASSED
from milepost.errors import Overloaded, TimedOut
from milepost.wire import Pong

if TYPE_CHECKING:
    from milepost.broker.core.core import Core
    from milepost.broker.core.sessions.connection import Connection

SILENT_HEARTBEATS: Final = 3  # without a sign of life before a client counts as gone
SCANS: Final = 4  # of each heartbeat: a client that is gone is noticed so much of one late
LEAST_PROGRESS: Final = 16_384  # bytes of a frame in `frame_s`: less is a drip
HEARTBEAT_PING: Final = 0  # as clients number the pings whose answer is nobody's

Bytes = Callable[["Connection"], int]


class Liveness:
    """Looks at all connections."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._silence_s = SILENT_HEARTBEATS * core.settings.heartbeat_s
        self.interval_s: Final = min(core.settings.heartbeat_s / SCANS, core.settings.frame_s / 2)

    def scan(self, now: float, partial: Bytes, waiting: Bytes) -> list[Effect]:
        """Once every `interval_s`. How many bytes of an unfinished frame are here, and how many the channel keeps."""
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
            # What it says is not read, so that nobody knows whether it does. Answers that it takes are a sign of life.
            if not connection.blocked:
                effects.append(Say(connection, Pong(HEARTBEAT_PING)))  # and so is this, to a client that pings
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
