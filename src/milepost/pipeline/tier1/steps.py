"""The steps of tier 1 on a DataFrame: events in, events or rejects out. Progress rows pass unchanged.

A rejected event stays in the frame with the reason, and later steps ignore it. So one pass gives results and rejects,
and a micro-batch writes both or neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as s

from milepost.errors import ConfigError
from milepost.pipeline.definition.checked import REJECTS, CheckedPipeline, CheckedStep
from milepost.pipeline.definition.shape import MONITOR, PROGRESS, fields_of
from milepost.pipeline.definition.step import Cleanse, Derive, Discard, Enrich, Keep, Project, Rename, Sample
from milepost.pipeline.tier1.columns import HIDDEN, PROGRESS_TYPE, REJECT, named
from milepost.pipeline.tier1.enrichment import enriched
from milepost.query.spark import column, field_type, struct_type
from milepost.schema.types import Optional

HASH_VALUES: Final = 1 << 64  # of xxhash64, by which `sample` draws
# Times in rejects are in UTC, to the microsecond, whatever the time zone of the session.
_JSON: Final = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "timeZone": "UTC"}


def reject_type() -> s.StructType:
    """The type of the column `reject`."""
    return struct_type(REJECTS)


def apply(frame: DataFrame, checked: CheckedPipeline) -> DataFrame:
    """Tier 1 of a pipeline.

    `frame`, streaming or not, has the columns of `checked.input` (its `struct_type`), `monitor` where the pipeline has
    monitors, and optionally `_progress`, which is null in events. The result has the events that no step leaves out,
    the rejected events, and the progress rows, in the columns `event` (a struct of `checked.result`; null in rejects
    and progress rows), `reject` (null in all but rejects) and `_progress`. The result does not depend on the order of
    the rows.
    """
    return _Run(frame, checked).result()


class _Run:
    def __init__(self, frame: DataFrame, checked: CheckedPipeline) -> None:
        self.checked = checked
        self.schema = checked.input
        self._require_columns(frame)
        # Where each field of the original event is now: rejects contain all of it.
        self.origin = {field.name: field.name for field in fields_of(checked.input)}
        keep: list[Column] = [named(field.name) for field in fields_of(checked.input)]
        self.beside = [PROGRESS, REJECT]
        if checked.monitor_type is not None:
            keep.append(named(MONITOR))
            self.beside.append(MONITOR)
        progress = named(PROGRESS) if PROGRESS in frame.columns else f.lit(None).cast(PROGRESS_TYPE)
        keep += [progress.alias(PROGRESS), f.lit(None).cast(reject_type()).alias(REJECT)]
        self.frame = frame.select(*keep)

    def _require_columns(self, frame: DataFrame) -> None:
        wanted = [field.name for field in fields_of(self.checked.input)]
        if self.checked.monitor_type is not None:
            wanted.append(MONITOR)
        missing = [name for name in wanted if name not in frame.columns]
        if missing:
            raise ConfigError(f"the events of {self.checked.pipeline.name} lack the columns {', '.join(missing)}")

    def result(self) -> DataFrame:
        for step in self.checked.steps:
            self._take(step)
            self.schema = step.after
        self._require_fields()
        fields = [named(field.name) for field in fields_of(self.schema)]
        return self.frame.select(
            f.when(self._is_event(), f.struct(*fields)).alias("event"),
            named(REJECT).alias("reject"),
            named(PROGRESS),
        )

    def _is_event(self) -> Column:
        """Whether the row is neither a progress row nor rejected before; never null."""
        return named(PROGRESS).isNull() & named(REJECT).isNull()

    def _take(self, checked: CheckedStep) -> None:
        match checked.step:
            case Discard():
                self.frame = self.frame.where(~self._is_event() | ~self._holds(checked))
            case Keep():
                self.frame = self.frame.where(~self._is_event() | self._holds(checked))
            case Cleanse() as step:
                reason = step.reason or f"not true: {step.where}"
                self._reject(~self._holds(checked), checked.label, reason)
            case Project() as step:
                self._select({name: named(name) for name in step.fields}, {name: name for name in step.fields})
            case Rename() as step:
                stay = {field.name: step.names.get(field.name, field.name) for field in fields_of(self.schema)}
                self._select({new: named(old) for old, new in stay.items()}, stay)
            case Derive():
                made = {name: self._derived(checked, name) for name in checked.queries}
                names = [field.name for field in fields_of(checked.after)]
                self._select(
                    {name: made.get(name, named(name)) for name in names}, {n: n for n in names if n not in made}
                )
            case Sample() as step:
                self._sample(step)
            case Enrich():
                self._enrich(checked)

    def _holds(self, checked: CheckedStep) -> Column:
        """Whether the step's predicate is true; never null."""
        return f.coalesce(column(checked.queries["where"]), f.lit(False))

    def _derived(self, checked: CheckedStep, name: str) -> Column:
        kind = next(field.type for field in fields_of(checked.after) if field.name == name)
        bare = kind.type if isinstance(kind, Optional) else kind
        return column(checked.queries[name]).try_cast(field_type(bare, checked.after))

    def _select(self, fields: dict[str, Column], stay: Mapping[str, str]) -> None:
        """Replace the columns of the event. `stay` has the fields that continue unchanged, old names to new ones.

        Fields of the original event that do not stay are carried along under another name for rejects. They are
        separate columns, because a struct of the whole event would be assembled for every row, rejected or not.
        """
        hidden: list[Column] = []
        for name, now in self.origin.items():
            if now.startswith(HIDDEN):
                hidden.append(named(now))
            elif now in stay:
                self.origin[name] = stay[now]
            else:
                self.origin[name] = f"{HIDDEN}{name}"
                hidden.append(named(now).alias(self.origin[name]))
        self.frame = self.frame.select(
            *(each.alias(name) for name, each in fields.items()), *(named(name) for name in self.beside), *hidden
        )

    def _reject(self, wrong: Column, label: str, reason: str | Column) -> None:
        """Set the reject column where `wrong` is true; `wrong` must never be null."""
        came_in = [named(now).alias(name) for name, now in self.origin.items()]
        told = f.struct(
            named(self.origin[self.checked.pipeline.time]).alias("at"),
            f.lit(label).alias("rule"),
            (reason if isinstance(reason, Column) else f.lit(reason)).alias("reason"),
            f.to_json(f.struct(*came_in), _JSON).alias("event"),
        ).cast(reject_type())
        rejected = f.when(self._is_event() & wrong, told).otherwise(named(REJECT))
        self.frame = self.frame.withColumn(REJECT, rejected)

    def _require_fields(self) -> None:
        """Reject events without an event time, which have no place in the order of results, and events that lack a
        required field.

        A field that the schema of the input requires may be missing in messages of an older version.
        """
        time = self.checked.time
        if time is not None:
            self._reject(named(time).isNull(), "time", f"the event has no time: {time} is null")
        required = [
            each.name for each in fields_of(self.schema) if each.name != time and not isinstance(each.type, Optional)
        ]
        if required:
            missing = f.coalesce(*(f.when(named(name).isNull(), f.lit(name)) for name in required))
            self._reject(
                missing.isNotNull(), "schema", f.concat(f.lit("results need a value, but there is none: "), missing)
            )

    def _sample(self, step: Sample) -> None:
        """Sample by a hash of the event, so that a repeated micro-batch draws the same events."""
        if step.share >= 1:
            return
        names = step.by or tuple(field.name for field in fields_of(self.schema))
        bound = int(step.share * HASH_VALUES) - HASH_VALUES // 2
        drawn = f.xxhash64(*map(named, names)) < f.lit(bound)
        self.frame = self.frame.where(~self._is_event() | drawn)

    def _enrich(self, checked: CheckedStep) -> None:
        step, lookup = checked.step, checked.lookup
        assert isinstance(step, Enrich)
        assert lookup is not None
        self.frame, found = enriched(self.frame, column(checked.queries["by"]), lookup)
        if step.missing == "reject":
            reason = f.concat(
                f.lit(f"{lookup.name} has no {'network' if step.subnet else 'row'} for {step.by} = "),
                f.coalesce(column(checked.queries["by"]).try_cast(s.StringType()), f.lit("null")),
            )
            self._reject(~found, checked.label, reason)
        names = [field.name for field in fields_of(checked.after)]
        self._select({name: named(name) for name in names}, {name: name for name in names})
