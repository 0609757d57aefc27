"""`make bench NAME=query`: predicates over a batch by the mask back end, and by other libraries on the same columns."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.clock import best
from benchmarks.report import Report
from milepost import query
from milepost.batch import Batch
from milepost.schema.text import parse

ROWS = 10_000
REPEATS, QUICK_REPEATS = 200, 30
PYTHON_ROWS = 1_000  # the reference back end works row by row, so its rate does not depend on the number of rows
BAR = 50e6  # rows a second, four terms, by the mask back end

SYMBOLS = [f"SYM{i}" for i in range(200)]

# The predicates, in Milepost's language and written by hand for the peers. The bar is for `four`.
Peer = Callable[[Any], Any]


class Case:
    """One predicate over one schema, and the same thing written by hand for pyarrow.compute, over a table.

    For Polars it is a function of the module, which may not be installed.
    """

    def __init__(self, name: str, predicate: str, table: str, arrow: Peer | None, frame: Peer | None) -> None:
        self.name, self.predicate, self.table, self.arrow, self.frame = name, predicate, table, arrow, frame


def _all(*terms: Any) -> Any:
    """`and` over Arrow masks, with SQL's logic."""
    whole = terms[0]
    for term in terms[1:]:
        whole = pc.and_kleene(whole, term)
    return whole


CASES = [
    Case(
        "four",
        "price > 50 and size < 500 and venue = 3 and sequence >= 2000",
        "quote",
        lambda t: _all(pc.greater(t["price"], 50.0), pc.less(t["size"], 500), pc.equal(t["venue"], 3),
                       pc.greater_equal(t["sequence"], 2000)),
        lambda pl: (pl.col("price") > 50) & (pl.col("size") < 500) & (pl.col("venue") == 3)
        & (pl.col("sequence") >= 2000),
    ),
    Case(
        "four_optional",  # the same over ten optional fields, each absent in half the rows
        "f0 > 0 and f3 < 500 and f6 = 3 and f9 >= -900",
        "half",
        lambda t: _all(pc.greater(t["f0"], 0), pc.less(t["f3"], 500), pc.equal(t["f6"], 3),
                       pc.greater_equal(t["f9"], -900)),
        lambda pl: (pl.col("f0") > 0) & (pl.col("f3") < 500) & (pl.col("f6") == 3) & (pl.col("f9") >= -900),
    ),
    Case(
        "four_required",  # … and over ten that are always there
        "f0 > 0 and f3 < 500 and f6 = 3 and f9 >= -900",
        "full",
        lambda t: _all(pc.greater(t["f0"], 0), pc.less(t["f3"], 500), pc.equal(t["f6"], 3),
                       pc.greater_equal(t["f9"], -900)),
        lambda pl: (pl.col("f0") > 0) & (pl.col("f3") < 500) & (pl.col("f6") == 3) & (pl.col("f9") >= -900),
    ),
    Case(
        "string_equality",
        "symbol = 'SYM7'",
        "quote",
        lambda t: pc.equal(t["symbol"], "SYM7"),
        lambda pl: pl.col("symbol") == "SYM7",
    ),
    Case(
        "like",
        "symbol like 'SYM1%7'",
        "quote",
        lambda t: pc.match_like(t["symbol"], "SYM1%7"),
        lambda pl: pl.col("symbol").str.starts_with("SYM1") & pl.col("symbol").str.ends_with("7"),
    ),
    Case("in_subnet", "in_subnet(address, '10.1.0.0/16')", "quote", None, None),
    Case(
        "any",
        "any(fills, price > 99)",
        "quote",
        None,
        lambda pl: pl.col("fills").list.eval(pl.element().struct.field("price") > 99).list.any(),
    ),
    Case("calculation", "price * size > 25000 and sequence % 7 = 0", "quote",
         lambda t: _all(pc.greater(pc.multiply(t["price"], pc.cast(t["size"], pa.float64())), 25000.0),
                        pc.equal(pc.subtract(t["sequence"], pc.multiply(pc.divide(t["sequence"], 7), 7)), 0)),
         lambda pl: (pl.col("price") * pl.col("size") > 25000) & (pl.col("sequence") % 7 == 0)),
]  # fmt: skip

SCHEMAS = {
    "quote": parse(
        "quote: [symbol: string, price: double, size: int, venue: int16, sequence: long, address: string, "
        "fills: *([price: double, size: int])*]"
    ),
    "full": parse(f"full: [{', '.join(f'f{i}: int' for i in range(10))}]"),
    "half": parse(f"half: [{', '.join(f'f{i}: int?' for i in range(10))}]"),
}


