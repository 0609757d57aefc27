"""Each of these was wrong once."""

from __future__ import annotations

import copy
from array import array
from collections import UserDict
from datetime import UTC, datetime, timedelta, timezone
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from milepost import limits
from milepost.batch import Batch, DynamicValue, IdRun, Ids, projection, reader, schema_of
from milepost.errors import InvalidValue, LimitExceeded, MalformedBatch
from milepost.schema.text import parse
from tests.unit.batch.test_malformed import changed, sealed

EVENT = parse("event: [level: int, what: {started: [] | code: int | failed: [why: string]}]")
WIDE = parse("wide: [v: {" + " | ".join(f"c{number}: int" for number in range(70)) + "}, n: int]")
SHOP = parse("DEFINE MESSAGETYPE Shop; NODE o; total: INT; ls: REFERENCE TO l; END; NODE l; n: INT; END; ROOT o; END;")


@pytest.mark.parametrize("kind", [MappingProxyType, UserDict])
def test_a_mapping_of_any_kind_keeps_its_case(kind: Any) -> None:
    row = {"level": 1, "what": {"code": 9}}
    assert Batch.encode(EVENT, [kind(row)]).to_pylist() == [row]
    assert Batch.encode(EVENT, [{"level": 1, "what": kind({"code": 9})}]).to_pylist() == [row]


def test_a_slice_of_a_union_is_the_slice() -> None:
    rows = [{"level": number, "what": {"code": number}} for number in range(4)]
    arrow = Batch.encode(EVENT, rows).to_arrow()
    assert Batch.encode(EVENT, arrow.slice(2)).to_pylist() == rows[2:]
    assert Batch.encode(EVENT, arrow.slice(1, 2)).to_pylist() == rows[1:3]
    mixed = [rows[0], {"level": 7, "what": {"started": {}}}, rows[2]]
    assert Batch.encode(EVENT, Batch.encode(EVENT, mixed).to_arrow().slice(1)).to_pylist() == mixed[1:]


def test_a_boxed_variant_can_be_replaced_and_read() -> None:
    batch = Batch.encode(WIDE, [{"v": {f"c{number}": number}, "n": 1} for number in range(70)])
    replaced = batch.replace("v", [{"c0": number} for number in range(70)])
    assert Batch.decode(replaced.data, WIDE).column("v.c0").tolist() == list(range(70))
    alone = batch.slice(3, 4)
    assert reader(WIDE, "v.c3")(bytes(alone)) == 3
    assert projection(WIDE, ["n", "v.c3", "v.c4"])(bytes(alone)) == (1, 3, None)


def test_rows_and_bytes_are_bounded_on_every_way() -> None:
    one = Batch.encode(parse("m: [b: bool]"), [{"b": True}])
    with pytest.raises(LimitExceeded, match="BATCH_ROWS"):
        one.take(np.zeros(limits.BATCH_ROWS + 1, np.int64))


def test_views_are_rows_whatever_their_fields_are_called() -> None:
    schema = parse("m: [id: long?, message_id: string?, items: *(int)*, keys: int, get: bool]")
    rows = [{"id": 5, "message_id": "m", "items": [1], "keys": 2, "get": True}]
    assert Batch.encode(schema, list(Batch.encode(schema, rows))).to_pylist() == rows


@pytest.mark.parametrize("value", [3, {1, 2}, "ab", object()])
def test_what_only_happens_to_be_an_object_is_no_tuple(value: Any) -> None:
    with pytest.raises(InvalidValue, match="expected a dict with real, imag"):
        Batch.encode(parse("m: [t: [real: int?, imag: int?]]"), [{"t": value}])


def test_bytes_of_wide_buffers_are_taken_whole() -> None:
    rows = [{"b": array("I", [1, 2])}, {"b": b"xyz"}, {"b": bytearray(b"q")}]
    assert Batch.encode(parse("m: [b: bytes]"), rows).to_pylist() == [
        {"b": bytes(array("I", [1, 2]))},
        {"b": b"xyz"},
        {"b": b"q"},
    ]


def test_an_element_that_is_not_there_is_null_in_arrow_too() -> None:
    schema = parse("m: [xs: *({a: int | b: int})*, t: [v: {a: int | b: int}]?]")
    batch = Batch.encode(schema, [{"xs": [{"a": 1}], "t": None}, {"xs": [], "t": {"v": {"b": 2}}}])
    assert batch.arrow("xs[0]").to_pylist() == [1, None]
    assert batch.arrow("t.v").to_pylist() == [None, 2]
    assert batch.arrow("t.v.b").to_pylist() == [None, 2]


def test_columns_and_replacements_of_a_message_type_go_by_its_lists() -> None:
    batch = Batch.encode(SHOP, [{"total": 1, "ls": [{"n": 5}]}])
    assert batch.replace("o[0].total", [99]).to_pylist()[0]["total"] == 99
    assert batch.column("o").tolist() == [[{"total": 1, "ls": [0]}]]
    with pytest.raises(InvalidValue, match="a reference to a l that does not exist"):
        batch.replace("l", [[]])


