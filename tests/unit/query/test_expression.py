"""Compiled queries as values: kept, compared, sent elsewhere, and refused where they do not belong."""

import pickle
from datetime import UTC, datetime

import numpy as np
import pytest

from milepost import query
from milepost.batch import Batch
from milepost.errors import QueryError
from milepost.schema.text import parse

SCHEMA = parse("m: [a: int, b: string?, at: timestamp, children: *(m)*, next: m?]")
ORDERS = parse("DEFINE MESSAGETYPE m; NODE n; a: INTEGER; END; ROOT n; END;")


def message(a: int, *children: dict[str, object]) -> dict[str, object]:
    return {
        "a": a,
        "b": None,
        "at": datetime(2024, 1, 31, tzinfo=UTC),
        "children": list(children),
        "next": children[0] if children else None,
    }


ROWS = [message(1), message(2, message(3)), message(4, message(5, message(6)))]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("next.a", [None, 3, 5]),
        ("next.next.a", [None, None, 6]),
        ("next is null", [True, False, False]),
        ("count(children)", [0, 1, 1]),
        ("any(children, a > 4)", [False, False, True]),
        ("sum(children, sum(children, a))", [None, None, 6]),
        ("children[0].children[0].a = 6", [None, None, True]),
    ],
)
def test_recursive_references_are_followed(text: str, values: list[object]) -> None:
    expression = query.expression(text, SCHEMA)
    batch = query.encode(SCHEMA, ROWS)
    assert [expression.value(row) for row in ROWS] == values
    assert [expression.value(row) for row in batch] == values
    assert expression.column(batch).to_pylist() == values


def test_predicates_over_recursive_references() -> None:
    batch = query.encode(SCHEMA, ROWS)
    assert query.compile("next.a > 3", SCHEMA).mask(batch).tolist() == [False, False, True]


@pytest.mark.parametrize("text", ["a = 1 and b like 'x%'", "count(children, a > 1) = 0", "a in (1, 2, 3, 4, 5, 6)"])
def test_queries_travel(text: str) -> None:
    predicate = query.compile(text, SCHEMA)
    batch = query.encode(SCHEMA, ROWS)
    before = predicate.mask(batch).tolist()
    there = pickle.loads(pickle.dumps(predicate))
    assert there == predicate
    assert there.mask(batch).tolist() == before
    assert [there.test(row) is True for row in ROWS] == before


def test_selections_travel() -> None:
    selection = query.parse_query("select r.a from mt_m m, m.root r", ORDERS)
    assert selection.rows({"a": 7}) == [(7,)]
    there = pickle.loads(pickle.dumps(selection))
    assert there == selection
    assert there.rows({"a": 7}) == [(7,)]


def test_a_batch_of_another_schema_is_refused() -> None:
    other = parse("m: [a: long]")
    predicate = query.compile("a = 1", other)
    with pytest.raises(QueryError, match="compile it for the batch's schema"):
        predicate.mask(Batch.encode(SCHEMA, ROWS))
    again = parse("m: [a: long]")
    assert predicate.mask(Batch.encode(again, [{"a": 1}])).tolist() == [True]


def test_columns_have_the_types_of_numpy() -> None:
    batch = query.encode(SCHEMA, ROWS)
    assert query.expression("a + 1", SCHEMA).column(batch).values.dtype == np.int64
    assert query.expression("a / 2", SCHEMA).column(batch).values.dtype == np.float64
    assert query.expression("at", SCHEMA).column(batch).values.dtype == np.dtype("datetime64[us]")
    assert query.expression("date(at)", SCHEMA).column(batch).values.dtype == np.dtype("datetime64[D]")
    nothing = query.expression("b", SCHEMA).column(batch)
    assert nothing.known is not None
    assert nothing.known.tolist() == [False] * 3


def test_what_a_query_shows_of_itself() -> None:
    predicate = query.compile(" (a = 1)", SCHEMA)
    assert predicate.text == " (a = 1)"
    assert str(predicate) == "a = 1"
    assert repr(predicate) == "<Predicate 'a = 1' over m>"
    assert str(predicate.type) == "boolean"


def test_numpy_scalars_are_as_good_as_pythons() -> None:
    numbers = parse("m: [a: int, d: double, u: bool]")
    predicate = query.compile("a = 1 and d > 1 and u", numbers)
    assert predicate.test({"a": np.int32(1), "d": np.float64(2), "u": np.bool_(True)}) is True
    assert predicate.test({"a": np.int32(1), "d": np.float64(2), "u": np.bool_(False)}) is False
