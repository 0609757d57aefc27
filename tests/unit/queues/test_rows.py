"""Batches as rows of tables: what goes in comes out, on both databases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from milepost.batch import Batch
from milepost.batch.block import OFFSET
from milepost.batch.columns import Columns, pack_bits
from milepost.batch.format import format_of
from milepost.errors import CorruptLog, InvalidValue
from milepost.query.sql.tables import Tables
from milepost.queues import rows
from milepost.schema import types as t
from milepost.schema.text import parse
from milepost.storage import faults
from milepost.storage.database import Session
from milepost.storage.postgresql import Postgresql
from milepost.storage.sqlite import Sqlite
from milepost.storage.url import parsed
from tests import strategies
from tests.conftest import Server

SHOP = parse(
    """
    DEFINE MESSAGETYPE OrderMessage;
    NODE order; id: IDENT; name: STRING?; lines: REFERENCE TO line; END;
    NODE line; amount: INTEGER; price: DECIMAL(38,2); item: REFERENCE TO item; order: REFERENCE TO order; END;
    NODE item; name: STRING; END;
    ROOT order;
    END;
    """
)
NESTED = parse("m: [a: [b: int, tags: *(string)*?]?, legs: *([price: double, parts: *([n: long])*])*]")
DIALECTS = ["sqlite", "postgresql"]


@pytest.fixture(scope="module")
def postgresql_session(postgresql_server: Server) -> Iterator[Session]:
    url = postgresql_server.database()
    database = Postgresql(parsed(url), 10.0)
    session = database.write()
    session.say("CREATE SCHEMA IF NOT EXISTS milepost")
    yield session
    session.discard()
    database.close()
    postgresql_server.drop(url)


@pytest.fixture(scope="module")
def sqlite_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    folder: Path = tmp_path_factory.mktemp("rows")
    database = Sqlite(parsed(f"sqlite:///{folder}/store.db"))
    session = database.write()
    yield session
    session.discard()
    database.close()


@pytest.fixture(params=DIALECTS)
def session(request: pytest.FixtureRequest) -> Iterator[Session]:
    """Within a transaction that is undone: its tables go with it."""
    made: Session = request.getfixturevalue(f"{request.param}_session")
    made.say("BEGIN")
    yield made
    made.roll_back()


NUMBERS = count(7)  # of types: a store never gives one twice, and statements about them stay prepared


def made(session: Session, schema: t.Schema, number: int | None = None) -> Tables:
    tables = Tables(schema, next(NUMBERS) if number is None else number)
    for text in tables.create(session.connection.dialect.name):
        session.say(text)
    return tables


def same(a: Batch, b: Batch) -> bool:
    """Equal in every value and every position; two NaNs may differ in bits that mean nothing."""
    return strategies.identical(a._flat_pylist(), b._flat_pylist())


def scrubbed(value: Any, seen: set[int]) -> Any:
    """The same without U+0000, which queues do not take; graphs may be cyclic."""
    if isinstance(value, str):
        return value.replace("\0", "0")
    if isinstance(value, dict | list) and id(value) not in seen:
        seen.add(id(value))
        for key in value if isinstance(value, dict) else range(len(value)):
            value[key] = scrubbed(value[key], seen)
    return value


@st.composite
def queue_schemas(draw: st.DrawFn) -> t.Schema:
    """What a queue may hold: no variants, no recursion, and a tuple between two lists."""
    schema = draw(strategies.schemas(variants=False, dynamic=False, recursion=False, max_depth=4))

    def bare(kind: t.Type) -> t.Type:
        while isinstance(kind, t.Ref | t.Optional):
            kind = schema.resolve(kind) if isinstance(kind, t.Ref) else kind.type
        return kind

    def apart(kind: t.Type) -> t.Type:
        match kind:
            case t.Tuple(fields):
                return t.Tuple(tuple(t.Field(item.name, apart(item.type)) for item in fields))
            case t.Optional(inner):
                return t.Optional(apart(inner))
            case t.List(item):
                inside = apart(item)
                return t.List(t.Tuple((t.Field("inside", inside),)) if isinstance(bare(item), t.List) else inside)
        return kind

    definitions = tuple(t.Field(item.name, apart(item.type)) for item in schema.definitions)
    made = t.Schema(schema.name, apart(schema.type), definitions)
    return replace(made, indexes=draw(strategies.some_of(strategies.indexable(made))))


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    if draw(st.booleans()):
        message_type = draw(strategies.message_types(indexes=True))
        graphs = draw(st.lists(strategies.graphs(message_type), max_size=4))
        return Batch.encode(message_type.schema, scrubbed(graphs, set()))
    schema = draw(queue_schemas())
    return Batch.encode(schema, scrubbed(draw(st.lists(strategies.values(schema), max_size=4)), set()))


@settings(suppress_health_check=[*HealthCheck])
@given(st.data(), batches())
@pytest.mark.parametrize("dialect", DIALECTS)
def test_batches_come_back_from_the_database(
    request: pytest.FixtureRequest, dialect: str, data: st.DataObject, batch: Batch
) -> None:
    session: Session = request.getfixturevalue(f"{dialect}_session")
    mids = data.draw(st.lists(st.integers(0, 2**63 - 1), unique=True, min_size=len(batch), max_size=len(batch)))
    order = data.draw(st.permutations(range(len(batch))))
    gone = order[: len(order) // 2]
    session.say("BEGIN")
    try:
        tables = made(session, batch.schema)
        rows.store(session, batch, tables, mids)
        found = rows.load(session, batch.schema, tables, [mids[row] for row in order])
        assert same(found, batch.take(order))
        Batch.decode(bytes(found), batch.schema)
        rows.remove(session, tables, [mids[row] for row in gone])
        left = order[len(gone) :]
        assert same(rows.load(session, batch.schema, tables, [mids[row] for row in left]), batch.take(left))
        rows.remove(session, tables, mids)
        session.settle()
        counts = [session.connection.exec_driver_sql(f"SELECT count(*) FROM {table.name}") for table in tables.all]
        assert not any(count.scalar_one() for count in counts)
    finally:
        session.roll_back()


@given(st.data(), batches(), st.sampled_from(DIALECTS))
def test_rows_may_come_in_any_order(data: st.DataObject, batch: Batch, dialect: str) -> None:
    tables = Tables(batch.schema, 7)
    mids = list(range(len(batch)))
    columns = rows.pour(batch, tables, mids, dialect)
    assert [table for table, _ in columns] == list(tables.all)
    found = {table.name: data.draw(st.permutations(list(zip(*values, strict=True)))) for table, values in columns}
    assert same(rows.gather(batch.schema, tables, mids, found, dialect), batch)


def poured(batch: Batch, tables: Tables, mids: list[int]) -> dict[tuple[str, ...], list[tuple[Any, ...]]]:
    """The rows for SQLite, by the tables' paths."""
    return {table.path: list(zip(*columns, strict=True)) for table, columns in rows.pour(batch, tables, mids, "sqlite")}


