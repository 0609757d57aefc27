"""`make bench NAME=format`: the flat-tuple format against the formats people use, on identical messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from benchmarks import batches, fields
from benchmarks.clock import best
from benchmarks.formats.bare import Bare
from benchmarks.formats.flattuple import FlatTupleVariants
from benchmarks.messages import SHAPES
from benchmarks.report import Report
from milepost import kernels

OURS, VARIANTS = "milepost", FlatTupleVariants.name
MESSAGES, QUICK_MESSAGES = 10_000, 500
REPEATS, QUICK_REPEATS = 5, 3
BATCH_REPEATS, QUICK_BATCH_REPEATS = 200, 30
SEED = 20020717

# The bars of this benchmark. Speed: how many times quicker than the peer, over the worst of the six schemas.
ONE_FIELD = {"lxml": 30.0, "orjson": 6.0, "msgspec": 3.0, "protobuf": 3.0}
LAYOUT_SPREAD = 1.2  # slowest schema over fastest, ints and strings apart
STRUCT_RATIO = 1.5  # ints, against a bare struct.unpack_from
STRING_SIZE_PEERS = ("lxml", "orjson", "flatbuffers", "arrow")
COLUMN_READS = 100e6
OPTIONAL_RATIO = 1.5
ENCODE_DICTS, ENCODE_COLUMNS = 1e6, 20e6

Figures = dict[str, dict[str, float]]


def run(quick: bool) -> None:
    report = Report("format", quick)
    for name, why in fields.LEFT_OUT.items():
        report.leave_out(name, why)
    if not kernels.compiled():
        report.say("compiling kernels, once for this version: up to a minute")
        kernels.warm()
    count, repeats = (QUICK_MESSAGES, QUICK_REPEATS) if quick else (MESSAGES, REPEATS)
    contests: dict[str, fields.Contest] = {}
    for number, shape in enumerate(SHAPES):
        report.say(f"{shape.name}: writing {count:,} messages in {len(fields.FORMATS)} formats")
        contests[shape.name] = fields.prepare(shape, count, SEED + number)
    report.say(f"reading them, {2 * repeats} times over")
    one, nine, validate = _timed(contests, count, repeats)
    size = {name: contest.size for name, contest in contests.items()}

    many = QUICK_BATCH_REPEATS if quick else BATCH_REPEATS
    figures = report.figures
    figures |= {"one": one, "nine": nine}
    figures |= {f"vs_{peer}": _advantage(one, peer) for peer in _peers()}
    figures["nine_vs"] = {peer: _advantage(nine, peer) for peer in _peers()}
    figures["variants_ratio"] = {
        what: max(row[VARIANTS] / row[OURS] for row in times.values() if VARIANTS in row)
        for what, times in (("one", one), ("nine", nine), ("bytes", size))
    }
    figures["struct_ratio"] = max(row[OURS] / row[Bare.name] for row in one.values() if Bare.name in row)
    figures["spread"] = {kind: _spread(one, kind) for kind in ("int", "string")}
    figures["layout_spread"] = max(figures["spread"].values())
    figures["validate_ns"] = validate
    figures["bytes_per_message"] = size
    figures["column_reads_per_s"] = batches.column_reads_per_s(many)
    figures["optional_ratio"] = batches.optional_ratios(many)
    figures |= batches.encode_rates(many)

    _tables(report, one, nine, size, validate)
    report.bars(_bars(figures, size))
    report.finish()


def _timed(contests: dict[str, fields.Contest], count: int, repeats: int) -> tuple[Figures, Figures, dict[str, float]]:
    """Nanoseconds a message. All schemas and formats take turns, since figures are compared across both."""
    loops: dict[tuple[str, str, str], Callable[[], None]] = {}
    for name, contest in contests.items():
        loops |= {("one", name, kind): loop for kind, loop in contest.one.items()}
        loops |= {("nine", name, kind): loop for kind, loop in contest.nine.items()}
        loops["validate", name, OURS] = contest.validate
    spent = best(loops, repeats)

    def figures(what: str, name: str) -> dict[str, float]:
        return {kind: spent[what, name, kind] / count for kind in contests[name].one if (what, name, kind) in spent}

    return (
        {name: figures("one", name) for name in contests},
        {name: figures("nine", name) for name in contests},
        {name: figures("validate", name)[OURS] for name in contests},
    )


def _peers() -> list[str]:
    return list(fields.ALL_PEERS)


def _advantage(times: Figures, peer: str) -> float | None:
    """How many times quicker than a peer, on the schema with the smallest factor; with variants where we have them."""
    if peer in fields.LEFT_OUT:
        return None
    return min(row[peer] / max(row[OURS], row.get(VARIANTS, 0.0)) for row in times.values())


def _least(found: Iterable[float | None]) -> float | None:
    """The smallest; None when one was not measured, because it could be the smallest."""
    known = list(found)
    return None if None in known else min(each for each in known if each is not None)


def _spread(one: Figures, kind: str) -> float:
    times = [one[shape.name][OURS] for shape in SHAPES if shape.kind == kind]
    return max(times) / min(times)


def _tables(report: Report, one: Figures, nine: Figures, size: Figures, validate: dict[str, float]) -> None:
    columns = [OURS, VARIANTS, *_peers(), Bare.name]
    for title, figures in (
        ("One field, ns a message", one),
        ("Nine fields, ns a message", nine),
        ("Bytes a message", size),
    ):
        rows = [(name, *(row.get(column) for column in columns)) for name, row in figures.items()]
        report.table(title, ("schema", *columns), rows)
    report.table("Validating a batch of one row on arrival", ("schema", "ns"), list(validate.items()))


def _bars(figures: dict[str, Any], size: Figures) -> list[tuple[str, float | None, str, float]]:
    int_size = _size_ratio(size, "int", _peers())
    text_size = _size_ratio(size, "string", STRING_SIZE_PEERS)
    bars: list[tuple[str, float | None, str, float]] = [
        (f"one field, times quicker than {peer}", figures[f"vs_{peer}"], ">=", bar) for peer, bar in ONE_FIELD.items()
    ]
    bars += [
        ("one field, slowest layout over fastest, without variants", figures["layout_spread"], "<=", LAYOUT_SPREAD),
        ("one int, over struct.unpack_from", figures["struct_ratio"], "<=", STRUCT_RATIO),
        ("nine fields, times quicker than the best other", _least(figures["nine_vs"].values()), ">=", 1.0),
        ("int schemas, bytes over the smallest other", int_size, "<=", 1.0),
        ("string schemas, bytes over XML, JSON, FlatBuffers, Arrow", text_size, "<=", 1.0),
        ("column values summed a second", figures["column_reads_per_s"], ">=", COLUMN_READS),
    ]
    bars += [
        (f"ten optional fields, {what}", ratio, "<=", OPTIONAL_RATIO)
        for what, ratio in figures["optional_ratio"].items()
    ]
    bars += [
        ("rows encoded a second from dicts", figures["encode_dicts_per_s"], ">=", ENCODE_DICTS),
        ("rows encoded a second from Arrow", figures["encode_arrow_per_s"], ">=", ENCODE_COLUMNS),
        ("rows encoded a second from NumPy", figures["encode_numpy_per_s"], ">=", ENCODE_COLUMNS),
    ]
    return bars


def _size_ratio(size: Figures, kind: str, peers: Sequence[str]) -> float | None:
    """Our bytes over the smallest of the peers', on the schema with the largest ratio; None when a peer is missing."""
    if set(peers) & fields.LEFT_OUT.keys():
        return None
    rows = [size[shape.name] for shape in SHAPES if shape.kind == kind]
    return max(max(row[OURS], row.get(VARIANTS, 0)) / min(row[peer] for peer in peers) for row in rows)