def _tables() -> dict[str, pa.RecordBatch]:
    rng = np.random.default_rng(4)
    lengths = rng.integers(0, 5, ROWS)
    fills = int(lengths.sum())
    quote = {
        "symbol": pa.array([SYMBOLS[i] for i in rng.integers(0, len(SYMBOLS), ROWS)]),
        "price": pa.array(rng.random(ROWS) * 100),
        "size": pa.array(rng.integers(1, 1_000, ROWS).astype(np.int32)),
        "venue": pa.array(rng.integers(0, 8, ROWS).astype(np.int16)),
        "sequence": pa.array(np.arange(ROWS)),
        "address": pa.array([f"10.{a}.{b}.{c}" for a, b, c in rng.integers(0, 256, (ROWS, 3)).tolist()]),
        "fills": pa.ListArray.from_arrays(
            np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32),
            pa.StructArray.from_arrays(
                [pa.array(rng.random(fills) * 100), pa.array(rng.integers(1, 100, fills).astype(np.int32))],
                names=["price", "size"],
            ),
        ),
    }
    ints = {f"f{i}": rng.integers(-1_000, 1_000, ROWS).astype(np.int32) for i in range(10)}
    return {
        "quote": pa.record_batch(quote),
        "full": pa.record_batch({name: pa.array(column) for name, column in ints.items()}),
        "half": pa.record_batch({name: pa.array(column, mask=rng.random(ROWS) < 0.5) for name, column in ints.items()}),
    }


def run(quick: bool) -> None:
    report = Report("query", quick)
    repeats = QUICK_REPEATS if quick else REPEATS
    polars = _polars()
    if polars is None:
        report.leave_out("polars", "the Python package polars is not installed: left out")
    tables = _tables()
    rates: dict[str, dict[str, float]] = {}
    report.say(f"{len(CASES)} predicates over {ROWS:,} rows")
    for case in CASES:
        rates[case.name] = _measure(case, tables[case.table], repeats, polars)

    rows = [
        (name, *(rate.get(column) for column in ("mask", "python", "pyarrow", "polars")))
        for name, rate in rates.items()
    ]
    report.table("Rows a second", ("predicate", "mask", "python", "pyarrow", "polars"), rows)
    compiling = _compiling(repeats)
    report.table("Microseconds to compile three terms", ("shape", "time"), list(compiling.items()))
    ratio = rates["four_required"]["mask"] / rates["four_optional"]["mask"]
    report.figures |= {
        "rows_per_s": rates["four"]["mask"],
        "python_rows_per_s": rates["four"]["python"],
        "optional_ratio": ratio,
        "compile_us": compiling["new"],
        "compile_known_us": compiling["known"],
        "rates": rates,
    }
    report.bars(
        [
            ("rows a second, four terms, mask", rates["four"]["mask"], ">=", BAR),
            ("ten optional fields, times slower", ratio, "<=", 1.5),
        ]
    )
    report.finish()


def _compiling(repeats: int) -> dict[str, float]:
    """Microseconds to compile a predicate with its own constants, of a shape that is new and of one that is known."""
    numbers = count(1_000)

    def compiled(shape: str = "") -> query.Predicate:
        number = next(numbers)
        text = f"symbol = 'X{number}' and price >= {number % 90} and size < {number}"
        # White space makes a shape as anything else does: the number again, in blanks and tabs.
        return query.compile(text + f"{number:b}".translate(BLANKS) if shape == "new" else text, SCHEMAS["quote"])

    compiled()
    spent = best({"new": lambda: compiled("new"), "known": compiled}, repeats)
    return {name: ns / 1e3 for name, ns in spent.items()}


BLANKS = str.maketrans("01", " \t")


def _polars() -> Any:
    try:
        return import_module("polars")
    except ImportError:
        return None


def _measure(case: Case, table: pa.RecordBatch, repeats: int, polars: Any) -> dict[str, float]:
    schema = SCHEMAS[case.table]
    data = bytes(Batch.encode(schema, table).data)
    batch = Batch.decode(data, schema)
    wanted = query.compile(case.predicate, schema)
    some = table.slice(0, PYTHON_ROWS).to_pylist()

    found = wanted.mask(batch)
    assert found[:PYTHON_ROWS].tolist() == [wanted.test(row) is True for row in some], case.name
    # A fresh batch each time: a batch that was queried before may have cached results.
    contestants: dict[str, Callable[[], Any]] = {"mask": lambda: wanted.mask(Batch.trusted(data, schema))}
    if case.arrow is not None:
        arrow = case.arrow
        assert pc.fill_null(arrow(table), False).to_pylist() == found.tolist(), case.name
        contestants["pyarrow"] = lambda: arrow(table)
    if case.frame is not None and polars is not None:
        frame, expression = polars.from_arrow(table), case.frame(polars)
        assert frame.select(expression.fill_null(False)).to_series().to_list() == found.tolist(), case.name
        contestants["polars"] = lambda: frame.select(expression)
    spent = best(contestants, repeats)
    rates = {name: ROWS / (ns / 1e9) for name, ns in spent.items()}
    python = best({"python": lambda: [wanted.test(row) for row in some]}, max(3, repeats // 40))
    return rates | {"python": PYTHON_ROWS / (python["python"] / 1e9)}
