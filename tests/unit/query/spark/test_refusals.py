"""What Spark cannot express is refused when a query is compiled, with the reason; nothing here starts a Spark."""

from __future__ import annotations

import pytest

from milepost import query
from milepost.errors import QueryError, QueryTypeError
from milepost.query.spark import check
from milepost.schema.text import parse

TREE = parse("tree: [value: int, kids: *(tree)*, next: tree?, v: choice?, any: dynamic?]\nchoice: {a: int | b: choice}")
NODES = parse("""
    DEFINE MESSAGETYPE Order;
    NODE order; id: IDENT; lines: REFERENCE TO line; END;
    NODE line; amount: INTEGER; END;
    ROOT order;
    END;
""")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("next.value = 1", "next.value goes through tree, which is recursive"),
        ("any(kids, value > 1)", "goes through tree"),
        ("case(v) = 'a'", "v goes through choice"),
        ("v.a > 1", "goes through choice"),
    ],
)
def test_paths_into_what_is_json_text(text: str, why: str) -> None:
    with pytest.raises(QueryTypeError, match=why) as caught:
        check(text, TREE)
    assert text in str(caught.value)


def test_that_it_is_there_can_still_be_asked() -> None:
    for text in ("next is null", "any is null", "count(kids)", "v is not null"):
        assert check(text, TREE).text == text


def test_administrative_attributes() -> None:
    with pytest.raises(QueryTypeError, match="abort_count is an administrative attribute"):
        check("select o from mt_Order o where o.abort_count > 1", NODES)
    check("select l from mt_Order m, m.root o, o.lines l where l.amount > 1", NODES)


def test_columns_that_differ_only_in_the_case_of_letters() -> None:
    schema = parse("m: [price: int, Price: int, size: int, o: [x: int, X: int]]")
    with pytest.raises(QueryTypeError, match="price and Price differ only in the case"):
        check("Price > 1", schema)
    check("Price > 1", schema, under="m")
    check("size > 1 and o.X > 1", schema)


def test_a_text_needs_a_schema_and_a_query_its_own() -> None:
    with pytest.raises(QueryError, match="needs a schema"):
        check("value > 1")
    with pytest.raises(QueryError, match="compiled for tree"):
        check(query.compile("value > 1", TREE), NODES)
