"""Filters of Spark's as predicates: the same rows, or not taken."""

import math
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import datasource as spark

from milepost import query
from milepost.pipeline.source.pushdown import predicate
from milepost.schema import text

KEY = uuid.UUID(int=7)
SCHEMA = text.parse(
    """m: [n: int?, big: uint64, x: double?, s: string?, ok: bool?, d: decimal(9,2)?, day: date, at: timestamp,
    key: uuid?, raw: bytes?, order: int, t: [u: int?]?, v: {a: int | b: [] | c: [e: string]}?, l: *(int)*?]"""
)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (spark.EqualTo(("n",), 1), "n = 1"),
        (spark.Not(spark.EqualTo(("n",), -1)), "not (n = -1)"),
        (spark.GreaterThan(("n",), 1), "n > 1"),
        (spark.LessThanOrEqual(("big",), Decimal(2**64 - 1)), f"big <= {2**64 - 1}"),
        (spark.EqualTo(("big",), Decimal("1.5")), None),
        (spark.EqualTo(("x",), 1.5), "x = 1.5e0"),
        (spark.LessThan(("x",), 1.5), "x < 1.5e0"),
        (spark.GreaterThan(("x",), 1.5), None),
        (spark.Not(spark.EqualTo(("x",), 1.5)), None),
        (spark.EqualTo(("x",), math.nan), None),
        (spark.IsNotNull(("x",)), None),
        (spark.IsNotNull(("n",)), "n is not null"),
        (spark.Not(spark.IsNull(("n",))), "n is not null"),
        (spark.IsNull(("l",)), "l is null"),
        (spark.EqualNullSafe(("n",), None), "n is null"),
        (spark.EqualNullSafe(("n",), 3), "(n = 3) is true"),
        (spark.Not(spark.EqualNullSafe(("x",), 3.0)), "(x = 3.0e0) is not true"),
        (spark.EqualTo(("n",), None), None),
        (spark.In(("s",), ("a", "it's")), "s in ('a', 'it''s')"),
        (spark.In(("s",), ("a", None)), None),
        (spark.In(("s",), ()), None),
        (spark.StringStartsWith(("s",), "a%"), "starts_with(s, 'a%')"),
        (spark.Not(spark.StringContains(("s",), "")), "not (contains(s, ''))"),
        (spark.StringEndsWith(("key",), "7"), None),
        (spark.EqualTo(("ok",), True), "ok = true"),
        (spark.EqualTo(("d",), Decimal("1.50")), "d = 1.50"),
        (spark.GreaterThan(("day",), date(2024, 1, 31)), "day > date '2024-01-31'"),
        (spark.LessThan(("at",), datetime(2024, 1, 31, 12, tzinfo=UTC)), "at < timestamp '2024-01-31T12:00:00Z'"),
        (spark.LessThan(("at",), datetime(2024, 1, 31, 12)), None),
        (spark.EqualTo(("key",), str(KEY)), f"key = uuid '{KEY}'"),
        (spark.EqualTo(("key",), str(KEY).upper().replace("0", "A")), None),
        (spark.GreaterThan(("key",), str(KEY)), None),
        (spark.EqualTo(("raw",), b"\xde"), "raw = x'de'"),
        (spark.EqualTo(("order",), 1), '"order" = 1'),
        (spark.EqualTo(("t", "u"), 1), "t.u = 1"),
        (spark.IsNull(("t",)), "t is null"),
        (spark.EqualTo(("v", "case"), "a"), "case(v) = 'a'"),
        (spark.EqualTo(("v", "c", "e"), "x"), "v.c.e = 'x'"),
        (spark.EqualTo(("l",), [1]), None),
        (spark.EqualTo(("_offset",), 1), None),
        (spark.EqualTo(("n",), True), None),
        (spark.EqualTo(("s",), 1), None),
    ],
)
def test_texts(given, expected):
    assert predicate(given, SCHEMA) == expected


def of_spark(filter_, row):
    """What Spark makes of a filter: true, false or None. NaN equals itself there, and is greater than all else."""
    if isinstance(filter_, spark.Not):
        inner = of_spark(filter_.child, row)
        return None if inner is None else not inner
    have = row[filter_.attribute[0]]
    if isinstance(filter_, spark.IsNull | spark.IsNotNull):
        return (have is None) is isinstance(filter_, spark.IsNull)
    if isinstance(filter_, spark.EqualNullSafe):
        return have is None if filter_.value is None else have is not None and key(have) == key(filter_.value)
    if have is None:
        return None
    if isinstance(filter_, spark.In):
        return key(have) in map(key, filter_.value)
    tests = {
        spark.EqualTo: lambda a, b: a == b,
        spark.GreaterThan: lambda a, b: a > b,
        spark.GreaterThanOrEqual: lambda a, b: a >= b,
        spark.LessThan: lambda a, b: a < b,
        spark.LessThanOrEqual: lambda a, b: a <= b,
    }
    return tests[type(filter_)](key(have), key(filter_.value))


def key(value):
    return (1, 0.0) if isinstance(value, float) and math.isnan(value) else (0, value)


PLAIN = text.parse("m: [n: int?, x: double?, s: string?]")
VALUES = {
    "n": st.integers(-2, 2),
    "x": st.sampled_from([-1.0, 0.0, -0.0, 0.5, math.inf, math.nan]),
    "s": st.sampled_from(["", "a", "b", "ab", "Ö", "𝄞"]),
}


@st.composite
def filters(draw):
    name = draw(st.sampled_from(list(VALUES)))
    value = VALUES[name]
    made = draw(
        st.one_of(
            st.builds(spark.IsNull, st.just((name,))),
            st.builds(spark.IsNotNull, st.just((name,))),
            st.builds(spark.EqualNullSafe, st.just((name,)), value | st.none()),
            st.builds(spark.In, st.just((name,)), st.lists(value, min_size=1, max_size=3).map(tuple)),
            *(
                st.builds(kind, st.just((name,)), value)
                for kind in (
                    spark.EqualTo,
                    spark.GreaterThan,
                    spark.GreaterThanOrEqual,
                    spark.LessThan,
                    spark.LessThanOrEqual,
                )
            ),
        )
    )
    return draw(st.sampled_from([made, spark.Not(made)]))


@given(filters(), st.fixed_dictionaries({name: value | st.none() for name, value in VALUES.items()}))
def test_a_filter_that_is_taken_keeps_the_rows_that_spark_would(filter_, row):
    text_ = predicate(filter_, PLAIN)
    if text_ is not None:
        assert (query.compile(text_, PLAIN).test(row) is True) is (of_spark(filter_, row) is True)
