"""The parts of the benchmark in their order, with the tables that they print."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from rich.markup import escape

from benchmarks.durable import disk
from benchmarks.durable.exchange import by_round
from benchmarks.load.worker import WorkerFailed
from benchmarks.parts import PartsRun, carry_out, stop_in_order
from benchmarks.peers.milepost_store import MilepostWithStore
from benchmarks.peers.postgresql import database, postgresql, settings
from benchmarks.queues import backlog, exchange, readers
from benchmarks.queues.exchange import LOAD, MANY, ONE, Contestant
from benchmarks.report import Report, best_of, ratio

STORES = ("PostgreSQL", "SQLite")
BACKLOGS, QUICK_BACKLOGS = (1_000, 10_000, 100_000), (200, 1_000)
GROWTH, QUICK_GROWTH = (1_000, 100_000), (200, 1_000)
# Without an index the time is that of a scan: from 10,000 to 100,000 it grows tenfold, and runs differ by a fifth.
LINEAR = 12.0


class Run(PartsRun):
    """A run with PostgreSQL and a broker on each store. They are started when a part first needs them."""

    def __init__(self, report: Report, quick: bool) -> None:
        super().__init__(report, quick)
        self.stack = ExitStack()  # closed at the end of the run
        self._server = ""
        self._brokers: dict[str, MilepostWithStore] = {}
        self.stores: dict[str, str] = {}  # of the brokers: a URL, or the path of a file

    def server(self) -> str:
        """The URL of PostgreSQL."""
        if not self._server:
            self.progress("starting PostgreSQL")
            self._server = self.stack.enter_context(postgresql())
            names = ("server_version", "fsync", "synchronous_commit", "shared_buffers")
            self.report.figures["postgresql"] = settings(self._server, *names)
        return self._server

    def broker(self, store: str) -> MilepostWithStore:
        if store not in self._brokers:
            self.progress(f"starting a broker on {store}")
            if store == "PostgreSQL":
                place = database(self.server(), "milepost")
            else:
                folder = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="milepost-bench-store-"))
                place = f"{folder}/milepost.db"
            self.stores[store] = place
            self._brokers[store] = self.stack.enter_context(MilepostWithStore(place))
        return self._brokers[store]

    def contestant(self, store: str, kind: str, many: int, one: int) -> Contestant:
        """Milepost through a broker, with messages of a kind."""
        broker = self.broker(store)
        name = f"Milepost through a broker on {store}"
        return Contestant(name, f"{LOAD}.queues:{kind}", broker.url, many, one, cpu_seconds=broker.cpu_seconds)

    def brokerless(self, kind: str, many: int, one: int) -> Contestant:
        """Milepost in the application's own process, as the peers are, on a database of its own."""
        url = database(self.server(), "milepost_brokerless")
        return Contestant("Milepost, no broker, on PostgreSQL", f"{LOAD}.queues:{kind}", url, many, one)


def _require(ours: Sequence[Contestant]) -> None:
    """Raise an error unless all of our contestants were measured. A peer may be missing."""
    for each in ours:
        if not all(each.best(what, MANY) for what in exchange.WHATS):
            raise WorkerFailed(f"{each.name} was not measured")


def _by_round(ours: Contestant, theirs: Sequence[Contestant], what: str, size: int) -> float | None:
    """The median over the rounds of our rate over that of the better peer.

    On a shared machine this is more reliable than the ratio of the best rounds.
    """
    if not all(each.best(what, size) for each in theirs):
        return None
    best = max(theirs, key=lambda each: each.best(what, size) or 0)
    return by_round(ours.rates.get((what, size), []), best.rates.get((what, size), []))


def _least(found: dict[tuple[str, int], float | None]) -> float | None:
    """Of one message to a transaction, the worse of enqueue and dequeue."""
    singles = [found[what, ONE] for what in exchange.WHATS]
    return None if None in singles else min(each for each in singles if each is not None)


