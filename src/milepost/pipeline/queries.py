"""The streaming queries of a pipeline: one for each lane (an IAP), and one for tier 2 (the IEP)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame, SparkSession

from milepost.pipeline import tier1
from milepost.pipeline.combined import CombinedSetting, Feeding
from milepost.pipeline.definition.checked import CheckedPipeline
from milepost.pipeline.definition.rule import AbsenceRule, WindowRule
from milepost.pipeline.internal_source import FORMAT, PipelineDataSource
from milepost.pipeline.lane import LaneSetting
from milepost.pipeline.own_topics import IEP, OwnTopics
from milepost.pipeline.progress import ProgressSetting
from milepost.pipeline.source import connection
from milepost.pipeline.source.options import PATIENCE_S
from milepost.pipeline.takeover import take_over
from milepost.pipeline.tier2.plan import Tier2

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

EVERY: Final = 0.25  # of a control interval: least time between two micro-batches, so that cores are idle at times
WORK: Final = 0.25  # of a control interval: duration of a micro-batch of tier 2; each empties result queues by a step
POOL: Final = "spark.scheduler.pool"  # a local property: queries in different pools take turns


def register(spark: SparkSession) -> None:
    """Register the internal data source with a session."""
    spark.dataSource.register(PipelineDataSource)


def monitors_of(checked: CheckedPipeline) -> dict[str, list[str]]:
    """The statistics that rules may use, by monitor."""
    return {each.rule.name: list(each.rule.statistics) for each in checked.monitors}


def open_times(checked: CheckedPipeline) -> list[tuple[int, int]]:
    """For each rule that emits at the end of a duration: the duration, and the step at whose multiples it begins."""
    found = []
    for each in checked.rules:
        if isinstance(each.rule, WindowRule):
            found.append((each.rule.window.us, (each.rule.slide or each.rule.window).us))
        elif isinstance(each.rule, AbsenceRule):
            found.append((each.rule.within.us + 1, 1))  # the deadline itself is included
    return found


def start_lane(
    spark: SparkSession, checked: CheckedPipeline, lane: int, checkpoint: Path | str, *, drops: int = 0
) -> StreamingQuery:
    """Start an IAP: tier 1 over the events of one lane. `drops`: bytes at which its result queue drops."""
    pipeline, names = checked.pipeline, OwnTopics(checked.pipeline.name)
    setting = LaneSetting(
        pipeline.broker, pipeline.name, lane, tuple(pipeline.input), pipeline.time, monitors_of(checked)
    )
    frame = tier1.apply(_stream(spark, "lane", setting.json()), checked)
    elsewhere = not checked.combines and pipeline.output is not None
    routes = {"event": pipeline.output if elsewhere and pipeline.output else names.lane(lane)}
    if checked.rejecting:
        routes["reject"] = pipeline.rejects_topic
    else:
        frame = frame.drop("reject")
    time = checked.time if checked.retimed else None
    progress = ProgressSetting(
        pipeline.name, lane, time=time or "", elsewhere=elsewhere, disorder_us=pipeline.disorder.us, queue_bytes=drops
    )
    return _start(
        spark, checked, frame, routes, progress, f"{pipeline.name} lane {lane}", Path(checkpoint) / f"lane-{lane}"
    )


def start_tier2(
    spark: SparkSession,
    checked: CheckedPipeline,
    feeding: tuple[Feeding, ...],
    checkpoint: Path | str,
    *,
    shards: int,
    drain: bool = False,
) -> StreamingQuery:
    """Start the IEP: tier 2 over the results of all lanes, in time order. `drain` closes open windows at the end."""
    pipeline = checked.pipeline
    assert checked.time is not None
    setting = CombinedSetting(
        pipeline.broker,
        pipeline.name,
        feeding,
        checked.time,
        monitors_of(checked),
        work_s=WORK * pipeline.control.interval.us / 1e6,
        drain=open_times(checked) if drain else (),
    )
    made = Tier2(checked)
    frame = made.apply(_stream(spark, "combined", setting.json()), shards)
    progress = ProgressSetting(pipeline.name, IEP, result="", late="late", disorder_us=pipeline.disorder.us)
    return _start(
        spark, checked, frame, made.routes(), progress, f"{pipeline.name} tier 2", Path(checkpoint) / "tier-2"
    )


def _stream(spark: SparkSession, option: str, setting: str) -> DataFrame:
    return spark.readStream.format(FORMAT).option(option, setting).load()


def _start(
    spark: SparkSession,
    checked: CheckedPipeline,
    frame: DataFrame,
    routes: dict[str, str],
    progress: ProgressSetting,
    name: str,
    checkpoint: Path,
) -> StreamingQuery:
    with connection.using(checked.pipeline.broker, PATIENCE_S) as client:
        sink = take_over(client, progress, checkpoint)
    spark.sparkContext.setLocalProperty(POOL, name)
    try:
        writer: Any = frame.writeStream.format(FORMAT).queryName(name).outputMode("append")
        writer = writer.options(
            broker=checked.pipeline.broker,
            routes=json.dumps(routes),
            progress=progress.json(),
            sink=sink,
            checkpointLocation=str(checkpoint),
        )
        every = round(EVERY * checked.pipeline.control.interval.us / 1_000)
        made: StreamingQuery = writer.trigger(processingTime=f"{every} milliseconds").start()
        return made
    finally:
        spark.sparkContext.setLocalProperty(POOL, None)  # type: ignore[arg-type]
