"""The databases hold what the reference says, for generated expressions and awkward data.

A round trip costs more than what it asks, so each test puts its messages into tables once and asks many expressions in
one SELECT. Everything random comes from a seed that is in the name of the test.
"""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from random import Random
from typing import Any

import hypothesis
import psycopg
import pytest
from hypothesis import strategies as st

from milepost import query
from milepost.errors import QueryError, QueryTypeError, SchemaError
from milepost.query import kinds, sql, typed
from milepost.query.sql import functions
from milepost.query.sql.value import Dialect
from milepost.queues import rows
from milepost.schema import types as t
from milepost.schema.text import parse
from tests import odd_texts
from tests.strategies import graphs, message_types, schemas, values
from tests.unit.query.strategies import FAMILIES, Author, edge_value
from tests.unit.query.test_documentation import examples, sessions

EPOCH_US = 1_704_067_200_000_000
COLUMNS = 100  # asked for at once


class Database:
    """A connection, and the tables of one schema after the other."""

    def __init__(self, dialect: Dialect, connection: Any) -> None:
        self.dialect: Dialect = dialect
        self._connection = connection
        self._schemas = 0

    def run(self, text: str, values: Any = ()) -> list[tuple[Any, ...]]:
        cursor = self._connection.cursor()
        cursor.execute(text, values)
        return cursor.fetchall() if cursor.description else []

    def ask(self, text: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        if self.dialect == "postgresql":
            text = re.sub(r":(\w+)", r"%(\1)s", text.replace("%", "%%"))
        return self.run(text, dict(values))

    def holding(
        self, schema: t.Schema, messages: Sequence[Any], headers: Sequence[Mapping[str, Any]] | None = None
    ) -> Messages:
        self._schemas += 1
        tables = sql.Tables(schema, self._schemas)
        return Messages(self, tables, messages, headers or [header(place) for place in range(len(messages))])

    def fill(self, tables: sql.Tables, messages: Sequence[Any], mids: list[int]) -> None:
        for statement in tables.create(self.dialect):
            self.run(statement)
        batch = query.encode(tables.schema, messages)
        for table, columns in rows.pour(batch, tables, mids, self.dialect):
            sign = "?" if self.dialect == "sqlite" else "%s"
            text = f"INSERT INTO {table.name} VALUES ({', '.join([sign] * len(columns))})"
            self._connection.cursor().executemany(text, list(zip(*columns, strict=True)))


def header(place: int) -> dict[str, Any]:
    """What a queue knows about the message at a place: priorities of all sorts, and times that are near each other."""
    priority = [0.0, -1.5, 7.0, math.inf, 1e308, math.nan, -math.inf, 3.0][place % 8]
    us = EPOCH_US + 10**15 + place // 3
    mid = f"{place % 3}/{place // 2 << 12 | 1}/{(us - EPOCH_US) << 12 | place % 3}"
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)
    return {"priority": priority, "mid": mid, "enqueued_at": at, "abort_count": place % 5}


