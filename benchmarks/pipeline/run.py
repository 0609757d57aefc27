"""The parts of the benchmark in their order, with the tables that they print."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from benchmarks.parts import PartsRun, carry_out, stop_in_order
from benchmarks.pipeline import parts
from benchmarks.pipeline.world import MASTER, World, world
from benchmarks.report import Report
from milepost.pipeline.session import require_java

PAPER_PEAK = 42e6 / 3600  # events a second: the most that the paper's server sent


class Run(PartsRun):
    """A run with a broker and a session of Spark."""

    def __init__(self, report: Report, quick: bool, made: World) -> None:
        super().__init__(report, quick)
        self.world = made
        self.rate: float | None = None  # of tier 1, events a second

    def went(self, part: str, rows: int) -> bool:
        """Record how many rows went through. Returns whether the run is too short for other figures.

        Spark compiles its code while it runs, which takes most of the time of a short run.
        """
        self.report.figures.setdefault("went_through", {})[part] = rows
        if self.quick:
            self.report.say(f"{part}: {rows:,} rows went through; a short run has no figures")
            self.report.leave_out_figures(*KEYS[part])
        return self.quick


def source(run: Run) -> None:
    """`source_rows_per_s`."""
    count = run.some(8_000_000, 200_000)
    run.progress(f"reading {count:,} rows of ten fields into a sink that does nothing")
    found = parts.source(run.world, count)
    if run.went("source", int(found["rows"])):
        return
    run.report.figures |= {"source_rows_per_s": found["source_rows_per_s"]}
    run.report.table(
        f"The source alone, {MASTER}", ("", "rows", "seconds", "rows/s"),
        [("topic -> noop", int(found["rows"]), found["seconds"], found["source_rows_per_s"])],
    )  # fmt: skip
    run.bars.append(("source_rows_per_s", found["source_rows_per_s"], ">=", 1e6))


def tier1(run: Run) -> None:
    """`events_per_s` and `vs_parquet`."""
    count = run.some(6_000_000, 100_000)
    run.progress(f"topic -> discard, derive, enrich -> topic, {count:,} events")
    found = parts.tier1(run.world, count)
    run.rate = found["events_per_s"]
    run.progress("the same rules from Parquet to Parquet, by Spark alone")
    alone = parts.parquet(run.world, count)
    if run.went("tier1", int(found["events"])):
        return
    ratio = found["events_per_s"] / alone
    run.report.figures |= {"events_per_s": found["events_per_s"], "parquet_events_per_s": alone, "vs_parquet": ratio}
    run.report.table(
        f"Tier 1: discard, derive, enrich; {MASTER}, durable on both ends", ("", "events", "events/s", "of Parquet"),
        [
            (f"topic -> topic, {found['micro_batches']:.0f} micro-batches", int(found["events"]), run.rate, ratio),
            ("Parquet -> Parquet", count, alone, 1.0),
        ],
    )  # fmt: skip
    run.bars.append(("events_per_s", found["events_per_s"], ">=", 200_000.0))
    run.bars.append(("vs_parquet", ratio, ">=", 0.3))


def ends(run: Run) -> None:
    """`splitter_rows_per_s` and `combiner_rows_per_s`, against the rate of the IAPs."""
    count = run.some(2_000_000, 100_000)
    if run.rate is None:
        run.progress("the rate of tier 1, to compare with")
        run.rate = parts.tier1(run.world, run.some(2_000_000, 100_000))["events_per_s"]
    run.progress("assigning events to lanes, and merging two lanes")
    splitter = parts.splitter(run.world, run.some(6_000_000, 100_000))
    combiner = parts.combiner(run.world, count)
    if run.went("ends", count):
        return
    run.report.figures |= {
        "splitter_rows_per_s": splitter,
        "combiner_rows_per_s": combiner,
        "splitter_vs_iap": splitter / run.rate,
        "combiner_vs_iap": combiner / run.rate,
    }
    run.report.table(
        "Splitter and combiner alone", ("", "rows/s", "times the IAPs"),
        [("splitter", splitter, splitter / run.rate), ("combiner", combiner, combiner / run.rate)],
    )  # fmt: skip
    run.bars.append(("splitter_vs_iap", splitter / run.rate, ">=", 5.0))
    run.bars.append(("combiner_vs_iap", combiner / run.rate, ">=", 5.0))


def peak(run: Run) -> None:
    """`paper_peak_ok` and `p99_s`."""
    seconds = float(run.some(60, 1))
    run.progress(f"{PAPER_PEAK:,.0f} events a second for {seconds:.0f} s through both tiers and a monitor")
    found = parts.peak(run.world, seconds, PAPER_PEAK)
    if run.went("peak", int(found["done"])):
        return
    run.report.figures |= {"paper_peak_ok": found["paper_peak_ok"], "p99_s": found["p99_s"], "p50_s": found["p50_s"]}
    run.report.table(
        f"Both tiers with a monitor, one lane, {MASTER}, at the paper's peak (42 million events an hour)",
        ("", "events/s", "through", "p50 s", "p99 s"),
        [("event -> tier 2's output", found["events_per_s"], int(found["done"]), found["p50_s"], found["p99_s"])],
    )
    if found["p99_s"] is not None:
        run.bars.append(("p99_s", found["p99_s"], "<=", 5.0))


PARTS: dict[str, Callable[[Run], None]] = {"source": source, "tier1": tier1, "ends": ends, "peak": peak}
KEYS: dict[str, Sequence[str]] = {
    "source": ("source_rows_per_s",),
    "tier1": ("events_per_s", "parquet_events_per_s", "vs_parquet"),
    "ends": ("splitter_rows_per_s", "combiner_rows_per_s", "splitter_vs_iap", "combiner_vs_iap"),
    "peak": ("paper_peak_ok", "p99_s", "p50_s"),
}


def run(quick: bool, parts: Sequence[str] = tuple(PARTS)) -> None:
    """Run the benchmark, or some of its parts."""
    require_java()
    stop_in_order()
    report = Report("pipeline", quick)
    with world(quick) as made:
        shared = Run(report, quick, made)
        well = carry_out(report, shared, parts, PARTS, KEYS)
        report.bars(shared.bars)
    report.finish()
    if not well:
        sys.exit(1)
