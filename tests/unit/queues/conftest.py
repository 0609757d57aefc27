"""Queues to test: each test that takes `queues` runs over SQLite and over PostgreSQL, without a broker."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

import milepost.queues.execution  # noqa: F401
from milepost.batch import Batch
from milepost.errors import MilepostError
from milepost.operations import queues as ops
from milepost.operations import steps
from milepost.query import parse_schema
from milepost.queues.upkeep import SWEPT_QUEUES
from milepost.storage import Store, open_store
from milepost.storage.execution import POSTPONED
from tests.conftest import Server

LEASE_US = 600_000_000  # by PostgreSQL's own clock: tests end leases, and nothing that a busy core keeps waiting should
NOTE = parse_schema("note: [text: string, size: int?]")
ORDERS = """DEFINE MESSAGETYPE OrderMessage;
NODE order; id: IDENT; date: DATE; name: STRING; lines: REFERENCE TO order_line; END;
NODE order_line; line_no: INTEGER; amount: INTEGER; price: REAL; item: REFERENCE TO item; END;
NODE item; id: IDENT; name: STRING; ean: INTEGER; END;
ROOT order;
END;"""


class Party:
    """A client, one transaction at a time."""

    def __init__(self, queues: Queues, store: Store, s: int) -> None:
        self.queues = queues
        self.store = store
        self.s = s
        self.instance = os.urandom(16)
        self.client = 1
        self.number = 0

    def perform(self, *given: Any) -> Any:
        transaction = steps.TransactionOwner(self.number, self.s, self.instance, self.client, LEASE_US)
        done = self.queues.do(ops.Perform(transaction, given), self.store)
        self.number = done.number
        return done.outcomes[-1] if given else None

    def enqueue(self, *texts: str, queue: str = "notes", **options: Any) -> list[int]:
        batch = Batch.encode(NOTE, [{"text": text, "size": len(text)} for text in texts])
        done = self.perform(steps.Enqueue(queue, batch, **options))
        return list(done.mids)

    def dequeue(self, count: int = 1, queue: str = "notes", **criteria: Any) -> list[str]:
        got = self.perform(steps.Dequeue(queue, count=count, **criteria))
        return [row["text"] for group in got.groups for row in group.batch.to_pylist()]

    def one(self, **criteria: Any) -> str | None:
        found = self.dequeue(**criteria)
        return found[0] if found else None

    def commit(self, **what: Any) -> Any:
        done = self.perform(steps.Commit(**what))
        self.over()
        return done

    def abort(self) -> Any:
        done = self.perform(steps.Abort())
        self.over()
        return done

    def over(self) -> None:
        self.number = 0
        self.client += 1

    def put(self, *texts: str, **options: Any) -> list[int]:
        """Enqueue and commit."""
        mids = self.enqueue(*texts, **options)
        self.commit()
        return mids


class Queues:
    """A database with one or more brokers on it, and a clock that goes by one microsecond with each write."""

    def __init__(self, url: str, lease_s: float = 20.0) -> None:
        self.url = url
        self.lease_s = lease_s
        self.now = 1_800_000_000_000_000
        self.stores: dict[str, Store] = {}
        self.parties = 0

    @property
    def shared(self) -> bool:
        return self.url.startswith("postgresql")

    def store(self, broker: str = "one") -> Store:
        if broker not in self.stores:
            self.stores[broker] = open_store(
                self.url, broker=broker, broker_id=9, time_us=self.now, lease_s=self.lease_s, remember_s=10.0
            )
            self.do(ops.Recover(), self.stores[broker])
        return self.stores[broker]

    def do(self, operation: Any, store: Store | None = None) -> Any:
        """The outcome of one operation; raised when it is an error."""
        (outcome,) = self.together([operation], store)
        if isinstance(outcome, MilepostError):
            raise outcome
        return outcome

    def together(self, operations: Sequence[Any], store: Store | None = None) -> list[Any]:
        """The outcomes of operations in one write. A slow machine postpones the last ones: the next write has them."""
        store = store or self.store()
        outcomes: list[Any] = []
        while len(outcomes) < len(operations):
            self.now += 1
            found = store.write(operations[len(outcomes) :], self.now).outcomes
            outcomes += takewhile(lambda each: each is not POSTPONED, found)
        return outcomes

    def notes(self, level: str = "none", name: str = "notes", **options: Any) -> None:
        self.do(ops.DeclareType(str(NOTE)))
        self.do(ops.DeclareQueue(name, ("note",), level, **options))

    def party(self, broker: str = "one") -> Party:
        self.parties += 1
        return Party(self, self.store(broker), self.parties)

    def sweep(self) -> None:
        """Sweep until each queue has had its turn."""
        for _ in range(len(self.do(ops.Queues())) // SWEPT_QUEUES + 1):
            self.do(ops.Sweep())

    def figures(self, name: str = "notes") -> dict[str, int]:
        (record,) = self.do(ops.Queues(name))
        return {key: value for key, value in record.statistics.items() if value and key != "oldest_us"}

    def texts(self, name: str = "notes") -> list[str]:
        """What is committed and nobody's, by number."""
        got = self.do(ops.Browse(name, count=100_000))
        return [row["text"] for group in got.groups for row in group.batch.to_pylist()]

    def tables(self) -> dict[str, int]:
        """How many rows each table of messages has, if any: what is left behind shows here."""
        found = {}
        with self.store()._database.reading() as session:
            names = (
                "SELECT tablename FROM pg_tables WHERE schemaname = 'milepost'"
                if self.shared
                else "SELECT name FROM sqlite_master WHERE type = 'table'"
            )
            for (name,) in session.connection.exec_driver_sql(names).fetchall():
                if name.startswith(("q", "mt")) and name not in ("queues", "queue_types", "queue_accepts"):
                    count = session.connection.exec_driver_sql(f"SELECT count(*) FROM {name}").scalar_one()
                    if count and name not in ("queue_catalogue", "queue_transactions"):
                        found[name] = count
        return found

    def restart(self, broker: str = "one") -> None:
        """The broker ends without a word, and starts again."""
        self.stores.pop(broker).close()
        self.store(broker)

    def close(self) -> None:
        for store in self.stores.values():
            store.close()


@pytest.fixture(scope="session")
def lasting_database(postgresql_server: Server) -> Iterator[str]:
    """A database that is emptied between tests, which takes a tenth of the time of a new one."""
    url = postgresql_server.database()
    yield url
    postgresql_server.drop(url)


@pytest.fixture
def emptied_database(lasting_database: str) -> Iterator[str]:
    yield lasting_database
    import psycopg

    with psycopg.connect(lasting_database, autocommit=True) as connection:
        connection.execute("SET client_min_messages = warning")
        connection.execute("DROP SCHEMA IF EXISTS milepost CASCADE")


@pytest.fixture(params=["sqlite", "postgresql"])
def queues(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Queues]:
    sqlite = request.param == "sqlite"
    made = Queues(str(tmp_path / "store.db") if sqlite else request.getfixturevalue("emptied_database"))
    yield made
    made.close()


@pytest.fixture
def shared(emptied_database: str) -> Iterator[Queues]:
    made = Queues(emptied_database)
    yield made
    made.close()
