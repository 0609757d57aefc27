"""The databases hold what the reference says, for generated expressions and awkward data.

A round trip costs more than what it asks, so each test puts its messages into tables once and asks many expressions in
one SELECT. Everything random comes from a seed that is in the name of the test.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import hypothesis
import psycopg
import pytest
from hypothesis import strategies as st
from sqlalchemy.dialects import postgresql as postgresql_dialects
from sqlalchemy.dialects import sqlite as sqlite_dialects

from milepost import query
from milepost.errors import QueryError, QueryTypeError, SchemaError
from milepost.query import kinds, sql, typed
from milepost.query.sql import functions
from milepost.query.sql.value import Dialect
from milepost.queues import physical, rows
from milepost.schema import types as t
from milepost.schema.text import parse
from milepost.storage.statement import Statement
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
        self._sqlalchemy: Any = (
            sqlite_dialects.dialect(paramstyle="named")
            if dialect == "sqlite"
            else postgresql_dialects.psycopg.dialect()
        )
        self._schemas = 0

    def run(self, text: str, values: Any = ()) -> list[tuple[Any, ...]]:
        cursor = self._connection.cursor()
        cursor.execute(text, values)
        return cursor.fetchall() if cursor.description else []

    def ask(self, text: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        return self.run(Statement(text).of(self._sqlalchemy), dict(values))

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
            if not columns[0]:
                continue
            cursor = self._connection.cursor()
            if self.dialect == "sqlite":
                cursor.executemany(rows.insert(table, "sqlite"), zip(*columns, strict=True))
            else:
                cursor.execute(rows.insert(table, "postgresql"), [physical.array(each) for each in columns])


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
