"""What evaluating a query may cost is bounded, in each back end, and a budget never makes an answer wrong."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from milepost import limits, query
from milepost.batch import Batch
from milepost.errors import LimitExceeded, QueryTooCostly, from_code
from milepost.match import Index
from milepost.query import typed
from milepost.schema.text import parse
from milepost.schema.types import Schema
from tests.unit.query.strategies import EDGES, edge_messages, predicates
from tests.unit.query.test_agreement import compiled

LISTS = parse("m: [n: int, xs: *([x: int])*, ys: *([y: int])*, b: string, tags: *(string)*]")
# A list behind a recursive reference is looked at row by row, whatever the size of the batch.
TREE = parse("tree: [root: node]; node: [value: int, below: *(node)*]")


def message(size: int, text: str = "") -> dict[str, Any]:
    return {
        "n": size,
        "xs": [{"x": each} for each in range(size)],
        "ys": [{"y": each} for each in range(size)],
        "b": text,
        "tags": [f"fe80::{each:x}" for each in range(size)],
    }


def costs(steps: int, batch_steps: int, byte_steps: int = 0) -> Any:
    return patch.multiple(
        limits, QUERY_STEPS=steps, QUERY_BATCH_STEPS=batch_steps, QUERY_BYTE_STEPS=byte_steps, QUERY_ROW_STEPS=1
    )


def batch_of(schema: Schema, *messages: Any) -> Batch:
    return Batch.encode(schema, list(messages))


def test_a_product_of_lists_goes_over_the_budget_of_a_message() -> None:
    asked = query.compile("any(xs, any(ys, x + y < 0))", LISTS)
    assert asked.mask(batch_of(LISTS, message(100))).tolist() == [False]
    with costs(10_000, 100_000), pytest.raises(QueryTooCostly, match="QUERY_STEPS = 10000; nest fewer") as raised:
        asked.mask(batch_of(LISTS, message(100)))
    assert raised.value.limit == "QUERY_STEPS"
    assert isinstance(from_code(raised.value.code, str(raised.value)), QueryTooCostly)
    with costs(10_000, 20_000), pytest.raises(QueryTooCostly, match="QUERY_BATCH_STEPS"):
        asked.test(message(100))


def test_messages_that_are_each_within_the_budget_share_one_for_their_batch() -> None:
    asked = query.compile("any(xs, any(ys, x + y < 0))", LISTS)
    with costs(10_000, 50_000):
        for rows in (1, 5):
            assert not asked.mask(batch_of(LISTS, *[message(40)] * rows)).any()
        with pytest.raises(QueryTooCostly, match="QUERY_BATCH_STEPS"):
            asked.mask(batch_of(LISTS, *[message(40)] * 50))


def test_what_goes_over_a_batch_once_is_never_refused() -> None:
    """The budget grows with the bytes: a long list, or many rows, are no reason."""
    asked = query.compile("n >= 0 and any(xs, x = -1) or b = 'x'", LISTS)
    with costs(10, 10, limits.QUERY_BYTE_STEPS):
        assert not asked.mask(batch_of(LISTS, message(5_000), *[message(3, "abc")] * 500)).any()


def test_many_operations_on_a_long_list_cost_as_much_as_few_on_many() -> None:
    with costs(20_000, 20_000):
        sums = " + ".join(["x"] * 50)
        with pytest.raises(QueryTooCostly):
            query.compile(f"any(xs, {sums} < 0)", LISTS).mask(batch_of(LISTS, message(1_000)))
        with pytest.raises(QueryTooCostly):
            query.compile(" or ".join(["any(xs, x < 0)"] * 50), LISTS).mask(batch_of(LISTS, message(1_000)))


@pytest.mark.parametrize(
    "text",
    [
        "length(lower(b)) < 0",
        "b || b = 'x'",
        "b like '%a_%b'",
        "contains(b, 'zz')",
        "any(tags, contains(b, it))",  # the text is repeated for each element
        "any(tags, b || it = 'x')",
        "min(tags, it || b) = 'x'",
        "count(tags, in_subnet(it, '10.0.0.0/8')) = 1",
    ],
)
def test_text_costs_its_length(text: str) -> None:
    asked = query.compile(text, LISTS)
    row = message(50, "ab" * 10_000)
    assert asked.mask(batch_of(LISTS, row)).tolist() == [asked.test(row) is True]
    with costs(10_000, 10_000), pytest.raises(QueryTooCostly):
        asked.mask(batch_of(LISTS, row))
    with costs(30, 30), pytest.raises(QueryTooCostly):
        asked.test(row)


def test_thousands_of_constants_cost_nothing() -> None:
    constants = ", ".join(map(str, range(-5_000, -1)))
    asked = query.compile(f"any(xs, x in ({constants}))", LISTS)
    with costs(10_000, 10_000):
        assert asked.mask(batch_of(LISTS, message(1_000))).tolist() == [False]
        assert asked.test(message(1_000)) is False


def test_rows_that_are_looked_at_one_by_one_have_a_budget_too() -> None:
    leaf: dict[str, Any] = {"value": 1, "below": []}
    batch = batch_of(TREE, *[{"root": {"value": 0, "below": [leaf] * 100}}] * 3)
    asked = query.compile("any(root.below, any(root.below, any(below, value < 0)))", TREE)
    assert any(
        isinstance(step, typed.UnfoldStep)
        for node in typed.walk(asked.root)
        if isinstance(node, typed.ReadPath)
        for step in node.steps
    )
    assert not asked.mask(batch).any()
    with costs(100, 100), pytest.raises(QueryTooCostly):
        asked.mask(batch)


def test_a_rule_of_a_schema_has_the_same_budget() -> None:
    ruled = parse("m: [xs: *([x: int])*, ys: *([y: int])*] check (all(xs, all(ys, x + y >= 0)))")
    rows = [{"xs": [{"x": 1}] * 100, "ys": [{"y": 1}] * 100}]
    assert len(query.encode(ruled, rows)) == 1
    with costs(10_000, 10_000), pytest.raises(QueryTooCostly):
        query.encode(ruled, rows)


def test_one_predicate_over_its_budget_leaves_the_others_of_an_index_their_matches() -> None:
    index = Index(LISTS)
    index.add(1, query.compile("any(xs, any(ys, x + y < 0))", LISTS))
    index.add(2, query.compile("any(xs, x = 3)", LISTS))
    index.add(3, query.compile("n = 100", LISTS))
    batch = batch_of(LISTS, *[message(100)] * 8)
    with costs(10_000, 20_000):
        matches = index.snapshot().match(batch)
    assert [(key, type(error)) for key, error in matches.failed] == [(1, QueryTooCostly)]
    assert sorted(matches.keys.tolist()) == [2] * 8 + [3] * 8


def test_a_few_rows_of_long_lists_are_found_by_the_mask_where_one_by_one_is_too_dear() -> None:
    index = Index(LISTS)
    index.add(1, query.compile("n = 300 and any(xs, x = 299)", LISTS))
    batch = batch_of(LISTS, message(300), *[message(3)] * 8)
    asked = query.compile("n = 300 and any(xs, x = 299)", LISTS)
    with patch.multiple(limits, QUERY_STEPS=5_000, QUERY_ROW_STEPS=5_000, QUERY_BATCH_STEPS=50_000), \
            patch("milepost.query.budget.len", lambda _: 0, create=True):  # fmt: skip
        with pytest.raises(QueryTooCostly):
            asked.test_few(batch, [0])
        matches = index.snapshot().match(batch)
    assert matches.failed == ()
    assert np.diff(matches.offsets).tolist() == [1, *[0] * 8]


@given(st.data(), edge_messages(), st.integers(2, 7), st.integers(1, 2_000))
def test_a_budget_gives_an_error_or_the_right_answer(data: st.DataObject, messages: Any, size: int, steps: int) -> None:
    """Whatever one back end gives up, the other gives up too, or is right about."""
    batch = Batch.encode(EDGES, messages)
    asked = compiled(data.draw(predicates(EDGES, messages, size), "query"), EDGES)
    expected = [asked.test(each) is True for each in messages]
    found: list[Any] = []
    with costs(steps, 3 * steps):
        try:
            found.append(asked.mask(batch).tolist())
        except LimitExceeded as error:
            event(f"mask: {error.limit}")
        try:
            found.append([asked.test(each) is True for each in messages])
        except LimitExceeded as error:
            event(f"python: {error.limit}")
    assert all(each == expected for each in found)
