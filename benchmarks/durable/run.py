"""The parts of the benchmark in their order, with the tables that they print."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from benchmarks.durable import commits, disk, exchange, logs, replay, restart
from benchmarks.parts import PartsRun, carry_out, stop_in_order
from benchmarks.peers import RabbitMQ, Server, Unavailable
from benchmarks.peers.jetstream import JetStream, SyncedJetStream
from benchmarks.peers.milepost_store import MilepostWithStore
from benchmarks.peers.postgresql import postgresql
from benchmarks.peers.streams import RedisStreams
from benchmarks.report import Report, best_of, ratio

PUT_BAR = GET_BAR = 4.0
ROWS, QUICK_ROWS = 10_000_000, 200_000  # of the log that is replayed and restarted over
EMPTY_ROWS = 1_000  # of the log that memory is compared with


class Run(PartsRun):
    """A run with a long log, which several parts read."""

    def __init__(self, report: Report, quick: bool) -> None:
        super().__init__(report, quick)
        self.rows = self.some(ROWS, QUICK_ROWS)
        self._log: Path | None = None
        self.stack = ExitStack()  # closed at the end of the run

    def log(self) -> Path:
        """The store with a long log. It is written at the first call, because that takes longer than reading it."""
        if self._log is None:
            self._log = self.stack.enter_context(logs.batched(self.rows))
        return self._log


def _quickest(ways: Iterable[exchange.Contestant]) -> exchange.Contestant | None:
    """Of several ways to put, the one with the best round."""
    return max(ways, key=lambda each: each.put or 0, default=None)


def _best(run: Run, what: str, peers: set[str], rates: Iterable[tuple[str, float | None]]) -> float | None:
    """The best rate of the peers; None when one of them is missing."""
    found = list(rates)
    best = {peer: max((rate or 0 for name, rate in found if name == peer), default=0) for peer in sorted(peers)}
    return best_of(best, run.report, what)


def put_and_get(run: Run) -> None:
    """`put_vs_best`, `get_vs_best` and `single_get_per_s`, on SQLite beside the peers, and on PostgreSQL alone.

    A short run puts and gets too few messages for a rate: it only shows that nothing is lost, and names
    the peers that are left out.
    """
    quick = run.quick
    given = exchange.ours("milepost", quick) + exchange.peers(quick)
    repeats = 1 if quick else 4
    kinds: tuple[type[Server], ...] = (RedisStreams, JetStream, SyncedJetStream)
    if quick:  # it takes longest of all to start, and is far from the best
        run.report.leave_out(RabbitMQ.name, "a short run has no time for it")
    else:
        kinds += (RabbitMQ,)
    with run.brokers(MilepostWithStore, *kinds) as brokers:
        run.progress("putting and getting")
        wrong = exchange.measure(given, brokers, repeats)
        single = exchange.single(brokers["milepost"], 100 if quick else 2_000, 2)
    try:
        run.progress("the same on PostgreSQL")
        with postgresql() as url, MilepostWithStore(url) as broker:
            more = exchange.ours("milepost on PostgreSQL", quick)
            wrong |= exchange.measure(more, {"milepost on PostgreSQL": broker}, 1 if quick else repeats)
            given += more
    except Unavailable as reason:
        run.report.leave_out("milepost on PostgreSQL", str(reason))
    for name, reason in wrong.items():
        run.report.leave_out(name, reason)
    measured = [each for each in given if each.puts]
    run.put(exchanged={each.name: sum(each.counts) for each in measured})
    if quick:
        run.report.table(
            "Messages put, gotten and acknowledged; a short run has no rates",
            ("broker and way", "messages"),
            [(each.name, sum(each.counts)) for each in measured],
        )
        run.report.leave_out_figures(*KEYS["exchange"])
        return
    theirs = [each for each in measured if each.broker not in ("milepost", "milepost on PostgreSQL")]
    peers = exchange.peers(quick)
    synced = _best(run, "the best synced peer", exchange.could_be_best(peers, True),
                   [(each.broker, each.put) for each in theirs if each.synced])  # fmt: skip
    getting = _best(run, "the best peer", exchange.could_be_best(peers, False),
                    [(each.broker, each.get) for each in theirs])  # fmt: skip
    run.report.table(
        "One publisher with 500 messages of 100 bytes in flight; one consumer, one acknowledgement for up to 500",
        ("broker and way", "synced", "puts/s", "× best synced", "broker µs/put", "gets/s", "× best", "broker µs/get"),
        [
            (each.name, "yes" if each.synced else "no", each.put, ratio(each.put, synced), each.cpu(each.put_cpu),
             each.get, ratio(each.get, getting), each.cpu(each.get_cpu))
            for each in measured
        ],
        "best of the rounds, which all take in turns; of several ways to put, the best of ours is compared with the "
        "best of a synced peer's;\nevery peer is called message by message, as are put(wait=False) and tasks of put, "
        "which put_rows_vs_best compares alone; put_many takes a list;\n"
        "a loop is acknowledged 500 at a time and does not wait for it, get_many waits until its 500 are stored as "
        "done, and never returns them again;\n"
        "Milepost encodes five fields of a dict, the peers send bytes\n"
        "PostgreSQL runs after all others, so that its ratios are less sure",
    )  # fmt: skip
    # A pipeline of Redis is a list of messages that is made and then sent: `put_many` is that, and so is a loop of puts
    # with a flush. Both sides have 500 at once or two halves in turns, and the best way of each is compared. The peers'
    # gets are called once for each message, so they are compared with gets of ours that are called in the same way.
    named = {each.name: each for each in measured}
    row, many = named.get(f"milepost, {exchange.BY_ROW}"), named.get(f"milepost, {exchange.MANY}")
    best = _quickest(each for each in measured if each.broker == "milepost")
    by_row = _quickest(each for each in measured if each.broker == "milepost" and "put_many" not in each.name)
    first = _quickest(each for each in theirs if each.synced)
    put_ratio, get_ratio = ratio(best.put if best else None, synced), ratio(row.get if row else None, getting)
    getter = max(theirs, key=lambda each: each.get or 0, default=None)
    run.put(
        put_vs_best=put_ratio,
        put_by_round=exchange.by_round(best.puts, first.puts) if best and first and synced else None,
        get_by_round=exchange.by_round(row.gets, getter.gets) if row and getter and getting else None,
        put_way=best.name if best else None,
        put_rows_vs_best=ratio(by_row.put if by_row else None, synced),
        put_many_vs_best=ratio(many.put if many else None, synced),
        get_vs_best=get_ratio,
        get_many_vs_best=ratio(many.get if many else None, getting),
        single_get_per_s=single,
        exchange={each.name: each.figures() for each in measured},
    )
    if best is not None:
        run.bar(f"puts, by {best.putting}: times the best synced peer", put_ratio, ">=", PUT_BAR)
    run.bar("gets, 500 to an acknowledgement: times the best peer", get_ratio, ">=", GET_BAR)


def group_commit(run: Run) -> None:
    """`group_commit_gain` and `put_p99_syncs`."""
    run.progress("a hundred publishers with one message in flight each")
    with MilepostWithStore() as broker:
        found = commits.measure(broker, 0.3 if run.quick else 3.0, 1 if run.quick else 5)
    over = disk.fdatasync_s(over=True) * 1e3
    ms = {name: float(np.median(getattr(found, name))) / 1e6 for name in ("alone_p50", "p50", "p99", "syncs")}
    run.report.table(
        "Publishers with one message in flight",
        ("publishers", "puts/s", "p50 ms", "p99 ms"),
        [
            ("1", float(np.median(found.alone)), ms["alone_p50"], None),
            (str(commits.PUBLISHERS), float(np.median(found.together)), ms["p50"], ms["p99"]),
        ],
        f"medians of the rounds, publishers that speak the protocol by hand\nan fdatasync of 4 kB at the end of a file "
        f"took {ms['syncs']:.2f} ms beside them, overwriting {over:.2f} ms",
    )
    run.put(
        group_commit_gain=found.gain,
        put_p99_syncs=found.p99_syncs,
        group_commit={
            "alone_per_s": float(np.median(found.alone)),
            "together_per_s": float(np.median(found.together)),
            "p99_ms": ms["p99"],
            "p50_ms": ms["p50"],
            "fdatasync_ms": ms["syncs"],
            "fdatasync_over_ms": over,
        },
    )
    run.bar("100 publishers: times the rate of one", found.gain, ">=", 6.0)
    run.bar("p99 of a put among 100: times an fdatasync of 4 kB", found.p99_syncs, "<=", 40.0)


def replays(run: Run) -> None:
    """`replay_rows_per_s`: the slower of the two logs that have a bar."""
    run.progress("replaying logs through a filter")
    found = replay.measure(run.log(), run.rows, run.quick)
    if run.quick:  # a short log is read within milliseconds, and the request is a part of that time
        run.report.say(f"{sum(each.rows for each in found):,} rows were replayed, and all matching rows came")
        run.report.leave_out_figures(*KEYS["replay"])
        run.put(replayed={each.name: each.rows for each in found})
        return
    run.report.table(
        "A log replayed from its beginning through a filter, 1 row in 100 matches, through a client",
        ("written", "rows", "entries", "rows/s", "broker CPU µs/row"),
        [(each.name, each.rows, each.entries, each.rows_per_s, each.cpu_us) for each in found],
        "from asking for the subscription to a column of the last batch; the best of some replays, "
        "one only of the log as it was",
    )
    batched, compacted, raw = found
    run.put(
        replay_rows_per_s=min(batched.rows_per_s, compacted.rows_per_s),
        replay={"batched": batched.rows_per_s, "compacted": compacted.rows_per_s, "uncompacted": raw.rows_per_s},
    )
    run.bar("replayed rows/s, a log in batches", batched.rows_per_s, ">=", 5e6)
    run.bar("replayed rows/s, one row at a time and compacted", compacted.rows_per_s, ">=", 5e6)


def restarts(run: Run) -> None:
    """`restart_s` and `rss_mb`."""
    rows, file = run.rows, run.log()
    run.progress(f"restarting over {rows:,} messages")
    full = restart.measure(file, rows, 1 if run.quick else 3)
    with logs.batched(EMPTY_ROWS) as small:
        empty = restart.measure(small, EMPTY_ROWS, 1)
    run.report.table(
        "A broker that starts again, until a named subscription in the middle of the log has a message",
        ("messages retained", "seconds", "MB resident then", "MB after a replay of all"),
        [(each.rows, each.seconds, each.started_mb, each.replayed_mb) for each in (empty, full)],
    )
    run.put(
        restart_s=full.seconds,
        rss_mb=full.replayed_mb,
        rss_started_mb=full.started_mb,
        rss_empty_mb=empty.started_mb,
        rss_empty_replayed_mb=empty.replayed_mb,
        retained=rows,
    )
    run.bar(f"seconds to restart over {rows:,} messages", full.seconds, "<=", 3.0)


PARTS: dict[str, Callable[[Run], None]] = {
    "exchange": put_and_get,
    "commits": group_commit,
    "replay": replays,
    "restart": restarts,
}
# The figures of each part in the last line; null when a peer is missing or the part failed.
KEYS = {
    "exchange": (
        "put_vs_best",
        "put_way",
        "put_rows_vs_best",
        "put_many_vs_best",
        "get_vs_best",
        "single_get_per_s",
        "exchange",
        "put_by_round",
        "get_by_round",
    ),
    "commits": ("group_commit_gain", "put_p99_syncs"),
    "replay": ("replay_rows_per_s", "replay"),
    "restart": ("restart_s", "rss_mb", "rss_empty_mb"),
}


def run(quick: bool, parts: Sequence[str] = ()) -> None:
    """Run the named parts, or all. Every process that was started is stopped in any case.

    A part that fails leaves its figures null, and the other parts run; then the exit status is 1.
    """
    stop_in_order()
    report = Report("durable", quick)
    current = Run(report, quick)
    folder = tempfile.tempdir = disk.real_folder()  # where every broker has its folder
    kind = disk.file_system(folder)
    report.say(f"Everything is stored on {kind}; an fdatasync of 4 kB takes {disk.fdatasync_s() * 1e3:.2f} ms there.")
    report.figures["file_system"] = kind
    with current.stack:
        well = carry_out(report, current, parts or PARTS, PARTS, KEYS)
    report.bars(current.bars)
    report.finish()
    if not well:
        raise SystemExit(1)
