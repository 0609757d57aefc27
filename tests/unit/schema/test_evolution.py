"""What a new version may change, and where it breaks readers when it may not."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from milepost.errors import LimitExceeded
from milepost.schema import types as t
from milepost.schema.evolution import Break, breaks, compatible
from milepost.schema.messagetype import Attribute, MessageType, NodeType
from milepost.schema.relax import relaxed
from milepost.schema.text import parse
from tests.strategies import message_types, schemas, types


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("m: [a: int]", "m: [a: int, b: string]"),
        ("m: [a: int]", "m: [b: string, a: int]"),
        ("m: [a: int, b: string]", "m: [b: string, a: int]"),
        ("m: [a: [x: int]]", "m: [a: [x: int, y: int]]"),
        ("m: [a: *([x: int])*]", "m: [a: *([x: int, y: int?])*]"),
        ("m: [a: {x: int}]", "m: [a: {x: int | y: string}]"),
        ("m: [a: {x: []}?]", "m: [a: {x: [more: int] | y: string}?]"),
        ("m: [int, string]", "m: [int, string, bool]"),
        ("m: [a: int]", "m: [a: int] check (a > 0)"),
        ("m: [a: int] check (a > 0)", "m: [a: int]"),
        ("m: [a: int, b: int] index (a)", "m: [a: int, b: int] index (b)"),
        ("m: [a: int] index (a)", "m: [a: int]"),
        ("m: [a: m?, b: int]", "m: [a: m?, b: int, c: int]"),
        ("m: [a: n]\nn: [x: int]", "m: [a: n]\nn: [x: int, y: int]"),
        ("m: [a: n]\nn: [x: int]", "m: [a: k]\nk: [x: int]"),
        ("m: [a: n]\nn: [x: int]", "m: [a: [x: int]]"),
        ("m: [a: [x: int]]", "m: [a: n]\nn: [x: int]"),
        ("m: [a: n?]\nn: [b: n?, c: int]", "m: [a: n?]\nn: [b: k?, c: int]\nk: [b: n?, c: int, d: int]"),
        ("m: [a: int]\nn: int", "m: [a: int]"),
    ],
)
def test_additions_are_compatible(old: str, new: str) -> None:
    assert breaks(parse(old), parse(new)) == []
    assert compatible(parse(old), parse(new))


@pytest.mark.parametrize(
    ("old", "new", "path", "reason"),
    [
        ("m: [a: int]", "m: []", "a", "the field was removed or renamed"),
        ("m: [a: int]", "m: [b: int]", "a", "the field was removed or renamed"),
        ("m: [a: int]", "m: [a: long]", "a", "it was int and is long"),
        ("m: [a: decimal(3,1)]", "m: [a: decimal(4,1)]", "a", "it was decimal(3,1) and is decimal(4,1)"),
        ("m: [a: int]", "m: [a: int?]", "a", "it was int and is optional (int)"),
        ("m: [a: [x: int]?]", "m: [a: [x: int]]", "a", "it was optional (a tuple) and is a tuple"),
        ("m: [a: [x: int]]", "m: [a: *([x: int])*]", "a", "it was a tuple and is a list"),
        ("m: [a: [x: int]]", "m: [a: {x: int}]", "a", "it was a tuple and is a variant"),
        ("m: [a: dynamic]", "m: [a: string]", "a", "it was dynamic and is string"),
        ("m: [a: *([b: *(int)*])*]", "m: [a: *([b: *(bool)*])*]", "a[].b[]", "it was int and is bool"),
        ("m: [a: {x: int | y: int}]", "m: [a: {x: int}]", "a.y", "the case was removed or renamed"),
        ("m: [a: {x: [z: int]}?]", "m: [a: {x: []}?]", "a.x.z", "the field was removed or renamed"),
        (
            "m: [int, string]",
            "m: [int, a: string]",
            "_1",
            "the unnamed field moved or was removed; new ones go behind it",
        ),
        ("m: [a: bool, int]", "m: [a: bool, b: bool, int]", "_1", "the unnamed field moved or was removed"),
        ("m: [int, string]", "m: [bool, int, string]", "_0", "it was int and is bool"),
        ("m: [a: n]\nn: [x: int]", "m: [a: n]\nn: [x: bool]", "a.x", "it was int and is bool"),
        ("m: [a: n?]\nn: [x: n?, y: int]", "m: [a: n?]\nn: [x: n?]", "a.y", "the field was removed or renamed"),
        ("m: [a: n]\nn: [x: int]", "m: [a: int]", "a", "it was a tuple and is int"),
    ],
)
def test_a_break_is_told_with_its_path(old: str, new: str, path: str, reason: str) -> None:
    first = breaks(parse(old), parse(new))[0]
    assert first.path == path
    assert first.reason.startswith(reason)
    assert not compatible(parse(old), parse(new))


def test_every_break_is_told_once() -> None:
    old = parse("m: [a: int, b: n, c: n, d: string]\nn: [x: int]")
    new = parse("m: [b: n, c: n, d: bytes]\nn: [x: bool]")
    assert breaks(old, new) == [
        Break("a", "the field was removed or renamed"),
        Break("d", "it was string and is bytes"),
        Break("b.x", "it was int and is bool"),
    ]


def order(nodes: str, root: str = "order") -> t.Schema:
    return parse(f"DEFINE MESSAGETYPE orders; {nodes} ROOT {root}; END;")


ORDER = "NODE order; id: IDENT; lines: REFERENCE TO line; END; NODE line; amount: INTEGER; END;"


@pytest.mark.parametrize(
    "new",
    [
        ORDER.replace("id: IDENT;", "id: IDENT; note: STRING; other: REFERENCE TO order;"),
        ORDER + " NODE item; name: STRING; END;",
        "NODE line; amount: INTEGER; END; NODE order; lines: REFERENCE TO line; id: IDENT; END;",
    ],
)
def test_message_types_may_grow(new: str) -> None:
    assert breaks(order(ORDER), order(new)) == []


@pytest.mark.parametrize(
    ("new", "path", "reason"),
    [
        (ORDER.replace("id: IDENT;", ""), "order.id", "the member was removed or renamed"),
        (ORDER.replace("id: IDENT", "id: INTEGER"), "order.id", "it was ident and is long"),
        (ORDER.replace("id: IDENT", "id: IDENT?"), "order.id", "it was ident and is optional (ident)"),
        (ORDER.replace("TO line", "TO order"), "order.lines", "it was a reference to line and is a reference to order"),
        (ORDER.replace("REFERENCE TO line", "INTEGER"), "order.lines", "it was a reference to line and is long"),
        ("NODE order; id: IDENT; lines: REFERENCE TO order; END;", "order.lines", "it was a reference to line"),
    ],
)
def test_a_break_in_a_message_type(new: str, path: str, reason: str) -> None:
    first = breaks(order(ORDER), order(new))[0]
    assert first.path == path
    assert first.reason.startswith(reason)


def test_the_root_and_the_sort_of_schema_stay() -> None:
    nodes = order(ORDER)
    assert breaks(nodes, order(ORDER, root="line")) == [Break("orders", "its root was order and is line")]
    lists = t.Schema(nodes.name, nodes.type)
    assert breaks(nodes, lists) == [Break("orders", "it was a message type and is a plain schema")]
    assert breaks(lists, nodes) == [Break("orders", "it was a plain schema and is a message type")]


# -- properties ----------------------------------------------------------------------------------------------------


@given(schemas())
def test_a_schema_is_compatible_with_itself(schema: t.Schema) -> None:
    assert compatible(schema, schema)


@st.composite
def grown(draw: st.DrawFn, kind: t.Type) -> t.Type:
    """The type with fields and cases added here and there."""
    match kind:
        case t.Tuple(fields) | t.Variant(fields):
            kept = [t.Field(item.name, draw(grown(item.type))) for item in fields]
            if draw(st.booleans()):
                more = t.Field("added", draw(types(max_depth=1)))
                kept.append(more)
            return type(kind)(tuple(kept))
        case t.List(inner):
            return t.List(draw(grown(inner)))
        case t.Optional(inner):
            return t.Optional(draw(grown(inner)))
        case _:
            return kind


@given(st.data(), schemas(max_fields=3))
def test_growing_is_compatible_and_shrinking_is_not(data: st.DataObject, old: t.Schema) -> None:
    definitions = [t.Field(item.name, data.draw(grown(item.type))) for item in old.definitions]
    new = t.Schema(old.name, data.draw(grown(old.type)), tuple(definitions))
    assert breaks(old, new) == []
    used = t.Schema(new.name, new.type, tuple(item for item in new.definitions if item.name in reached(new)))
    assume(used != t.Schema(old.name, old.type, tuple(item for item in old.definitions if item.name in reached(old))))
    assert breaks(new, old)


def reached(schema: t.Schema) -> set[str]:
    found: set[str] = set()
    todo = t.references(schema.type)
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo |= t.references(schema.resolve(t.Ref(name)))
    return found


@given(message_types(), st.data())
def test_message_types_grow_and_do_not_shrink(message_type: MessageType, data: st.DataObject) -> None:
    nodes = [
        NodeType(node.name, (*node.members, *([Attribute("added", t.INT32)] if data.draw(st.booleans()) else [])))
        for node in message_type.nodes
    ]
    grown_type = MessageType(message_type.name, tuple(nodes), message_type.root)
    assert breaks(message_type.schema, grown_type.schema) == []
    assert bool(breaks(grown_type.schema, message_type.schema)) == (grown_type != message_type)


# -- hostile schemas -----------------------------------------------------------------------------------------------


def ring(size: int, fields: str = "") -> t.Schema:
    """A circle of definitions, each with the fields."""
    return parse("\n".join(["m: [a: d0]", *(f"d{i}: [next: d{(i + 1) % size}?{fields}]" for i in range(size))]))


def test_rings_of_two_sizes_are_the_same_infinite_tree() -> None:
    assert compatible(ring(7), ring(12))
    assert breaks(ring(7, ", x: int"), ring(12, ", x: bool"))[0] == Break("a.x", "it was int and is bool")


@pytest.mark.slow
def test_a_long_ring_does_not_exhaust_the_stack() -> None:
    assert compatible(ring(3_000), ring(3_000))


@pytest.mark.slow
def test_large_rings_meet_the_limit_instead_of_taking_hours() -> None:
    # Sizes without a common factor: every one of the ten million pairs would be met.
    with pytest.raises(LimitExceeded) as caught:
        breaks(ring(3_000), ring(2_999))
    assert caught.value.limit == "SCHEMA_COMPARISONS"


def test_a_tangle_of_references_takes_polynomial_time() -> None:
    # Each level is mentioned twice by the level before: 2 ** 30 ways to the last one.
    levels = "\n".join(f"d{i}: [a: d{i + 1}?, b: *(d{i + 1})*]" for i in range(30))
    back = "d30: [up: m?]"
    tangle = parse(f"m: [a: d0]\n{levels}\n{back}")
    assert compatible(tangle, tangle)


def test_what_a_reader_of_another_version_gets_has_no_indexes() -> None:
    old, new = parse("m: [a: int] index (a)"), parse("m: [a: int, b: int] index (b) check (b > 0)")
    assert str(relaxed(new, old)) == "m: [a: int, b: int?]"
    node = "DEFINE MESSAGETYPE m; NODE n; a: INT;{} END; ROOT n; INDEX n.a; END;"
    read = relaxed(parse(node.format(" b: INT;")), parse(node.format("")))
    assert read.indexes == ()
    assert read.message_type is not None
    assert read.message_type.indexes == ()
