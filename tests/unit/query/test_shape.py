"""A text of a known shape compiles to what the full way makes of it, and really goes the short way."""

from __future__ import annotations

import pickle
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from milepost import query
from milepost.errors import LimitExceeded, QueryError
from milepost.query import ast, clauses
from milepost.query.checker import Checker
from milepost.query.parser import parse as parsed
from milepost.query.parser import read
from milepost.query.shape import CACHE_CHARS, SHAPES, TEXT_CHARS, Shapes, split_text
from milepost.schema.text import parse
from milepost.schema.types import Schema
from tests.strategies import graphs, message_types, schemas, values
from tests.unit.query.strategies import EDGES, edge_messages, predicates, seeds


def outcome(text: str, schema: Schema, *, short: bool) -> tuple[str, ...]:
    """Everything that can be seen of a predicate, positions and kinds included, or of the error instead."""
    try:
        predicate = query.compile(text, schema) if short else full(text, schema)
    except (QueryError, LimitExceeded) as error:
        return type(error).__name__, str(error)
    assert predicate.text == text
    return repr(predicate.root), repr(predicate.tree), str(predicate), str(predicate.type), repr(predicate.fields)


def full(text: str, schema: Schema) -> query.Predicate:
    tree = parsed(text)
    checker = Checker(text, schema)
    if isinstance(tree, ast.Select):
        return query.Predicate(text, schema, tree, clauses.exists(checker, tree))
    return query.Predicate(text, schema, tree, checker.boolean(tree, checker.scope(), "a predicate"))


def takes_the_short_way(text: str, schema: Schema) -> bool:
    before = SHAPES.statistics().known
    assert outcome(text, schema, short=True) == outcome(text, schema, short=False)
    return SHAPES.statistics().known > before


# Texts for each terminal, those among them that mean nothing and those that only parse.
LITERALS = {
    "INTEGER": [
        "0", "1", "7", "007", "100", "2147483648", "9007199254740993", "9223372036854775807", "9223372036854775808",
        "18446744073709551615", "1" * 38, "1" * 39, "0" * 5_000 + "1", "0" * 60 + "5",
    ],
    "DECIMAL": ["0.0", "1.5", "1.50", "2.500", "00.10", "99999999999999999.99", "0." + "1" * 38, "0." + "1" * 39],
    "DOUBLE": ["1e5", "1E5", "0e0", "1.5e-3", "2e+2", "1e308", "1e400", "5e-324", "9007199254740993e0", "1e-400"],
    "STRING": [
        "''", "'a'", "'ab'", "'it''s'", "''''", "'%'", "'a%b_'", "'!%'", "'!'", "'!!'", "'line\nbreak\r'", "'\u2028'",
        "'é😀'", "'x''00'''", "' and '", "'\"'", "'10.0.0.0/8'", "'::1'", "'-- no comment'",
        "'" + "%_" * 501 + "'",
    ],
    "BYTES": ["x''", "x'00'", "X'fF00'", "x'0'", "x'zz'", "x'00 ff'", "x'é'"],
    "DATE": [
        "date '2024-02-29'", "date'0001-01-01'", "DATE\n'9999-12-31'", "Date '2023-02-29'", "date ''",
        "date '2024-W01-1'", "date \t '2024-01-31'",
    ],
    "TIMESTAMP": [
        "timestamp '2024-02-29T12:30:15.000001Z'", "timestamp'1970-01-01 00:00+01:00'", "TIMESTAMP '0001-01-01T00:00Z'",
        "timestamp '9999-12-31T23:59:59-01:00'", "timestamp '2024-02-29'", "timeſtamp '2024-02-29T12:30:15Z'",
    ],
    "UUID": ["uuid '12345678-1234-5678-1234-567812345678'", "UUID'00000000000000000000000000000001'", "uuid '1'"],
}  # fmt: skip
# What is no literal, or is one only in part, or breaks the text.
ODD = [
    ".5", "5.", "0x1f", "1e", "1e5.", "1.2.3", "1_000", "5ſ", "1e5ſ", "٣", "'", "''''a'", "x'", "date", "date '",
    "null", "true", "-1", "- 1", "--1", "-(1)", "(1)", "-'a'", "+1", '"i"', '"it\'s 5"', "i", "i8", "ts[0]", "ts[ 0 ]",
    "xs[7]", "it", "é", "K", "1 and 2", "'\0'", "'\ud800'", "and", "'a' 'b'", "1 -- 2", "1 /* 2 */", "date'a'",
    "case(v)", "length('a')", "\0STRING\0",
]  # fmt: skip


