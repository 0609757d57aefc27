"""A checked pipeline: every rule compiled, every schema known. The runner works from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from milepost.pipeline.definition.aggregate import WindowAggregate
from milepost.pipeline.definition.lookup import Lookup
from milepost.pipeline.definition.pipeline import Pipeline
from milepost.pipeline.definition.rule import MonitorRule, Rule
from milepost.pipeline.definition.step import Step
from milepost.query.expression import Expression, Predicate
from milepost.schema import types as t
from milepost.schema.types import Field, Optional, Schema, Tuple

# The record of a rejected event. The event is the original one, in JSON, so that it can be put again.
REJECTS: Final = Schema(
    "reject",
    Tuple(
        (
            Field("at", Optional(t.TIMESTAMP)),  # its event time, if it has one
            Field("rule", t.STRING),  # the step's name, or its number and verb
            Field("reason", t.STRING),
            Field("event", t.STRING),
        )
    ),
)


@dataclass(frozen=True)
class CheckedStep:
    """A step of tier 1, with the events before and after it."""

    step: Step
    label: str
    sees: Schema  # the schema of its expressions: the events before it, and `monitor`
    after: Schema
    queries: Mapping[str, Expression]  # `where` of a filter, the fields of a derive, `by` of an enrich
    lookup: Lookup | None = None  # of an enrich step


@dataclass(frozen=True)
class CheckedMonitor:
    """A monitor over the results of tier 1."""

    rule: MonitorRule
    of: Expression | None
    where: Predicate | None


@dataclass(frozen=True)
class CheckedRule:
    """A rule of tier 2.

    `where`, `first`, `then` and the arguments of aggregates are over `sees`. `having` and `emit` are over `context`:
    what the engine of tier 2 emits for the rule, and `monitor`.
    """

    rule: Rule
    sees: Schema  # the results of tier 1, and `monitor`
    context: Schema
    output: Schema  # of the messages to its topic
    where: Predicate | None
    first: Predicate | None = None
    then: Predicate | None = None  # also the event that an absence waits for
    aggregates: tuple[WindowAggregate, ...] = ()  # without `count` of all events, which windows always have
    having: Predicate | None = None
    emit: Mapping[str, Expression] | None = None  # None: the fields of `output`, taken from the context
    payload: tuple[str, ...] = ()  # fields of events, besides the keys, that the engine has to carry


@dataclass(frozen=True)
class CheckedPipeline:
    """A checked pipeline. Its schemas are those of messages; `query.spark.struct_type` gives the columns."""

    pipeline: Pipeline
    input: Schema
    monitors: tuple[CheckedMonitor, ...]
    monitor_type: Tuple | None  # of the column `monitor`; None: there is no such column
    steps: tuple[CheckedStep, ...]
    result: Schema  # of tier 1
    time: str | None  # the field of the result with the event time; None where it is left out and not needed
    retimed: bool  # whether tier 1 computes another event time
    rejecting: bool  # whether tier 1 can reject events
    rules: tuple[CheckedRule, ...]
    outputs: Mapping[str, Schema]  # by topic: the schema of what the pipeline writes for others
    warnings: tuple[str, ...]

    @property
    def combines(self) -> bool:
        """Whether there is a tier 2, which combines the lanes' results. If not, they are the output."""
        return bool(self.rules or self.monitors)
