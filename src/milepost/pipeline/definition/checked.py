"""A pipeline that was checked: every rule compiled, every schema known. What runs a pipeline works from this."""

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

# What is known of an event that was rejected. The event is as it came in, in JSON, so that it can be put again.
REJECTS: Final = Schema(
    "reject",
    Tuple(
        (
            Field("at", Optional(t.TIMESTAMP)),  # its event time, where it has one
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
    sees: Schema  # what its expressions are over: the events before it, and `monitor`
    after: Schema
    queries: Mapping[str, Expression]  # `where` of a filter, the fields of a derive, `by` of an enrich
    lookup: Lookup | None = None  # of an enrich


@dataclass(frozen=True)
class CheckedMonitor:
    """A monitor, over the results of tier 1."""

    rule: MonitorRule
    of: Expression | None
    where: Predicate | None


@dataclass(frozen=True)
class CheckedRule:
    """A rule of tier 2.

    `where`, `first`, `then` and the arguments of aggregates are over `sees`; `having` and `emit` over `context`, which
    is what the engine of tier 2 emits for such a rule, and `monitor`.
    """

    rule: Rule
    sees: Schema  # the results of tier 1, and `monitor`
    context: Schema
    output: Schema  # of the messages to its topic
    where: Predicate | None
    first: Predicate | None = None
    then: Predicate | None = None  # also what an absence waits for
    aggregates: tuple[WindowAggregate, ...] = ()  # without `count` of all events, which windows always have
    having: Predicate | None = None
    emit: Mapping[str, Expression] | None = None  # None: the fields of `output`, as the context has them
    payload: tuple[str, ...] = ()  # fields of events beside the keys that the engine has to carry along


@dataclass(frozen=True)
class CheckedPipeline:
    """A whole pipeline. Schemas are those of messages: `query.spark.struct_type` has the columns."""

    pipeline: Pipeline
    input: Schema
    monitors: tuple[CheckedMonitor, ...]
    monitor_type: Tuple | None  # of the column `monitor`; None: there is no such column
    steps: tuple[CheckedStep, ...]
    result: Schema  # of tier 1
    time: str | None  # the field of the result with the event time; None where it was left out and nobody needs it
    retimed: bool  # whether tier 1 makes another event time than events came with
    rejecting: bool  # whether tier 1 can reject anything
    rules: tuple[CheckedRule, ...]
    outputs: Mapping[str, Schema]  # by topic: what the pipeline writes for others
    warnings: tuple[str, ...]
