"""What waits in the store, counted now and then: messages of queues, and rows before named subscriptions.

Counting reads all headers of a queue. So it is done beside the event loop and the writer, when somebody asks for
figures and those that are known are too old. One count serves all requests that arrive meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from milepost.broker.core.effects import Effect, Inspect
from milepost.queues.inspection import Counted
from milepost.queues.operations import Count
from milepost.storage.operations import Lags

if TYPE_CHECKING:
    from milepost.broker.core.core import Core
    from milepost.broker.core.sessions.connection import Connection

Then: TypeAlias = Callable[[dict[str, Any]], list[Effect]]

COUNT_S: Final = 5.0  # that figures count as new
REST: Final = 10  # times as long as a count took, before the next one begins
PATIENCE_S: Final = 1.0  # that an answer waits for a count; then it has what was counted before
LISTED: Final = 200  # queues, and subscriptions, with figures of their own; Prometheus keeps some series for each
_LAGS: Final = ""  # no queue has this name


class Counts:
    """The last count, and those who wait for the next one."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._due = -math.inf  # when figures are too old
        self._began: float | None = None  # a count is under way since then
        self._waiting: dict[Hashable, Then] = {}  # by who asks: one request of each
        self._time_us = 0  # when figures were last asked for
        self.last = Counted()
        self.queues: dict[str, dict[str, int]] = {}  # by name, as far as they were counted
        self.lags = Lags([], 0, 0)  # as they were last counted
        self._times: dict[str, int] = {}  # when each queue was counted, and lags under `_LAGS`

    @property
    def time_us(self) -> int:
        """When the oldest of the figures was counted; 0: there are none."""
        return min(self._times.values(), default=0)

    def ask(self, who: Hashable, now: float, time_us: int, then: Then) -> list[Effect]:
        """Call `then` when figures are new, or `PATIENCE_S` have passed: a store that is away delays nobody.

        Of `who`, one request waits; further ones have what was counted before.
        """
        self._time_us = time_us
        effects: list[Effect] = []
        if self._began is None:
            if not self._core.durable.on or now < self._due:
                return then(self._core.statistics(time_us))
            self._began = now
            effects.append(Inspect(Count(self.last.after, LISTED), self._counted))
        elif now - self._began >= PATIENCE_S or who in self._waiting:
            return then(self._core.statistics(time_us))
        self._waiting[who] = then
        return effects

    def report(self, connection: Connection, request: int, time_us: int) -> list[Effect]:
        """A client asks how the broker is."""
        then = partial(self._core.durable.replied, connection, request)
        return self.ask(connection, connection.heard, time_us, then)

    def tick(self, now: float) -> list[Effect]:
        """Once a second or so."""
        return self._answer() if self._began is not None and now - self._began >= PATIENCE_S else []

    def _counted(self, outcome: Any) -> list[Effect]:
        began, self._began = self._began, None
        assert began is not None
        self._due = began + COUNT_S
        if isinstance(outcome, Counted):
            self._due = began + max(COUNT_S, REST * outcome.took_s)
            self.last = outcome
            kept = {name: figures for name, figures in self.queues.items() if name in outcome.dead}
            self.queues = kept | outcome.queues
            times = {name: time_us for name, time_us in self._times.items() if name in kept or name == _LAGS}
            self._times = times | dict.fromkeys(outcome.queues, outcome.time_us)
            if outcome.lags is not None:
                self.lags = outcome.lags
                self._times[_LAGS] = outcome.time_us
        return self._answer()  # after an error, with what was counted before

    def _answer(self) -> list[Effect]:
        waiting, self._waiting = self._waiting, {}
        if not waiting:
            return []
        figures = self._core.statistics(self._time_us)  # once: they are the same for all
        return [effect for then in waiting.values() for effect in then(figures)]
