"""The measurements of Gryphon's Figures 2, 3 and 4, load generators on the same machine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.load import feeders, fleet
from benchmarks.load.wire import Line
from benchmarks.load.worker import Worker
from benchmarks.peers import Milepost

# Figure 2 and 3.
PUBLISHERS, RATE = 6, 25.0  # rows a second of each
SUBSCRIBERS = (500, 1_000, 1_500, 2_000, 3_000, 4_500, 6_000, 7_000)
QUICK_SUBSCRIBERS = (500, 1_500)
OVERLOAD = 10  # times the rate, at the end: what a broker does when it cannot keep up
SAMPLES = 3  # of the queues, evenly over a point
# A publisher may have two dozen rows under way, and a subscriber some hundred waiting. With the defaults, which are
# made for throughput, 25 rows a second would take minutes to fill them, and a short run would show no throttling.
WINDOWS = {"put_window": 4_096, "queue_bytes": 65_536}

# Figure 4.
HOT_TOPICS, HOT_RATE, HOT_EACH = 4, 20.0, 100
COLD_TOPICS, COLD_RATE = 10, 0.1
COLD, QUICK_COLD = 4_000, 1_000

SETTLE_SHARE = 0.2  # of the time that is measured passes between a change and its beginning


@dataclass
class Point:
    """One number of subscribers."""

    subscribers: int
    cut_through: bool
    offered: float  # rows a second that each publisher would send if it could
    publish_rate: float  # rows a second of each publisher that the broker took
    rate: float  # rows a second of each subscriber, the mean
    slowest: float  # … and of the one that got fewest
    cpu: float  # of the broker, per cent of one core
    queue_rows: int  # waiting in the broker for all subscribers together, the most that a sample saw
    queue_bytes: int
    under_way: int  # rows put and not yet counted by the subscribers, in the broker and in sockets, at the end
    left_out: float  # share of the rows that publishers could not send, being throttled


def figures(numbers: Sequence[int], seconds: float, cut_through: bool, overload: bool) -> list[Point]:
    """Figure 2 and 3: six publishers on six topics, and ever more subscribers, one topic each.

    With `overload`, one point more: the last number of subscribers, and publishers that want ten times the rate.
    """
    topics = [f"feed{number}" for number in range(PUBLISHERS)]
    option = "--cut-through" if cut_through else "--no-cut-through"
    points = []
    with (
        Milepost(option, **WINDOWS) as broker,
        Worker("asyncio", feeders.pace, broker.host, broker.port, dict.fromkeys(topics, RATE)) as pacer,
        Worker("asyncio", fleet.crew, broker.host, broker.port) as crew,
        Line(broker.host, broker.port) as line,
    ):
        pacer.hear(), crew.hear()
        have = 0
        for number in numbers:
            # The publishers rest while subscribers connect: what is measured is a steady state, and a listener under
            # full load takes long to let a thousand in.
            pacer.ask("pause")
            crew.ask([topics[which % PUBLISHERS] for which in range(have, number)])
            have = number
            pacer.ask("go")
            time.sleep(SETTLE_SHARE * seconds)
            points.append(_point(broker, pacer, crew, line, number, seconds, cut_through, RATE))
        if overload:
            pacer.ask("pause")
            rate = OVERLOAD * RATE
            with Worker("asyncio", feeders.pace, broker.host, broker.port, dict.fromkeys(topics, rate)) as rusher:
                rusher.hear()
                rusher.ask("go")
                time.sleep(SETTLE_SHARE * seconds)
                points.append(_point(broker, rusher, crew, line, have, seconds, cut_through, rate))
    return points


def _point(
    broker: Milepost,
    pacer: Worker,
    crew: Worker,
    line: Line,
    subscribers: int,
    seconds: float,
    cut_through: bool,
    offered: float,
) -> Point:
    began, sent, left_out = pacer.ask("count")
    counted, rows = crew.ask("count")
    before, start = broker.cpu_seconds(), time.monotonic()
    queue_rows = queue_bytes = 0
    for sample in range(SAMPLES):
        time.sleep(max(0.0, start + seconds * (sample + 1) / SAMPLES - time.monotonic()))
        queues = line.status()["queues"]
        queue_rows, queue_bytes = max(queue_rows, queues["rows"]), max(queue_bytes, queues["bytes"])
    cpu = (broker.cpu_seconds() - before) / (time.monotonic() - start)
    ended, sent_then, left_out_then = pacer.ask("count")
    counted_then, rows_then = crew.ask("count")
    put = [after - first for after, first in zip(sent_then, sent, strict=True)]
    missed = sum(left_out_then) - sum(left_out)
    rates = [(after - first) / ((counted_then - counted) / 1e9) for after, first in zip(rows_then, rows, strict=True)]
    wanted = sum(put[which % PUBLISHERS] for which in range(subscribers))
    return Point(
        subscribers=subscribers,
        cut_through=cut_through,
        offered=offered,
        publish_rate=sum(put) / PUBLISHERS / ((ended - began) / 1e9),
        rate=sum(rates) / len(rates),
        slowest=min(rates),
        cpu=100 * cpu,
        queue_rows=queue_rows,
        queue_bytes=queue_bytes,
        under_way=max(0, wanted - (sum(rows_then) - sum(rows))),
        left_out=missed / max(1, missed + sum(put)),
    )


def plot(points: Sequence[Point], width: int = 50) -> list[str]:
    """The delivered rate as bars of text, one line a point."""
    lines = []
    for point in points:
        if point.offered != RATE:
            continue
        full = round(width * min(1.0, point.rate / RATE))
        kind = "with cut-through" if point.cut_through else "without         "
        lines.append(f"{point.subscribers:6,} {kind} │{'█' * full:{width}}│ {point.rate:5.1f} msg/s")
    return lines


def for_json(points: Sequence[Point]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Figure 2 (rates and CPU) and Figure 3 (queues) as plain values."""
    names = ("subscribers", "cut_through", "offered")
    queues = ("queue_rows", "queue_bytes", "under_way")
    all_ = [asdict(point) for point in points]
    second = [{name: value for name, value in each.items() if name not in queues} for each in all_]
    third = [{name: each[name] for name in names + queues} for each in all_]
    return second, third


