"""The parts of the benchmark in their order, with the tables that they print."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.parts import PartsRun, carry_out, stop_in_order
from benchmarks.peers import ActiveMQ, Milepost, Mosquitto, Nats, RabbitMQ, Redis, Server
from benchmarks.pubsub import crowd, gryphon, latency, selectors, start, throughput
from benchmarks.report import Report, ratio
from milepost.client import Client

FULL_RATE = 0.98 * gryphon.RATE  # a subscriber's rate that counts as all rows: a window of seconds cuts some off


def better(contestants: Sequence[throughput.Contestant]) -> throughput.Contestant:
    return max(contestants, key=lambda each: each.best or 0)


def pair_throughput(run: PartsRun) -> None:
    """`rows_vs_nats_py`, `columns_vs_nats_raw`, and the other brokers for comparison."""
    # Two cores start RabbitMQ in six seconds, and Mosquitto's client is slow: a short run has no time for them.
    kinds = (Milepost, Nats, Redis) if run.quick else (Milepost, Nats, Redis, Mosquitto, RabbitMQ)
    for kind in (Mosquitto, RabbitMQ) if run.quick else ():
        run.report.leave_out(kind.name, "a short run has no time for it")
    contestants = throughput.contestants(run.quick)
    with run.brokers(*kinds) as brokers:
        for name, reason in throughput.measure(contestants, brokers, 1 if run.quick else 5).items():
            run.report.leave_out(name, reason)
    run.report.table(
        "One publisher, one subscriber, 100-byte messages of five fields",
        ("broker and clients", "messages/s, best", "median", "broker CPU µs/message", "messages a run", "lost"),
        [(each.name, each.best, each.median, each.cpu, each.count, each.lost) for each in contestants if each.rates],
        "rows: await put in a loop, views out; columns: put_many of 10,000, batches out; the others send 100 bytes",
    )
    named = {each.name: each for each in contestants}
    rows = better([each for each in contestants if each.name.startswith("milepost rows")])
    theirs = better([each for each in contestants if each.name.startswith("nats-py")])
    columns, raw = named["milepost columns"], named["nats raw sockets"]
    by_rows, by_columns = ratio(rows.best, theirs.best), ratio(columns.best, raw.best)
    run.put(
        rows_vs_nats_py=by_rows,
        rows_loops={"milepost": rows.loop, "nats": theirs.loop},
        columns_vs_nats_raw=by_columns,
        throughput={each.name: each.figures() for each in contestants},
    )
    run.bar(f"rows: times nats-py ({rows.loop} against {theirs.loop})", by_rows, ">=", 3.0)
    run.bar("columns: times NATS by raw sockets", by_columns, ">=", 1.5)


def pair_latency(run: PartsRun) -> None:
    """`latency_p50_vs_nats` and `latency_p99_vs_nats`: medians over the windows of the ratio of each two neighbours."""
    loops = ("uvloop",) if run.quick else ("uvloop", "asyncio")
    windows, seconds = (2, 0.5) if run.quick else (20, 1.0)
    with run.brokers(Milepost, Nats) as brokers:
        broker = brokers["milepost"]
        before = _pauses(broker)
        found = latency.measure(
            brokers, loops, windows, seconds, lambda: _pauses(broker)["loading kernels"]["count"] > 0
        )
        after = _pauses(broker)
    shares = (50, 90, 99, 99.9)
    run.report.table(
        f"Latency in µs at 1,000 messages/s, one row at a time, {windows} windows of {seconds:g} s, taking turns",
        (
            "broker and loop",
            *(f"p{share}" for share in shares),
            "p50, planned",
            "p99, planned",
            "p99 by window",
            "lost",
        ),
        [
            (
                each.name,
                *(each.percentile(share) for share in shares),
                each.from_due(50),
                each.from_due(99),
                " ".join(f"{window[99]:,.0f}" for window in each.windows.values()),
                each.lost,
            )
            for each in found
        ],
        "from the call that sends to the callback; planned: from when the message was due",
    )
    # The loop that is better for NATS, for both.
    by_name = {each.name: each for each in found}
    loop = min(loops, key=lambda each: _p50(by_name, f"nats, {each}"))
    ours, theirs = by_name.get(f"milepost, {loop}"), by_name.get(f"nats, {loop}")
    ratios = {share: latency.compared(ours, theirs, share) if ours and theirs else None for share in (50, 99)}
    for share, each in ratios.items():
        if each is not None:
            run.report.say(
                f"p{share}, times NATS, by window: median {each.median:.2f}, half of them from {each.quartiles[0]:.2f} "
                f"to {each.quartiles[1]:.2f}, all from {each.extremes[0]:.2f} to {each.extremes[1]:.2f}"
            )
    pooled = ratio(ours.percentile(99), theirs.percentile(99)) if ours and theirs else None
    if pooled is not None:  # stalls in few windows show here, and not in the median of the windows
        run.report.say(f"p99 of all messages of all windows, times NATS: {pooled:.2f}")
    tail = {name: _since(before[name], after[name]) for name in after}
    tail["collector of the subscriber"] = _summed(ours.pauses if ours is not None else [])
    run.report.table(
        "What Milepost's slowest messages may have waited for, in all windows",
        ("", "times", "ms in all", "the longest, ms"),
        [(name, each["count"], each["total_ms"], each["longest_ms"]) for name, each in tail.items()],
        "tick and liveness are timers of the broker; the longest is since it started\n"
        "kernels are loaded once, in a thread beside the event loop, before the first window",
    )
    run.put(
        latency_p50_vs_nats=ratios[50] and ratios[50].median,
        latency_p99_vs_nats=ratios[99] and ratios[99].median,
        latency_p99_all_vs_nats=pooled,
        latency_by_window={f"p{share}": each and each._asdict() for share, each in ratios.items()},
        latency_tail=tail,
        latency_loop=loop,
        latency_us={each.name: {f"p{share}": each.percentile(share) for share in shares} for each in found},
    )
    run.bar(f"latency, p50: times NATS ({loop})", ratios[50] and ratios[50].median, "<=", 1.0)
    run.bar(f"latency, p99: times NATS ({loop})", ratios[99] and ratios[99].median, "<=", 1.2)


def _pauses(broker: Server) -> dict[str, dict[str, float]]:
    """The pauses of a broker's event loop so far."""
    with Client(f"milepost://{broker.host}:{broker.port}") as client:
        found: dict[str, dict[str, float]] = client.status()["pauses"]
        return found