class Messages:
    """Messages of one schema in a database, with a queue's header table."""

    def __init__(
        self, database: Database, tables: sql.Tables, messages: Sequence[Any], headers: Sequence[Mapping[str, Any]]
    ) -> None:
        self.database = database
        self.tables = tables
        self.messages = messages
        schema = tables.schema
        name = schema.name if schema.message_type is None else schema.message_type.name
        self.headers = [{**each, "message_type": name} for each in headers]
        mids = [int(each["mid"].rpartition("/")[2]) for each in headers]
        database.fill(tables, messages, mids)
        self.queue = f"q{tables.number}"
        real = "REAL" if database.dialect == "sqlite" else "DOUBLE PRECISION"
        database.run(
            f"CREATE TABLE {self.queue} (mid BIGINT PRIMARY KEY, s BIGINT, t BIGINT, priority {real}, aborts BIGINT)"
        )
        for each in headers:
            s, t, mid = map(int, each["mid"].split("/"))
            values = {"m": mid, "s": s, "t": t, "p": each["priority"], "a": each["abort_count"]}
            database.ask(f"INSERT INTO {self.queue} VALUES (:m, :s, :t, :p, :a)", values)

    @property
    def source(self) -> str:
        root = self.tables.root
        first = "" if root.top else " AND r.pos = 0"
        return f"{self.queue} q JOIN {root.name} r ON r.mid = q.mid{first}"

    def answers(self, asked: Sequence[query.Expression], where: bool = False) -> list[list[Any]]:
        """The values of each expression, in the plain form."""
        found: list[list[Any]] = []
        for start in range(0, len(asked), COLUMNS):
            made = [
                sql.compile(each.root, self.tables, self.database.dialect, prefix=f"e{place}v", where=where)
                for place, each in enumerate(asked[start : start + COLUMNS])
            ]
            values = {name: value for each in made for name, value in each.values.items()}
            text = f"SELECT {', '.join(each.text for each in made)} FROM {self.source} ORDER BY q.mid"
            columns = zip(*self.database.ask(text, values), strict=True)
            found += [[each.plain(value) for value in column] for each, column in zip(made, columns, strict=True)]
        return found

    def order(self, keys: Sequence[typed.Sorting]) -> list[int]:
        """The places of the messages, sorted."""
        made = sql.order_by(keys, self.tables, self.database.dialect)
        found = self.database.ask(f"SELECT q.mid FROM {self.source} ORDER BY {made.text}, q.mid", made.values)
        place = {int(each["mid"].rpartition("/")[2]): number for number, each in enumerate(self.headers)}
        return [place[mid] for (mid,) in found]

    def refused(self, expression: query.Expression) -> bool:
        """Whether the database cannot be asked."""
        try:
            sql.compile(expression.root, self.tables, self.database.dialect, where=False)
            sql.compile(expression.root, self.tables, self.database.dialect)
        except QueryError as error:
            if any(words in str(error) for words in ("U+0000", "% of doubles", "nested too deeply")):
                return True
            raise
        return False

    def compare(self, expressions: Sequence[query.Expression]) -> None:
        """Each expression has the value of the reference for each message; a predicate as a test is true with it."""
        asked = [each for each in expressions if not self.refused(each)]
        assert len(asked) >= len(expressions) * 0.9
        expected = [
            [each.value(message, top) for message, top in zip(self.messages, self.headers, strict=True)]
            for each in asked
        ]
        tests = [place for place, each in enumerate(asked) if each.type == kinds.BOOLEAN]
        truths = [[value is True for value in expected[place]] for place in tests]
        tested = self.answers([asked[place] for place in tests], where=True)
        found = [(str(each), got, right) for each, got, right in zip(asked, self.answers(asked), expected, strict=True)]
        for place, got, right in zip(tests, tested, truths, strict=True):
            found.append((f"{asked[place]}, as a test", [value is True for value in got], right))
        wrong = []
        for what, got, right in found:
            assert len(got) == len(right)
            for row, (a, b) in enumerate(zip(got, right, strict=True)):
                if not _same(a, b):
                    wrong.append(f"{what}\n    row {row}: {self.database.dialect} {a!r}, reference {b!r}")
                    break
        assert not wrong, f"{len(wrong)} of {len(asked)} differ:\n" + "\n".join(wrong[:20])


def _same(got: Any, expected: Any) -> bool:
    return type(got) is type(expected) and bool(got == expected)


@pytest.fixture(scope="module")
def databases(postgresql_server: Any) -> Iterator[dict[str, Database]]:
    url = postgresql_server.database()
    one = sqlite3.connect(":memory:", isolation_level=None)
    functions.install(one)
    other = psycopg.connect(url, autocommit=True)
    yield {"sqlite": Database("sqlite", one), "postgresql": Database("postgresql", other)}
    one.close()
    other.close()
    postgresql_server.drop(url)


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, databases: dict[str, Database]) -> Database:
    return databases[request.param]


def compare(
    databases: dict[str, Database], schema: t.Schema, messages: Sequence[Any], asked: Sequence[query.Expression]
) -> None:
    for database in databases.values():
        database.holding(schema, messages).compare(asked)


