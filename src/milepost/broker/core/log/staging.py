"""Staging in the core: rows that are stored, and become visible when the epoch of their sink is published.

The core keeps no state of staged rows: any broker of the store may publish them, also after a restart.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from milepost import limits, operations
from milepost.broker.core.effects import Effect, Write
from milepost.broker.core.sessions.connection import Connection
from milepost.broker.core.topics.topic import Topic
from milepost.errors import BrokerError, InvalidValue, MilepostError, NotDurable
from milepost.wire import Publish, PublishedEpoch, Stage, Unstage
from milepost.wire.stage import NUMBER_MOST

if TYPE_CHECKING:
    from milepost.broker.core.core import Core
    from milepost.broker.core.put import Put


class Staging:
    """Handles STAGE frames and requests about sinks."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def require(self, topic: Topic, stage: Stage) -> None:
        """Raise for an invalid STAGE; its batch is not checked here."""
        if not topic.stored:
            raise NotDurable(f"topic {topic.name!r} is live, and nothing is staged for one; declare a durable one")
        require_sink(stage.sink)
        for what, number in (("epoch", stage.epoch), ("part", stage.part), ("attempt", stage.attempt)):
            _require_number(what, number)

    def stage(self, put: Put, stage: Stage) -> list[Effect]:
        """Store a batch that is not visible yet; the reply is sent when it is stored."""
        connection, topic, batch = put.connection, put.topic, put.batch
        if not connection.open:
            return []  # its client gets no reply, and stages the batch again on the next connection
        operation = operations.Stage(
            stage.sink, stage.epoch, stage.part, stage.attempt, stage.sequence, connection.instance, topic.stored, batch
        )
        return [Write(operation, partial(self._staged, put, stage))]

    def _staged(self, put: Put, stage: Stage, outcome: Any) -> list[Effect]:
        if isinstance(outcome, MilepostError):
            return self._core.tell_refused(put, outcome)
        if outcome.how == "staged":
            self._core.totals["rows_staged"] += outcome.rows
        connection = put.connection
        if not connection.open:
            return []
        connection.rows_in += len(put.batch)
        value = {"rows": outcome.rows, "how": outcome.how}
        effects = self._core.reply(connection, stage.request, value)
        self._core.admission.give_credit(connection, put.size, effects)
        return effects

    def asked(self, connection: Connection, request: Publish | Unstage | PublishedEpoch) -> list[Effect]:
        """Handle a request about a sink; each may be repeated."""
        if not self._core.durable.on:
            raise NotDurable("this broker keeps nothing, and so has no sinks: start it with a store")
        require_sink(request.sink)
        operation: operations.Operation
        match request:
            case Publish():
                _require_number("epoch", request.epoch)
                limits.require("STAGED_PARTS", len(request.parts), "the parts of an epoch")
                for part, attempt in request.parts:
                    _require_number("part", part)
                    _require_number("attempt", attempt)
                if len({part for part, _ in request.parts}) < len(request.parts):
                    raise InvalidValue("a part is published once: name one attempt for each")
                operation = operations.Publish(request.sink, request.epoch, tuple(request.parts))
            case Unstage():
                _require_number("epoch", request.epoch)
                operation = operations.Unstage(request.sink, request.epoch)
            case PublishedEpoch():
                operation = operations.Epoch(request.sink)
        return [Write(operation, partial(self._answered, connection, request))]

    def _answered(
        self, connection: Connection, request: Publish | Unstage | PublishedEpoch, outcome: Any
    ) -> list[Effect]:
        value: Any = None
        if isinstance(outcome, MilepostError):
            value = outcome
        elif isinstance(outcome, operations.Published):
            value = {"repeated": outcome.repeated, "rows": outcome.rows}
            self._core.totals["epochs_published"] += not outcome.repeated
        elif isinstance(request, PublishedEpoch):
            value = {"epoch": outcome}
        return self._core.reply(connection, request.request, value)


def require_sink(name: str) -> None:
    """Raise for an invalid sink name."""
    limits.require("NAME_CHARS", len(name), "the characters of a sink's name")
    if not name or not name.isprintable():
        raise BrokerError("the name of a sink is shown to people: it takes printable characters, one at least")


def _require_number(what: str, number: int) -> None:
    if not 0 <= number <= NUMBER_MOST:
        raise InvalidValue(f"{what} {number}: takes 0 to {NUMBER_MOST}")
