"""The vector back end says what the plain one says, on generated queries and messages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from milepost import limits, query
from milepost.batch import Batch
from milepost.errors import QueryTypeError
from milepost.schema.types import Schema
from tests.strategies import graphs, message_types, schemas, values
from tests.unit.query.strategies import EDGES, edge_messages, predicates, questions

HEADERS = {
    "priority": st.none() | st.floats(),
    "mid": st.none() | st.text(max_size=3),
    "message_type": st.none() | st.just("order"),
    "abort_count": st.none() | st.integers(0, 3),
}


def compiled(text: str, schema: Schema) -> query.Predicate:
    try:
        return query.compile(text, schema)
    except QueryTypeError as error:
        _tolerate(error)
        raise


def asked(text: str, schema: Schema) -> query.Expression:
    try:
        return query.expression(text, schema)
    except QueryTypeError as error:
        _tolerate(error)
        raise


def _tolerate(error: QueryTypeError) -> None:
    """What a generated query may be refused for: the author does not count digits, nor know which cases there are.

    An integer of too many digits is a decimal, which neither compares with an ident nor is a position in a string.
    """
    assume("digits after the point" not in error.message)
    assume("no type in common" not in error.message)
    assume("null alone has no type" not in error.message)
    assume("there is no case" not in error.message)
    assume("cannot compare ident with decimal" not in error.message)
    assume("does not take" not in error.message)


@contextmanager
def boxes(boxed: bool) -> Iterator[None]:
    """With `boxed`, batches are made in the form that they have when there are too many cases in one."""
    usual = limits.BATCH_GROUPS
    limits.BATCH_GROUPS = 0 if boxed else usual  # type: ignore[misc]
    try:
        yield
    finally:
        limits.BATCH_GROUPS = usual  # type: ignore[misc]


@st.composite
def tables(draw: st.DrawFn) -> tuple[Schema, list[Any], Batch]:
    """A schema, messages, and the batch of them."""
    if draw(st.integers(0, 3)) == 0:
        message_type = draw(message_types())
        schema = message_type.schema
        messages = draw(st.lists(graphs(message_type), max_size=4))
    else:
        schema = draw(schemas(max_depth=draw(st.integers(1, 4))))
        messages = draw(st.lists(values(schema), max_size=6))
    with boxes(draw(st.booleans())):
        return schema, messages, Batch.encode(schema, messages)


@settings(max_examples=4 * settings.default.max_examples)
@given(st.data(), edge_messages(), st.booleans(), st.integers(2, 7))
def test_columns_of_awkward_values(data: st.DataObject, messages: list[Any], boxed: bool, size: int) -> None:
    with boxes(boxed):
        batch = Batch.encode(EDGES, messages)
    expression = asked(data.draw(questions(EDGES, messages, size), "query"), EDGES)
    expected = [expression.value(message) for message in messages]
    event(f"{'null' if expected.count(None) == len(expected) else 'some'} of {expression.type.name}")
    assert expression.column(batch).to_pylist() == expected
    if str(expression.type) == "boolean":
        mask = query.compile(expression.text, EDGES).mask(batch)
        assert mask.tolist() == [value is True for value in expected]


@settings(max_examples=4 * settings.default.max_examples)
@given(st.data(), edge_messages(), st.booleans())
def test_masks_of_long_conjunctions(data: st.DataObject, messages: list[Any], boxed: bool) -> None:
    with boxes(boxed):
        batch = Batch.encode(EDGES, messages)
    terms = [data.draw(predicates(EDGES, messages, 2)) for _ in range(data.draw(st.integers(2, 4)))]
    predicate = compiled(" and ".join(f"({term})" for term in terms), EDGES)
    assert predicate.mask(batch).tolist() == [predicate.test(message) is True for message in messages]


@given(st.data(), tables())
def test_columns_hold_the_values_of_the_messages(data: st.DataObject, table: tuple[Schema, list[Any], Batch]) -> None:
    schema, messages, batch = table
    expression = asked(data.draw(questions(schema, messages), "query"), schema)
    n = len(batch)
    header = {name: data.draw(st.lists(strategy, min_size=n, max_size=n)) for name, strategy in HEADERS.items()}
    expected = [
        expression.value(message, {name: column[row] for name, column in header.items()})
        for row, message in enumerate(messages)
    ]
    event(f"{'null' if expected.count(None) == len(expected) else 'some'} of {expression.type.name}")
    assert expression.column(batch, header).to_pylist() == expected


@given(st.data(), tables())
def test_a_mask_is_the_rows_for_which_the_test_is_true(
    data: st.DataObject, table: tuple[Schema, list[Any], Batch]
) -> None:
    schema, messages, batch = table
    predicate = compiled(data.draw(predicates(schema, messages), "query"), schema)
    answers = [predicate.test(message) for message in messages]
    for answer in answers:
        event(str(answer))
    mask = predicate.mask(batch)
    assert mask.dtype == np.bool_
    assert mask.tolist() == [answer is True for answer in answers]


@given(st.data(), tables())
def test_rows_of_a_batch_answer_as_plain_values_do(data: st.DataObject, table: tuple[Schema, list[Any], Batch]) -> None:
    schema, messages, batch = table
    expression = asked(data.draw(questions(schema, messages), "query"), schema)
    assert [expression.value(row) for row in batch] == [expression.value(message) for message in messages]


@given(st.data(), tables())
def test_printed_queries_read_back_as_they_were(data: st.DataObject, table: tuple[Schema, list[Any], Batch]) -> None:
    schema, messages, _ = table
    predicate = compiled(data.draw(predicates(schema, messages), "query"), schema)
    again = query.compile(str(predicate), schema)
    assert again.tree == predicate.tree
    assert again == predicate
    assert hash(again) == hash(predicate)
    assert str(again) == str(predicate)
    assert again.fields == predicate.fields