def test_nodes_that_are_made_when_asked_for_are_all_kept() -> None:
    class Link:
        def __init__(self, n: int) -> None:
            self.n = n

        @property
        def next(self) -> list[Link]:
            return [Link(self.n - 1)] if self.n else []

    chain = parse("DEFINE MESSAGETYPE C; NODE k; n: INT; next: REFERENCE TO k; END; ROOT k; END;")
    node, seen = Batch.encode(chain, [Link(5)]).to_pylist()[0], []
    while node:
        seen.append(node["n"])
        node = node["next"][0] if node["next"] else None
    assert seen == [5, 4, 3, 2, 1, 0]


def test_masks_of_objects_count_and_names_do_not_repeat() -> None:
    schema = parse("m: [s: string?]")
    masked = np.ma.array(["x", "y"], mask=[False, True], dtype=object)
    assert Batch.encode(schema, {"s": masked}).to_pylist() == [{"s": "x"}, {"s": None}]
    twice = pa.RecordBatch.from_arrays([pa.array(["x"]), pa.array(["y"])], names=["s", "s"])
    with pytest.raises(InvalidValue, match="two columns are called 's'"):
        Batch.encode(schema, twice)


@pytest.mark.parametrize(
    ("old", "new", "row", "read"),
    [
        ("m: [a: int]", "m: [a: int, p: point]\npoint: [x: int]", {"a": 1}, {"a": 1, "p": None}),
        ("m: [v: val?]\nval: {a: int | b: int}", "m: [v: val?]\nval: {a: int}", {"v": {"b": 1}}, {"v": None}),
        (
            "m: [a: [x: int, y: int], b: [x: int]]",
            "m: [a: pt, b: pt]\npt: [x: int, y: int]",
            {"a": {"x": 1, "y": 2}, "b": {"x": 3}},
            {"a": {"x": 1, "y": 2}, "b": {"x": 3, "y": None}},
        ),
    ],
)
def test_versions_may_name_what_they_add(old: str, new: str, row: Any, read: Any) -> None:
    assert Batch.encode(parse(old), [row]).read_as(parse(new)).to_pylist() == [read]


def test_depth_beyond_the_stack_is_an_error_of_ours() -> None:
    inner = "m?"
    for _ in range(30):
        inner = f"[c: {inner}]"
    schema = parse(f"m: [c: {inner}]")
    value: Any = None
    for _ in range(limits.DYNAMIC_DEPTH - 2):
        for _ in range(31):
            value = {"c": value}
    with pytest.raises(InvalidValue, match="deeper than Python's stack"):
        Batch.encode(schema, [value])
    nested = parse("n: [d: dynamic]")
    outer: Any = DynamicValue(parse("i: [x: int]"), {"x": 1})
    for _ in range(limits.DYNAMIC_DEPTH + 1):
        outer = DynamicValue(nested, {"d": outer})
    with pytest.raises(LimitExceeded, match="DYNAMIC_DEPTH"):
        Batch.encode(nested, [{"d": outer}])


def test_cells_from_outside_are_looked_at() -> None:
    with pytest.raises(InvalidValue, match="has a header"):
        Batch.encode(parse("m: [d: dynamic]"), {"d": [b"xx"]})
    tree = parse("tree: [v: int, kids: *(tree)*]")
    column = pa.array([[bytes(20)]], pa.list_(pa.binary()))
    with pytest.raises(InvalidValue):
        Batch.encode(tree, {"v": [1], "kids": column})
    inner = parse("i: [x: int]")
    with pytest.raises(MalformedBatch, match="one row, not 2"):
        DynamicValue.read(bytes(Batch.encode(inner, [{"x": 1}, {"x": 2}]))).decode(inner)


def test_more_cases_than_64_bits_can_number_come_from_arrow() -> None:
    schema = parse("m: [" + ", ".join(f"v{number}: {{a: int | b: int}}" for number in range(71)) + "]")
    rows = [{f"v{number}": {"b": number} for number in range(71)}]
    assert Batch.encode(schema, Batch.encode(schema, rows).to_arrow()).to_pylist() == rows


def test_a_time_that_is_beyond_the_end_in_utc_is_refused() -> None:
    late = datetime(9999, 12, 31, 23, 59, tzinfo=timezone(timedelta(hours=-5)))
    with pytest.raises(InvalidValue, match="outside the years 1 to 9999 in UTC"):
        Batch.encode(parse("m: [at: timestamp]"), [{"at": late}])


