"""Stores to test: each test that takes `rig` runs over SQLite and over PostgreSQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from milepost.batch import Batch, Ids
from milepost.errors import MilepostError, StoreUnavailable
from milepost.operations import Append, Enrol, MakeTopic, Operation, Part, Retention
from milepost.query import parse_schema
from milepost.storage import Store, open_store
from milepost.storage.execution import Committed

TEXT = "quote: [symbol: string, number: long]"
SCHEMA = parse_schema(TEXT)
NEWER = "quote: [symbol: string, number: long, note: string?]"
KEEP = Retention(None, None, True)


def rows(publisher: int, stamps: Sequence[int], schema: Any = SCHEMA, size: int = 3) -> Batch:
    """Rows whose `number` is their stamp."""
    values = [{"symbol": "x" * size, "number": stamp} for stamp in stamps]
    return Batch.encode(schema, values, Ids.single(publisher, 9, list(stamps)))


class Rig:
    """A database, stores opened on it, and a clock that goes by one microsecond with each write."""

    LEASE_S = 2.0

    def __init__(self, url: str) -> None:
        self.url = url
        self.now = 1_000_000
        self.stores: list[Store] = []

    @property
    def shared(self) -> bool:
        return self.url.startswith("postgresql")

    def open(self, broker: str = "one", **options: Any) -> Store:
        given = {"broker_id": 9, "time_us": self.now, "lease_s": self.LEASE_S, "remember_s": 10.0, **options}
        store = open_store(self.url, broker=broker, **given)
        self.stores.append(store)
        return store

    def write(self, store: Store, *operations: Operation) -> Committed:
        self.now += 1
        return store.write(operations, self.now)

    def do(self, store: Store, operation: Operation) -> Any:
        """The outcome of one operation; raised when it is an error."""
        (outcome,) = self.write(store, operation).outcomes
        if isinstance(outcome, MilepostError):
            raise outcome
        return outcome

    def topic(self, store: Store, name: str = "quotes", retention: Retention = KEEP) -> int:
        return int(self.do(store, MakeTopic(name, (TEXT,), "drop", retention)).topic.topic)

    def enrol(self, store: Store, key: str = "feed", number: int = 5) -> int:
        return int(self.do(store, Enrol(key, number)).number)

    def append(self, store: Store, topic: int, publisher: int, stamps: Sequence[int], **options: Any) -> Any:
        token = options.pop("token", b"")
        return self.do(store, Append(publisher, (Part(topic, rows(publisher, stamps, **options)),), token))

    def maintain(self, store: Store, time_us: int | None = None) -> int:
        """All upkeep there is; the number of steps."""
        steps = 1
        while store.maintain(self.now if time_us is None else time_us):
            steps += 1
            assert steps < 100_000
        return steps

    def contents(self, store: Store, topic: int, log: int | None = None, **options: Any) -> list[tuple[int, int, int]]:
        """(offset, publisher, stamp) of every row, read from the start; each entry is decoded."""
        log = store.log if log is None else log
        found: list[tuple[int, int, int]] = []
        offset = 0
        while entries := store.read(topic, log, offset, **options):
            for entry in entries:
                batch = Batch.decode(entry.data, SCHEMA)
                assert len(batch) == entry.rows
                for row, number in enumerate(batch.column("number").tolist()):
                    assert batch.ids is not None
                    identity = batch.ids[row]
                    assert identity.stamp == number
                    if entry.first + row >= offset:
                        found.append((entry.first + row, identity.publisher, identity.stamp))
                offset = entry.first + entry.rows
        return found

    def sql(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement behind the store's back; values are written `?`."""
        if self.shared:
            with psycopg.connect(self.url, autocommit=True, options="-c search_path=milepost") as connection:
                cursor = connection.execute(text.replace("?", "%s").encode(), values)
                return cursor.fetchall() if cursor.description else []
        behind = sqlite3.connect(self.url, isolation_level=None)
        try:
            return behind.execute(text, values).fetchall()
        finally:
            behind.close()

    def back(self, store: Store) -> None:
        """Wait until a store has noticed that its database is back."""
        while True:
            try:
                store.pulse()
                return
            except StoreUnavailable:
                pass

    def close(self) -> None:
        for store in self.stores:
            store.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    made = Rig(str(tmp_path / "store.db") if request.param == "sqlite" else request.getfixturevalue("postgresql"))
    yield made
    made.close()


@pytest.fixture
def sqlite_rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(str(tmp_path / "store.db"))
    yield made
    made.close()


@pytest.fixture
def postgresql_rig(postgresql: str) -> Iterator[Rig]:
    made = Rig(postgresql)
    yield made
    made.close()
