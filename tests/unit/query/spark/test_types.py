"""Schemas as Spark types; nothing here starts a Spark."""

from __future__ import annotations

import subprocess
import sys

import pytest

from milepost import query
from milepost.query.spark import case_field, result_type, spark_type, struct_type
from milepost.schema.text import parse
from milepost.schema.types import INT32 as INT
from milepost.schema.types import Field, Variant

SCHEMA = parse("""
    m: [b: bool, i8: int8, i16: int16, i: int, l: long, u8: uint8, u16: uint16, u32: uint32, u64: uint64, f: float,
        d: double, n: decimal(12,3), s: string, y: bytes, day: date, at: timestamp, k: uuid, id: ident, any: dynamic,
        o: [x: int?]?, ts: *(uint64?)*, v: {a: int | none: [] | b: [s: string]}, tree: node?]
    node: [next: node?, value: int]
""")


def test_each_type_has_the_one_that_is_fixed() -> None:
    assert struct_type(SCHEMA).simpleString() == (
        "struct<b:boolean,i8:tinyint,i16:smallint,i:int,l:bigint,u8:smallint,u16:int,u32:bigint,u64:decimal(20,0),"
        "f:float,d:double,n:decimal(12,3),s:string,y:binary,day:date,at:timestamp,k:string,id:bigint,any:string,"
        "o:struct<x:int>,ts:array<decimal(20,0)>,v:struct<case:string,a:int,b:struct<s:string>>,tree:string>"
    )
    assert all(field.nullable for field in struct_type(SCHEMA).fields)


def test_a_case_that_is_called_case_keeps_its_name() -> None:
    assert case_field(Variant((Field("a", INT), Field("Case", INT)))) == "case_"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("i8 + 1", "bigint"),
        ("u64", "decimal(20,0)"),
        ("u64 + 1", "bigint"),
        ("coalesce(i, u64)", "decimal(20,0)"),
        ("max(ts)", "decimal(20,0)"),
        ("sum(ts)", "bigint"),
        ("n * 2", "decimal(32,3)"),
        ("f", "double"),
        ("k", "string"),
        ("date(at)", "date"),
        ("v.b.s = 'x'", "boolean"),
    ],
)
def test_the_type_of_a_result_is_known_without_spark(text: str, name: str) -> None:
    expression = query.expression(text, SCHEMA)
    assert result_type(expression).simpleString() == name
    if "u64" not in text and "ts" not in text:
        assert spark_type(expression.type).simpleString() == name


def test_the_language_does_not_need_spark() -> None:
    program = "import sys, milepost, milepost.query; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