def cleaned(value: Any, seen: dict[int, Any] | None = None) -> Any:
    """A message without U+0000 in its strings, which queues do not take; graphs stay graphs."""
    seen = {} if seen is None else seen
    match value:
        case str():
            return value.replace("\0", "0")
        case list():
            return [cleaned(each, seen) for each in value]
        case dict() if id(value) in seen:
            return seen[id(value)]
        case dict():
            made = seen[id(value)] = {}
            made.update({name: cleaned(each, seen) for name, each in value.items()})
            return made
    return value


def generated(rng: Random, schema: t.Schema, messages: list[Any], count: int) -> list[query.Expression]:
    """Expressions of all types, most of them small."""
    found: list[query.Expression] = []
    while len(found) < count:
        author = Author(rng, schema, messages, rng.randint(2, 12))
        name = rng.choice(["boolean"] * 4 + ["integer", "decimal", "double", "string"] * 2 + FAMILIES)
        try:
            text = str(author.compound(author.root(), name))
            if schema.message_type is not None and rng.randrange(4) == 0:
                aggregate = rng.choice(["count", "sum", "min", "max", "avg", "any", "all"])
                inner = {"any": "boolean", "all": "boolean", "sum": "double", "avg": "integer"}.get(aggregate, name)
                text = f"{aggregate}({author.select(inner)})"
            found.append(query.expression(text, schema))
        except QueryTypeError:
            continue  # the author does not count digits
    return found


TABLED = parse(
    "edges: [i8: int8, i: int, l: long, u: uint64, ou: uint64?, f: float, d: double, od: double?, n: decimal(6,2), "
    "w: decimal(38,10), on: decimal(18,4)?, z: decimal(38,0), s: string, os: string?, ip: string, y: bytes, b: bool, "
    "ob: bool?, day: date, oday: date?, at: timestamp, oat: timestamp?, k: uuid, id: ident, ts: *(string)*, "
    "xs: *(long?)*?, ds: *(double)*, us: *(uint64)*, "
    "lines: *([p: decimal(8,2)?, q: int, s: string, r: *(double)*, o: [s: string, xs: *(int?)*]?])*, "
    "ol: *([x: int]?)*, o: [x: int?, d: double, t: [y: string?, xs: *(int)*]?]?]"
)


@pytest.mark.parametrize("seed", range(3))
def test_generated_expressions_over_awkward_values(databases: dict[str, Database], seed: int) -> None:
    rng = Random(seed)
    messages = [cleaned(edge_value(rng, TABLED.type)) for _ in range(60)]
    compare(databases, TABLED, messages, generated(rng, TABLED, messages, 250))


def test_the_examples_of_the_language_have_the_values_written(databases: dict[str, Database]) -> None:
    """All but those over a variant, which no table holds."""
    defined = sessions()
    message = {name: value for name, value in defined["message"].items() if name != "payload"}
    fields = tuple(field for field in defined["example"].type.fields if field.name != "payload")
    schema = t.Schema("example", t.Tuple(fields))
    texts = [text for text, _ in examples() if "payload" not in text]
    assert len(texts) > 90
    compare(databases, schema, [message], [query.expression(text, schema) for text in texts])


@hypothesis.settings(max_examples=8, derandomize=True, phases=[hypothesis.Phase.generate])
@hypothesis.given(st.data(), st.integers(0, 2**32))
def test_generated_schemas(databases: dict[str, Database], data: st.DataObject, seed: int) -> None:
    schema = data.draw(schemas(max_depth=3, min_fields=3, dynamic=False, variants=False, recursion=False))
    messages = [cleaned(each) for each in data.draw(st.lists(values(schema), min_size=3, max_size=6))]
    try:
        sql.Tables(schema, 1)
    except SchemaError:
        return  # a list of lists
    compare(databases, schema, messages, generated(Random(seed), schema, messages, 60))