def test_positions_count_within_a_message_and_owners_are_positions() -> None:
    legs = [
        {"price": 1.0, "parts": [{"n": 1}, {"n": 2}]},
        {"price": 2.0, "parts": []},
        {"price": 3.0, "parts": [{"n": 3}]},
    ]
    batch = Batch.encode(
        NESTED,
        [{"a": None, "legs": legs}, {"a": {"b": 5, "tags": ["x"]}, "legs": legs[2:]}, {"a": {"b": 6}, "legs": []}],
    )
    tables = Tables(NESTED, 7)
    found = {
        table.path: list(zip(*columns, strict=True)) for table, columns in rows.pour(batch, tables, [5, 3, 9], "sqlite")
    }
    assert found[()] == [(5, 0, None, 0), (3, 1, 5, 1), (9, 1, 6, 0)]  # whether `a` is there, b, whether tags are
    assert found["a", "tags"] == [(3, 0, "x")]
    assert found["legs",] == [(5, 0, 1.0), (5, 1, 2.0), (5, 2, 3.0), (3, 0, 3.0)]
    assert found["legs", "parts"] == [(5, 0, 0, 1), (5, 1, 0, 2), (5, 2, 2, 3), (3, 0, 0, 3)]


def test_values_are_what_the_tables_say() -> None:
    schema = parse(
        "m: [t: bool, u: uint64, d: date, at: timestamp, id: uuid, x: double, short: decimal(4,2), long: decimal(38,1)]"
    )
    key = UUID(int=258)
    value = {
        "t": True, "u": 1, "d": date(1970, 1, 3), "at": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "id": key,
        "x": float("nan"), "short": Decimal("-1.5"), "long": Decimal("-0.1"),
    }  # fmt: skip
    batch = Batch.encode(schema, [value])
    tables = Tables(schema, 7)
    ((_, columns),) = rows.pour(batch, tables, [4], "sqlite")
    above = "0" + "9" * 38
    assert [column[0] for column in columns] == [4, 1, 1 - 2**63, 2, 1_000_000, key.bytes, "NaN", -150, above]
    assert type(columns[1][0]) is int
    ((_, columns),) = rows.pour(batch, tables, [4], "postgresql")
    assert columns[1] == [True]
    assert type(columns[1][0]) is bool
    assert columns[6][0] != columns[6][0]
    assert columns[7:] == [[Decimal("-1.50")], [Decimal("-0.1")]]


