"""The measurements. The events are in the topic before the clock starts."""

from __future__ import annotations

import shutil
import time
from typing import Any

import numpy as np

from benchmarks.pipeline import events
from benchmarks.pipeline.world import World, clock, rows_in
from milepost.pipeline.own_topics import OwnTopics, Tail
from milepost.pipeline.runner import Runner

WARM = 2_000  # events before the clock starts


def source(world: World, count: int) -> dict[str, float]:
    """The streaming source alone, into a sink that does nothing: rows a second over all micro-batches but the first."""
    topic = world.filled("bench-source", count)
    stream = (
        world.spark.readStream.format("milepost")
        .option("broker", world.broker.address)
        .option("topic", topic)
        .option("maxRowsPerTrigger", str(max(100_000, count // 8)))
        .load()
    )
    query = (
        stream.writeStream.format("noop")
        .option("checkpointLocation", str(world.folder / f"source-{time.time_ns()}"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    steps = [each for each in query.recentProgress if each["numInputRows"]]
    rows = sum(each["numInputRows"] for each in steps[1:])
    seconds = sum(each["durationMs"]["triggerExecution"] for each in steps[1:]) / 1000
    return {"source_rows_per_s": rows / seconds, "rows": rows, "seconds": seconds}


def tier1(world: World, count: int, lanes: int = 2) -> dict[str, float]:
    """Topic to topic through the pipeline: events a second between the first commit and the last."""
    topic = world.filled("bench-events", count)
    name = f"bench{time.time_ns() % 1_000_000}"
    pipeline = world.pipeline(name, topic, events.RULES, lanes=lanes, output=f"{name}-out")
    folder = world.folder / name
    world.spark  # noqa: B018, the runner uses the session of this process
    with Runner(pipeline, checkpoint=folder, once=True, keep_session=True) as runner:
        runner.run()
        commits = [row for _, _, row in Tail(world.client, OwnTopics(name).progress).news()]
    out = rows_in(world.client, f"{name}-out")
    commits.sort(key=lambda row: row.at)
    done: dict[int, int] = {}
    warm = len(commits) // 4  # the first micro-batches compile: the sustained rate is that of the later ones
    progress: list[tuple[float, int]] = []
    for row in commits:
        done[row.lane] = row.position
        progress.append((row.at.timestamp(), sum(done.values())))
    (start, first), (end, last) = progress[warm], progress[-1]
    shutil.rmtree(folder, ignore_errors=True)
    return {
        "events_per_s": (last - first) / (end - start),
        "events": last,
        "results": out,
        "micro_batches": len(commits),
    }


def parquet(world: World, count: int) -> float:
    """The same rules from Parquet to Parquet, by Spark alone: events a second, the best of some after a warm-up."""
    from pyarrow import parquet as files

    from milepost.pipeline import tier1 as rules
    from milepost.pipeline.definition.checker import check
    from milepost.query import parse_schema

    folder = world.folder / "parquet"
    folder.mkdir(exist_ok=True)
    for number, piece in enumerate(events.tables(count)):
        files.write_table(piece, folder / f"{number:05}.parquet")
    checked = check(
        world.pipeline("bench-parquet", "bench-events", events.RULES, output="x"), parse_schema(events.SCHEMA)
    )
    best = float("inf")
    for attempt in range(2 if world.quick else 3):
        out = world.folder / f"parquet-out-{attempt}"
        began = clock()
        made = rules.apply(world.spark.read.parquet(str(folder)), checked)
        made.where("event is not null").select("event.*").write.parquet(str(out))
        best = min(best, clock() - began) if attempt else best
        shutil.rmtree(out, ignore_errors=True)
    return count / best


def splitter(world: World, count: int) -> float:
    """Assigning events to lanes: events a second, the writing of splits included."""
    from milepost.pipeline.splitter import Splitter

    topic = world.filled("bench-events", count)
    topics = OwnTopics(f"split{time.time_ns() % 1_000_000}")
    topics.declare(world.client)
    made = Splitter(world.client, topics, [topic], 2, {topic: {}}, time.time)
    began, assigned = clock(), 0
    while True:
        now = made.assign()
        if not now:
            break
        assigned += now
        made.done = [each.assigned for each in made.runs]
    return assigned / (clock() - began)


def combiner(world: World, count: int) -> float:
    """Merging two lanes' results into one order, as the source of tier 2 does it: rows a second in one task."""
    from milepost.pipeline.combined import CombinedSetting, Feeding, combine
    from milepost.pipeline.merge import MergePoint
    from milepost.pipeline.source.to_spark import ToSpark
    from milepost.pipeline.source.types import spark_schema
    from milepost.pipeline.watermark import NEVER, NOWHERE, LaneReach
    from milepost.query import parse_schema

    name = f"comb{time.time_ns() % 1_000_000}"
    topics = OwnTopics(name)
    schema = parse_schema(events.SCHEMA)
    topics.declare_lanes(world.client, 2, schema, combined=False)
    for number, piece in enumerate(events.tables(count)):
        world.client.put_many(topics.lane(number % 2), piece)
    setting = CombinedSetting(world.broker.address, name, (Feeding(name, 2, 0),), "at")
    convert = ToSpark(schema, spark_schema(schema))
    ends = tuple(
        LaneReach({}, {int(each["log"]): int(each["next"]) for each in world.client.look(topics.lane(lane))["logs"]})
        for lane in range(2)
    )
    best = float("inf")
    for _ in range(3):
        began, rows = clock(), 0
        start = MergePoint(NEVER, (NOWHERE, NOWHERE), (NOWHERE, NOWHERE))
        for _, batch in combine(setting, convert, start, MergePoint(1 << 60, ends, ends)):
            rows += len(batch)
        best = min(best, clock() - began)
    return rows / best


def peak(world: World, seconds: float, rate: float) -> dict[str, Any]:
    """Both tiers and a monitor while events come at a rate: the delay from an event to tier 2's output of it."""
    from benchmarks.pipeline.live import Feed, Watch

    name = f"peak{time.time_ns() % 1_000_000}"
    topic = f"{name}-events"
    world.client.declare_topic(topic, events.SCHEMA, durable=True)
    # One lane goes through many times as many events; a second would only be one more query on these two cores.
    pipeline = world.pipeline(name, topic, events.RULES + events.TIER2, lanes=1, output=f"{name}-out", disorder="200ms")
    world.spark  # noqa: B018
    with Runner(pipeline, checkpoint=world.folder / name, keep_session=True) as runner:
        # Spark plans, compiles and starts its processes when the first events come: some of them, before it counts.
        # In a short run they are of two seconds, so that most are out of the disorder at once.
        step_us = 1_000 if world.quick else 100
        warm = events.table(0, WARM, start_us=round(time.time() * 1e6) - WARM * step_us, step_us=float(step_us))
        world.client.put_many(topic, warm)
        patience = clock() + 120.0
        runner.run(until=lambda: clock() > patience or rows_in(world.client, f"{name}-out") > 0)
        watch = Watch(world.broker.address, f"{name}-out")
        feed = Feed(world.broker.address, topic, rate)
        try:
            until = clock() + seconds
            runner.run_on(until=lambda: clock() > until)
            sent = feed.stop() + WARM
            caught = clock() + 30.0
            runner.run_on(until=lambda: clock() > caught or sum(runner.totals.done) >= sent)
            if runner.splitter is not None:
                # The delay is that of events in a stream. Of its last ones the combiner waits some seconds for what
                # might have to come before them, and whether those are one in a hundred is by chance.
                runner.splitter.end()
            runner.run_on(
                until=lambda: clock() > caught or rows_in(world.client, f"{name}-out") >= sum(runner.totals.rows)
            )
            done = sum(runner.totals.done)
        finally:
            feed.stop()
            delays = watch.stop()
    settled = delays[delays[:, 0] > seconds / 4, 1]  # without the first seconds, in which Java compiles
    figures = {
        "sent": sent,
        "done": done,
        "measured": len(settled),
        "events_per_s": (sent - WARM) / seconds,
        "p50_s": float(np.percentile(settled, 50)) if len(settled) else None,
        "p99_s": float(np.percentile(settled, 99)) if len(settled) else None,
    }
    figures["paper_peak_ok"] = bool(
        len(settled) and done >= sent and sent - WARM >= 0.97 * rate * seconds and figures["p99_s"] < 5.0
    )
    return figures
