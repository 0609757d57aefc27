"""Counts of messages in queues and of the lag of named subscriptions, which the store makes from time to time.

Counting reads all headers of a queue. It therefore runs outside of the event loop and the writer, and only when a
request for figures finds them too old. One count serves all requests that arrive meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from milepost.broker.core.effects import Effect, Inspect
from milepost.operations import Lags
from milepost.operations.queues import Count
from milepost.operations.records import Counted

if TYPE_CHECKING:
    from milepost.broker.core.core import Core
    from milepost.broker.core.sessions.connection import Connection

Then: TypeAlias = Callable[[dict[str, Any]], list[Effect]]

COUNT_S: Final = 5.0  # seconds that figures stay fresh
REST: Final = 10  # the next count begins no sooner than this many times the duration of the last one
PATIENCE_S: Final = 1.0  # seconds that an answer waits for a count; after that it has the previous figures
LISTED: Final = 200  # queues, and subscriptions, with their own figures; Prometheus keeps some series for each
_LAGS: Final = ""  # no queue has this name


class Counts:
    """The last count, and the requests that wait for the next one."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._due = -math.inf  # when figures are too old
        self._began: float | None = None  # a count is under way since then
        self._waiting: dict[Hashable, Then] = {}  # one request for each `who`
        self._time_us = 0  # when figures were last requested
        self.last = Counted()
        self.queues: dict[str, dict[str, int]] = {}  # by name, as far as they were counted
        self.lags = Lags([], 0, 0)  # as they were last counted
        self._times: dict[str, int] = {}  # when each queue was counted, and lags under `_LAGS`

    @property
    def time_us(self) -> int:
        """When the oldest of the figures was counted; 0: there are none."""
        return min(self._times.values(), default=0)

    def ask(self, who: Hashable, now: float, time_us: int, then: Then) -> list[Effect]:
        """Call `then` when figures are fresh, or after `PATIENCE_S`: an unavailable store delays no request longer.

        One request of each `who` waits; further ones get the previous figures.
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
        """Answer a client's `StatusRequest`."""
        then = partial(self._core.reply, connection, request)
        return self.ask(connection, connection.heard, time_us, then)

    def tick(self, now: float) -> list[Effect]:
        """Called about once a second: answer requests that have waited for `PATIENCE_S`."""
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
        return self._answer()  # after an error, with the previous figures

    def _answer(self) -> list[Effect]:
        waiting, self._waiting = self._waiting, {}
        if not waiting:
            return []
        figures = self._core.statistics(self._time_us)  # computed once for all requests
        return [effect for then in waiting.values() for effect in then(figures)]
