"""The join with a table. It never changes the number of rows: keys are unique, and rows without a match stay."""

from __future__ import annotations

from functools import reduce
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as s

from milepost.pipeline.definition.lookup import Lookup
from milepost.pipeline.tier1.columns import named
from milepost.pipeline.tier1.prefix import V4, V6, address, groups
from milepost.query.spark import field_type
from milepost.schema import types as t
from milepost.schema.types import Atom, Schema

KEY: Final = "#key"
BY: Final = "#by"  # the text with an address
FOUND: Final = "#found"  # a struct of the values; null when there is no row, which differs from a row of nulls

_ARROW: Final = {  # unsigned integers as Spark represents them
    "uint8": pa.int16(), "uint16": pa.int32(), "uint32": pa.int64(), "uint64": pa.decimal128(20, 0),
    "timestamp": pa.timestamp("us", "UTC"), "uuid": pa.string(),
}  # fmt: skip


def enriched(frame: DataFrame, by: Column, lookup: Lookup) -> tuple[DataFrame, Column]:
    """The frame with a table's values as columns, and whether a row was found (never null).

    Columns that the search needs remain in the frame; the caller selects the columns it wants.
    """
    if lookup.keys is not None:
        joined = _joined(frame, by, table_of(frame, lookup, lookup.keys), FOUND)
        found = named(FOUND)
    else:
        joined, found = _by_prefix(frame, by, lookup)
    there = joined.withColumns({name: found.getField(name) for name in lookup.types})
    return there, found.isNotNull()


def _joined(frame: DataFrame, by: Column, table: DataFrame, name: str) -> DataFrame:
    """Add one column, the struct of the row whose key equals `by`.

    The key gets a different name for each join: columns with the same name in two tables would be ambiguous.
    """
    key = f"{KEY}{name}"
    small = f.broadcast(table.select(named(KEY).alias(key), named(FOUND).alias(name)))
    return frame.join(small, by == named(key), "left").drop(named(key))


def table_of(frame: DataFrame, lookup: Lookup, keys: pa.Array, rows: pa.Array | None = None) -> DataFrame:
    """A DataFrame with the columns `#key` and `#found`, of all rows of a table or of some."""
    values = lookup.values if rows is None else lookup.values.take(rows)
    names = [f"#{number}" for number in range(values.num_columns)]
    columns = [_for_spark(column, kind) for column, kind in zip(values.columns, lookup.types.values(), strict=True)]
    given = pa.table([keys, *columns], names=[KEY, *names])
    types = [s.StructField(name, _spark(kind)) for name, kind in zip(names, lookup.types.values(), strict=True)]
    schema = s.StructType([s.StructField(KEY, _key_type(keys.type)), *types])
    made: DataFrame = frame.sparkSession.createDataFrame(given, schema)
    fields = [named(name).alias(field) for name, field in zip(names, lookup.types, strict=True)]
    return made.select(named(KEY), f.struct(*fields).alias(FOUND))


def _by_prefix(frame: DataFrame, by: Column, lookup: Lookup) -> tuple[DataFrame, Column]:
    """The smallest network that contains an address: one equi-join for each prefix length in the table.

    A join on containment would compare every event with every network.
    """
    assert lookup.networks is not None
    numbers, digits = address(BY)
    versions = {network.version for network in lookup.networks}
    frame = frame.withColumn(BY, by).withColumns(
        {name: made for name, made, version in ((V4, numbers, 4), (V6, digits, 6)) if version in versions}
    )
    found: list[Column] = []
    for group in groups(lookup.networks):
        name = f"{FOUND}/{group.version}/{group.length}"
        frame = _joined(frame, group.key, table_of(frame, lookup, group.keys, group.rows), name)
        found.append(named(name))
    if not found:
        return frame, f.lit(None).cast(s.StructType([s.StructField(n, _spark(k)) for n, k in lookup.types.items()]))
    return frame, reduce(lambda longest, shorter: f.coalesce(longest, shorter), found)


def _for_spark(column: Any, kind: Atom) -> Any:
    wanted = _ARROW.get(kind.kind)
    if kind == t.UUID and not pa.types.is_string(column.type):
        column = pa.chunked_array([pa.array([None if v is None else str(v) for v in column.to_pylist()], pa.string())])
    return column if wanted is None or column.type == wanted else column.cast(wanted)


def _spark(kind: Atom) -> s.DataType:
    return field_type(kind, _NOTHING)


_NOTHING: Final = Schema("nothing", t.Tuple(()))


def _key_type(kind: pa.DataType) -> s.DataType:
    if pa.types.is_string(kind):
        return s.StringType()
    return s.DateType() if pa.types.is_date(kind) else s.LongType()