def against_peers(run: Run) -> None:
    """`enqueue_vs_best`, `dequeue_vs_best` and `single_vs_best`: PostgreSQL beside the peers on the same one.

    The peers are libraries in the application's process, so they are compared with the client without a broker. The
    figures through a broker are in `brokered_…`.
    """
    many, one = run.some(10_000, 500), run.some(800, 20)
    ours = [run.brokerless("Ticks", many, one), *(run.contestant(store, "Ticks", many, one) for store in STORES)]
    theirs = exchange.peers(lambda name: database(run.server(), name), run.quick)
    run.progress("filling queues and emptying them, beside the peers")
    for name, reason in exchange.measure("ticks", ours + theirs, run.some(3, 1)).items():
        run.report.leave_out(name, escape(reason))
    cases = [(what, size) for size in (MANY, ONE) for what in exchange.WHATS]
    best = {
        case: best_of({each.name: each.best(*case) for each in theirs}, run.report, "the better peer") for case in cases
    }
    run.report.table(
        "A message of five attributes, messages a second, by how many go to a transaction; × the better peer",
        ("", *(cell for what, size in cases for cell in (f"{what}, {size}", "×", "broker µs"))),
        [
            (each.name, *(cell for case in cases for cell in (
                each.best(*case), ratio(each.best(*case), best[case]), each.cpu_us(*case))))
            for each in ours + theirs
        ],
        "best of the rounds, which all take in turns; from making JSON or columns to a commit that is on the disk\n"
        "compared without a broker, as the peers have none; SQLite is not compared",
    )  # fmt: skip
    _require(ours)
    found = {case: ratio(ours[0].best(*case), best[case]) for case in cases}
    through = {case: ratio(ours[1].best(*case), best[case]) for case in cases}
    single = _least(found)
    run.put(
        enqueue_vs_best=found["enqueue", MANY],
        dequeue_vs_best=found["dequeue", MANY],
        single_vs_best=single,
        by_round={f"{what}_{size}": _by_round(ours[0], theirs, what, size) for what, size in cases},
        single={what: found[what, ONE] for what in exchange.WHATS},
        brokered_enqueue_vs_best=through["enqueue", MANY],
        brokered_dequeue_vs_best=through["dequeue", MANY],
        brokered_single_vs_best=_least(through),
        exchange={each.name: each.figures() for each in ours + theirs},
    )
    run.bar("enqueue, 100 to a transaction: times the better peer", found["enqueue", MANY], ">=", 1.0)
    run.bar("dequeue, 100 to a transaction: times the better peer", found["dequeue", MANY], ">=", 2.0)
    run.bar("one to a transaction, the worse of both: times the better peer", single, ">=", 0.7)


def three_nodes(run: Run) -> None:
    """`orders_per_s`: the least of enqueue and dequeue on both stores."""
    count = run.some(5_000, 200)
    given = [run.contestant(store, "Orders", count, 0) for store in STORES]
    run.progress("orders of three node types")
    for name, reason in exchange.measure("orders", given, run.some(3, 1)).items():
        run.report.leave_out(name, escape(reason))
    run.report.table(
        "Orders a second: one order, four lines, two items, with their references; 100 to a transaction",
        ("", "enqueue", "broker µs", "dequeue", "broker µs"),
        [
            (each.name, *(cell for what in exchange.WHATS for cell in (each.best(what, MANY), each.cpu_us(what, MANY))))
            for each in given
        ],
        "from and to nested dicts and nodes, both references of dequeued messages followed; best of the rounds",
    )
    _require(given)
    least = min(each.best(what, MANY) or 0.0 for each in given for what in exchange.WHATS)
    run.put(
        orders_per_s=least,
        orders={each.name: {what: each.best(what, MANY) for what in exchange.WHATS} for each in given},
    )
    run.bar("orders a second, the least of four", least, ">=", 3_000.0)


def reading(run: Run) -> None:
    """`readers_gain`: the least over the sizes of a transaction."""
    given = {1: 40, 100: 1_000} if run.quick else {1: 1_000, 10: 5_000, 100: 20_000}
    broker = run.broker("PostgreSQL")
    run.progress(f"{readers.READERS} readers of one queue")
    found = readers.measure(broker.url, given, run.some(3, 1))
    run.report.table(
        f"One reader and {readers.READERS} of one queue under `none`, on PostgreSQL, messages a second",
        ("messages to a transaction", "one", f"{readers.READERS} together", "gain", "fewest of one", "twice", "lost"),
        [
            (str(each.size), max(each.alone), max(each.together), each.gain, each.least, each.twice, each.lost)
            for each in found
        ],
        "the gain is that of the medians of the rounds, the rates are the best of them; every reader is a process",
    )
    gain = min(each.gain for each in found)
    wrong = sum(each.twice + each.lost for each in found)
    run.put(
        readers_gain=gain,
        readers={str(each.size): each.gain for each in found},
        messages_twice=sum(each.twice for each in found),
        messages_lost=sum(each.lost for each in found),
    )
    run.bar(f"{readers.READERS} readers: times one, the least of the sizes", gain, ">=", 1.2)
    run.bar("messages that came twice or not at all", float(wrong), "<=", 0.0)


