"""Messages to Spark and back: what goes in comes out, and Spark's own idea of a schema is met exactly."""

import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_schema

from milepost.batch import Batch, IdRun, Ids
from milepost.client.logbatch import LogBatch
from milepost.errors import ConfigError, InvalidValue, SchemaError
from milepost.pipeline.source.from_spark import FromSpark
from milepost.pipeline.source.to_spark import ToSpark
from milepost.pipeline.source.types import METADATA, schema_of, spark_schema
from milepost.schema import text
from milepost.schema.types import Optional, Schema
from tests import strategies


@st.composite
def tables(draw: st.DrawFn, **contents: Any) -> tuple[Schema, list[Any]]:
    schema = draw(strategies.schemas(min_fields=1, **contents))
    return schema, draw(st.lists(strategies.values(schema), max_size=6))


def in_spark(schema, rows, **options):
    struct = spark_schema(schema, **options)
    return ToSpark(schema, struct)(Batch.encode(schema, rows))


@given(tables())
def test_messages_come_back_as_the_same_bytes(table):
    schema, rows = table
    batch = Batch.encode(schema, rows)
    struct = spark_schema(schema)
    there = ToSpark(schema, struct)(batch)
    there.validate(full=True)
    assert to_arrow_schema(struct, timezone="UTC").equals(there.schema)
    again = Batch.encode(schema, FromSpark(schema)(there))
    assert strategies.identical(again.to_pylist(), rows)
    assert again == batch


@given(tables())
def test_a_piece_of_a_record_batch_is_read_as_that_piece(table):
    schema, rows = table
    there = in_spark(schema, rows)
    for start in range(len(rows)):
        piece = FromSpark(schema)(there.slice(start, 1))
        assert strategies.identical(Batch.encode(schema, piece).to_pylist(), rows[start : start + 1])


@given(strategies.schemas(min_fields=1, recursion=False))
def test_a_schema_comes_back_with_everything_optional(schema):
    struct = spark.StructType.fromJson(spark_schema(schema).jsonValue())  # as it goes through Spark
    made = schema_of(struct, schema.name)
    for mine, theirs in zip(made.type.fields, schema.type.fields, strict=True):
        assert mine.name == theirs.name
        assert isinstance(mine.type, Optional)
    again = spark_schema(made)
    assert again == struct
    assert schema_of(again, schema.name) == made


def test_what_is_required_in_spark_is_required_here():
    struct = spark.StructType(
        [
            spark.StructField("a", spark.IntegerType(), False),
            spark.StructField("b", spark.ArrayType(spark.StringType(), False), True),
            spark.StructField("c", spark.StructType([spark.StructField("d", spark.DecimalType(9, 2), False)]), False),
        ]
    )
    assert schema_of(struct, "m") == text.parse("m: [a: int, b: *(string)*?, c: [d: decimal(9,2)]]")


def test_columns_that_messages_do_not_have_are_named():
    def of(kind, name="a"):
        return schema_of(spark.StructType([spark.StructField(name, kind)]), "m")

    with pytest.raises(SchemaError, match=r"column 'a' is a map<string,int>"):
        of(spark.MapType(spark.StringType(), spark.IntegerType()))
    with pytest.raises(SchemaError, match=r"column 'a\[\]' is a interval"):
        of(spark.ArrayType(spark.CalendarIntervalType()))
    with pytest.raises(SchemaError, match=r"column 'sum\(a\)' is not a valid field name"):
        of(spark.LongType(), "sum(a)")


def test_a_cast_column_keeps_no_type_of_before():
    schema = text.parse("m: [a: uint32]")
    (field,) = spark_schema(schema).fields
    cast = spark.StructType([spark.StructField("a", spark.StringType(), True, field.metadata)])
    assert schema_of(cast, "m") == text.parse("m: [a: string?]")


def test_variants_are_structs_with_their_case():
    schema = text.parse("m: [v: {a: int | b: [] | c: [d: uuid]}?]")
    key = uuid.uuid4()
    rows = [{"v": {"a": 1}}, {"v": {"b": {}}}, {"v": {"c": {"d": key}}}, {"v": None}]
    there = in_spark(schema, rows)
    assert there.column("v").to_pylist() == [
        {"case": "a", "a": 1, "c": None},
        {"case": "b", "a": None, "c": None},
        {"case": "c", "a": None, "c": {"d": str(key)}},
        None,
    ]


