"""Tier 2 on Spark: the combined stream, through the rules, to their topics.

::

    combined source          events in time order, and a progress row with the watermark at the end
      -> columns             of each rule: whether an event matters to it, its keys, the values to aggregate
      -> packed by shard     Arrow tables as bytes: a few rows for each micro-batch, whatever the number of events
      -> one stateful step   `RuleEngine`, once for each shard; its state is in Spark's store, one version an epoch
      -> columns             `having` and `emit`, and the topic for each row
      -> sink                with the progress

Rules without state (thresholds, the output itself, late events) take the same path: one query, one epoch, one
transaction. When no rule has state, the three steps in the middle are left out.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.streaming.state import GroupStateTimeout

from milepost.pipeline.definition.checked import CheckedMonitor, CheckedPipeline, CheckedRule
from milepost.pipeline.definition.rule import AbsenceRule, MonitorRule, SequenceRule, ThresholdRule, WindowRule
from milepost.pipeline.definition.shape import MONITOR, fields_of
from milepost.pipeline.lane import PROGRESS
from milepost.pipeline.own_topics import OwnTopics
from milepost.pipeline.source.types import spark_schema
from milepost.pipeline.tier1.columns import named
from milepost.pipeline.tier2.packed import PACKED, RUN, STATE, Packing, Running, Stateful, Unpacking
from milepost.pipeline.tier2.rules import (
    FIRST,
    THEN,
    TIME,
    Absence,
    Aggregate,
    Monitor,
    Rule,
    TimeWindow,
    quantile_name,
)
from milepost.pipeline.tier2.rules import Sequence as Sequenced
from milepost.query.spark import column

OUT: Final = "out"  # the column of tier 1's results, for the output topic
LATE: Final = "late"  # the column of late results


class Tier2:
    """Translates the rules of a checked pipeline to columns and steps of Spark. Needs a running Spark."""

    def __init__(self, checked: CheckedPipeline) -> None:
        assert checked.time is not None
        self._checked = checked
        self._moment = F.unix_micros(named(checked.time)).alias(TIME)
        self._fields = fields_of(checked.result)
        self._event = F.struct(*(named(field.name) for field in self._fields))
        self._stateful: list[Stateful] = []
        self._before: dict[str, tuple[Column, Column]] = {}  # by column: the condition, and the value where it is true
        for number, rule in enumerate(checked.rules):
            self._rule(f"r{number}", rule)
        for number, monitor in enumerate(checked.monitors):
            self._monitor(f"m{number}", monitor)

    def _rule(self, name: str, checked: CheckedRule) -> None:
        rule = checked.rule
        condition = F.lit(True) if checked.where is None else column(checked.where)
        fields = [self._moment]
        spec: Rule
        match rule:
            case ThresholdRule():
                seen = [named(MONITOR)] if self._checked.monitor_type is not None else []
                self._before[name] = condition, F.struct(*(named(each.name) for each in self._fields), *seen)
                return
            case WindowRule():
                fields += [named(key) for key in rule.by]
                aggregates = []
                for number, each in enumerate(checked.aggregates):
                    source = None if each.argument is None else f"_a{number}"
                    if each.argument is not None:
                        fields.append(column(each.argument).alias(f"_a{number}"))
                    aggregates.append(Aggregate(each.name, each.function, source, each.quantile))
                slide = rule.slide or rule.window
                spec = TimeWindow(rule.name, rule.by, rule.window.us, slide.us, tuple(aggregates))
            case SequenceRule() | AbsenceRule():
                assert checked.first is not None
                assert checked.then is not None
                first, then = column(checked.first), column(checked.then)
                condition = condition & (F.coalesce(first, F.lit(False)) | F.coalesce(then, F.lit(False)))
                fields += [first.alias(FIRST), then.alias(THEN)]
                fields += [named(each) for each in dict.fromkeys((*rule.by, *checked.payload))]
                kind = Sequenced if isinstance(rule, SequenceRule) else Absence
                spec = kind(rule.name, rule.by, rule.within.us)
        self._stateful.append(Stateful(name, spec))
        self._before[name] = condition, F.struct(*fields)

    def _monitor(self, name: str, checked: CheckedMonitor) -> None:
        rule = checked.rule
        condition = F.lit(True) if checked.where is None else column(checked.where)
        fields = [self._moment]
        if checked.of is not None:
            fields.append(column(checked.of).cast("double").alias("value"))
        value = None if checked.of is None else "value"
        # A rule may have the same name as a monitor.
        spec = Monitor(f"monitor {rule.name}", rule.window.us, rule.every.us, value, rule.wanted)
        self._stateful.append(Stateful(name, spec))
        self._before[name] = condition, F.struct(*fields)

    # The three parts of the query

    def apply(self, frame: DataFrame, shards: int) -> DataFrame:
        """The DataFrame for the sink, from the combined stream."""
        fresh = F.col("_progress").isNull() & ~F.col("_late")
        made = [F.when(fresh & condition, value).alias(name) for name, (condition, value) in self._before.items()]
        made.append(F.when(F.col("_late"), self._event).alias(LATE))
        if self._checked.pipeline.output is not None:
            made.append(F.when(fresh, self._event).alias(OUT))
        beside = [MONITOR] if self._checked.monitor_type is not None else []
        before = frame.select(*made, *beside, "_progress")
        if not self._stateful:
            return self._after(before)
        carried = tuple(name for name in before.columns if name not in (MONITOR, "_progress"))
        stateful = tuple(self._stateful)
        run = (
            before.mapInArrow(Packing(carried, stateful, shards), PACKED)
            .groupBy("shard")
            .applyInPandasWithState(
                Running(carried, stateful),
                RUN,
                STATE,
                "append",
                GroupStateTimeout.NoTimeout,
            )
        )
        struct = self._unpacked(carried)
        return self._after(run.mapInArrow(Unpacking(carried, struct.json()), struct))

    def _unpacked(self, carried: tuple[str, ...]) -> T.StructType:
        """The columns after the engine."""
        events = spark_schema(self._checked.result)
        kinds: dict[str, T.StructType] = {LATE: events, OUT: events}
        for number, rule in enumerate(self._checked.rules):
            kinds[f"r{number}"] = spark_schema(rule.context)
        kinds |= {f"m{number}": _monitored(each.rule) for number, each in enumerate(self._checked.monitors)}
        fields = [T.StructField(name, kinds[name]) for name in carried]
        return T.StructType([*fields, T.StructField("_progress", PROGRESS)])

    def _after(self, frame: DataFrame) -> DataFrame:
        """Apply `having` and `emit`. Rows without any output are left out."""
        made: list[Column] = []
        for number, rule in enumerate(self._checked.rules):
            name = f"r{number}"
            there = F.col(name).isNotNull()
            if rule.having is not None:
                there = there & column(rule.having, under=name)
            if rule.emit is None:
                sent = F.struct(*(F.col(name)[field.name].alias(field.name) for field in fields_of(rule.output)))
            else:
                sent = F.struct(*(column(each, under=name).alias(field) for field, each in rule.emit.items()))
            made.append(F.when(there, sent).alias(name))
        made += [_statistic(f"m{number}", each.rule) for number, each in enumerate(self._checked.monitors)]
        made.append(F.col(LATE).alias(LATE if self._checked.pipeline.late is not None else f"_{LATE}"))
        if self._checked.pipeline.output is not None:
            made.append(F.col(OUT))
        chosen = frame.select(*made, "_progress")
        return chosen.where(reduce(or_, (F.col(name).isNotNull() for name in chosen.columns)))

    def routes(self) -> dict[str, str]:
        """Which column goes to which topic."""
        pipeline = self._checked.pipeline
        found = {f"r{number}": rule.rule.to for number, rule in enumerate(self._checked.rules)}
        found |= {f"m{number}": OwnTopics(pipeline.name).monitor for number in range(len(self._checked.monitors))}
        if pipeline.late is not None:
            found[LATE] = pipeline.late.to
        if pipeline.output is not None:
            found[OUT] = pipeline.output
        return found


def _monitored(rule: MonitorRule) -> T.StructType:
    """The columns that the engine emits for a monitor."""
    fields = [T.StructField("window_start", T.TimestampType()), T.StructField("window_end", T.TimestampType())]
    fields += [T.StructField("count", T.LongType()), T.StructField("rate", T.DoubleType())]
    if rule.of is not None:
        names = ("mean", "min", "max", *(quantile_name(each) for each in rule.wanted))
        fields += [T.StructField(name, T.DoubleType()) for name in names]
    return T.StructType(fields)


def _statistic(name: str, rule: MonitorRule) -> Column:
    """A row of the monitors' topic."""
    it = F.col(name)
    missing = F.lit(None).cast("double")
    quantiles = [
        F.struct(F.lit(each).alias("quantile"), it[quantile_name(each)].alias("value")) for each in rule.wanted
    ]
    empty = F.array().cast("array<struct<quantile:double,value:double>>")
    sent = F.struct(
        F.lit(rule.name).alias("monitor"),
        it["window_start"].alias("start"),
        it["window_end"].alias("stop"),
        it["count"].alias("count"),
        it["rate"].alias("rate"),
        *((it[each] if rule.of is not None else missing).alias(each) for each in ("mean", "min", "max")),
        (F.array(*quantiles) if quantiles else empty).alias("quantiles"),
    )
    return F.when(it.isNotNull(), sent).alias(name)