def test_text_survives_the_arrays(session: Session) -> None:
    schema = parse("m: [a: string, b: string?, c: bytes?]")
    texts = ["", '"', "\\", '\\"', ",", "{}", "NULL", "null", " x ", "\n\t", "'", "%s", "$1", "ä😀", "\\x41", "\x7f"]
    values = [{"a": text, "b": text, "c": text.encode()} for text in texts] + [{"a": "last", "b": None, "c": None}]
    batch = Batch.encode(schema, values)
    tables = made(session, schema)
    rows.store(session, batch, tables, range(len(batch)))
    assert rows.load(session, schema, tables, range(len(batch))) == batch


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_character_nul_is_refused_with_its_place(dialect: str) -> None:
    ink, pen = {"name": "ink"}, {"name": "p\0n"}
    line = {"amount": 1, "price": 1, "item": [ink], "order": []}
    orders = [{"id": 1, "lines": [line, line]}, {"id": 2, "lines": [line, line | {"item": [ink, pen]}]}]
    with pytest.raises(InvalidValue, match=r"row 1, item\[\]\.name: .*U\+0000") as caught:
        rows.pour(Batch.encode(SHOP, orders), Tables(SHOP, 7), [1, 2], dialect)
    assert (caught.value.row, caught.value.path) == (1, "item[].name")
    top = parse("m: [a: string?, b: string]")
    values = [{"b": "x"}, {"a": "ok", "b": "x"}, {"a": "\0", "b": "\0"}]
    with pytest.raises(InvalidValue, match=r"row 2, a: "):
        rows.pour(Batch.encode(top, values), Tables(top, 7), [1, 2, 3], dialect)


def test_a_value_too_long_for_its_index_is_refused_with_its_place(session: Session) -> None:
    schema = parse("m: [a: string?, free: string, tags: *(bytes)*] index (a) index (tags)")
    most = rows.INDEXED_BYTES
    noise = np.random.default_rng(1).bytes(most)  # a database might make less of what repeats itself
    text = "ä" + noise.hex()[: most - 2]
    fits = {"a": text, "free": 2 * text, "tags": [noise]}
    tables = made(session, schema)
    batch = Batch.encode(schema, [fits, {"free": "", "tags": [b""]}])
    rows.store(session, batch, tables, [1, 2])
    assert rows.load(session, schema, tables, [1, 2]) == batch
    for name, change in {"a": {"a": text + "x"}, "tags[]": {"tags": [b"", noise + b"x"]}}.items():
        with pytest.raises(InvalidValue, match=f"up to {most} bytes") as caught:
            rows.store(session, Batch.encode(schema, [fits, fits | change]), tables, [3, 4])
        assert (caught.value.row, caught.value.path) == (1, name)


def test_what_an_absent_list_hides_is_not_stored() -> None:
    schema = parse("m: [a: *([n: int])*?]")
    form = format_of(schema)
    columns = Columns(form.layout(), 2)
    columns.bits[0] = pack_bits([False, True])
    below = Columns(form.layout().items[0], 3)
    below.fixed[0] = np.array([1, 2, 3], np.int32)
    columns.lists[0] = np.array([0, 2, 3], OFFSET), below
    batch = Batch.decode(bytes(Batch.assemble(form, 2, {0: (columns, None)}, None)), schema)
    assert batch.to_pylist() == [{"a": None}, {"a": [{"n": 3}]}]
    tables = Tables(schema, 7)
    (_, top), (_, items) = rows.pour(batch, tables, [8, 9], "sqlite")
    assert top == [[8, 9], [0, 1]]
    assert items == [[9], [0], [3]]