@pytest.mark.parametrize(
    ("notation", "column", "said"),
    [
        ("uint8", pa.array([1, 256]), "a: a column of int64 does not fit uint8"),
        ("uint64", pa.array([-1]), "a: a column of int64 does not fit uint64"),
        ("uuid", pa.array([str(uuid.uuid4()), "none"]), "row 1, a: 'none' is not a uuid"),
        ("uuid", pa.array(["-" * 36]), "row 0, a: .* is not a uuid"),
        ("string", pa.array([1]), "a: a column of int64 cannot become a column of string"),
        ("int", pa.array([None], pa.int32()), "row 0, a: missing"),
        ("{b: int}", pa.array([{"case": "c", "b": 1}]), "row 0, a: 'c' is none of the cases b"),
        ("{b: int | c: int}", pa.array([{"case": "b", "b": 1, "c": 2}]), "row 0, a: 'c' has a value"),
        ("{b: int}", pa.array([{"case": "b", "d": 1}]), "a: there is no case 'd'"),
        ("{b: int}", pa.array([{"b": 1}]), "a: a variant is a struct with 'case'"),
        ("dynamic", pa.array(["{}"]), 'row 0, a: write {"schema"'),
        ("*(uuid)*", pa.array([["x"]]), r"a\[\]: 'x' is not a uuid"),
        ("[b: uuid]", pa.array([{"b": "x"}]), r"a.b: 'x' is not a uuid"),
    ],
)
def test_an_error_names_the_column(notation, column, said):
    schema = text.parse(f"m: [a: {notation}]")
    with pytest.raises(InvalidValue, match=said):
        Batch.encode(schema, FromSpark(schema)(pa.record_batch({"a": column})))


def test_a_column_that_is_no_field():
    with pytest.raises(InvalidValue, match=r"column 'prize' is not a field of m; did you mean 'price'\?"):
        FromSpark(text.parse("m: [price: double]")).check(["prize"])


def test_dynamic_values_are_written_as_the_command_line_takes_them():
    schema = text.parse("m: [a: dynamic]")
    made = FromSpark(schema)(pa.record_batch({"a": ['{"schema": "n: [b: int]", "value": {"b": 7}}']}))
    (row,) = Batch.encode(schema, made).to_pylist()
    assert row["a"].decode(text.parse("n: [b: int]")) == {"b": 7}


def test_who_put_a_message_and_when():
    schema = text.parse("m: [n: int]")
    ids = Ids((IdRun(1, 7, 9), IdRun(3, 2**32 - 1, 0)), np.array([5 << 16, (6 << 16) + 1, 2**62], np.uint64))
    batch = Batch.encode(schema, {"n": [1, 2, 3]}, ids)
    struct = spark_schema(schema, metadata=True)
    there = ToSpark(schema, struct)(batch)
    assert to_arrow_schema(struct, timezone="UTC").equals(there.schema)
    assert there.column("_id").to_pylist() == [str(batch.id(row)) for row in range(3)]
    assert there.column("_publisher").to_pylist() == [7, 2**32 - 1, 2**32 - 1]
    assert there.column("_time").cast(pa.int64()).to_pylist()[:2] == [5_000, 6_000]
    assert there.column("_log").null_count == 3
    with pytest.raises(ConfigError, match="includeMetadata"):
        spark_schema(text.parse("m: [_id: int]"), metadata=True)


def test_some_columns_in_another_order():
    schema = text.parse("m: [a: int, b: string, c: uint8]")
    struct = spark.StructType().add("c", "short").add("_offset", "long").add("a", "integer")
    there = ToSpark(schema, struct)(Batch.encode(schema, [{"a": 1, "b": "x", "c": 2}]))
    assert there.to_pylist() == [{"c": 2, "_offset": None, "a": 1}]
    assert "_offset" in METADATA.names
    with pytest.raises(ConfigError, match="no field 'd'"):
        ToSpark(schema, spark.StructType().add("d", "integer"))
    with pytest.raises(ConfigError, match="b is a string in the messages, which cannot be read as int32"):
        ToSpark(schema, spark.StructType().add("b", "integer"))


def test_rows_of_other_versions_are_read_as_this_one():
    old, new = text.parse("m: [a: int]"), text.parse("m: [a: int, b: [c: int, d: string]?]")
    rows = Batch.encode(new, [{"a": 1, "b": {"c": 2, "d": "x"}}])
    assert ToSpark(old, spark_schema(old))(rows).to_pylist() == [{"a": 1}]
    assert ToSpark(new, spark_schema(new))(Batch.encode(old, [{"a": 1}])).to_pylist() == [{"a": 1, "b": None}]
    logged = LogBatch.opened(rows.data, new, 3, np.array([41], np.uint64), None)
    (row,) = ToSpark(old, spark_schema(old, metadata=True))(logged).to_pylist()
    assert (row["a"], row["_log"], row["_offset"]) == (1, 3, 41)
