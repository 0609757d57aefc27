"""Absurd queries are refused by a named limit, soon, and never by Python's stack."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost import limits, query
from milepost.errors import LimitExceeded, QueryError
from milepost.schema.text import parse

SCHEMA = parse("m: [a: int, b: string, urgent: bool, lines: *([price: double, parts: *(int)*])*, tags: *(string)*]")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("(" * 100_000 + "urgent" + ")" * 100_000, "QUERY_TEXT_CHARS"),
        ("(" * 40_000 + "urgent" + ")" * 40_000, "QUERY_DEPTH"),
        ("not " * 50_000 + "urgent", "QUERY_TEXT_CHARS"),
        ("not " * 20_000 + "urgent", "QUERY_DEPTH"),
        ("-" * 40_000 + "a = 1", "QUERY_DEPTH"),
        ("-" * 90_000 + "a = 1", "QUERY_TOKENS"),
        ("urgent" + " is null" * 10_000, "QUERY_DEPTH"),
        ("+".join(["a"] * 20_000), "QUERY_DEPTH"),
        ("||".join(["b"] * 20_000), "QUERY_DEPTH"),
        ("length(" * 14_000, "QUERY_DEPTH"),
        ("any(lines, " * 101 + "true" + ")" * 101, "QUERY_DEPTH"),
        (f"a in ({','.join('1' * 22_000)})", "QUERY_NODES"),
        (" and ".join(["a=1"] * 7_000), "QUERY_NODES"),
        (f"b like '{'%_' * 501}'", "LIKE_PATTERN_CHARS"),
    ],
)
def test_absurd_queries_name_the_limit(text: str, limit: str) -> None:
    with pytest.raises(LimitExceeded) as caught:
        query.compile(text, SCHEMA)
    assert caught.value.limit == limit


def test_variables_are_bounded() -> None:
    orders = parse("DEFINE MESSAGETYPE m; NODE n; a: INTEGER; next: REFERENCE TO n; END; ROOT n; END;")
    chain = "".join(f", v{number}.next v{number + 1}" for number in range(100))
    with pytest.raises(LimitExceeded) as caught:
        query.compile(f"select m from mt_m m, m.root v0{chain}", orders)
    assert caught.value.limit == "QUERY_DEPTH"


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        " and ".join(["a = 1"] * 5_000),
        " or ".join(["a > 1"] * 5_000),
        f"a in ({', '.join(map(str, range(10_000)))})",
        "(" * 98 + "urgent" + ")" * 98,
        "not " * 98 + "urgent",
        "any(lines, " * 49 + "true" + ")" * 49,
        "(" * 45 + "a = 1" + ") is true" * 45,
    ],
)
def test_large_queries_work(text: str) -> None:
    predicate = query.compile(text, SCHEMA)
    assert query.compile(str(predicate), SCHEMA) == predicate
    message = {"a": 1, "b": "", "urgent": True, "lines": [{"price": 1.0, "parts": []}], "tags": []}
    batch = query.encode(SCHEMA, [message] * 3)
    assert predicate.mask(batch).tolist() == [predicate.test(message) is True] * 3


def test_a_nest_of_quantifiers_ends_at_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "QUERY_BINDINGS", 20_000)
    message = {"a": 1, "b": "", "urgent": True, "lines": [{"price": 1.0, "parts": []}] * 100, "tags": []}
    predicate = query.compile("any(lines, any(lines, any(lines, any(lines, price > 1))))", SCHEMA)
    for evaluate in (predicate.test, lambda value: predicate.mask(query.encode(SCHEMA, [value, value]))):
        with pytest.raises(LimitExceeded) as caught:
            evaluate(message)
        assert caught.value.limit == "QUERY_BINDINGS"


def test_many_messages_are_looked_at_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"a": a, "b": "", "urgent": True, "lines": [{"price": float(p), "parts": []} for p in range(a)], "tags": []}
        for a in range(12)
    ]
    predicate = query.compile("count(lines, any(lines, price > 5)) = a and a > 0", SCHEMA)
    expected = [predicate.test(row) is True for row in rows]
    batch = query.encode(SCHEMA, rows)
    total = query.expression("sum(lines, count(lines))", SCHEMA)
    sums = [total.value(row) for row in rows]
    monkeypatch.setattr(limits, "QUERY_BINDINGS", 200)
    assert predicate.mask(batch).tolist() == expected
    assert total.column(batch).to_pylist() == sums


@given(st.text(alphabet=st.sampled_from("ab1.'\"()[]<>=!|+-*/% \n") | st.characters(), max_size=60))
def test_any_text_compiles_or_is_refused(text: str) -> None:
    try:
        predicate = query.compile(text, SCHEMA)
    except (QueryError, LimitExceeded):
        return
    assert query.compile(str(predicate), SCHEMA) == predicate


WORDS = [
    "a", "b", "urgent", "lines", "tags", "it", "1", "2.5", "1e3", "'x'", "null", "true", "(", ")", "[", "]", ",", ".",
    "=", "<", "+", "-", "*", "/", "%", "||", "and", "or", "not", "in", "like", "between", "is", "any", "count", "sum",
]  # fmt: skip


@given(st.lists(st.sampled_from(WORDS), max_size=15).map(" ".join))
def test_any_words_compile_or_are_refused(text: str) -> None:
    try:
        predicate = query.compile(text, SCHEMA)
    except (QueryError, LimitExceeded):
        return
    assert query.compile(str(predicate), SCHEMA) == predicate
