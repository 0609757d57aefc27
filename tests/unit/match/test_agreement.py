"""The index says what the plain evaluator says, through additions and removals, and whatever it is made of inside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from milepost import limits, query
from milepost.batch import Batch
from milepost.errors import QueryTypeError
from milepost.match import Index, MaskSnapshot, Snapshot
from milepost.query import Predicate, ast
from milepost.query.scope import Scope
from milepost.schema.text import parse
from milepost.schema.types import Schema
from tests.strategies import graphs, message_types, schemas, values
from tests.unit.query.strategies import (
    COMPARISONS,
    EDGES,
    NUMBERS,
    Author,
    edge_messages,
    family,
    places,
    predicates,
    seeds,
)

LEAVES = ["boolean", "integer", "decimal", "double", "string", "bytes", "date", "timestamp", "uuid", "ident"]


def compiled(text: str, schema: Schema) -> Predicate:
    try:
        return query.compile(text, schema)
    except QueryTypeError:
        assume(False)  # the author does not count digits, nor know which cases there are
        raise


@contextmanager
def boxes(boxed: bool) -> Iterator[None]:
    usual = limits.BATCH_GROUPS
    limits.BATCH_GROUPS = 0 if boxed else usual  # type: ignore[misc]
    try:
        yield
    finally:
        limits.BATCH_GROUPS = usual  # type: ignore[misc]


@lru_cache(maxsize=64)  # by the scope's identity, as the places in it are
def _leaves(scope: Scope) -> list[tuple[ast.Path, str]]:
    named = [(path, family(place.kind)) for path, place in places(scope)]
    return [(path, name) for path, name in named if name in LEAVES]


class TermAuthor(Author):
    """Writes what an index is made for: conjunctions of fields and constants, some of them alternatives."""

    def term(self) -> ast.Expression:
        found = _leaves(self.root())
        if not found:
            return ast.Literal("boolean", self.flag())
        path, name = self.pick(found)
        other = self.pick(NUMBERS) if name in NUMBERS and self.rng.random() < 0.3 else name
        choice = self.rng.randint(0, 9)
        if choice < 5:
            left, right = (path, self.constant(other)) if self.flag() else (self.constant(other), path)
            return ast.Binary(self.pick(COMPARISONS), left, right)
        if choice < 6:
            return ast.Between(path, self.constant(other), self.constant(other), self.flag())
        if choice < 7:
            return ast.In(path, tuple(self.constant(name) for _ in range(self.rng.randint(1, 4))), self.flag())
        if choice < 8:
            return ast.Is(path, None, self.flag())
        if name == "string":
            return ast.Like(path, *self.pattern(), self.flag())
        return path if name == "boolean" else ast.Binary("=", path, self.constant(name))

    def constant(self, name: str) -> ast.Expression:
        return ast.Literal("null", None) if self.rng.randint(0, 15) == 0 else self.literal(name)

    def conjunction(self) -> ast.Expression:
        terms = [self.term() for _ in range(self.rng.randint(1, 3))]
        if self.rng.randint(0, 3) == 0:
            terms.append(ast.Negation(self.term()))
        if self.rng.randint(0, 3) == 0:
            terms.append(ast.Chain("or", (self.term(), self.term())))
        if self.rng.randint(0, 5) == 0:
            terms.append(self.boolean(self.root()))
        return terms[0] if len(terms) == 1 else ast.Chain("and", tuple(terms))


@st.composite
def conjunctions(draw: st.DrawFn, schema: Schema, messages: list[Any]) -> str:
    return str(TermAuthor(draw(seeds()), schema, messages, 4).conjunction())


@st.composite
def tables(draw: st.DrawFn) -> tuple[Schema, list[Any], Batch]:
    if draw(st.integers(0, 5)) == 0:
        message_type = draw(message_types())
        schema = message_type.schema
        messages = draw(st.lists(graphs(message_type), max_size=4))
    else:
        schema = draw(schemas(max_depth=draw(st.integers(1, 3)), min_fields=1))
        messages = draw(st.lists(values(schema), max_size=6))
    with boxes(draw(st.booleans())):
        return schema, messages, Batch.encode(schema, messages)


def rows_of(snapshot: Snapshot | MaskSnapshot, batch: Batch) -> list[list[int]]:
    found = snapshot.match(batch)
    assert found.failed == ()
    assert found.offsets.dtype == np.int64
    assert found.keys.dtype == np.int32
    assert len(found.offsets) == len(batch) + 1
    bounds = found.offsets.tolist()
    return [sorted(found.keys[start:end].tolist()) for start, end in pairwise(bounds)]


def naive(held: dict[int, Predicate], messages: list[Any]) -> list[list[int]]:
    return [sorted(key for key, predicate in held.items() if predicate.test(row) is True) for row in messages]


class Life:
    """An index that subscriptions come to and go from, and what should be in it."""

    def __init__(self, schema: Schema, rng: Random, wanted: list[Predicate], kernels: bool = True) -> None:
        self.kernels = kernels
        self.index = Index(schema, ready=lambda: self.kernels)
        self.rng, self.wanted = rng, wanted
        self.held: dict[int, Predicate] = {}

    def live(self, steps: int) -> None:
        for _ in range(steps):
            match self.rng.randint(0, 9):
                case 0 | 1 | 2 if self.held:
                    key = self.rng.choice(list(self.held))
                    self.index.remove(key)
                    del self.held[key]
                case 3:
                    self.index._flush()  # as if the delta were full
                case 4:
                    self.index.snapshot()
                case 5:
                    self.index.settle()
                case _:
                    key = self.rng.randint(0, 40)
                    if key not in self.held:
                        self.held[key] = self.rng.choice(self.wanted)
                        self.index.add(key, self.held[key])
            assert len(self.index) == len(self.held)


@pytest.mark.slow
@settings(max_examples=3 * settings.default.max_examples)
@given(st.data(), edge_messages(), st.booleans(), seeds())
def test_index_equals_the_naive_evaluator(data: st.DataObject, messages: list[Any], boxed: bool, rng: Random) -> None:
    with boxes(boxed):
        batch = Batch.encode(EDGES, messages)
    texts = [data.draw(conjunctions(EDGES, messages)) for _ in range(6)]
    life = Life(EDGES, rng, [compiled(text, EDGES) for text in texts])
    for _ in range(3):
        life.live(12)
        found = rows_of(life.index.snapshot(), batch)
        event("some" if any(found) else "none")
        assert found == naive(life.held, messages), [life.held[key].text for key in life.held]
        for row in range(len(batch)):
            assert rows_of(life.index.snapshot(), batch.slice(row, row + 1)) == [found[row]]


@settings(max_examples=2 * settings.default.max_examples)
@given(st.data(), tables(), seeds())
def test_any_schema_and_any_predicate(data: st.DataObject, table: tuple[Schema, list[Any], Batch], rng: Random) -> None:
    schema, messages, batch = table
    texts = [data.draw(predicates(schema, messages, 4)) for _ in range(2)]
    texts += [data.draw(conjunctions(schema, messages)) for _ in range(4)]
    life = Life(schema, rng, [compiled(text, schema) for text in texts])
    life.live(30)
    assert rows_of(life.index.snapshot(), batch) == naive(life.held, messages)


@settings(max_examples=2 * settings.default.max_examples)
@given(st.data(), tables(), seeds())
def test_kernels_that_come_later_change_no_answer(
    data: st.DataObject, table: tuple[Schema, list[Any], Batch], rng: Random
) -> None:
    """Masks answer until the kernels are there; snapshots that were taken before stay as they are."""
    schema, messages, batch = table
    texts = [data.draw(predicates(schema, messages, 4)) for _ in range(2)]
    texts += [data.draw(conjunctions(schema, messages)) for _ in range(4)]
    life = Life(schema, rng, [compiled(text, schema) for text in texts], kernels=False)
    life.live(20)
    before, then = life.index.snapshot(), naive(life.held, messages)
    assert isinstance(before, MaskSnapshot)
    assert rows_of(before, batch) == then
    life.kernels = True
    after = life.index.snapshot()
    assert isinstance(after, Snapshot)
    assert rows_of(after, batch) == rows_of(before, batch) == then
    life.live(20)
    assert rows_of(life.index.snapshot(), batch) == naive(life.held, messages)
    assert rows_of(before, batch) == then


def test_more_subscriptions_than_a_delta_holds_wait_for_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    full = 600
    monkeypatch.setattr("milepost.match.delta.STAGED", full)
    schema = parse("m: [a: int, s: string]")
    kernels: list[bool] = []
    index = Index(schema, ready=lambda: bool(kernels))
    for key in range(full + 10):
        index.add(key, query.compile(f"a = {key} and s = 'a text that has a number, {key % 7}'", schema))
    index.remove(3)
    rows = [{"a": a, "s": f"a text that has a number, {a % 7}"} for a in (3, 4, full + 1)] + [{"a": 5, "s": "x"}]
    batch = Batch.encode(schema, rows)
    assert index.snapshot().long(1)  # so that a broker does not evaluate them in its event loop
    assert index.evaluations == full + 9
    before = rows_of(index.snapshot(), batch.slice(0, 2))
    kernels.append(True)
    assert rows_of(index.snapshot(), batch) == [[], [4], [full + 1], []]
    assert before == [[], [4]]
    assert index.evaluations == 0
    assert index.statistics().segments > 0


@pytest.mark.slow
@settings(max_examples=4 * settings.default.max_examples)
@given(edge_messages(), seeds())
def test_single_predicates(messages: list[Any], rng: Random) -> None:
    """Each alone in an index; ten for the same messages, which take longer to make than a predicate."""
    batch = Batch.encode(EDGES, messages)
    author = TermAuthor(rng, EDGES, messages, 0)
    for _ in range(10):
        author.left = 4
        predicate = compiled(str(author.conjunction()), EDGES)
        index = Index(EDGES)
        index.add(0, predicate)
        if rng.random() < 0.5:
            index.settle()
        assert rows_of(index.snapshot(), batch) == naive({0: predicate}, messages), predicate.text
