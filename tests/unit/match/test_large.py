"""Clusters that are large enough to be cut into blocks, and what codes in 16 bits can and cannot tell apart."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost import query
from milepost.batch import Batch
from milepost.match import Index
from milepost.match import snapshot as module
from milepost.match.codes import GREATEST, LEAST, NULL
from milepost.query import Predicate
from milepost.schema.text import parse
from tests.unit.match.test_agreement import naive, rows_of

SCHEMA = parse("m: [hot: int, a: int, b: long?, c: double, s: string]")
HOT = 1_200  # subscriptions with the same value: more than make a cluster large

codes = st.integers(NULL, GREATEST) | st.integers(-100_000, 100_000) | st.sampled_from([NULL, LEAST, GREATEST])


@given(codes, codes, st.integers(LEAST + 1, GREATEST - 1), st.integers(0, 48))
def test_near_codes_are_in_order(one: int, other: int, base: int, shift: int) -> None:
    from milepost.match.scan import NEAR_STEPS, near_code

    low, high = sorted((one, other))
    near_low, near_high = near_code(low, base, shift), near_code(high, base, shift)
    assert near_low <= near_high
    if low == NULL != high:
        assert near_low < near_high
    if base <= low < high and (high - base) >> shift <= NEAR_STEPS and (high - low) >> shift:
        assert near_low < near_high


def _terms(rng: Random, spread: int) -> str:
    """Two or three terms over different columns, intervals mostly."""
    low, real = rng.randrange(spread), rng.random() * 100
    terms = [
        f"a between {low} and {low + spread // 4}",
        rng.choice([f"b > {low}", f"b <= {low}", "b is null", f"b between {low} and {low + spread // 3}"]),
        f"c between {real} and {real + 25}",
        rng.choice(["s like 'x%'", "s <> 'y'", "s = 'yy'"]),
    ]
    return " and ".join(rng.sample(terms, rng.choice([1, 2, 2, 2, 3])))


def _rows(rng: Random, count: int, spread: int) -> list[dict[str, object]]:
    return [
        {
            "hot": rng.choice([1, 1, 2, 3]),
            "a": rng.randrange(spread),
            "b": rng.choice([None, rng.randrange(spread), 2**62, -(2**62)]),
            "c": rng.choice([rng.random() * 100, float("nan"), 1e300, -0.0]),
            "s": rng.choice("xyz") * rng.randrange(4),
        }
        for _ in range(count)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("spread", [40, 10**6])
def test_a_large_cluster_says_what_the_evaluator_says(spread: int) -> None:
    """With few different values, and with more than 16 bits can tell apart; alone, in batches, and after removals."""
    rng = Random(spread)
    held: dict[int, Predicate] = {}
    index = Index(SCHEMA, background=False)
    for key in range(HOT):
        value = 1 if key % 8 else rng.randrange(2, 40)
        held[key] = query.compile(f"hot = {value} and {_terms(rng, spread)}", SCHEMA)
        index.add(key, held[key])
    rows = _rows(rng, module.MANY_ROWS, spread)
    batch = Batch.encode(SCHEMA, rows)
    index.settle()
    segment = next(iter(index._segments.values()))
    assert len(segment.arrays[-1]) > 1, "no cluster is cut into blocks, and nothing is tested"
    for turn in range(4):
        expected = naive(held, rows)
        snapshot = index.snapshot()
        assert rows_of(snapshot, batch) == expected
        snapshot._postings = module.MANY_POSTINGS
        assert rows_of(snapshot, batch) == expected
        for key in rng.sample(sorted(held), 100):  # some die in the segment, some come again in the delta
            index.remove(key)
            del held[key]
            if key % 2:
                held[key] = query.compile(f"hot = 1 and {_terms(rng, spread)}", SCHEMA)
                index.add(key, held[key])
        if turn == 2:
            index.settle()


@pytest.mark.slow
def test_two_intervals_alone() -> None:
    """Postings without further terms, none of them dead: the shortest way. Old snapshots stay on it when some die."""
    rng = Random(3)
    schema = parse("m: [hot: int, a: int, b: int, c: int]")
    held = {}
    index = Index(schema, background=False)
    for key in range(HOT):
        one, other = rng.sample("abc", 2)
        low, high = rng.randrange(50), rng.randrange(50)
        text = f"hot = 1 and {one} between {low} and {low + 9} and {other} between {high} and {high + 9}"
        held[key] = query.compile(text, schema)
        index.add(key, held[key])
    index.settle()
    rows = [{"hot": 1, **{name: rng.randrange(60) for name in "abc"}} for _ in range(module.MANY_ROWS)]
    batch = Batch.encode(schema, rows)
    before = index.snapshot()
    expected = naive(held, rows)
    assert rows_of(before, batch) == expected
    for key in range(0, HOT, 3):
        index.remove(key)
        del held[key]
    for postings in (0, module.MANY_POSTINGS):
        after = index.snapshot()
        before._postings = after._postings = postings
        assert rows_of(before, batch) == expected
        assert rows_of(after, batch) == naive(held, rows)


def test_the_outermost_codes_are_told_from_their_neighbours() -> None:
    """Where all other terms are within 16 bits, and nothing but the near codes would be looked at."""
    schema = parse("m: [l: long, k: int]")
    least, most = -(2**63), 2**63 - 1
    texts = [f"k = 1 and l = {most}", f"k = 1 and l < {least + 2}", "k = 1 and l < 5", f"k = 1 and l >= {most}"]
    texts += [f"k = 1 and l = {value}" for value in range(40)]
    held = {key: query.compile(text, schema) for key, text in enumerate(texts)}
    index = Index(schema)
    for key, predicate in held.items():
        index.add(key, predicate)
    index.settle()
    rows = [
        {"l": value, "k": 1} for value in (least, least + 1, least + 2, least + 9, -1, 0, 39, 10**6, most - 1, most)
    ]
    assert rows_of(index.snapshot(), Batch.encode(schema, rows)) == naive(held, rows)
