"""What SQL is written: columns that stand alone, values that are bound, and what is refused. Answers are compared in
`tests/integration/test_query_sql.py`."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from milepost import query
from milepost.errors import QueryError
from milepost.query import kinds, sql, typed
from milepost.query.sql import functions
from milepost.query.sql.tables import Tables
from milepost.query.sql.value import Dialect
from milepost.schema.text import parse
from tests.unit.query.test_select import ORDERS

QUOTES = parse(
    "quote: [symbol: string, price: double, size: int, total: uint64, amount: decimal(10,2), wide: decimal(30,2), "
    "note: string?, day: date, legs: *([name: string, tags: *(string)*])*, more: *(int)*?, o: [x: int]?]"
)
DIALECTS: list[Dialect] = ["sqlite", "postgresql"]


def made(text: str, dialect: Dialect, schema: Any = QUOTES, **options: Any) -> sql.Sql:
    return sql.compile(query.compile(text, schema).root, Tables(schema, 7), dialect, **options)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("text", "written", "values"),
    [
        ("symbol = 'IBM'", "(r.c0_symbol = :v0)", ["IBM"]),
        ("'IBM' < symbol", "(r.c0_symbol > :v0)", ["IBM"]),
        ("size > 2.5", "(r.c2_size > :v0)", [2]),
        ("size >= 2.5", "(r.c2_size >= :v0)", [3]),
        ("size = 2.5", "FALSE", []),
        ("size < 1e30", "TRUE", []),
        ("total = 18446744073709551615", "(r.c3_total = :v0)", [2**63 - 1]),
        ("total > 0", "(r.c3_total > :v0)", [-(2**63)]),
        ("total = -1", "FALSE", []),
        ("symbol in ('a', 'b')", "(r.c0_symbol IN (:v0, :v1))", ["a", "b"]),
        ("size in (1, 2.5, 3, null)", "(r.c2_size IN (:v0, :v1))", [1, 3]),
        ("symbol like 'I%'", "(r.c0_symbol >= :v0 AND r.c0_symbol < :v1)", ["I", "J"]),
        ("starts_with(symbol, 'I')", "(r.c0_symbol >= :v0 AND r.c0_symbol < :v1)", ["I", "J"]),
        ("size between 1 and 3", "((r.c2_size >= :v0) AND (r.c2_size <= :v1))", [1, 3]),
        ("day = date '1970-01-02' or size = 1", "((r.c7_day = :v0) OR (r.c2_size = :v1))", [1, 1]),
        ("price < 10", "(r.c1_price < :v0)", [10.0]),
        ("o is null", "(NOT r.c9_o)", []),
        ("o.x = 1", "(r.c10_x = :v0)", [1]),
        (
            "any(legs, name = 'x')",
            "EXISTS (SELECT 1 FROM mt7_1_legs a1 WHERE a1.mid = q.mid AND (a1.c0_name = :v0))",
            ["x"],
        ),
        ("count(legs) > 1", "((SELECT count(*) FROM mt7_1_legs a1 WHERE a1.mid = q.mid) > :v0)", [1]),
        (
            "any(legs, 'x' in tags)",
            "EXISTS (SELECT 1 FROM mt7_1_legs a1 WHERE a1.mid = q.mid AND EXISTS (SELECT 1 FROM mt7_2_tags a2 "
            "WHERE a2.mid = a1.mid AND a2.owner = a1.pos AND (a2.c0 = :v0)))",
            ["x"],
        ),
    ],
)
def test_columns_stand_alone(text: str, written: str, values: list[Any], dialect: Dialect) -> None:
    found = made(text, dialect)
    assert found.text == written
    assert list(found.values.values()) == values
    assert found.needs_root == ("r." in written)


def test_a_value_has_the_form_of_its_column() -> None:
    assert made("amount > 1.5", "sqlite").values == {"v0": 150}
    assert made("wide = 1.5", "sqlite").values == {"v0": str(10**38 + 150)}
    assert str(made("wide = 1.5", "postgresql").values["v0"]) == "1.50"
    assert made("amount > 1.005", "sqlite").values == {"v0": 100}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_nan_is_kept_out_of_ranges_that_are_open_above(dialect: Dialect) -> None:
    nan = "''" if dialect == "sqlite" else "CAST('NaN' AS double precision)"
    assert made("price > 10", dialect).text == f"(r.c1_price > :v0 AND r.c1_price < {nan})"
    assert "nullif" in made("price > 10", dialect, where=False).text


@pytest.mark.parametrize("dialect", DIALECTS)
def test_names_can_be_chosen(dialect: Dialect) -> None:
    text = "select om from mt_OrderMessage om, om.root o where om.abort_count > 1 and o.name = 'x'"
    found = made(text, dialect, ORDERS, message="m", prefix="w")
    assert found.text == "((m.aborts > :w0) AND (r.c2_name = :w1))"
    assert found.needs_root
    assert not made("select om from mt_OrderMessage om where om.mid = '1/2/3'", dialect, ORDERS).needs_root


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("ids", ["1/2/3", "0/0/9223372036854775807"])
def test_a_message_id_is_three_numbers(dialect: Dialect, ids: str) -> None:
    found = made(f"select om from mt_OrderMessage om where om.mid = '{ids}'", dialect, ORDERS)
    assert found.text == "(q.mid = :v0 AND q.s = :v1 AND q.t = :v2)"
    s, t, m = map(int, ids.split("/"))
    assert list(found.values.values()) == [m, s, t]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("ids", ["", "1/2", "1/2/03", "+1/2/3", "1/2/3 ", "1/2/9223372036854775808", "١/2/3"])
def test_what_is_no_message_id_is_never_equal(dialect: Dialect, ids: str) -> None:
    assert made(f"select om from mt_OrderMessage om where om.mid = '{ids}'", dialect, ORDERS).text == "FALSE"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_text_with_nul_is_refused(dialect: Dialect) -> None:
    for text in ("symbol = 'a\0'", "contains(symbol, '\0')", "symbol like '%\0_%'", "symbol in ('\0', 'x')"):
        with pytest.raises(QueryError, match=r"U\+0000"):
            made(text, dialect)


def test_rests_of_doubles_are_refused_by_postgresql() -> None:
    with pytest.raises(QueryError, match="PostgreSQL has no % of doubles"):
        made("price % 2 = 1", "postgresql")
    assert "milepost_call" in made("price % 2 = 1", "sqlite").text


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_order_says_where_nulls_go(dialect: Dialect) -> None:
    keys = query.ordering("note desc, symbol, price", QUOTES).keys
    found = sql.order_by(keys, Tables(QUOTES, 7), dialect)
    if dialect == "sqlite":  # where a column that is never null can be read from its index in order
        assert found.text.startswith("r.c6_note DESC NULLS FIRST, r.c0_symbol ASC, ")
        assert found.text.endswith(" ASC NULLS LAST")
    else:
        assert found.text.startswith("r.c6_note DESC, r.c0_symbol ASC, ")


def test_a_priority_is_a_double_whatever_it_was() -> None:
    for text in ("amount", "wide", "total", "size", "price", "count(legs)"):
        root = typed.Convert(query.expression(text, QUOTES).root, kinds.DOUBLE)
        for dialect in DIALECTS:
            assert sql.compile(root, Tables(QUOTES, 7), dialect).kind == kinds.DOUBLE


def test_sqlite_is_taught_its_functions_by_the_storage(tmp_path: Any) -> None:
    connection = sqlite3.connect(":memory:")
    functions.install(connection)
    what = "% double:plain double:plain > double:plain"
    assert connection.execute("SELECT milepost_call(?, 7.5, 2.0)", (what,)).fetchone() == (1.5,)
    assert connection.execute("SELECT milepost_call(?, NULL, 2.0)", (what,)).fetchone() == (None,)
    connection.close()
