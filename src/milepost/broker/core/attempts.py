"""Runs events that may need a compilation first: a thread compiles, and then the event is run again.

Such an event raises `Uncompiled` before it changes anything. So it can be run again unchanged, and sees everything that
has changed in the meantime.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from milepost.broker.core.effects import Compile, Effect
from milepost.broker.core.predicates import Predicates, Results, Uncompiled
from milepost.broker.core.sessions.connection import Connection
from milepost.errors import MilepostError

Event: TypeAlias = Callable[[], list[Effect]]


class Attempts:
    """Runs events."""

    def __init__(self, predicates: Predicates) -> None:
        self._predicates = predicates

    def run(self, event: Event, connection: Connection | None = None, known: Results | None = None) -> list[Effect]:
        """Run an event. If it is a request of a `connection`, the connection's later frames wait for it."""
        results: Results = {} if known is None else known
        try:
            with self._predicates.attempt(results):
                return event()
        except Uncompiled as missing:
            return self.put_off(missing, event, connection, results)

    def put_off(
        self,
        missing: Uncompiled,
        event: Event,
        connection: Connection | None = None,
        known: Results | None = None,
    ) -> list[Effect]:
        """Have a thread compile what an event needs, then run the event."""
        if connection is not None:
            connection.busy = True
        return [Compile(connection, missing.work, partial(self._compiled, event, connection, known or {}))]

    def _compiled(self, event: Event, connection: Connection | None, known: Results, outcome: Any) -> list[Effect]:
        if connection is not None:
            connection.busy = False
            if not connection.open:
                return []
        if isinstance(outcome, MilepostError):
            return event()  # a broker fault, which is logged: without an attempt, the event compiles at once
        return self.run(event, connection, known | outcome)
