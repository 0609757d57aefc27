"""A collector takes what `Batch.encode` takes, row by row, and nothing else."""

import dataclasses
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.batch import Batch, Collector, Ids
from milepost.batch.collector import REFUSED, TEXT_BYTES
from milepost.errors import MilepostError
from milepost.query import parse_schema

EVERY = parse_schema(
    "e: [b: bool, i8: int8, i16: int16, i: int, l: long, u8: uint8, u16: uint16, u32: uint32, u64: uint64, f: float, "
    "d: double, m: decimal(9, 2), s: string, y: bytes, t: date, w: timestamp, g: uuid, ident: ident]"
)
SOME = parse_schema("s: [id: string, flag: bool?, n: int?, x: double?, t: string?, y: bytes?, m: decimal(5, 1)?]")
ROW = {
    "b": True, "i8": -8, "i16": -16, "i": -32, "l": -64, "u8": 8, "u16": 16, "u32": 32, "u64": 64, "f": 0.5, "d": 1.5,
    "m": Decimal("12.34"), "s": "text", "y": b"bytes", "t": date(2024, 2, 29), "w": datetime(2024, 2, 29, tzinfo=UTC),
    "g": UUID(int=7), "ident": 1,
}  # fmt: skip

anything = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**65), 2**65), st.floats(), st.text(max_size=20), st.binary(max_size=20),
    st.dates(), st.datetimes(timezones=st.just(UTC)), st.datetimes(), st.uuids(), st.decimals(), st.just([]),
    st.just({}), st.just("\ud800"), st.sampled_from([-129, -128, 127, 128, 255, 256, 2**31, 2**32, 2**63, 2**64, 1e39]),
)  # fmt: skip


def opinion(schema, row):
    """What `Batch.encode` makes of a row: its bytes, or nothing."""
    try:
        return Batch.encode(schema, [row]).data
    except MilepostError:
        return None


def collected(schema, row):
    collector = Collector.of(schema)
    try:
        collector.add(row)
    except REFUSED:
        assert len(collector) == 0
        return None
    made = collector.batch()
    collector.add(row)
    lone = collector.batch(Ids.one(1, 2, 3))  # written without columns
    assert len(collector) == 0
    assert lone == Batch.encode(schema, [row], Ids.one(1, 2, 3)) == Batch.decode(lone.data, schema)
    return made.data


@given(st.dictionaries(st.sampled_from([*ROW, "unknown"]), anything, max_size=4), st.sets(st.sampled_from([*ROW])))
def test_what_is_taken_is_what_encode_makes_of_it(changes, missing):
    row = {name: value for name, value in (ROW | changes).items() if name not in missing or name in changes}
    made = collected(EVERY, row)
    if made is not None:
        assert made == opinion(EVERY, row)
    elif not changes and not missing:
        pytest.fail("a plain row is taken")


@given(st.dictionaries(st.sampled_from(["flag", "n", "x", "t", "y", "m", "unknown"]), anything))
def test_optional_fields_may_be_absent(changes):
    row = {"id": "one"} | changes
    made = collected(SOME, row)
    if made is not None:
        assert made == opinion(SOME, row)
    elif all(value is None for value in changes.values()) and "unknown" not in changes:
        pytest.fail("absent fields are taken")


def test_many_rows_are_one_batch():
    collector = Collector.of(EVERY)
    rows = [ROW | {"i": number, "s": "é" * (number % 5), "b": number % 3 == 0} for number in range(1_000)]
    for row in rows:
        collector.add(row)
    ids = Ids.single(1, 2, range(1, 1_001))
    assert len(collector) == 1_000
    assert collector.batch(ids) == Batch.encode(EVERY, rows, ids)
    assert len(collector) == 0
    collector.add(ROW)
    assert collector.batch().to_pylist() == [ROW]


def test_what_was_taken_is_a_copy():
    collector = Collector.of(SOME)
    row = {"id": "one", "flag": True, "n": 1, "x": 1.0, "t": "a", "y": b"b", "m": Decimal(1)}
    collector.add(row)
    row["n"], row["t"] = 2, "z"
    assert collector.batch()[0].n == 1


def test_objects_are_read_by_attribute():
    @dataclasses.dataclass
    class Point:
        x: float
        y: float

    schema = parse_schema("p: [x: double, y: double]")
    collector = Collector.of(schema)
    collector.add(Point(1.5, math.inf))
    assert collector.batch().to_pylist() == [{"x": 1.5, "y": math.inf}]
    for wrong in (object(), (1.0, 2.0), "xy", None, 7):
        with pytest.raises(REFUSED):
            collector.add(wrong)
    assert len(collector) == 0


def test_large_rows_are_left_to_others():
    collector = Collector.of(SOME)
    with pytest.raises(TypeError):
        collector.add({"id": "x" * (TEXT_BYTES + 1)})


@pytest.mark.parametrize(
    "text",
    ["s: [a: *(int)*]", "s: [a: [b: int]]", "s: []", "s: [a: dynamic]", "s: [a: {b: int | c: string}]",
     "s: [a: int] check (a > 0)"],
)  # fmt: skip
def test_only_tuples_of_plain_values_are_collected(text):
    assert Collector.of(parse_schema(text)) is None


def test_names_are_no_code():
    schema = parse_schema("s: [class: int, v0: string, pack: double, append: bool]")
    collector = Collector.of(schema)
    row = {"class": 1, "v0": "t", "pack": 2.0, "append": True}
    collector.add(row)
    assert collector.batch().to_pylist() == [row]


@given(st.dictionaries(st.sampled_from([*ROW, "unknown"]), anything, max_size=4), st.sets(st.sampled_from([*ROW])))
def test_a_row_alone_is_what_encode_makes_of_it(changes, missing):
    row = {name: value for name, value in (ROW | changes).items() if name not in missing or name in changes}
    try:
        made = Collector.of(EVERY).alone(row, 1, 2, 3)
    except REFUSED:
        assert changes or missing
        return
    assert made == Batch.encode(EVERY, [row], Ids.one(1, 2, 3)).data