def test_a_batch_of_another_version_or_another_length_is_refused() -> None:
    batch = Batch.encode(parse("m: [a: int]"), [{"a": 1}])
    with pytest.raises(InvalidValue, match="another version"):
        rows.pour(batch, Tables(parse("m: [a: int, b: int?]"), 7), [1], "sqlite")
    with pytest.raises(InvalidValue, match="2 numbers for 1 rows"):
        rows.pour(batch, Tables(batch.schema, 7), [1, 2], "sqlite")


def test_checks_and_indexes_do_not_make_another_version() -> None:
    batch = Batch.encode(parse("m: [a: int]"), [{"a": 1}])
    other = parse("m: [a: int] index (a) check (a > 0)")
    ((table, columns),) = rows.pour(batch, Tables(other, 7), [5], "sqlite")
    assert columns == [[5], [1]]
    assert rows.gather(other, Tables(other, 7), [5], {table.name: [(5, 1)]}, "sqlite").schema == other


Found = list[tuple[Any, ...]]
SPOILED: dict[str, tuple[tuple[str, ...], Callable[[Found], Found]]] = {
    "a root is missing": (("order",), lambda found: found[1:]),
    "a line is missing": (("line",), lambda found: found[1:]),
    "a line is there twice": (("line",), lambda found: [*found, found[0]]),
    "a reference is missing": (("order", "lines"), lambda found: found[1:]),
    "a reference has no owner": (("order", "lines"), lambda found: [*found[:-1], (*found[-1][:2], 99, found[-1][3])]),
    "a reference leads nowhere": (("item",), lambda found: found[:-1]),
    "a row is of another message": (("item",), lambda found: [*found, (77, 0, "pen")]),
}


@pytest.mark.parametrize("what", SPOILED)
def test_tables_that_lack_something_are_found_out(what: str) -> None:
    line = {"amount": 1, "price": 1, "item": [{"name": "ink"}], "order": []}
    batch = Batch.encode(SHOP, [{"id": 1, "lines": [line, dict(line)]}, {"id": 2, "lines": [line]}])
    tables = Tables(SHOP, 7)
    found = poured(batch, tables, [1, 2])

    def gathered() -> Batch:
        return rows.gather(SHOP, tables, [1, 2], {table.name: found[table.path] for table in tables.all}, "sqlite")

    assert gathered() == batch
    path, change = SPOILED[what]
    before = found[path]
    found[path] = change(before)
    assert found[path] != before
    with pytest.raises(CorruptLog):
        gathered()


def test_a_message_that_is_not_there_is_no_empty_message(session: Session) -> None:
    for number, schema in enumerate([SHOP, NESTED]):
        tables = made(session, schema, number)
        assert len(rows.load(session, schema, tables, [])) == 0
        with pytest.raises(CorruptLog):
            rows.load(session, schema, tables, [5])
        rows.remove(session, tables, [5])


def test_a_refusal_in_the_middle_is_the_one_that_is_told(session: Session) -> None:
    items = [{"name": f"item {number}"} for number in range(300)]
    line = {"amount": 1, "price": 1, "item": items, "order": []}
    batch = Batch.encode(SHOP, [{"id": number, "lines": [line]} for number in range(100)])
    tables = made(session, SHOP)
    mids = list(range(100))
    rows.store(session, batch, tables, mids)
    session.say(f"DELETE FROM {tables.root.name}")
    session.say("SAVEPOINT before")
    with pytest.raises(faults.DRIVER_ERRORS) as caught:
        rows.store(session, batch, tables, mids)
        session.settle()
    assert "unique" in str(getattr(caught.value, "orig", caught.value)).lower()
    session.say("ROLLBACK TO SAVEPOINT before")
    rows.remove(session, tables, mids)
    rows.store(session, batch, tables, mids)
    assert rows.load(session, SHOP, tables, mids) == batch


def test_a_refusal_of_the_database_is_one_that_the_store_understands(session: Session) -> None:
    batch = Batch.encode(SHOP, [{"id": 1, "lines": []}])
    tables = made(session, SHOP)
    rows.store(session, batch, tables, [5])
    with pytest.raises(faults.DRIVER_ERRORS) as caught:
        rows.store(session, batch, tables, [5])
        session.settle()
    shared = session.connection.dialect.name == "postgresql"
    assert faults.kind(caught.value) is (faults.FaultKind.AGAIN if shared else faults.FaultKind.REFUSED)