def selecting(run: Run) -> None:
    """`select_ms`: by backlog, with an index, of the store where it grows more. `scan_ratio`: without one, the worst.

    The bar, no worse than one scan, is read so: the median dequeue from the longest backlog, with all that a client and
    a broker add to it, takes no longer than the median scan of the same tables by the same server, right after it.
    """
    backlogs = QUICK_BACKLOGS if run.quick else BACKLOGS
    found: list[backlog.Series] = []
    for store in STORES:
        broker = run.broker(store)
        run.progress(f"selecting from up to {max(backlogs):,} messages on {store}")
        found += backlog.selective(store, broker.url, run.stores[store], backlogs, run.some(30, 3))
    _growth_table(
        run,
        found,
        f"Take one of {backlog.QUALIFYING} messages that qualify, by another attribute; ms, by messages waiting",
        "medians, from beginning the transaction to having the message; the commit apart",
    )
    indexed = max((each for each in found if each.name == backlog.INDEXED), key=lambda each: each.growth)
    bare = max((each for each in found if each.name != backlog.INDEXED), key=lambda each: each.growth)
    scanned = [each for each in found if each.scan_ms]
    run.report.table(
        "Without an index: a dequeue beside one scan of the tables that it needs, ms, by messages waiting",
        ("", *(f"{waiting:,}" for waiting in backlogs), "ratio of the last"),
        [
            cells
            for each in scanned
            for cells in (
                (f"{each.store}, dequeue", *each.ms.values(), each.scan_ratio),
                (f"{each.store}, scan", *each.scan_ms.values(), None),
            )
        ],
        "each table once, by predicate and order; the time to join them is left out, and so less than any join takes",
    )
    worst = max(each.scan_ratio for each in scanned)
    run.put(
        scan_ratio=worst,
        scan_ratios={each.store: each.scan_ratio for each in scanned},
        scan_ms={each.store: {str(waiting): ms for waiting, ms in each.scan_ms.items()} for each in scanned},
        select_ms=indexed.figures(),
        select_store=indexed.store,
        select={f"{each.store}, {each.name}": each.figures() for each in found},
    )
    run.bar(f"selective dequeue, {max(backlogs):,} waiting over {min(backlogs):,}", indexed.growth, "<=", 2.0)
    if not run.quick:
        *_, before, last = bare.ms
        run.bar(f"without an index, {last:,} waiting over {before:,}", bare.ms[last] / bare.ms[before], "<=", LINEAR)
        run.bar(f"without an index, {last:,} waiting: times one scan", worst, "<=", 1.0)


def growing(run: Run) -> None:
    """No bar: how the time of a plain dequeue grows with the backlog."""
    backlogs = QUICK_GROWTH if run.quick else GROWTH
    found: list[backlog.Series] = []
    for store in STORES:
        broker = run.broker(store)
        run.progress(f"taking from up to {max(backlogs):,} messages on {store}")
        found += backlog.plain(store, broker.url, backlogs, run.some(30, 3))
    _growth_table(
        run, found, "Dequeue without selection, ms, by messages waiting", "medians; the commit apart; one writer"
    )
    run.put(growth_ms={f"{each.store}, {each.name}": each.figures() for each in found})


def _growth_table(run: Run, found: Sequence[backlog.Series], title: str, note: str) -> None:
    backlogs = list(found[0].ms)
    run.report.table(
        title,
        ("", *(f"{waiting:,}" for waiting in backlogs), "last over first", "commit"),
        [(f"{each.store}, {each.name}", *each.ms.values(), each.growth, each.commit_ms) for each in found],
        note,
    )


PARTS: dict[str, Callable[[Run], None]] = {
    "exchange": against_peers,
    "orders": three_nodes,
    "readers": reading,
    "select": selecting,
    "growth": growing,
}
# The figures of each part in the last line; null when a peer is missing or the part failed.
KEYS = {
    "exchange": (
        "enqueue_vs_best",
        "dequeue_vs_best",
        "single_vs_best",
        "exchange",
        "brokered_enqueue_vs_best",
        "brokered_dequeue_vs_best",
        "brokered_single_vs_best",
    ),
    "orders": ("orders_per_s", "orders"),
    "readers": ("readers_gain", "readers", "messages_twice", "messages_lost"),
    "select": ("select_ms", "select", "scan_ratio", "scan_ms"),
    "growth": ("growth_ms",),
}


def run(quick: bool, parts: Sequence[str] = ()) -> None:
    """Run the named parts, or all. Every process that was started is stopped in any case.

    A part that fails leaves its figures null, and the other parts run; then the exit status is 1.
    """
    stop_in_order()
    report = Report("queues", quick)
    current = Run(report, quick)
    folder = tempfile.tempdir = disk.real_folder()  # where PostgreSQL and every broker have their folders
    kind = disk.file_system(folder)
    report.say(f"Everything is stored on {kind}; an fdatasync of 4 kB takes {disk.fdatasync_s() * 1e3:.2f} ms there.")
    report.figures["file_system"] = kind
    with current.stack:
        well = carry_out(report, current, parts or PARTS, PARTS, KEYS)
    report.bars(current.bars)
    report.finish()
    if not well:
        raise SystemExit(1)