def rewritten(rng: Random, text: str, strange: float) -> str:
    """The text with other literals, most of them of the terminals that were there."""
    pieces = []
    end = 0
    for token in read(text).literals:
        assert token.start_pos is not None
        other = rng.choice(ODD if rng.random() < strange else LITERALS[token.type])
        pieces += [text[end : token.start_pos], other if rng.random() < 0.8 else str(token)]
        end = token.start_pos + len(token)
    return "".join([*pieces, text[end:]])


def disguised(rng: Random, text: str) -> str:
    """The same query in other white space and letters."""
    pieces = re.split(r"('[^']*'|\"[^\"]*\")", text)
    spaces = [" ", "\n", "\t ", "\r\n", "\f", "  "]
    for number in range(0, len(pieces), 2):
        piece = re.sub(" ", lambda _: rng.choice(spaces), pieces[number])
        piece = (
            re.sub(r"(?<=[=<>(])|(?=[)=<>])", lambda _: rng.choice(["", " "]), piece) if rng.random() < 0.3 else piece
        )
        words = r"\b(and|or|not|is|null|true|false|between|in|like|escape)\b"
        pieces[number] = re.sub(words, lambda found: rng.choice([found[0], found[0].upper(), found[0].title()]), piece)
    return "".join(pieces)


@st.composite
def questions(draw: st.DrawFn) -> tuple[Schema, str]:
    sort = draw(st.integers(0, 7))
    if sort == 0:
        message_type = draw(message_types())
        schema, messages = message_type.schema, draw(st.lists(graphs(message_type), max_size=2))
    elif sort <= 2:
        schema = draw(schemas(max_depth=draw(st.integers(1, 4))))
        messages = draw(st.lists(values(schema), max_size=3))
    else:
        schema, messages = EDGES, draw(edge_messages())
    return schema, draw(predicates(schema, messages, draw(st.integers(2, 12))))


@settings(max_examples=4 * settings.default.max_examples)
@given(questions(), seeds(), st.sampled_from([0, 0.1]))
def test_the_short_way_gives_what_the_full_way_gives(question: tuple[Schema, str], rng: Random, strange: float) -> None:
    schema, text = question
    if rng.random() < 0.5:
        other = disguised(rng, text)
        text = other if outcome(other, schema, short=False)[0] != "QuerySyntaxError" else text
    assert outcome(text, schema, short=True) == outcome(text, schema, short=False)
    for _ in range(6):
        other = rewritten(rng, text, strange)
        before = SHAPES.statistics().known
        expected = outcome(other, schema, short=False)
        assert outcome(other, schema, short=True) == expected
        short = SHAPES.statistics().known > before
        event(f"{'refused' if len(expected) == 2 else 'fine'}, {'short' if short else 'full'}")


