"""Text to AST and back: what parses, what does not, and what the author is told."""

import pytest

from milepost.errors import QuerySyntaxError
from milepost.query import ast
from milepost.query.parser import parse


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("a=1", "a = 1"),
        ("A = 1 AND b != 2 Or c", "A = 1 and b <> 2 or c"),
        ("a and (b and c)", "a and b and c"),
        ("(a or b) and c", "(a or b) and c"),
        ("a or (b and c)", "a or b and c"),
        ("not (a and b)", "not (a and b)"),
        ("not a is null", "not a is null"),
        ("(not a) is null", "(not a) is null"),
        ("a = b is true", "a = b is true"),
        ("a is not null is not false", "a is not null is not false"),
        ("(a = b) = c", "(a = b) = c"),
        ("1 + 2 * 3", "1 + 2 * 3"),
        ("(1 + 2) * 3", "(1 + 2) * 3"),
        ("a - (b - c)", "a - (b - c)"),
        ("(a - b) - c", "a - b - c"),
        ("- a", "-a"),
        ("- -a", "--a"),
        ("-(-5) - -5", "-(-5) - -5"),
        ("-5", "-5"),
        ("a NOT BETWEEN 1 AND 2 and c", "a not between 1 and 2 and c"),
        ("a in (1,2) and b not in tags.names", "a in (1, 2) and b not in tags.names"),
        ("a LIKE 'x!%' ESCAPE '!'", "a like 'x!%' escape '!'"),
        ("'it''s' || \"order\"", "'it''s' || \"order\""),
        ("x.order.date[0].like", "x.order.date[0].like"),
        ('"a"."b c"', 'a."b c"'),
        ("date > date '2024-01-31'", "date > date '2024-01-31'"),
        ("timestamp'2024-01-31 12:00+01:00'", "timestamp '2024-01-31T11:00:00Z'"),
        ("timestamp '2024-01-31T12:00:00.5Z'", "timestamp '2024-01-31T12:00:00.500000Z'"),
        ("X'DEAD'", "x'dead'"),
        ("UUID '12345678123456781234567812345678'", "uuid '12345678-1234-5678-1234-567812345678'"),
        ("1e3 + 1.50 + 1E-7", "1000.0e0 + 1.50 + 1e-07"),
        ("LENGTH(a)", "length(a)"),
        ("any(a.b, it > 1)", "any(a.b, it > 1)"),
        (
            "SELECT a, b FROM mt_x m, m.root r WHERE a ORDER BY a DESC, b ASC",
            "select a, b from mt_x m, m.root r where a order by a desc, b",
        ),
        ("count(select * from mt_x m)", "count(select * from mt_x m)"),
    ],
)
def test_canonical_text(text: str, canonical: str) -> None:
    tree = parse(text)
    assert str(tree) == canonical
    assert parse(canonical) == tree


def test_positions_do_not_count() -> None:
    assert parse("a  =  1") == parse("a = 1")
    assert hash(parse("a  =  1")) == hash(parse("a = 1"))


def test_literals_of_different_types_differ() -> None:
    texts = ["1", "1.0", "1e0", "true", "'1'"]
    assert len({parse(text) for text in texts}) == len(texts)


def test_chains_are_flat() -> None:
    tree = parse(" and ".join(["a = 1"] * 1000))
    assert isinstance(tree, ast.Chain)
    assert len(tree.terms) == 1000


VALUE = "expected a value, a field or an expression in parentheses"
MORE = "'and', 'or' or the end of the query"


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("price 10", f"'10' is out of place: expected a comparison such as = or <, {MORE}", (1, 7)),
        ("a and", f"the query ends too early: {VALUE}", (1, 6)),
        ("a = 1\n  and or b", f"'or' is out of place: {VALUE}; as a name it is written \"or\"", (2, 7)),
        ("", f"the query ends too early: {VALUE} or 'select'", (1, 1)),
        ("a = b = c", f"'=' is out of place: expected an operator such as + or *, {MORE}", (1, 7)),
        ("a == 1", "'==' is written = here", (1, 3)),
        ("a && b", "'&' is written 'and' here", (1, 3)),
        ("!a", "'!' is written 'not' here", (1, 1)),
        ("a = 'abc", "this ' is never closed", (1, 5)),
        ('a = "abc', 'this " is never closed', (1, 5)),
        ("a is 3", "'3' is out of place: expected null, true or false", (1, 6)),
        ("a not b", "'b' is out of place: expected between, in or like", (1, 7)),
        ("a like b", "'b' is out of place: expected a string such as 'abc'", (1, 8)),
        ("a[x]", "'x' is out of place: expected a whole number", (1, 3)),
        ("a[-1]", "an index counts from 0 at the front and is not negative", (1, 3)),
        ("(a", "the query ends too early: expected ')'", (1, 3)),
        ("select a from mt_x where b", "'where' is out of place: expected a name; as a name it is written", (1, 20)),
        ("select a from mt_x m order a", "'a' is out of place: expected 'by'", (1, 28)),
        ("from = 1", f"'from' is out of place: {VALUE} or 'select'; as a name it is written \"from\"", (1, 1)),
        ("12abc", f"'12abc' is out of place: {VALUE} or 'select'", (1, 1)),
        ("x'abc'", "bytes are written as pairs of hexadecimal digits: x'00ff'", (1, 1)),
        ("date '2024-02-30'", "a date is written date '2024-01-31', from year 0001 to 9999", (1, 1)),
        ("date '2024-W01-1'", "a date is written date '2024-01-31', from year 0001 to 9999", (1, 1)),
        ("a < timestamp '2024-01-31T12:00:00'", "a timestamp is written", (1, 5)),
        ("a < timestamp '0001-01-01T00:00:00+01:00'", "a timestamp is written", (1, 5)),
        ("uuid '1'", "a uuid is written", (1, 1)),
        ("1e999", "this number is beyond what a double can hold", (1, 1)),
        ("1" * 39, "a number has at most 38 digits, and this one has 39", (1, 1)),
        ("0." + "0" * 39, "a number has at most 38 digits after the point", (1, 1)),
        ("a = '\ud800'", "half of a surrogate pair is not a character", (1, 6)),
    ],
)  # fmt: skip
def test_what_the_author_is_told(text: str, message: str, place: tuple[int, int]) -> None:
    with pytest.raises(QuerySyntaxError) as caught:
        parse(text)
    assert caught.value.message.startswith(message)
    assert (caught.value.line, caught.value.column) == place


def test_the_caret_points_at_the_place() -> None:
    with pytest.raises(QuerySyntaxError) as caught:
        parse("a = 1\nand b ? c")
    assert str(caught.value).splitlines()[-2:] == ["    and b ? c", "          ^"]


@pytest.mark.parametrize("word", sorted(ast.KEYWORDS))
def test_keywords_are_names_in_quotes_and_after_a_dot(word: str) -> None:
    assert parse(f'"{word}"') == ast.Path(word)
    assert str(ast.Path(word)) == f'"{word}"'
    assert parse(f"a.{word}[0].{word.upper()}") == ast.Path("a", (word, 0, word.upper()))
    assert parse(f"{word}_ = {word}1") == ast.Binary("=", ast.Path(f"{word}_"), ast.Path(f"{word}1"))
    if word not in ("null", "true", "false"):  # which are values
        with pytest.raises(QuerySyntaxError):
            parse(f"{word} = 1")