def _since(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    return {
        "count": int(after["count"] - before["count"]),
        "total_ms": after["total_ms"] - before["total_ms"],
        "longest_ms": after["longest_ms"],
    }


def _summed(pauses: Sequence[float]) -> dict[str, float]:
    return {"count": len(pauses), "total_ms": sum(pauses), "longest_ms": max(pauses, default=0.0)}


def _p50(found: dict[str, latency.Latency], name: str) -> float:
    each = found.get(name)
    return (each.percentile(50) if each is not None else None) or float("inf")


def many_selectors(run: PartsRun) -> None:
    """`vs_activemq`."""
    number = selectors.QUICK_SELECTORS if run.quick else selectors.SELECTORS
    with run.brokers(Milepost, ActiveMQ) as brokers:
        found = selectors.measure(brokers.get("milepost"), brokers.get("activemq"), run.quick, 1 if run.quick else 4)
    run.report.table(
        f"{number:,} selectors on one connection: symbol = 'S123' and price > 45.0",
        ("broker", "events/s, best", "median", "broker CPU µs/event", "events a run", "deliveries due", "delivered"),
        [(each.name, each.best, each.median, each.cpu, each.events, each.matches, each.delivered) for each in found],
        "both by sockets that send prepared frames and count deliveries; fewer events for ActiveMQ",
    )
    rates = {each.name: each.best for each in found}
    times = ratio(rates.get("milepost"), rates.get("activemq"))
    cpu = {each.name: {"rows_per_s": each.best, "cpu_us_per_row": each.cpu} for each in found}
    run.put(vs_activemq=times, selectors=cpu)
    run.bar(f"events/s with {number:,} selectors: times ActiveMQ", times, ">=", 500.0)


def figures_2_and_3(run: PartsRun) -> None:
    """`fig2` and `fig3`."""
    numbers, seconds = (gryphon.QUICK_SUBSCRIBERS, 0.3) if run.quick else (gryphon.SUBSCRIBERS, 10.0)
    points = [point for cut in (True, False) for point in gryphon.figures(numbers, seconds, cut, not run.quick)]
    run.report.table(
        "Gryphon's Figures 2 and 3: six publishers, load generators on the same machine",
        ("subscribers", "cut-through", "offered msg/s", "published msg/s", "delivered msg/s each", "slowest",
         "broker CPU %", "queued rows", "queued kB", "rows under way", "throttled %"),
        [
            (f"{each.subscribers:,}", "with" if each.cut_through else "without", each.offered, each.publish_rate,
             each.rate, each.slowest, each.cpu, each.queue_rows, each.queue_bytes / 1e3, each.under_way,
             100 * each.left_out)
            for each in points
        ],
        "queued: in the broker, the most of three samples; under way: in the broker and in sockets, at the end",
    )  # fmt: skip
    for line in gryphon.plot(points):
        run.report.say(line)
    fig2, fig3 = gryphon.for_json(points)
    run.put(fig2=fig2, fig3=fig3)
    usual = [each for each in points if each.cut_through and each.offered == gryphon.RATE]
    kept = [each.subscribers for each in usual if each.rate >= FULL_RATE]
    if not run.quick:
        run.bar(
            f"subscribers that get 25 msg/s each ({FULL_RATE:g} or more)", float(max(kept, default=0)), ">=", 3_000.0
        )


def cold_subscribers(run: PartsRun) -> None:
    """`cold_cpu_ratio`."""
    if run.quick:
        found = gryphon.cold(gryphon.QUICK_COLD, gryphon.QUICK_COLD_WINDOWS, gryphon.QUICK_COLD_SECONDS)
    else:
        found = gryphon.cold(gryphon.COLD, gryphon.COLD_WINDOWS, gryphon.COLD_SECONDS)
    run.report.table(
        "Gryphon's Figure 4: 400 hot subscribers of 20 msg/s alone, and with cold ones of 0.1 msg/s beside them",
        ("", "broker CPU %", "CPU µs for each row of a hot one, median", "msg/s of a hot subscriber"),
        [
            ("hot alone", found["hot_cpu"], found["hot_us_per_row"], found["hot_rate"]),
            (f"and {found['cold']:,} cold", found["both_cpu"], found["both_us_per_row"], found["rate_with_cold"]),
        ],
    )
    run.report.say(f"times as much with the cold ones: from {found['least']:.2f} to {found['greatest']:.2f} by window")
    run.put(cold_cpu_ratio=found["ratio"], cold=found)
    run.bar(f"broker CPU with {found['cold']:,} cold subscribers: times without", found["ratio"], "<=", 1.15)


def publishers(run: PartsRun) -> None:
    """`many_publishers`."""
    number = 50 if run.quick else crowd.PUBLISHERS
    found = crowd.many_publishers(number, 100 if run.quick else 200, 1 if run.quick else 4)
    run.report.table(
        f"{number:,} publishers of single rows, one subscriber",
        ("", "rows/s", "broker CPU µs/row"),
        [("milepost", found["rows_per_s"], found["cpu_us_per_row"])],
    )
    run.put(many_publishers=found)


def idle_connections(run: PartsRun) -> None:
    """`kb_per_connection` and `idle_slowdown`."""
    number = crowd.QUICK_IDLE if run.quick else crowd.IDLE
    found = crowd.idle(number, 5_000 if run.quick else 300_000, 1 if run.quick else 6)
    run.report.table(
        f"{number:,} idle connections",
        ("kB of broker memory each", "rows/s of a hot pair without them", "with them"),
        [(found["kb_per_connection"], found["alone"], found["beside"])],
    )
    run.put(kb_per_connection=found["kb_per_connection"], idle_slowdown=found["slowdown"])
    run.bar("kB of broker memory for an idle connection", found["kb_per_connection"], "<=", 25.0)
    run.bar("slowing of a hot pair by idle connections", found["slowdown"], "<=", 1.05)


def first_message(run: PartsRun) -> None:
    """`start_s`."""
    seconds = start.measure(2 if run.quick else 5)  # should kernels be compiled, then by the first, and the best counts
    run.report.say(f"From starting the broker to its first message accepted: {seconds:.2f} s")
    run.put(start_s=seconds)
    run.bar("seconds to the first message accepted", seconds, "<=", 3.0)


PARTS: dict[str, Callable[[PartsRun], None]] = {
    "start": first_message,
    "throughput": pair_throughput,
    "latency": pair_latency,
    "selectors": many_selectors,
    "fig2": figures_2_and_3,
    "cold": cold_subscribers,
    "publishers": publishers,
    "idle": idle_connections,
}
# The figures of each part in the last line; null when a peer is missing or the part failed.
KEYS = {
    "start": ("start_s",),
    "throughput": ("rows_vs_nats_py", "columns_vs_nats_raw", "throughput"),
    "latency": ("latency_p50_vs_nats", "latency_p99_vs_nats", "latency_by_window", "latency_tail"),
    "selectors": ("vs_activemq",),
    "fig2": ("fig2", "fig3"),
    "cold": ("cold_cpu_ratio",),
    "publishers": ("many_publishers",),
    "idle": ("kb_per_connection", "idle_slowdown"),
}


def run(quick: bool, parts: Sequence[str] = ()) -> None:
    """Run the named parts, or all. Every process that was started is stopped in any case.

    A part that fails leaves its figures null, and the other parts run; then the exit status is 1.
    """
    stop_in_order()
    report = Report("pubsub", quick)
    current = PartsRun(report, quick)
    well = carry_out(report, current, parts or PARTS, PARTS, KEYS)
    report.bars(current.bars)
    report.finish()
    if not well:
        raise SystemExit(1)