def cold(number: int, seconds: float) -> dict[str, float]:
    """Figure 4: broker CPU, per cent of one core, of 400 hot subscribers alone, and with cold ones beside them.

    Two brokers, one of them with the cold subscribers, run at the same time: whatever else the machine does then hits
    both alike. Rows and heartbeats of cold subscribers count as their cost.
    """
    hot_topics = {f"hot{number}": HOT_RATE for number in range(HOT_TOPICS)}
    cold_topics = {f"cold{number}": COLD_RATE for number in range(COLD_TOPICS)}
    hot = [topic for topic in hot_topics for _ in range(HOT_EACH)]
    names = list(cold_topics)
    with ExitStack() as stack:
        sides = []
        for topics, wanted in (
            (hot_topics, hot),
            (hot_topics | cold_topics, hot + [names[which % COLD_TOPICS] for which in range(number)]),
        ):
            broker = stack.enter_context(Milepost())
            where = (broker.host, broker.port)
            pacer = stack.enter_context(Worker("asyncio", feeders.pace, *where, topics))
            crew = stack.enter_context(Worker("asyncio", fleet.crew, *where))
            pacer.hear(), crew.hear()
            crew.ask(wanted)
            sides.append((broker, pacer, crew))
        for _, pacer, _ in sides:
            pacer.ask("go")
        time.sleep(SETTLE_SHARE * seconds)
        before = [(broker.cpu_seconds(), crew.ask("count")) for broker, _, crew in sides]
        start = time.monotonic()
        time.sleep(seconds)
        after = [(broker.cpu_seconds(), crew.ask("count")) for broker, _, crew in sides]
        passed = time.monotonic() - start
    cpu, rates = [], []
    for (used, (counted, rows)), (used_then, (counted_then, rows_then)) in zip(before, after, strict=True):
        cpu.append(100 * (used_then - used) / passed)
        came = sum(rows_then[: len(hot)]) - sum(rows[: len(hot)])  # the first ones are hot
        rates.append(came / len(hot) / ((counted_then - counted) / 1e9))
    return {
        "cold": number,
        "hot_cpu": cpu[0],
        "both_cpu": cpu[1],
        "ratio": cpu[1] / cpu[0],
        "hot_rate": rates[0],
        "rate_with_cold": rates[1],
    }
