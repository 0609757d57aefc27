"""The rules of the model, and that they are checked in good time on schemas made to take long."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given

from milepost.errors import LimitExceeded, SchemaError
from milepost.schema import types as t
from milepost.schema.text import parse
from tests.strategies import schemas


def message(*fields: t.Type, definitions: tuple[t.Field, ...] = ()) -> t.Schema:
    return t.Schema("m", t.Tuple(tuple(t.Field(f"f{i}", kind) for i, kind in enumerate(fields))), definitions)


@given(schemas(checks=True, indexes=True))
def test_schemas_are_values(schema: t.Schema) -> None:
    again = t.Schema(schema.name, schema.type, schema.definitions, schema.checks, indexes=schema.indexes)
    assert again == schema
    assert hash(again) == hash(schema)
    assert again.fingerprint == schema.fingerprint
    assert pickle.loads(pickle.dumps(schema)) == schema


def test_checks_are_part_of_the_fingerprint() -> None:
    plain, checked = parse("m: [a: int]"), parse("m: [a: int] check (a > 0)")
    assert plain != checked
    assert plain.fingerprint != checked.fingerprint


def test_the_fingerprint_never_changes() -> None:
    # Batches in logs carry it: a change of the printed form would orphan them.
    assert parse("quote: [symbol: string, price: double, size: int]").fingerprint == 0x78710541BD705E07
    nodes = "DEFINE MESSAGETYPE m; NODE n; a: INTEGER; r: REFERENCE TO n; END; ROOT n; CHECK (a > 0); END;"
    assert parse(nodes).fingerprint == 0x2677F8CC5B298C41


def test_many_indexes_are_checked_in_good_time() -> None:
    names = [f"f{number}" for number in range(4_000)]
    kind = t.Tuple(tuple(t.Field(name, t.INT32) for name in names))
    assert t.Schema("m", kind, indexes=tuple(names)).indexes == tuple(names)


@pytest.mark.parametrize("rule", ["", " a", "a ", "a)", "(a", ")(", "a = 'b", 'a = "b', "'('')"])
def test_a_check_that_would_not_read_back_is_refused(rule: str) -> None:
    with pytest.raises(SchemaError, match="its parentheses and quotes must close"):
        t.Schema("m", t.Tuple(()), checks=(rule,))


def test_recursion_is_found_through_any_number_of_definitions() -> None:
    schema = parse("m: [a: b?, z: z]\nb: *(c)*\nc: {d: int | e: m}\nz: [y: y]\ny: int")
    assert schema.recursive == {"m", "b", "c"}


@pytest.mark.parametrize(
    "text", ["m: [a: m?]", "m: [a: *(m)*]", "m: [a: {end: [] | on: m}]", "m: [a: n]\nn: {x: m | y: k}\nk: int"]
)
def test_recursion_that_can_end_is_allowed(text: str) -> None:
    assert parse(text).recursive


@pytest.mark.parametrize(
    "text", ["m: [a: m]", "m: [a: n]\nn: m", "m: [a: {x: m}]", "m: [a: int]\nn: [b: k]\nk: {c: n | d: n}"]
)
def test_recursion_that_cannot_end_is_refused(text: str) -> None:
    with pytest.raises(SchemaError, match="every value would contain itself"):
        parse(text)


def test_a_deep_model_is_refused_without_exhausting_the_stack() -> None:
    kind: t.Type = t.INT32
    for _ in range(100_000):
        kind = t.List(kind)
    with pytest.raises(LimitExceeded) as caught:
        t.Schema("m", kind)
    assert caught.value.limit == "SCHEMA_DEPTH"


def chain(length: int, last: t.Type, link: type = t.Optional) -> tuple[t.Field, ...]:
    """d0 refers to d1, d1 to d2, …"""
    links = [t.Field(f"d{i}", t.Tuple((t.Field("x", link(t.Ref(f"d{i + 1}"))),))) for i in range(length)]
    return (*links, t.Field(f"d{length}", last))


def test_a_long_chain_of_definitions_counts_as_depth() -> None:
    with pytest.raises(LimitExceeded) as caught:
        message(t.Ref("d0"), definitions=chain(5_000, t.INT32))
    assert caught.value.limit == "SCHEMA_DEPTH"
    names_of_names = [t.Field(f"d{i}", t.Ref(f"d{i + 1}")) for i in range(100)]
    with pytest.raises(LimitExceeded) as caught:
        message(t.Ref("d0"), definitions=(*names_of_names, t.Field("d100", t.INT32)))
    assert caught.value.limit == "SCHEMA_DEPTH"


def test_a_long_circle_of_definitions_takes_linear_time() -> None:
    # A closure by sets would need gigabytes here, and a fixed point by rounds five thousand rounds.
    schema = message(t.Ref("d0"), definitions=chain(5_000, t.Tuple((t.Field("y", t.Optional(t.Ref("d0"))),))))
    assert len(schema.recursive) == 5_001
    with pytest.raises(SchemaError, match="every value would contain itself"):
        message(t.Ref("d0"), definitions=chain(5_000, t.Ref("d0"), link=lambda kind: kind))
