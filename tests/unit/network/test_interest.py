"""What is announced over a link: enough for every filter behind it, and no more than it takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import reduce
from operator import or_
from random import Random

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from milepost import query
from milepost.network.interest import SCANNED, SHAPES, Digest, Filter, Interest, hash_of
from tests.unit.query.test_covering import SCHEMA, VALUES, small

MESSAGES = [
    {"i": i, "d": d, "n": None, "s": s, "f": f}
    for i in VALUES["i"] for d in VALUES["d"][::2] for s in VALUES["s"][::2] for f in VALUES["f"]
]  # fmt: skip
POOL = [
    "i > 0", "i > 1", "i >= 1", "i = 2", "i = 3", "i = 2 and s = 'a'", "s = 'a'", "s like 'a%'", "s like 'ab%'",
    "i = 2 and d > 0", "i = 2 and d > 1", "d > 0", "i > 0 or s = 'a'", "f", "f and i = 2", "not f", "i < d",
    "i < d and f", "i = 2  AND d > 0",
]  # fmt: skip
PREDICATES = [query.compile(text, SCHEMA) for text in POOL]
STEPS = st.lists(st.tuples(st.booleans(), st.integers(0, len(POOL))), max_size=60)


def rows(filter: Filter) -> int:
    """The messages that a filter wants, as bits."""
    if filter is None:
        return (1 << len(MESSAGES)) - 1
    if filter not in KNOWN:
        KNOWN[filter] = sum(1 << place for place, message in enumerate(MESSAGES) if filter.test(message) is True)
    return KNOWN[filter]


KNOWN: dict[Filter, int] = {}


def unserved(announced: Iterable[Filter], wanted: Iterable[Filter]) -> int:
    """Messages that a filter wants and no announced filter does."""
    wants, has = (reduce(or_, map(rows, filters), 0) for filters in (wanted, announced))
    return wants & ~has


@given(STEPS, st.sampled_from((1, 3, 1_000)))
def test_every_wanted_row_is_announced_at_every_moment(steps: list[tuple[bool, int]], most: int) -> None:
    interest = Interest(most)
    told: set[Filter] = set()  # as the other end has it
    wanted: Counter[int] = Counter()
    for adds, number in steps:
        filter = None if number == len(POOL) else PREDICATES[number]
        before = [each for each in wanted if wanted[each]]
        if adds:
            changes = interest.add("t", filter)
            wanted[number] += 1
        elif wanted[number]:
            changes = interest.remove("t", filter)
            wanted[number] -= 1
        else:
            continue
        kept = [None if each == len(POOL) else PREDICATES[each] for each in before if wanted[each]]
        for change in changes:
            assert (change.filter in told) != change.wanted  # nothing is said twice
            (told.add if change.wanted else told.discard)(change.filter)
            assert not unserved(told, kept)
        now = [None if each == len(POOL) else PREDICATES[each] for each in wanted if wanted[each]]
        assert not unserved(told, now)
        assert {filter for _, filter in interest} == told
        assert len(told) <= most
        assert interest.counts == (wanted.total(), len(told))
        fresh = Digest()
        for topic, each in interest:
            fresh.change(topic, each)
        assert not fresh.differing(interest.digest)
        event("widened" if interest.widened else f"{len(told)} for {len(now)}")
    for number, count in wanted.items():
        for _ in range(count):
            interest.remove("t", None if number == len(POOL) else PREDICATES[number])
    assert not list(interest)
    assert not Digest().differing(interest.digest)


@given(st.lists(small(), max_size=12), st.randoms(use_true_random=False))
def test_filters_come_back_in_whatever_order_others_go(texts: list[str], random: Random) -> None:
    predicates = [query.compile(text, SCHEMA) for text in texts]
    interest = Interest()
    for predicate in predicates:
        interest.add("t", predicate)
    left = list(predicates)
    random.shuffle(left)
    while left:
        interest.remove("t", left.pop())
        assert not unserved((filter for _, filter in interest), left)
    assert not list(interest)


def test_covered_filters_are_held_back_and_come_when_their_cover_goes() -> None:
    interest = Interest()
    wide, middle, narrow = (query.compile(text, SCHEMA) for text in ("i > 0", "i > 1", "i > 2 and s = 'a'"))
    assert interest.add("t", narrow) == [("t", narrow, True)]
    assert interest.add("t", middle) == [("t", middle, True), ("t", narrow, False)]
    assert interest.add("t", wide) == [("t", wide, True), ("t", middle, False)]
    assert interest.add("t", wide) == []
    assert interest.remove("t", wide) == []
    assert interest.remove("t", wide) == [("t", middle, True), ("t", wide, False)]
    assert interest.remove("t", narrow) == []
    assert interest.remove("t", middle) == [("t", middle, False)]
    assert interest.counts == (0, 0)


def test_filters_past_the_limit_are_widened_and_said_so() -> None:
    interest = Interest(4)
    predicates = [query.compile(f"i = {number}", SCHEMA) for number in range(6)]
    for predicate in predicates[:4]:
        assert interest.add("t", predicate) == [("t", predicate, True)]
    changes = interest.add("t", predicates[4])
    assert changes == [("t", None, True), *(("t", each, False) for each in predicates[:4])]
    assert interest.widened == ["t"]
    assert interest.counts == (5, 1)
    assert interest.add("t", predicates[5]) == []
    for predicate in predicates[:3]:
        assert interest.remove("t", predicate) == []
    changes = interest.remove("t", predicates[3])
    assert changes == [("t", predicates[4], True), ("t", predicates[5], True), ("t", None, False)]
    assert interest.widened == []


def test_ends_that_differ_in_one_filter_differ_in_one_bucket() -> None:
    one, other = Interest(), Interest()
    for number in range(1_000):
        predicate = query.compile(f"i = {number}", SCHEMA)
        one.add("t", predicate)
        if number != 700:
            other.add("t", predicate)
    lost = query.compile("i = 700", SCHEMA)
    (bucket,) = one.digest.differing(other.digest)
    assert bucket == hash_of("t", lost) % len(one.digest.buckets)


@pytest.mark.slow
def test_a_cover_behind_very_many_sets_of_fields_is_not_looked_for() -> None:
    names = [f"f{number}" for number in range(11)]
    schema = query.parse_schema(f"wide: [{', '.join(f'{name}: int' for name in names)}, last: int]")
    interest = Interest()
    for number in range(1, SHAPES + 1):  # none covers another: more fields have looser bounds
        chosen = [name for place, name in enumerate(names) if number >> place & 1]
        interest.add("t", query.compile(" and ".join(f"{name} > -{len(chosen)}" for name in chosen), schema))
    cover, covered = (query.compile(text, schema) for text in ("last > 0", "last > 1"))
    assert interest.add("t", cover) == [("t", cover, True)]
    assert interest.add("t", covered) == [("t", covered, True)]  # costs a filter, and the work of one stays bounded
    assert interest.counts == (SHAPES + 2, SHAPES + 2)


def test_many_filters_of_few_values_are_few_and_their_cost_does_not_grow() -> None:
    """Symbols by Zipf's law and round bounds, as subscribers write them: most are equal or covered."""
    random = Random(7)
    symbols = random.choices(range(1_000), [1 / (rank + 1) for rank in range(1_000)], k=5_000)
    interest = Interest()
    schema = query.parse_schema("q: [symbol: string, price: double]")
    for symbol in symbols:
        text = f"symbol = 'S{symbol}' and price > {random.randrange(20) * 5}"
        interest.add("q", query.compile(text, schema))
    added, announced = interest.counts
    assert added == 5_000
    assert announced == len(set(symbols))  # the widest of each symbol
    everything = query.compile("price > 0 or price <= 0", schema)
    changes = interest.add("q", everything)
    assert sum(not change.wanted for change in changes) <= SCANNED  # the work of one filter is bounded
