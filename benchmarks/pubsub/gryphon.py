"""The measurements of Gryphon's Figures 2, 3 and 4, load generators on the same machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from benchmarks.load import feeders, fleet
from benchmarks.load.wire import Line
from benchmarks.load.worker import Worker
from benchmarks.peers import Milepost

# Figure 2 and 3.
PUBLISHERS, RATE = 6, 25.0  # rows a second of each
SUBSCRIBERS = (500, 1_000, 1_500, 2_000, 3_000, 4_500, 6_000, 7_000)
QUICK_SUBSCRIBERS = (100, 300)
OVERLOAD = 10  # times the rate, at the end: the broker cannot keep up then
SAMPLES = 3  # of the queues, evenly over a point
# A publisher may have two dozen rows under way, and a subscriber some hundred waiting. With the defaults, which are
# made for throughput, 25 rows a second would take minutes to fill them, and a short run would show no throttling.
WINDOWS = {"put_window": 4_096, "queue_bytes": 65_536}

# Figure 4.
HOT_TOPICS, HOT_RATE, HOT_EACH = 4, 20.0, 100
COLD_TOPICS, COLD_RATE = 10, 0.1
COLD, QUICK_COLD = 4_000, 200
COLD_SECONDS, QUICK_COLD_SECONDS = 1 / COLD_RATE, 0.5  # of a window: each cold topic has just one row in a full one
COLD_WINDOWS, QUICK_COLD_WINDOWS = 5, 1

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
            # The publishers pause while subscribers connect: the measurement is of a steady state, and a listener under
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
        queues = line.status()["backlogs"]
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


def cold(number: int, windows: int, seconds: float) -> dict[str, Any]:
    """Figure 4: broker CPU of 400 hot subscribers alone, and with cold ones beside them, for each row of a hot one.

    Two brokers, one of them with the cold subscribers, run at the same time: whatever else the machine does then hits
    both alike. There is a ratio for each window, and the median of these counts; least and greatest say how far it can
    be trusted. Rows and heartbeats of cold subscribers count as their cost.
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
        looks = [[_look(broker, crew, len(hot)) for broker, _, crew in sides]]
        for _ in range(windows):
            time.sleep(seconds)
            looks.append([_look(broker, crew, len(hot)) for broker, _, crew in sides])
    spent: list[list[float]] = [[], []]  # CPU µs for each row, by side and window
    for before, after in pairwise(looks):
        for side in range(2):
            rows = after[side].rows - before[side].rows
            assert rows, "the hot subscribers got nothing"
            spent[side].append((after[side].cpu - before[side].cpu) / rows * 1e6)
    ratios = [both / alone for alone, both in zip(*spent, strict=True)]
    shares, rates = [], []
    for first, last in zip(looks[0], looks[-1], strict=True):
        passed = last.at - first.at
        shares.append(100 * (last.cpu - first.cpu) / passed)
        rates.append((last.rows - first.rows) / len(hot) / passed)
    return {
        "cold": number,
        "hot_cpu": shares[0],
        "both_cpu": shares[1],
        "hot_us_per_row": statistics.median(spent[0]),
        "both_us_per_row": statistics.median(spent[1]),
        "ratio": statistics.median(ratios),
        "least": min(ratios),
        "greatest": max(ratios),
        "hot_rate": rates[0],
        "rate_with_cold": rates[1],
    }


@dataclass
class Look:
    """A broker at a moment."""

    at: float  # seconds, when the rows were counted
    cpu: float  # seconds so far
    rows: int  # that the hot subscribers have got so far


def _look(broker: Milepost, crew: Worker, hot: int) -> Look:
    """`hot` subscribers were the first to come. CPU time by the process's own clock: /proc counts hundredths."""
    cpu = time.clock_gettime(~broker.pid << 3 | _CPU_CLOCK)
    counted, rows = crew.ask("count")
    return Look(counted / 1e9, cpu, sum(rows[:hot]))


_CPU_CLOCK = 2  # with the complement of a process's number, shifted by three: Linux's clock of its CPU time