@given(questions())
def test_every_predicate_without_a_select_has_a_shape(question: tuple[Schema, str]) -> None:
    schema, text = question
    refused = len(outcome(text, schema, short=True)) == 2
    assume(not refused and "select" not in text and "\0" not in text)
    assert takes_the_short_way(text, schema)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("s = 'X17' and d >= 40 and i < 900", "s = 'it''s' and d >= 9007199254740993 and i < 0"),
        ("i = 1", "i = 00001"),
        ("i=1", "i=2147483648"),
        ("l > -5", "l > -9223372036854775808"),
        ("l > - 5", "l > - 18446744073709551615"),
        ("n = 1.5", "n = 1.50"),
        ("n = -1.5", "n = -12345678901234567890123456.789"),
        ("w < 3", "w < 99999999999999999999999999999999999999"),
        ("d < 1e5", "d < 1.5E-300"),
        ("d < -1e5", "d < -0e0"),
        ("i between 1 and 3", "i between 100 and 3"),
        ("n not between -1 and 3.5", "n not between -100000000000000000000 and 0.125"),
        ("i in (1, 2, 3)", "i in (4, 400000000000, 7)"),
        ("s NOT IN ('a', 'b')", "s NOT IN ('', '\n''')"),
        ("s like 'a%'", "s like '_b%%'"),
        ("s not like 'a!%' escape '!'", "s not like 'a#%%' escape '#'"),
        ("not (s = 'a' or i8 = 3)", "not (s = 'or' or i8 = 4)"),
        ("b is true and os is null and i = 1", "b is true and os is null and i = 2"),
        ("b", "b"),
        ("day = date '2024-01-31'", "day = DATE\t'0001-01-01'"),
        ("at < timestamp '2024-01-31T12:00:00Z'", "at < timestamp'1970-01-01 00:00:00.5+01:00'"),
        ("k = uuid '12345678-1234-5678-1234-567812345678'", "k = uuid '00000000000000000000000000000001'"),
        ("y = x'00'", "y = X'FFee'"),
        ("id = 7", "id = 8"),
        ("40 < d", "7 < d"),
        ("1 = 2", "1 = 1"),  # what is constant is calculated
        ("i + 1 > 2 * 3.5", "i + 100 > 7 * 0.001"),
        ("s || 'a' = 'xa'", "s || 'bb' = ''''"),
        ("length(s) > 3", "length(s) > 4"),
        ("in_subnet(ip, '10.0.0.0/8')", "in_subnet(ip, '::/0')"),
        ("ts[0] = 'a' and o.t.xs[ 1 ] = 3", "ts[0] = 'b' and o.t.xs[ 1 ] = 4"),
        ("'a' in ts", "'b' in ts"),
        ("any(lines, p > 1.5 and s = 'a')", "any(lines, p > 2.0 and s = 'b')"),
        ("v.b.s = 'a' and case(v) = 'a'", "v.b.s = 'b' and case(v) = 'b'"),
        ('"s" = \'a\' and "i8" = 1', '"s" = \'"b"\' and "i8" = 2'),
        ("d in (1, 2.5, null, i)", "d in (3, 4.25, null, i)"),
        ("coalesce(on, 1.5) = 2", "coalesce(on, 1.123456789) = 3"),
    ],
)
def test_other_literals_take_the_short_way(first: str, second: str) -> None:
    query.compile(first, EDGES)
    assert takes_the_short_way(first, EDGES)
    assert takes_the_short_way(second, EDGES)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("i = 1", "i = 1.0"),
        ("i = 1", "l = 1"),
        ("i = 1", "i  = 1"),
        ("i = 1", "i = -1"),
        ("i = 1", "I = 1"),
        ("i = 1", "i = 0x1"),
        ("i = 1", "i = .5"),
        ("i = 1", "i = 5."),
        ("i = 1", "i = 1 and"),
        ("ts[0] = 'a'", "ts[1] = 'a'"),
        ("ts[0] = 'a'", "ts[-1] = 'a'"),
        ("s = 'a'", "s = 'a' 'b'"),
        ("s = 'a'", "s = date 'a'"),
        ("s = 'a'", 's = "a"'),
        ("s = 'a'", "s = 'a"),
        ("day = date '2024-01-31'", "day = dates '2024-01-31'"),
        ("i = 1", "i = \0INTEGER\0"),
        ("s = 'a'", "s = '\0'"),
        ("s = 'a'", "s = '\ud800'"),
        ("s = 'a'", f"s = '{'a' * TEXT_CHARS}'"),
        ("i = 1 and s = 'a'", "i = 1 and s = 'a' and s = 'a'"),
    ],
)
def test_what_only_looks_alike_goes_the_full_way(first: str, second: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = Shapes()  # another test may have taught the common one the second text
    monkeypatch.setattr(sys.modules["milepost.query.expression"], "SHAPES", fresh)
    monkeypatch.setitem(globals(), "SHAPES", fresh)
    query.compile(first, EDGES)
    for _ in range(2):  # the first time might be the one that is learned from
        takes_the_short_way(first, EDGES)
    before = SHAPES.statistics()
    assert outcome(second, EDGES, short=True) == outcome(second, EDGES, short=False)
    assert SHAPES.statistics().known == before.known


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("day = date '2024-01-31'", "day = date '2024-02-30'"),
        ("at = timestamp '2024-01-31T12:00:00Z'", "at = timestamp '2024-01-31'"),
        ("k = uuid '12345678-1234-5678-1234-567812345678'", "k = uuid ''"),
        ("y = x'00'", "y = x'0'"),
        ("id = 7", "id = 18446744073709551615"),  # a decimal, by its digits
        ("i = 7", f"i = {'9' * 39}"),
        ("d = 1e3", "d = 1e999"),
        ("s like 'a!%' escape '!'", "s like 'a!a' escape '!'"),
        ("s like 'a!%' escape '!'", "s like 'a!%' escape '!!'"),
        ("s like 'a'", f"s like '{'%_' * 501}'"),
        ("case(v) = 'a'", "case(v) = 'x'"),
        ("in_subnet(ip, '10.0.0.0/8')", "in_subnet(ip, '10.0.0.0/99')"),
        ("n * 0.5 > 1", f"n * 0.{'1' * 38} > 1"),
    ],
)
def test_a_text_that_fails_is_told_so_as_before_and_leaves_nothing(first: str, second: str) -> None:
    text = f"i = 1000 and\n{first}"
    query.compile(text, EDGES)
    assert takes_the_short_way(text, EDGES)
    before = SHAPES.statistics()
    refused = outcome(f"i = 1 and\n{second}", EDGES, short=True)
    assert len(refused) == 2
    assert refused == outcome(f"i = 1 and\n{second}", EDGES, short=False)
    assert SHAPES.statistics() == before


