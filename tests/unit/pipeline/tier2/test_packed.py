"""Tier 2 without Spark: rows packed by shard, the engine in each, and unpacked, as one stream of micro-batches."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from milepost.pipeline.tier2.packed import Packing, Running, Stateful, Unpacking
from milepost.pipeline.tier2.rules import TIME, Aggregate, Monitor, TimeWindow

pandas = pytest.importorskip("pandas")

MARK = pa.struct([("position", pa.int64()), ("time", pa.timestamp("us", "UTC")), ("offset", pa.string())])
LOADS = pa.struct([(TIME, pa.int64()), ("host", pa.string()), ("_a0", pa.float64())])
VALUES = pa.struct([(TIME, pa.int64()), ("value", pa.float64())])
OUT = pa.struct([("host", pa.string())])
RULES = (
    Stateful("r0", TimeWindow("loads", ("host",), 10, 10, (Aggregate("peak", "max", "_a0"),))),
    Stateful("m0", Monitor("monitor all", 20, 10, "value")),
)
CARRIED = ("r0", "m0", "out")


class State:
    """What Spark keeps for a shard between micro-batches."""

    def __init__(self) -> None:
        self.value: tuple[bytes] | None = None

    @property
    def exists(self) -> bool:
        return self.value is not None

    @property
    def get(self) -> tuple[bytes]:
        assert self.value is not None
        return self.value

    def update(self, value: tuple[bytes]) -> None:
        self.value = value


def micro_batch(rows: list[tuple[int, str, float]], watermark: int) -> list[pa.RecordBatch]:
    """Events as (time, host, load), and the progress row."""
    monitor = pa.struct([("slow", pa.struct([("p99", pa.float64())]))])
    schema = pa.schema([("r0", LOADS), ("m0", VALUES), ("out", OUT), ("monitor", monitor), ("_progress", MARK)])
    told = {"slow": {"p99": 1.5}}
    events = [
        {
            "r0": {TIME: time, "host": host, "_a0": load},
            "m0": {TIME: time, "value": load},
            "out": {"host": host},
            "monitor": told,
        }
        for time, host, load in rows
    ]
    progress = {"position": len(rows), "time": watermark, "offset": "here"}
    batches = [pa.RecordBatch.from_pylist(events, schema=schema)] if events else []
    return [*batches, pa.RecordBatch.from_pylist([{"monitor": told, "_progress": progress}], schema=schema)]


def run(shards: int, stream: list[tuple[list[tuple[int, str, float]], int]]) -> list[dict[str, Any]]:
    """Everything that comes out, in the order of micro-batches."""
    kind = T.StructType(
        [
            T.StructField(
                "r0",
                T.StructType(
                    [
                        T.StructField("host", T.StringType()),
                        T.StructField("window_end", T.TimestampType()),
                        T.StructField("count", T.LongType()),
                        T.StructField("peak", T.DoubleType()),
                        T.StructField(
                            "monitor",
                            T.StructType([T.StructField("slow", T.StructType([T.StructField("p99", T.DoubleType())]))]),
                        ),
                    ]
                ),
            ),
            T.StructField(
                "m0", T.StructType([T.StructField("count", T.LongType()), T.StructField("max", T.DoubleType())])
            ),
            T.StructField("out", T.StructType([T.StructField("host", T.StringType())])),
            T.StructField(
                "_progress",
                T.StructType(
                    [
                        T.StructField("position", T.LongType()),
                        T.StructField("time", T.TimestampType()),
                        T.StructField("offset", T.StringType()),
                    ]
                ),
            ),
        ]
    )
    states = [State() for _ in range(shards)]
    found: list[dict[str, Any]] = []
    for rows, watermark in stream:
        packed = pa.Table.from_batches(list(Packing(CARRIED, RULES, shards)(micro_batch(rows, watermark)))).to_pandas()
        for number, state in enumerate(states):
            mine = packed[packed["shard"] == number].iloc[::-1]  # in whatever order a shuffle leaves them
            for out in Running(CARRIED, RULES)((number,), [mine], state):  # type: ignore[arg-type]
                if len(out):
                    batch = pa.RecordBatch.from_pandas(out, preserve_index=False)
                    for made in Unpacking(CARRIED, kind.json())([batch]):
                        found += made.to_pylist()
    return found


STREAM: list[tuple[list[tuple[int, str, float]], int]] = [
    ([(1, "a", 1.0), (3, "b", 5.0), (4, "a", 3.0)], 5),
    ([], 9),
    ([(12, "a", 2.0)], 12),
    ([], 30),
]


@pytest.mark.parametrize("shards", [1, 2, 5])
def test_windows_and_monitors_come_out_once_whatever_the_number_of_shards(shards: int) -> None:
    found = run(shards, STREAM)
    windows = sorted(
        (each["r0"]["host"], each["r0"]["window_end"].microsecond, each["r0"]["count"], each["r0"]["peak"])
        for each in found
        if each["r0"] is not None
    )
    assert windows == [("a", 10, 2, 3.0), ("a", 20, 1, 2.0), ("b", 10, 1, 5.0)]
    assert {each["r0"]["monitor"]["slow"]["p99"] for each in found if each["r0"] is not None} == {1.5}
    monitors = [(each["m0"]["count"], each["m0"]["max"]) for each in found if each["m0"] is not None]
    assert monitors == [(3, 5.0), (4, 5.0), (1, 2.0)]


def test_what_has_no_memory_passes_and_each_micro_batch_has_one_progress_row() -> None:
    found = run(3, STREAM)
    assert sorted(each["out"]["host"] for each in found if each["out"] is not None) == ["a", "a", "a", "b"]
    assert [each["_progress"]["position"] for each in found if each["_progress"] is not None] == [3, 0, 1, 0]


def test_rows_travel_as_a_few_values() -> None:
    rows = [(number, f"host {number % 7}", 1.0) for number in range(1_000)]
    packed = list(Packing(CARRIED, RULES, 2)(micro_batch(rows, 1_000)))
    assert sum(len(batch) for batch in packed) <= 2 + 1 + 1 + 2
    assert json.loads(packed[-1].column("data")[-1].as_py())["progress"]["time"] == 1_000