def test_directories_and_runs_with_nothing_behind_them_are_refused() -> None:
    rows = [{"level": 1, "what": {"started": {}}}, {"level": 2, "what": {"code": 1}}]
    batch = Batch.encode(EVENT, rows)
    with pytest.raises(MalformedBatch, match="group 1 has no rows"):
        Batch.decode(changed(batch, 28, b"\0\0"), EVENT)
    one = Batch.encode(EVENT, rows[:1], Ids((IdRun(1, 1, 1),), np.ones(1, np.uint64)))
    longer = bytes(one)[:-16] + b"\2\0\0\0" + bytes(one)[-12:] * 2
    with pytest.raises(MalformedBatch, match="2 runs"):
        Batch.decode(sealed(longer), EVENT)


def test_recursion_through_a_variant_makes_one_schema() -> None:
    from milepost.batch.format import format_of
    from milepost.schema.types import Ref

    name = "j" * 250
    schema = parse(f"doc: [j: {name}]\n{name}: {{n: int | xs: *({name})*}}")
    inner = format_of(schema).referred(Ref(name))
    assert format_of(inner).referred(Ref(name)) == inner
    rows = [{"j": {"xs": [{"xs": [{"n": 1}]}]}}]
    assert Batch.decode(bytes(Batch.encode(schema, rows)), schema).to_pylist() == rows


def test_readers_know_every_case_of_a_path_when_compiled() -> None:
    with pytest.raises(InvalidValue, match="no field 'bogus'"):
        reader(EVENT, "what.failed.bogus")
    lists = parse("m: [xs: *([a: int])*]")
    assert reader(lists, "xs[1].a")(bytes(Batch.encode(lists, [{"xs": [{"a": 1}, {"a": 2}]}]))) == 2


def test_views_copy_and_recursive_values_are_views() -> None:
    tree = parse("tree: [v: int, next: tree?]")
    row = Batch.encode(tree, [{"v": 1, "next": {"v": 2, "next": None}}])[0]
    assert copy.copy(row).next.v == 2


def test_a_column_of_times_can_be_put_back() -> None:
    schema = parse("m: [at: timestamp]")
    batch = Batch.encode(schema, [{"at": datetime(2024, 1, 1, tzinfo=UTC)}])
    assert batch.replace("at", batch.column("at")) == batch


def test_arrow_may_not_round_either() -> None:
    with pytest.raises(InvalidValue, match="cannot become a column of decimal"):
        Batch.encode(parse("m: [d: decimal(9,2)]"), {"d": np.array([0.125])})
    with pytest.raises(InvalidValue, match="too large for float"):
        Batch.encode(parse("m: [f: float]"), {"f": np.array([1e39])})
    infinite = Batch.encode(parse("m: [f: float]"), {"f": np.array([np.inf])})
    assert infinite.column("f")[0] == np.inf


def test_batches_of_different_schemas_do_not_join_even_when_empty() -> None:
    with pytest.raises(InvalidValue, match="different schemas"):
        Batch.concat([Batch.encode(EVENT, []), Batch.encode(WIDE, [{"v": {"c0": 1}, "n": 1}])])


def test_columns_added_to_our_arrow_are_seen() -> None:
    table = pa.table(Batch.encode(parse("m: [a: int]"), [{"a": 1}]).to_arrow()).append_column("z", pa.array([1.5]))
    assert schema_of(table, "m") == parse("m: [a: int, z: double]")


def test_the_id_of_a_row_is_found_among_many_runs() -> None:
    ids = Ids(tuple(IdRun(end, end, 0) for end in range(1, 1001)), np.arange(1000, dtype=np.uint64))
    assert [ids[row].publisher for row in (0, 499, 999, -1)] == [1, 500, 1000, 1000]


def test_decimals_of_every_size_are_checked() -> None:
    for text, units in (("decimal(10,2)", 10**10), ("decimal(18,0)", 10**18), ("decimal(19,0)", 10**19)):
        schema = parse(f"m: [d: {text}]")
        batch = Batch.encode(schema, [{"d": 1}])
        for number, fits in ((units - 1, True), (units, False), (-units, False), (1 << 64, units > 1 << 64)):
            raw = changed(batch, 16, number.to_bytes(16, "little", signed=True))
            if fits:
                assert len(Batch.decode(raw, schema)) == 1
            else:
                with pytest.raises(MalformedBatch, match="more digits"):
                    Batch.decode(raw, schema)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("m: [b: *([only: {a: bool}]?)*]", [None, {"only": {"a": True}}, None, {"only": {"a": False}}]),
        (
            "m: [b: *([v: {a: {x: int | y: string} | c: bool}])*]",
            [{"v": {"a": {"y": "s"}}}, {"v": {"c": True}}, {"v": {"a": {"x": 1}}}, {"v": {"a": {"y": "t"}}}],
        ),
    ],
)
def test_unions_are_in_the_order_that_arrow_wants(text: str, values: list[Any]) -> None:
    schema, rows = parse(text), [{"b": values}, {"b": values[::-1]}]
    table = Batch.encode(schema, rows).to_arrow()
    table.validate(full=True)
    assert Batch.encode(schema, table).to_pylist() == rows
