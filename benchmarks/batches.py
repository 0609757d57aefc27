"""What a batch of many rows costs: its columns summed, its optional fields, its encoding. Milepost alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.clock import best, seconds
from benchmarks.messages import SHAPES
from milepost import query
from milepost.batch import Batch
from milepost.schema.text import parse

ROWS = 10_000
DICT_ROWS = 1_000
OPTIONAL_FIELDS = 10

QUOTE = "quote: [symbol: string, price: double, size: int, sequence: long, buy: bool]"
TICK = "tick: [price: double, size: int, sequence: long, venue: int16, volume: double]"


def column_reads_per_s(repeats: int) -> float:
    """Ints summed a second on one core, from the bytes off the wire; decoding and its checks are in the time."""
    shape = SHAPES[0]
    schema = parse(shape.text())
    rng = np.random.default_rng(1)
    names = [shape.path(field)[0] for field in range(16)]
    columns = {name: rng.integers(-(1 << 31), 1 << 31, ROWS).astype(np.int32) for name in names}
    data = bytes(Batch.encode(schema, columns).data)

    def total() -> int:
        batch = Batch.decode(data, schema)
        return sum(int(batch.column(name).sum(dtype=np.int64)) for name in names)

    assert total() == sum(int(column.sum(dtype=np.int64)) for column in columns.values())
    return len(names) * ROWS / seconds(total, repeats)


def optional_ratios(repeats: int) -> dict[str, float]:
    """Ten independent optional fields, each absent in half the rows, over the same ten always there.

    One row and 10,000 rows in bytes; decoding, a query of four terms, and conversion to and from Arrow in time.
    """
    rng = np.random.default_rng(2)
    names = [f"f{i}" for i in range(OPTIONAL_FIELDS)]
    values = {name: rng.integers(-1_000, 1_000, ROWS).astype(np.int32) for name in names}
    full = parse(f"full: [{', '.join(f'{name}: int' for name in names)}]")
    half = parse(f"half: [{', '.join(f'{name}: int?' for name in names)}]")
    tables = {
        full: pa.record_batch({name: pa.array(column) for name, column in values.items()}),
        half: pa.record_batch({name: pa.array(column, mask=rng.random(ROWS) < 0.5) for name, column in values.items()}),
    }
    predicate = "f0 > 0 and f3 < 500 and f6 between -500 and 500 and f9 <> 7"
    size: dict[str, float] = {}
    row_size: dict[str, float] = {}
    work: dict[str, dict[str, Callable[[], Any]]] = {"decode": {}, "query": {}, "to_arrow": {}, "from_arrow": {}}
    for schema, table in tables.items():
        batch = Batch.encode(schema, table)
        data = bytes(batch.data)
        size[schema.name] = len(data)
        rows = [Batch.encode(schema, table.slice(i, 1)) for i in range(100)]
        row_size[schema.name] = sum(len(bytes(row.data)) for row in rows) / len(rows)
        evaluate = query.compile(predicate, schema).mask
        work["decode"][schema.name] = lambda data=data, schema=schema: Batch.decode(data, schema)
        # A fresh batch each time: a batch that was queried before may have cached its unpacked columns.
        work["query"][schema.name] = lambda run=evaluate, data=data, schema=schema: run(Batch.decode(data, schema))
        work["to_arrow"][schema.name] = lambda data=data, schema=schema: Batch.decode(data, schema).to_arrow()
        work["from_arrow"][schema.name] = lambda table=table, schema=schema: Batch.encode(schema, table)
    ratios = {"size": size["half"] / size["full"], "row_size": row_size["half"] / row_size["full"]}
    for what, pair in work.items():
        spent = best(pair, repeats)
        ratios[what] = spent["half"] / spent["full"]
    return ratios


def encode_rates(repeats: int) -> dict[str, float]:
    """Rows encoded a second: 1,000 dicts of five fields; 10,000 rows from Arrow and from NumPy columns."""
    rng = np.random.default_rng(3)
    quote, tick = parse(QUOTE), parse(TICK)
    symbols = [f"SYM{i}" for i in range(500)]
    table = pa.record_batch(
        {
            "symbol": pa.array([symbols[i] for i in rng.integers(0, len(symbols), ROWS)]),
            "price": pa.array(rng.random(ROWS) * 100),
            "size": pa.array(rng.integers(1, 1_000, ROWS).astype(np.int32)),
            "sequence": pa.array(np.arange(ROWS)),
            "buy": pa.array(rng.random(ROWS) < 0.5),
        }
    )
    dicts = table.slice(0, DICT_ROWS).to_pylist()
    columns = {
        "price": rng.random(ROWS) * 100,
        "size": rng.integers(1, 1_000, ROWS).astype(np.int32),
        "sequence": np.arange(ROWS),
        "venue": rng.integers(0, 100, ROWS).astype(np.int16),
        "volume": rng.random(ROWS),
    }
    assert Batch.encode(quote, dicts).to_pylist() == dicts
    assert Batch.encode(quote, table).to_pylist() == table.to_pylist()
    return {
        "encode_dicts_per_s": DICT_ROWS / seconds(lambda: Batch.encode(quote, dicts), repeats),
        "encode_arrow_per_s": ROWS / seconds(lambda: Batch.encode(quote, table), repeats),
        "encode_numpy_per_s": ROWS / seconds(lambda: Batch.encode(tick, columns), repeats),
    }