def test_schemas_do_not_share_shapes() -> None:
    texts = [f"a = {number}" for number in (1, 2)]
    for kind in ("int", "double", "decimal(8,3)", "ident", "int?", "string"):
        schema = parse(f"m: [a: {kind}]")
        for text in texts:
            assert outcome(text, schema, short=True) == outcome(text, schema, short=False)


def test_a_predicate_of_a_known_shape_travels() -> None:
    query.compile("s = 'a' and i < 3", EDGES)
    predicate = query.compile("s = 'b' and i < 4", EDGES)
    there = pickle.loads(pickle.dumps(predicate))
    assert there == predicate
    assert hash(there) == hash(predicate)
    assert there.tree == parsed("s = 'b' and i < 4")
    assert str(there) == str(predicate) == "s = 'b' and i < 4"


def learned(shapes: Shapes, text: str) -> bool:
    parts = split_text(text)
    assert parts is not None
    before = shapes.statistics().learned
    shapes.learn(parts, text, EDGES, read(text))
    return shapes.statistics().learned > before


def known(shapes: Shapes, text: str) -> bool:
    parts = split_text(text)
    return parts is not None and shapes.root(parts, text, EDGES) is not None


def test_the_least_recently_used_shapes_go_first() -> None:
    shapes = Shapes(chars=3 * len("i = \0INTEGER\0"))
    for name in "ild":
        assert not known(shapes, f"{name} = 1")
        assert learned(shapes, f"{name} = 1")
    assert shapes.statistics().shapes == 3
    assert known(shapes, "i = 5")
    assert not learned(shapes, "i = 6")
    assert learned(shapes, "w = 1")
    assert [known(shapes, f"{name} = 3") for name in "ildw"] == [True, False, True, True]


def test_the_cache_is_bounded() -> None:
    shapes = Shapes(chars=500, shapes=10)
    for number in range(200):
        assert learned(shapes, f"i = 1{' ' * (number % 100)} and l = {number}" + " or b" * (number % 7))
        statistics = shapes.statistics()
        assert statistics.chars <= 500
        assert statistics.shapes <= 10
    assert shapes.statistics().shapes > 1


def test_small_shapes_are_counted() -> None:
    shapes = Shapes(shapes=3)
    for number in range(9):
        assert learned(shapes, f"b{' ' * number}")
        assert shapes.statistics().shapes == min(number + 1, 3)


def test_a_shape_larger_than_the_cache_is_not_kept() -> None:
    shapes = Shapes(chars=10)
    assert learned(shapes, "i = 1 and l = 2")
    assert shapes.statistics().shapes == shapes.statistics().chars == 0


def test_strangers_cannot_fill_the_memory() -> None:
    assert split_text("i = 1" + " " * TEXT_CHARS) is None
    assert TEXT_CHARS < CACHE_CHARS


def test_threads_compile_at_once() -> None:
    shapes = [
        "s = '{0}' and i < {0}", "d >= {0}.5", "i in ({0}, {0}, 3)", "s like '{0}%'", "any(lines, q > {0})",
        "b is true and l between {0} and 1{0}", "length(s) + {0} > 7",
    ]  # fmt: skip

    def work(seed: int) -> list[tuple[str, Any]]:
        rng = Random(seed)
        texts = [rng.choice(shapes).format(rng.randint(0, 10**9)) for _ in range(100)]
        return [(text, repr(query.compile(text, EDGES).root)) for text in texts]

    with ThreadPoolExecutor(8) as threads:
        for text, root in (pair for pairs in threads.map(work, range(8)) for pair in pairs):
            assert root == repr(full(text, EDGES).root)
