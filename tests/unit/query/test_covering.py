"""What `covers` says is true of every message, and the usual cases are decided."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from milepost import query
from milepost.query.covering import ALTERNATIVES, alternatives, covers
from milepost.schema.text import parse
from tests.unit.query.strategies import EDGES, edge_messages, predicates
from tests.unit.query.test_agreement import compiled

SCHEMA = parse("quote: [i: int?, d: double?, n: decimal(6,2)?, s: string?, f: boolean?]")
VALUES: dict[str, list[Any]] = {
    "i": [None, -1, 0, 1, 2, 3],
    "d": [None, -1.5, -0.0, 0.5, 1.0, float("inf"), float("nan")],
    "s": [None, "", "a", "ab", "abc", "b", "a%"],
    "f": [None, True, False],
}
LITERALS = {
    "i": ["-1", "0", "1", "2", "1.0", "1.5", "2e0", "null"],
    "d": ["-1.5", "0", "1", "0.5", "1e300", "null"],
    "s": ["''", "'a'", "'ab'", "'b'", "null"],
    "f": ["true", "false", "null"],
}
PATTERNS = ["'%'", "'a%'", "'ab%'", "'%b'", "'a%c'", "'a_'", "'ab'", "''"]


@st.composite
def small(draw: st.DrawFn, depth: int = 2) -> str:
    """A predicate over few values, so that many pairs cover each other."""
    kind = draw(st.integers(0, 9))
    if depth and kind < 4:
        word = draw(st.sampled_from(("and", "or")))
        return "(" + f" {word} ".join(draw(st.lists(small(depth - 1), min_size=2, max_size=3))) + ")"
    if depth and kind == 4:
        return f"not ({draw(small(depth - 1))})"
    if depth and kind == 5:
        return f"({draw(small(depth - 1))}) is {draw(st.sampled_from(('true', 'not true', 'false', 'not false')))}"
    name = draw(st.sampled_from(sorted(VALUES)))
    literal = st.sampled_from(LITERALS[name])
    no = draw(st.sampled_from(("", "not ")))
    match draw(st.integers(0, 5)):
        case 0 if name != "f":
            return f"{name} {no}between {draw(literal)} and {draw(literal)}"
        case 1:
            return f"{name} {no}in ({', '.join(draw(st.lists(literal, min_size=1, max_size=3)))})"
        case 2 if name == "s":
            return f"s {no}like {draw(st.sampled_from(PATTERNS))}"
        case 3:
            return f"{name} is {no}null"
        case 4 if name == "f":
            return f"{no}f"
    operator = draw(st.sampled_from(("=", "<>") if name == "f" else ("=", "<>", "<", "<=", ">", ">=")))
    sides = (name, draw(literal))
    return f" {operator} ".join(sides if draw(st.booleans()) else sides[::-1])


def messages_of(*predicates: query.Predicate) -> list[dict[str, Any]]:
    """Every combination of the values of the fields that the predicates read."""
    read = sorted({name for each in predicates for name in each.fields})
    rest = dict.fromkeys(("i", "d", "n", "s", "f"))
    return [rest | dict(zip(read, values, strict=True)) for values in product(*(VALUES[name] for name in read))]


@settings(max_examples=6 * settings.default.max_examples)
@given(small(), small())
def test_a_cover_is_true_wherever_the_other_is(one: str, other: str) -> None:
    wide, narrow = query.compile(one, SCHEMA), query.compile(other, SCHEMA)
    said = covers(wide.root, narrow.root)
    messages = messages_of(wide, narrow)
    true = all(wide.test(message) is True for message in messages if narrow.test(message) is True)
    event(f"said {said}, in fact {true} of these messages")
    assert true or not said


@settings(max_examples=2 * settings.default.max_examples)
@given(st.data(), edge_messages())
def test_parts_of_a_conjunction_cover_it_and_a_disjunction_covers_its_parts(data: st.DataObject, messages: Any) -> None:
    one, other = (data.draw(predicates(EDGES, messages, 3)) for _ in range(2))
    parts = [compiled(text, EDGES).root for text in (one, other)]
    both, either = (compiled(f"({one}) {word} ({other})", EDGES).root for word in ("and", "or"))
    decided = all(alternatives(root) is not None for root in (*parts, both, either))
    for part in parts:
        assert covers(part, both) or not decided
        assert covers(either, part) or not decided


@settings(max_examples=2 * settings.default.max_examples)
@given(st.data(), edge_messages())
def test_alternatives_hold_wherever_a_predicate_is_true(data: st.DataObject, messages: Any) -> None:
    """Two random predicates: what is said holds for the messages at hand."""
    wide, narrow = (compiled(data.draw(predicates(EDGES, messages, 4)), EDGES) for _ in range(2))
    if covers(wide.root, narrow.root):
        assert all(wide.test(message) is True for message in messages if narrow.test(message) is True)


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("i > 1", "i > 2"),
        ("i > 1", "i >= 1.5"),
        ("i >= 1", "i = 1"),
        ("d < 2", "d < 1.5 and i = 3"),
        ("i between 1 and 5", "i > 1 and i < 4"),
        ("i > 0", "i in (1, 2, 3)"),
        ("i in (1, 2, 3)", "i in (2, 1)"),
        ("s like 'a%'", "s like 'ab%'"),
        ("s like 'a%'", "s = 'abc'"),
        ("s >= 'a'", "s like 'ab%'"),
        ("s like '%b'", "s like '%b' and i = 1"),
        ("i is not null", "i = 3"),
        ("i > 1 or s = 'x'", "s = 'x' and d > 1"),
        ("i > 1 or s = 'x'", "i > 5 or s = 'x'"),
        ("not (i > 3)", "i <= 3"),
        ("i <> 3", "i > 3"),
        ("i <> 3", "i not in (2, 3)"),
        ("f", "f = true and i = 1"),
        ("not f", "f = false"),
        ("i < d", "i < d and s = 'x'"),
        ("n > 1.5", "n > 1.50 and i = 1"),
        ("i * 2 > 10", "i * 2 > 11"),
        ("length(s) > 2", "length(s) = 5"),
        ("i = 1", "i = 1 and i = 2"),
    ],
)
def test_usual_covers(wide: str, narrow: str) -> None:
    assert covers(query.compile(wide, SCHEMA).root, query.compile(narrow, SCHEMA).root)
    if narrow != "i = 1 and i = 2":
        assert not covers(query.compile(narrow, SCHEMA).root, query.compile(wide, SCHEMA).root) or wide in (
            "i >= 1", "f", "not f", "not (i > 3)",
        )  # fmt: skip


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("i > 1", "i >= 1"),
        ("i > 1", "d > 5"),
        ("i <> 3", "i < 4"),
        ("i <> 3", "s = 'x'"),  # i may be null
        ("not (i = 3)", "i is null"),
        ("s like 'ab%'", "s like 'a%'"),
        ("n > 1.5", "n > 1.5e0"),  # compared as doubles: not decided
        ("i = 1 and s = 'x'", "i = 1"),
    ],
)
def test_what_does_not_cover(wide: str, narrow: str) -> None:
    assert not covers(query.compile(wide, SCHEMA).root, query.compile(narrow, SCHEMA).root)


def test_too_many_alternatives_are_covered_by_equals_only() -> None:
    terms = " and ".join(f"(i <> {number} or d <> {number})" for number in range(ALTERNATIVES.bit_length()))
    root = query.compile(terms, SCHEMA).root
    assert alternatives(root) is None
    assert covers(root, query.compile(terms.replace("and", "AND"), SCHEMA).root)
    assert not covers(query.compile("i is not null or d is not null", SCHEMA).root, root)
