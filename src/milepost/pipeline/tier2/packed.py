"""The part of tier 2 that runs in Python workers: pack rows by shard, run the engine, unpack its results.

The rows of a rule travel as Arrow tables in one value, so that Spark shuffles a few rows and not each event. Every
shard gets a row with the watermark in every micro-batch, even without events, because time advances for all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from milepost.pipeline.definition.shape import MONITOR
from milepost.pipeline.tier2.engine import RuleEngine
from milepost.pipeline.tier2.pack import pack, shard, unpack
from milepost.pipeline.tier2.rules import Monitor, Rule

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.state import GroupState

PACKED: Final = "shard int, place int, carried int, data binary"
RUN: Final = "carried int, data binary, monitor string"
STATE: Final = "state binary"

_PACKED: Final = pa.schema(
    [("shard", pa.int32()), ("place", pa.int32()), ("carried", pa.int32()), ("data", pa.binary())]
)
END: Final = -1  # in place of the number of a carried column: the row that ends a micro-batch


@dataclass(frozen=True)
class Stateful:
    """A rule with state: the column that is packed for it, and its specification for the engine."""

    column: str
    spec: Rule

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns by which its rows are assigned to shards."""
        return () if isinstance(self.spec, Monitor) else self.spec.keys


@dataclass(frozen=True)
class Packing:
    """Struct columns to packed tables: for each record batch and column, one table for each shard with rows."""

    carried: tuple[str, ...]
    stateful: tuple[Stateful, ...]
    shards: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keys = {each.column: each.keys for each in self.stateful}
        place = 0
        for batch in batches:
            rows: list[tuple[int, int, int, bytes]] = []
            for number, name in enumerate(self.carried):
                column = batch.column(name)
                if column.null_count == len(column):
                    continue
                table = pa.Table.from_struct_array(column.drop_null() if column.null_count else column)
                if keys.get(name) and self.shards > 1:
                    for where, chosen in enumerate(shard(table, keys[name], self.shards)):
                        if len(chosen):
                            rows.append((where, place, number, pack(table.take(pa.array(chosen)))))
                else:
                    rows.append((number % self.shards, place, number, pack(table)))
                place += 1
            progress = batch.column("_progress")
            if progress.null_count < len(progress):
                told = {"progress": _plain(progress.drop_null()[-1].as_py()), "monitor": self._monitor(batch)}
                rows += [(where, place, END, json.dumps(told).encode()) for where in range(self.shards)]
                place += 1
            if rows:
                columns = [
                    pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), _PACKED, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=_PACKED)

    def _monitor(self, batch: pa.RecordBatch) -> Any:
        """The values of the monitors, which are the same in all rows of a micro-batch, including the progress row."""
        return batch.column(MONITOR)[len(batch) - 1].as_py() if MONITOR in batch.schema.names else None


def _plain(progress: dict[str, Any]) -> dict[str, Any]:
    """Progress as JSON can hold it: its time in microseconds."""
    time = progress["time"]
    return {**progress, "time": None if time is None else round(time.timestamp() * 1_000_000)}


@lru_cache(maxsize=8)
def _engine(specs: tuple[Rule, ...]) -> RuleEngine:
    """Cached in a worker, so that an engine derives its data from schemas once."""
    return RuleEngine(specs)


@dataclass(frozen=True)
class Running:
    """Runs the engine for one shard and micro-batch. Rows for rules without state pass through."""

    carried: tuple[str, ...]
    stateful: tuple[Stateful, ...]

    def __call__(self, key: tuple[int], frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        import pandas

        rules = {each.column: each.spec.rule for each in self.stateful}
        rows = sorted(
            (row for frame in frames for row in zip(frame["place"], frame["carried"], frame["data"], strict=True)),
            key=lambda row: (int(row[0]), int(row[1])),
        )
        tables: dict[str, list[pa.Table]] = {}
        passed: list[tuple[int, bytes]] = []
        note: dict[str, Any] | None = None
        for _, number, data in rows:
            if number == END:
                note = json.loads(data)
            elif self.carried[number] in rules:
                tables.setdefault(rules[self.carried[number]], []).append(unpack(data))
            else:
                passed.append((int(number), bytes(data)))
        if note is None:
            raise AssertionError("a micro-batch has no progress row")
        before = bytes(state.get[0]) if state.exists else None
        engine = _engine(tuple(each.spec for each in self.stateful))
        joined = {name: pa.concat_tables(parts).combine_chunks() for name, parts in tables.items()}
        after, emitted = engine.run(before, joined, note["progress"]["time"])
        state.update((after,))
        for number, name in enumerate(self.carried):
            table = emitted.get(rules.get(name, ""))
            if table is not None and table.num_rows:
                passed.append((number, pack(table)))
        if key[0] == 0:
            passed.append((END, json.dumps(note).encode()))
        yield pandas.DataFrame(
            {
                "carried": pandas.Series([number for number, _ in passed], dtype="int32"),
                "data": pandas.Series([data for _, data in passed], dtype="object"),
                "monitor": pandas.Series([json.dumps(note["monitor"])] * len(passed), dtype="object"),
            }
        )


@dataclass(frozen=True)
class Unpacking:
    """Packed tables to struct columns: each row has one of them. `struct` is the JSON of the resulting schema."""

    carried: tuple[str, ...]
    struct: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = _arrow(self.struct)
        for batch in batches:
            for number, data, monitor in zip(
                batch.column("carried").to_pylist(),
                batch.column("data"),
                batch.column("monitor").to_pylist(),
                strict=True,
            ):
                if number == END:
                    progress = json.loads(data.as_py())["progress"]
                    yield _row_of(schema, "_progress", pa.array([progress], schema.field("_progress").type))
                else:
                    name = self.carried[number]
                    beside = {MONITOR: json.loads(monitor)}
                    yield _row_of(schema, name, _structs(unpack(data.as_buffer()), schema.field(name).type, beside))


@lru_cache(maxsize=8)
def _arrow(struct: str) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    return to_arrow_schema(StructType.fromJson(json.loads(struct)), timezone="UTC").remove_metadata()


def _structs(table: pa.Table, kind: pa.StructType, beside: Mapping[str, Any]) -> pa.Array:
    """The rows of a table as structs of a type. Missing fields come from `beside`, or are null."""
    arrays = []
    for field in kind:
        if field.name in table.schema.names:
            column = table.column(field.name).combine_chunks()
            arrays.append(column if column.type == field.type else column.cast(field.type))
        else:
            arrays.append(pa.repeat(pa.scalar(beside.get(field.name), field.type), table.num_rows))
    return pa.StructArray.from_arrays(arrays, fields=list(kind))


def _row_of(schema: pa.Schema, name: str, values: pa.Array) -> pa.RecordBatch:
    """A record batch with one column filled."""
    return pa.RecordBatch.from_arrays(
        [values if field.name == name else pa.nulls(len(values), field.type) for field in schema], schema=schema
    )