@hypothesis.settings(max_examples=8, derandomize=True, phases=[hypothesis.Phase.generate])
@hypothesis.given(st.data(), st.integers(0, 2**32))
def test_generated_message_types(databases: dict[str, Database], data: st.DataObject, seed: int) -> None:
    message_type = data.draw(message_types())
    messages = [cleaned(each) for each in data.draw(st.lists(graphs(message_type), min_size=3, max_size=6))]
    schema = message_type.schema
    compare(databases, schema, messages, generated(Random(seed), schema, messages, 60))


NUMBERS = parse(
    "n: [w: decimal(38,10), z: decimal(38,0), t: decimal(38,37), x: decimal(38,38), u: uint64, l: long, "
    "d: double, c: decimal(18,4), i: int, ws: *(decimal(38,10))*, zs: *(decimal(38,0)?)*, ls: *(long)*, us: *(uint64)*]"
)
SIGNS = ["=", "<>", "<", "<=", ">", ">="]


def asked_of(texts: Sequence[str], schema: t.Schema) -> list[query.Expression]:
    found = []
    for text in texts:
        try:
            found.append(query.expression(text, schema))
        except QueryTypeError:  # too many places: the language has no such product
            continue
    assert len(found) > len(texts) * 0.9
    return found


def test_numbers_at_the_ends_of_their_ranges(databases: dict[str, Database]) -> None:
    """Each pair of fields with each sign: sums that fit only as a whole, products that just do, doubles near longs."""
    rng = Random(7)

    def near(bound: int) -> int:
        return rng.choice([-1, 1]) * (
            rng.choice([bound, bound // 2, bound // 10, bound // 3, 10, 1]) - rng.randint(0, 2)
        )

    def exact(digits: int, scale: int) -> Decimal:
        most = 10**digits - 1
        units = max(-most, min(near(10 ** rng.randint(1, digits)), most))
        return Decimal(units).scaleb(-scale, Context(prec=50))

    def long() -> int:
        return max(-(2**63), min(near(2**63), 2**63 - 1))

    def message() -> dict[str, Any]:
        return {
            "w": exact(38, 10), "z": exact(38, 0), "t": exact(38, 37), "x": exact(38, 38), "c": exact(18, 4),
            "u": abs(near(2**64)) % 2**64, "l": long(), "i": max(-(2**31), min(near(2**31), 2**31 - 1)),
            "d": rng.choice([float(near(2**63)), float(near(2**64)), float(near(2**53)), near(9) / 4, -0.0, math.inf]),
            "ws": [exact(38, 10) for _ in range(rng.randint(0, 4))],
            "zs": [rng.choice([exact(38, 0), None]) for _ in range(rng.randint(0, 4))],
            "ls": [long() for _ in range(rng.randint(0, 4))],
            "us": [abs(near(2**64)) % 2**64 for _ in range(rng.randint(0, 4))],
        }  # fmt: skip

    messages = [message() for _ in range(100)]
    fields = ["w", "z", "t", "x", "u", "l", "d", "c", "i"]
    texts = [
        f"{a} {sign} {b}" for a in fields for b in fields for sign in [*"+-*/%", *SIGNS] if (sign, a) != ("%", "d")
    ]
    texts = [text for text in texts if not text.endswith("% d")]  # which PostgreSQL does not have
    texts += [f"{name}({field})" for name in ("abs", "floor", "ceil", "round", "-") for field in fields]
    texts += [f"{name}({field})" for name in ("sum", "min", "max", "avg") for field in ("ws", "zs", "ls", "us")]
    texts += [f"coalesce({a}, {b})" for a in fields for b in fields]
    constants = ["2.5", "-0.5", "9223372036854775807", "-9223372036854775808", "18446744073709551615", "1e30", "1e19"]
    constants += ["9007199254740993", "99999999999999999999999999999999999999", "0", "0.00001", "-1e-5"]
    texts += [f"{a} {sign} {c}" for a in fields for sign in SIGNS for c in constants]
    texts += [f"{c} {sign} {a}" for a in fields for sign in ("<", ">=") for c in constants]
    texts += [f"{a} in ({', '.join(constants)}, null)" for a in fields] + [f"{a} not in (1, 2.5)" for a in fields]
    texts += [f"{a} between {b} and {c}" for a in fields for b in constants[:3] for c in (*constants[3:7], "i")]
    compare(databases, NUMBERS, messages, asked_of(texts, NUMBERS))


def test_doubles_follow_ieee_754(databases: dict[str, Database]) -> None:
    """PostgreSQL raises where a result is too large or too small; sums, products and quotients at these borders."""
    rng = Random(3)
    schema = parse("p: [a: double, b: double, s: *(double)*]")
    edges = [1.7976931348623157e308, 2.2250738585072014e-308, 5e-324, 2.0**1023, 2.0**970, 2.0**969, 1.0, 0.0, math.inf]

    def double() -> float:
        exponent = rng.choice([-1074, -1022, -900, -540, -537, -60, 0, 60, 500, 512, 900, 970, 1022])
        sized = math.ldexp(rng.uniform(1, 2), exponent + rng.randint(-3, 1))
        return rng.choice([-1, 1]) * rng.choice([*edges, sized, sized, sized, sized])

    messages = [{"a": double(), "b": double(), "s": [rng.uniform(-5, 5) for _ in range(9)]} for _ in range(1_500)]
    texts = [f"a {sign} b" for sign in "+-*/"] + [f"(a / 3) {sign} (b * 0.75)" for sign in "+-*/"]
    texts += [f"a {sign} {c}" for sign in "+-*/" for c in ("1e300", "1e-300", "3", "0.1", "5e-324", "1e308")]
    texts += ["sum(s)", "avg(s)", "sum(s, it * 1e300)", "sum(s, it * 1e-300)", "avg(s, it * 1e-320)", "round(a)"]
    texts += [f"{name}(a * b)" for name in ("abs", "floor", "ceil", "round")]
    compare(databases, schema, messages, asked_of(texts, schema))


TEXTS = odd_texts.SCHEMA


def test_patterns_addresses_and_parts_of_strings(databases: dict[str, Database]) -> None:
    rng = Random(11)
    letters = [*odd_texts.LETTERS, "'", "\ud7ff"]
    messages = odd_texts.messages(rng, letters, 1_000)
    texts = odd_texts.pairs()
    texts += [
        f"{name}(s, '{c}')"
        for name in ("contains", "starts_with", "ends_with")
        for c in ("", "a", "%", "\ud7ff", "\U0010ffff")
    ]
    texts += [f"{name}(s || p, 'a')" for name in ("contains", "starts_with", "ends_with", "position")]
    texts += [
        f"substring(s, {i}, {n})" for i in ("i", "-1", "0", "1", "3", "2147483648") for n in ("n", "-1", "0", "2", "u")
    ]
    texts += [f"substring(s, {i})" for i in ("i", "-1", "0", "1", "3", "u", "n - 1", "9223372036854775807")]
    for _ in range(60):
        pattern = "".join(
            rng.choices(
                ["%", "_", "a", "b", "é", "😀", "!%", "!_", "!!", ".", "\\", "\n", "''", "ab"], k=rng.randint(0, 6)
            )
        )
        texts.append(f"s like '{pattern}' escape '!'")
    texts += [f"s like '{each}'" for each in ("a%", "%a", "%a%", "a", "", "%", "\ud7ff%", "\U0010ffff%", "%%", "a_%")]
    compare(databases, TEXTS, messages, asked_of(texts, TEXTS))


def test_nesting_does_not_multiply_the_work(databases: dict[str, Database]) -> None:
    """Each of these could write its argument more than once."""
    rng = Random(5)
    messages = [cleaned(edge_value(rng, TABLED.type)) for _ in range(5)]
    deep = 12
    texts = [
        "abs(" * deep + "d" + ")" * deep,
        "round(" * deep + "d" + ")" * deep,
        "(" * deep + "w" + " + 0.00000000001)" * deep,
        "(" * deep + "d" + " * d)" * deep,
        "(" * deep + "l" + " + 1)" * deep,
        "(" * deep + "z" + " % 0.7)" * deep,
        "substring(" * deep + "s" + ", i, 5)" * deep,
        "(" * deep + "b" + " between ob and b)" * deep,
        "(" * deep + "b" + " in (ob, b))" * deep,
        "i in (" + ", ".join(map(str, range(10_000))) + ")",
        "d in (" + ", ".join(f"{each}e0" for each in range(200)) + ")",
        " or ".join(f"(i = {each} and d < {each})" for each in range(700)),
        "any(lines, " * 3 + "q > 1" + ")" * 3,
    ]
    schema = TABLED
    asked = asked_of(texts, schema)
    for database in databases.values():
        held = database.holding(schema, messages)
        held.compare([each for each in asked if not held.refused(each)])


def test_what_is_nested_too_deeply_for_sqlite_is_refused(databases: dict[str, Database]) -> None:
    text = "(" * 49 + "l" + " + 1)" * 49
    root, tables = query.expression(text, TABLED).root, sql.Tables(TABLED, 1)
    with pytest.raises(QueryError, match="nested too deeply for SQLite"):
        sql.compile(root, tables, "sqlite")
    sql.compile(root, tables, "postgresql")


def test_a_long_text_is_matched_in_linear_time(databases: dict[str, Database]) -> None:
    schema = parse("t: [s: string]")
    texts = [f"s like '{'%a_' * 12}%d'", f"s like '{'%a_' * 12}%c'", f"s like '{'%ab' * 12}%d'"]
    compare(databases, schema, [{"s": "ab" * 20_000 + "c"}], asked_of(texts, schema))


ORDERS = parse(
    """
    DEFINE MESSAGETYPE OrderMessage;
    NODE order; id: IDENT; date: DATE; name: STRING?; lines: REFERENCE TO order_line; END;
    NODE order_line; line_no: INTEGER; price: REAL; item: REFERENCE TO item; back: REFERENCE TO order; END;
    NODE item; name: STRING; ean: INTEGER; END;
    ROOT order;
    INDEX order.name; INDEX order.date;
    END;
    """
)


def orders(count: int) -> list[dict[str, Any]]:
    rng = Random(count)
    made = []
    for number in range(count):
        items = [{"name": rng.choice(["bolt", "nut"]), "ean": each} for each in range(3)]
        order: dict[str, Any] = {"id": number, "date": datetime(2024, 1, 1 + number % 28).date(), "lines": []}
        order["name"] = rng.choice(["Smith", "Jones", None, "O'Neil; DROP TABLE q1 --"])
        for line in range(rng.randint(0, 3)):
            price = rng.choice([0.5, 15.0, math.nan, -0.0])
            item = rng.sample(items, rng.randint(0, 3))
            order["lines"].append({"line_no": line, "price": price, "item": item, "back": [order] * (line % 2)})
        made.append(order)
    return made


FROM = "from mt_OrderMessage om, om.root o"


def test_the_administrative_attributes(databases: dict[str, Database]) -> None:
    messages = orders(40)
    some = [header(place) for place in (3, 7, 11)]
    at = [each["enqueued_at"].isoformat() for each in some] + ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"]
    mids = [each["mid"] for each in some] + ["1/2/3", "", "x/y/z", "01/2/3", f"{2**70}/1/1", "1/2/3/4", "1/2"]
    parts = [f"om.enqueued_at {sign} timestamp '{each}'" for sign in SIGNS for each in at]
    parts += [f"timestamp '{each}' {sign} om.enqueued_at" for sign in SIGNS for each in at[:2]]
    parts += [f"om.enqueued_at between timestamp '{at[0]}' and timestamp '{at[1]}'"]
    parts += [f"om.mid {sign} '{each}'" for sign in SIGNS for each in mids]
    parts += [f"om.mid in ({', '.join(map(repr, mids))})", f"om.mid not in ('{mids[0]}', null)", "om.mid like '%/%/%1'"]
    parts += [f"om.mid in ('{mids[1]}')", "om.mid in ('no', 'none')", "om.mid || '' in ('x')", "length(om.mid) > 20"]
    parts += [f"om.priority {sign} {c}" for sign in SIGNS for c in ("0", "1e308", "2.5")]
    parts += ["om.priority is null", "om.priority in (0, 7)", "om.priority not in (0, 7)", "om.priority * 2 > 1"]
    parts += [f"om.abort_count {sign} 2" for sign in SIGNS] + ["om.abort_count > 1.5", "om.abort_count / 0 is null"]
    parts += [f"count(select null {FROM}) = 0", f"count(select om {FROM} where o.id > 3) = 1"]
    parts += ["om.message_type = 'OrderMessage'", "om.message_type < 'P' and om.mid > '1'", "hour(om.enqueued_at) = 3"]
    compare(databases, ORDERS, messages, [query.compile(f"select om {FROM} where {part}", ORDERS) for part in parts])


def test_quotes_and_semicolons_are_harmless(databases: dict[str, Database]) -> None:
    """In values they are bound, and from names only letters are taken."""
    hostile = [
        "it's",
        "'; DROP TABLE q1; --",
        '"',
        ":v0",
        "%s",
        "%(v0)s",
        "$1",
        "\\",
        "\\'",
        "?",
        "a:b",
        "::text",
        "{in x}",
        "{now}",
    ]
    names = ["order", "select", "_v0", "where", "CamelCase", "camelcase"]  # schemas take no other signs
    schema = t.Schema("hostile", t.Tuple(tuple(t.Field(name, t.STRING) for name in names)))
    messages = [dict.fromkeys(names, text) for text in hostile]
    quoted = [text.replace("'", "''") for text in hostile]
    texts = [f"\"{name}\" = '{text}'" for name in names for text in quoted]
    texts += [f"\"order\" like '%{text.replace('%', '')}%'" for text in quoted]
    texts += [f"\"order\" in ('{text}', 'x')" for text in quoted] + [
        f"starts_with(\"order\", '{text}')" for text in quoted
    ]
    texts += [f"\"order\" || '{text}'" for text in quoted]
    compare(databases, schema, messages, asked_of(texts, schema))


def test_orders_sort_as_the_reference_does(databases: dict[str, Database]) -> None:
    messages = orders(60)
    texts = [
        f"count(select ol.item {FROM}, o.lines ol) desc, id",
        "name, date desc, id",
        "name desc",
        "sum(lines, price) desc, count(lines)",
        "max(lines, price), min(lines, line_no) desc",
        "any(lines, price > 1) desc, any(lines, price < 0), name",
        f"select om {FROM} order by om.priority desc, om.abort_count, om.mid desc",
        f"select om {FROM} order by om.enqueued_at desc, o.name",
        f"select o.name, o.date {FROM}",
    ]
    for database in databases.values():
        held = database.holding(ORDERS, messages)
        for text in texts:
            order = query.ordering(text, ORDERS)
            expected = sorted(range(60), key=lambda place: order.key(messages[place], held.headers[place]))
            assert held.order(order.keys) == expected, f"{text} on {database.dialect}"


def test_an_index_is_used(databases: dict[str, Database]) -> None:
    messages = orders(500)
    for database in databases.values():
        held = database.holding(ORDERS, messages)
        root = held.tables.root
        for text in ("name = 'Smith'", "name like 'Sm%'", "date > date '2024-01-27'", "name in ('x', 'y')"):
            made = sql.compile(query.compile(text, ORDERS).root, held.tables, database.dialect)
            select = f"SELECT q.mid FROM {held.source} WHERE {made.text}"
            if database.dialect == "sqlite":
                plan = str(database.ask(f"EXPLAIN QUERY PLAN {select}", made.values))
            else:
                database.run("SET enable_seqscan = off")
                plan = str(database.ask(f"EXPLAIN {select}", made.values))
                database.run("SET enable_seqscan = on")
            assert f"{root.name}_c{1 if 'date' in text else 2}" in plan, plan


def test_a_quantifier_is_a_join(databases: dict[str, Database]) -> None:
    held = databases["postgresql"].holding(ORDERS, orders(500))
    made = sql.compile(query.compile("any(lines, price > 10) and id > 3", ORDERS).root, held.tables, "postgresql")
    plan = str(held.database.ask(f"EXPLAIN SELECT q.mid FROM {held.source} WHERE {made.text}", made.values))
    assert "SubPlan" not in plan, plan
