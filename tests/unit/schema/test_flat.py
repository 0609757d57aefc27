"""The flat-tuple transformation: the paper's rules, its examples, and what it costs."""

from __future__ import annotations

from typing import Any

import pytest

from milepost import limits
from milepost.batch import Batch
from milepost.batch.format import format_of
from milepost.schema.flat import BoxShape, FlatTuple, ListShape, Shape, SuperVariant, TupleShape, super_variant
from milepost.schema.text import parse


def leaves(flat: FlatTuple) -> set[str]:
    """The columns of a flat-tuple, levels below included, by path."""
    mine = {shape.path for shape in (*flat.fixed, *flat.var)} | {path for path in flat.bits if not path.endswith("?")}
    for item in flat.lists:
        mine |= leaves(item.item)
    return mine


def cases(text: str) -> list[set[str]]:
    made = super_variant(parse(text))
    return [leaves(made.flat(code)) for code in range(made.count)]


def test_tuples_in_tuples_dissolve() -> None:
    assert cases("m: [int, [string, boolean]]") == [{"_0", "_1._0", "_1._1"}]


def test_variants_in_variants_make_one() -> None:
    assert cases("m: [v: {a: {b: int | c: string} | d: *(string)*}]") == [{"v.a.b"}, {"v.a.c"}, {"v.d[]"}]


def test_tuples_distribute_over_variants() -> None:
    assert cases("m: [{w: int | x: int}, {y: int | z: int}]") == [
        {"_0.w", "_1.y"},
        {"_0.w", "_1.z"},
        {"_0.x", "_1.y"},
        {"_0.x", "_1.z"},
    ]


def test_the_envelope_of_the_paper() -> None:
    shared = {"priority", "properties[].name", "properties[].value"}
    assert cases(
        "com.ibm.gryphon.envelop: [priority: int, properties: *([name: string, value: string])*, payload: {absent: [] |"
        " subscribeRequest: [topic: string, selector: string] | subscribeReply: int | other: dynamic}]"
    ) == [
        shared,
        shared | {"payload.subscribeRequest.topic", "payload.subscribeRequest.selector"},
        shared | {"payload.subscribeReply"},
        shared | {"payload.other"},
    ]


def test_a_field_beside_a_variant_under_a_list_escapes_the_box() -> None:
    flat = super_variant(parse("m: [xs: *([s: string, v: {i: int | b: bool}])*]")).flat(0)
    item = flat.lists[0].item
    assert [shape.path for shape in item.var] == ["xs[].s"]
    assert [box.path for box in item.boxes] == ["xs[].v"]
    box = item.boxes[0]
    assert [leaves(box.case(tag)) for tag in (1, 2)] == [{"xs[].v.i"}, {"xs[].v.b"}]


def test_variants_inside_a_box_belong_to_the_box() -> None:
    flat = super_variant(parse("m: [xs: *({a: {b: int | c: int} | d: int}?)*]")).flat(0)
    assert flat.lists[0].item.boxes[0].cases.count == 3


def test_recursion_becomes_a_dynamic_value() -> None:
    flat = super_variant(parse("tree: [v: int, kids: *(tree)*]")).flat(0)
    assert [str(shape.type) for shape in flat.lists[0].item.var] == ["tree"]


def test_an_optional_part_is_a_bit_and_no_case() -> None:
    fields = ", ".join(f"f{number}: int?" for number in range(10))
    made = super_variant(parse(f"m: [{fields}]"))
    assert made.count == 1
    assert len(made.flat(0).bits) == 10


def test_columns_fall_in_width() -> None:
    flat = super_variant(parse("m: [a: int8, b: uuid, c: int, d: long, e: int16, f: decimal, g: float]")).flat(0)
    assert [shape.path for shape in flat.fixed] == ["b", "f", "d", "c", "g", "e", "a"]


def wide(variants: int) -> str:
    return f"wide: [{', '.join(f'v{n}: {{a: int | b: string | c: [] | d: bool}}' for n in range(variants))}]"


def row(variants: int, code: int) -> dict[str, Any]:
    values: list[dict[str, Any]] = [{"a": 1}, {"b": "x"}, {"c": {}}, {"d": True}]
    return {f"v{n}": values[code >> 2 * n & 3] for n in range(variants)}


def test_thousands_of_cases_cost_nothing_until_they_occur() -> None:
    schema = parse(wide(7))
    form = format_of(schema)
    assert form.cases.count == 4**7
    assert form.derived() == 0
    rows = [row(7, 5), row(7, 6), row(7, 5)]
    assert Batch.encode(schema, rows).to_pylist() == rows
    assert form.derived() == 2


def test_derived_cases_are_kept_within_a_bound() -> None:
    form = format_of(parse(wide(6)))
    assert form.cases.count > limits.CASE_CACHE
    for code in range(form.cases.count):
        form.layout(code)
    assert form.derived() == limits.CASE_CACHE


@pytest.mark.parametrize("distinct", [limits.BATCH_GROUPS, limits.BATCH_GROUPS + 1])
def test_past_a_bound_of_cases_in_one_batch_the_variants_are_boxed(distinct: int) -> None:
    schema = parse(wide(6))
    rows = [row(6, code) for code in range(distinct)] * 2
    batch = Batch.decode(Batch.encode(schema, rows).data, schema)
    assert len(batch.groups) == (distinct if distinct <= limits.BATCH_GROUPS else 1)
    assert batch.to_pylist() == rows
    assert batch[3].v1.case == "a"
    assert Batch.encode(schema, batch.to_arrow()) == batch
    assert Batch.concat([batch, batch.slice(0, 3)]).to_pylist() == rows + rows[:3]


def test_a_schema_with_more_cases_than_codes_is_always_boxed() -> None:
    schema = parse(wide(20))
    assert format_of(schema).always_boxed
    rows = [row(20, 12345), row(20, 99)]
    batch = Batch.decode(Batch.encode(schema, rows).data, schema)
    assert batch.to_pylist() == rows
    assert batch.take([1]).to_pylist() == rows[1:]


def test_codes_number_the_cases_they_derive() -> None:
    made = SuperVariant(parse("m: [a: {x: int | y: {p: int | q: int}}?, b: [c: {r: int | s: int}]?]").type, SCHEMA)
    seen = {}
    for a in (None, {"x": 1}, {"y": {"p": 1}}, {"y": {"q": 1}}):
        for c in ("r", "s"):
            seen[made.code({"a": a, "b": {"c": {c: 1}}})] = (a, c)
    assert sorted(seen) == list(range(made.count)) == list(range(8))


SCHEMA = parse("m: [n: int]")


def shapes(shape: Shape) -> set[type]:
    """Which kinds of shape a flat-tuple is made of."""
    found: set[type] = {type(shape)}
    if isinstance(shape, TupleShape):
        for inner in shape.fields.values():
            found |= shapes(inner)
    if isinstance(shape, ListShape):
        found |= shapes(shape.item.root)
    return found


def test_a_boxed_schema_has_no_choices_left() -> None:
    boxed = format_of(parse("m: [a: {x: int | y: int}, b: *({z: int})*]")).boxed
    assert BoxShape in shapes(boxed.root)
