"""`make bench NAME=match`: how many events a second an index of up to a million subscriptions takes, on one core."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.progress import Progress

from benchmarks.report import Report
from milepost import query
from milepost.batch import Batch
from milepost.kernels import warm
from milepost.match import Index
from milepost.query import Predicate, ast, typed
from milepost.query.kinds import INTEGER, STRING
from milepost.query.like import compiled as pattern
from milepost.schema.text import parse
from milepost.schema.types import Schema

ATTRIBUTES, VALUES = 10, 1_000
# Of the values, each of two ranges takes so many: then 53 of a million subscriptions match an event.
WIDTH = 230
# Where values follow Zipf's law, hot subscriptions meet hot events: with ranges as wide as above an event has 1,700
# matches, and with these some 60, as many as elsewhere. Both are measured, and the bar is for the former.
ZIPF_WIDTH = 43
NARROW = 10  # of the range-only subscriptions: two ranges of one value in a hundred each, so one event in 10,000
SIZES = (10_000, 100_000, 1_000_000)
QUICK_SIZES = (1_000, 10_000, 100_000)
EVENTS = 10_000
SECONDS, QUICK_SECONDS = 3.0, 0.5  # of the measurement of a rate
EXPRESSIONS = 1_000  # distinct `or` and `like` predicates
SHARED = 0.2  # of the subscriptions have one of them
CHURN_BATCH = 16  # rows
CHURN_CHANGES = 20  # additions and removals between two batches

SCHEMA = parse(f"event: [{', '.join(f'a{i}: int' for i in range(ATTRIBUTES))}]")
MIXED = parse(f"event: [{', '.join(f'a{i}: int' for i in range(ATTRIBUTES))}, name: string]")
READS = [typed.ReadPath(typed.ROOT, (typed.FieldStep(f"a{i}"),), INTEGER) for i in range(ATTRIBUTES)]
NAME = typed.ReadPath(typed.ROOT, (typed.FieldStep("name"),), STRING)
TREE = ast.Literal("boolean", True)  # the text of these predicates is not used

Random = np.random.Generator
Values = npt.NDArray[np.int64]
Draw = Callable[[Random, int], Values]


def uniform(rng: Random, count: int) -> Values:
    return rng.integers(0, VALUES, count)


def zipf(rng: Random, count: int) -> Values:
    """The k-th most frequent value is 1/k as frequent as the first. Frequent values are spread over the whole range."""
    weights = 1 / np.arange(1, VALUES + 1)
    ranks = np.searchsorted(np.cumsum(weights / weights.sum()), rng.random(count))
    return np.random.default_rng(99).permutation(VALUES)[np.minimum(ranks, VALUES - 1)]


def _attributes(rng: Random, count: int, each: int) -> Values:
    """Different attributes for each subscription."""
    return np.argsort(rng.random((count, ATTRIBUTES)), axis=1)[:, :each]


def _range(attribute: int, low: int, width: int) -> typed.Between:
    return typed.Between(READS[attribute], typed.Const(low, INTEGER), typed.Const(low + width - 1, INTEGER))


def conjunctions(rng: Random, count: int, draw: Draw, width: int = WIDTH) -> Iterator[typed.Typed]:
    """One equality and two ranges over three of the attributes."""
    which = _attributes(rng, count, 3).tolist()
    equal = draw(rng, count).tolist()
    lows = rng.integers(0, VALUES - width + 1, (count, 2)).tolist()
    for (a, b, c), value, (low, other) in zip(which, equal, lows, strict=True):
        yield typed.And(
            (
                typed.Compare("=", READS[a], typed.Const(value, INTEGER)),
                _range(b, low, width),
                _range(c, other, width),
            )
        )


def ranges(rng: Random, count: int) -> Iterator[typed.Typed]:
    """Two narrow ranges."""
    which = _attributes(rng, count, 2).tolist()
    lows = rng.integers(0, VALUES - NARROW + 1, (count, 2)).tolist()
    for (a, b), (low, other) in zip(which, lows, strict=True):
        yield typed.And((_range(a, low, NARROW), _range(b, other, NARROW)))


def mixed(rng: Random, count: int) -> Iterator[typed.Typed]:
    """As `conjunctions`, but one in five has one of a thousand expressions, each true for about one event in 1,000.

    Half of these are `a = x and b < 500 or c = y and d < 500`, and half `name like '%xyz%'` with a run of three letters
    that one name in a thousand has.
    """
    shared: list[typed.Typed] = []
    for which, values in zip(
        _attributes(rng, EXPRESSIONS // 2, 4).tolist(),
        rng.integers(0, VALUES, (EXPRESSIONS // 2, 2)).tolist(),
        strict=True,
    ):
        a, b, c, d = which
        shared.append(
            typed.Or(
                tuple(
                    typed.And(
                        (
                            typed.Compare("=", READS[x], typed.Const(value, INTEGER)),
                            typed.Compare("<", READS[y], typed.Const(VALUES // 2, INTEGER)),
                        )
                    )
                    for x, y, value in ((a, b, values[0]), (c, d, values[1]))
                )
            )
        )
    shared += [typed.Like(NAME, pattern(f"%{word}%", None)) for word in words(EXPRESSIONS // 2)]
    plain = conjunctions(rng, count, uniform)
    for chosen, node in zip(rng.random(count).tolist(), plain, strict=True):
        yield shared[int(chosen / SHARED * EXPRESSIONS)] if chosen < SHARED else node


def words(count: int) -> list[str]:
    """Different words of three letters out of ten: a thousand of them."""
    letters = "abcdefghij"
    return [letters[i // 100] + letters[i // 10 % 10] + letters[i % 10] for i in range(count)]


def names(rng: Random, count: int) -> list[str]:
    """Texts with one of the words in them."""
    every = words(1_000)
    return [
        f"NODE-{every[i]}-{j}"
        for i, j in zip(rng.integers(0, 1_000, count), rng.integers(0, 10**6, count), strict=True)
    ]


def events(rng: Random, schema: Schema, draw: Draw, count: int = EVENTS) -> Batch:
    columns: dict[str, Any] = {f"a{i}": draw(rng, count).astype(np.int32) for i in range(ATTRIBUTES)}
    if schema is MIXED:
        columns["name"] = names(rng, count)
    return Batch.decode(bytes(Batch.encode(schema, columns).data), schema)


class Bench:
    """The figures of one run."""

    def __init__(self, quick: bool) -> None:
        self.report = Report("match", quick)
        self.seconds = QUICK_SECONDS if quick else SECONDS
        self.sizes = QUICK_SIZES if quick else SIZES

    def build(self, what: str, schema: Schema, nodes: Iterator[typed.Typed], count: int) -> tuple[Index, float]:
        """An index of so many subscriptions, and the seconds it took to add them."""
        index = Index(schema)
        spent = 0.0
        gc.disable()  # a million trees are dropped at once: searching them for cycles is not part of the index
        try:
            with Progress(console=self.report.console, transient=True) as progress:
                task = progress.add_task(f"{what}: {count:,} subscriptions", total=count)
                key = 0
                while True:
                    some = [Predicate("", schema, TREE, node) for _, node in zip(range(10_000), nodes)]  # noqa: B905
                    if not some:
                        break
                    start = time.perf_counter()
                    for predicate in some:
                        index.add(key, predicate)
                        key += 1
                    spent += time.perf_counter() - start
                    progress.update(task, completed=key)
            start = time.perf_counter()
            index.settle()
            spent += time.perf_counter() - start
        finally:
            gc.enable()
        assert len(index) == count
        return index, spent

    def rate(self, index: Index, batches: list[Batch]) -> tuple[float, float]:
        """Events a second, of the quickest batch, and matches for each event."""
        snapshot = index.snapshot()
        snapshot.match(batches[0])
        quickest, matches, events = float("inf"), 0, 0
        until = time.perf_counter() + self.seconds
        rounds = 0
        while rounds < 3 or time.perf_counter() < until:
            batch = batches[rounds % len(batches)]
            start = time.perf_counter()
            found = snapshot.match(batch)
            quickest = min(quickest, (time.perf_counter() - start) / len(batch))
            matches += len(found.keys)
            events += len(batch)
            rounds += 1
        return 1 / quickest, matches / events


def _check(index: Index, nodes: list[typed.Typed], batch: Batch) -> None:
    """The index agrees with the first subscriptions evaluated one by one."""
    found = index.snapshot().match(batch)
    rows = np.repeat(np.arange(len(batch)), np.diff(found.offsets))
    for key, node in enumerate(nodes):
        mask = Predicate("", batch.schema, TREE, node).mask(batch)
        assert sorted(rows[found.keys == key].tolist()) == np.flatnonzero(mask).tolist(), key


def _check_text() -> None:
    """The trees that are built here are equal to the trees that parsing the text gives."""
    for node in [*conjunctions(np.random.default_rng(1), 20, uniform), *ranges(np.random.default_rng(2), 20)]:
        assert isinstance(node, typed.And)
        terms = []
        for term in node.terms:
            if isinstance(term, typed.Compare):
                terms.append(f"{term.left.steps[0].name} = {term.right.value}")
            else:
                terms.append(f"{term.operand.steps[0].name} between {term.low.value} and {term.high.value}")
        assert query.compile(" and ".join(terms), SCHEMA).root == node


def run(quick: bool) -> None:
    bench = Bench(quick)
    report = bench.report
    start = time.perf_counter()
    warm(lambda name, done, total: report.say(f"kernel {name}: {done} of {total}") if done == total else None)
    report.say(f"kernels ready after {time.perf_counter() - start:.1f} s")
    _check_text()
    rng = np.random.default_rng(7)
    batches = [events(rng, SCHEMA, uniform) for _ in range(3)]

    rates: dict[str, float] = {}
    matches: dict[str, float] = {}
    for size in bench.sizes:
        index, build_seconds = bench.build(
            "equality and ranges", SCHEMA, conjunctions(np.random.default_rng(size), size, uniform), size
        )
        _check(
            index,
            list(conjunctions(np.random.default_rng(size), size, uniform))[:100] if size < 20_000 else [],
            batches[0],
        )
        rates[str(size)], matches[str(size)] = bench.rate(index, batches)
    figures = report.figures
    statistics = index.statistics()
    figures |= {"events_per_s": rates, "matches_per_event": matches, "build_seconds": build_seconds}
    figures["bytes_per_subscription"] = statistics.bytes / statistics.subscriptions
    figures["single_us"], figures["single_mean_us"] = _single(index, rng, bench.seconds)
    figures |= _by_owner(index, batches[0], bench.seconds)
    figures |= _churn(index, rng, bench)
    del index

    top = bench.sizes[-1]
    for name, schema, nodes, draw in (
        ("zipf", SCHEMA, conjunctions(np.random.default_rng(3), top, zipf), zipf),
        ("zipf_narrow", SCHEMA, conjunctions(np.random.default_rng(3), top, zipf, ZIPF_WIDTH), zipf),
        ("range", SCHEMA, ranges(np.random.default_rng(4), top), uniform),
        ("mixed", MIXED, mixed(np.random.default_rng(5), top), uniform),
    ):
        if quick and name == "zipf_narrow":  # a short run shows only that the benchmark works
            continue
        index, _ = bench.build(name, schema, nodes, top)
        asked = [events(rng, schema, draw) for _ in range(2)]
        figures[f"{name}_events_per_s"], matches[name] = bench.rate(index, asked)
        del index
    _show(report, rates, matches, top)


def _single(index: Index, rng: Random, seconds: float) -> tuple[float, float]:
    """Microseconds for one event alone: the median over events that differ, and the mean, which neighbours disturb."""
    snapshot = index.snapshot()
    alone = [events(rng, SCHEMA, uniform, 1) for _ in range(500)]
    data = [batch.data for batch in alone]
    spent = []
    gc.disable()
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        for one in data:
            batch = Batch.trusted(one, SCHEMA)
            start = time.perf_counter_ns()
            snapshot.match(batch)
            spent.append(time.perf_counter_ns() - start)
    gc.enable()
    return float(np.median(spent)) / 1e3, float(np.mean(spent)) / 1e3


def _by_owner(index: Index, batch: Batch, seconds: float) -> dict[str, float]:
    """Pairs of row and key a second that are sorted by connection, of which there are 1,000."""
    found = index.snapshot().match(batch)
    owners = np.random.default_rng(1).integers(0, 1_000, len(index)).astype(np.int32)
    quickest = float("inf")
    until = time.perf_counter() + min(seconds, 1.0)
    while time.perf_counter() < until:
        start = time.perf_counter()
        found.by_owner(owners)
        quickest = min(quickest, time.perf_counter() - start)
    return {"by_owner_pairs_per_s": len(found.keys) / quickest}


def _churn(index: Index, rng: Random, bench: Bench) -> dict[str, float]:
    """Additions and removals a second beside small batches, and the longest time that a batch had to wait."""
    count = len(index)
    changes = 200_000 if count > 500_000 else 40_000
    nodes = [Predicate("", SCHEMA, TREE, node) for node in conjunctions(rng, changes // 2, uniform)]
    keys = rng.permutation(count)[: len(nodes)].tolist()
    asked = [events(rng, SCHEMA, uniform, CHURN_BATCH) for _ in range(50)]
    longest = changing = 0.0
    rebuilds = index.statistics().rebuilds
    gc.disable()
    start = time.perf_counter()
    for i in range(0, len(nodes), CHURN_CHANGES // 2):
        before = time.perf_counter()
        for key, predicate in zip(keys[i : i + CHURN_CHANGES // 2], nodes[i : i + CHURN_CHANGES // 2], strict=True):
            index.remove(key)
            index.add(key, predicate)
        snapshot = index.snapshot()
        changing += time.perf_counter() - before
        snapshot.match(asked[i % len(asked)])
        longest = max(longest, time.perf_counter() - before)
    spent = time.perf_counter() - start
    gc.enable()
    index.settle()
    return {
        "churn_per_s": 2 * len(nodes) / spent,
        "churn_change_us": changing / (2 * len(nodes)) * 1e6,
        "churn_longest_ms": longest * 1e3,
        "churn_rebuilds": index.statistics().rebuilds - rebuilds,
    }


def _show(report: Report, rates: dict[str, float], matches: dict[str, float], top: int) -> None:
    figures = report.figures
    rows: list[tuple[Any, ...]] = [
        (f"{int(size):,} subscriptions", rate, matches[size]) for size, rate in rates.items()
    ]
    rows += [
        (f"{top:,}, {name}", figures[f"{name}_events_per_s"], matches[name])
        for name in ("zipf", "zipf_narrow", "range", "mixed")
        if name in matches
    ]
    report.table(
        f"Events a second, batches of {EVENTS:,}", ("subscriptions", "events/s", "matches per event"), rows,
        "One core. An equality and two ranges over 10 attributes of 1,000 values; zipf: values by Zipf's law in both; "
        "zipf_narrow: with ranges that leave as many matches as elsewhere; "
        "range: two narrow ranges; mixed: 20 % or/like over 1,000 distinct expressions that match one event in 1,000",
    )  # fmt: skip
    few, *_, many = rates
    growth = (rates[few] / rates[many]) / (matches[many] / matches[few])
    figures["growth_vs_matches"] = growth
    report.table(
        f"At {top:,} subscriptions", ("what", "measured"),
        [
            ("one event alone, µs", figures["single_us"]),
            ("additions and removals a second, with a batch of 16 after every 20", figures["churn_per_s"]),
            ("longest wait of such a batch, ms", figures["churn_longest_ms"]),
            ("bytes for each subscription", figures["bytes_per_subscription"]),
            ("seconds to add all", figures["build_seconds"]),
            ("pairs of row and key by connection, a second", figures["by_owner_pairs_per_s"]),
        ],
    )  # fmt: skip
    report.bars(
        [
            (f"events a second at {top:,}", rates[many], ">=", 50_000),
            ("slowing against growth in matches", growth, "<=", 1.0),
            ("zipf, events a second", figures["zipf_events_per_s"], ">=", 20_000),
            ("ranges, events a second", figures["range_events_per_s"], ">=", 5_000),
            ("mixed, events a second", figures["mixed_events_per_s"], ">=", 10_000),
            ("one event alone, µs", figures["single_us"], "<=", 50.0),
            ("additions and removals a second", figures["churn_per_s"], ">=", 10_000),
        ]
    )
    report.finish()
