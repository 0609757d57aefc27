"""Rows out of a log that was written row by row: as out of any other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from milepost.broker.core.topics.topic import Version
from milepost.broker.log_reader import SINGLE, LogReader
from milepost.errors import CorruptLog
from milepost.query import compile
from milepost.storage import Store, lookups
from tests.unit.storage.conftest import SCHEMA, Rig

COUNT = 400


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Rig, Store, int]]:
    """A log of single rows, with one entry of three in the middle."""
    monkeypatch.setattr(lookups, "READ_ENTRIES", SINGLE + 8)  # few, so that a short log has both ways to be read
    monkeypatch.setattr(lookups, "SINGLE_ENTRIES", 100)
    rig = Rig(str(tmp_path / "store.db"))
    store = rig.open()
    topic, publisher = rig.topic(store), rig.enrol(store)
    stamp = 1
    while stamp <= COUNT:
        some = 3 if stamp == 200 else 1
        rig.append(store, topic, publisher, range(stamp, stamp + some), size=stamp % 5)
        stamp += some
    yield rig, store, topic
    rig.close()


def reader(store: Store, topic: int, where: str | None = None) -> LogReader:
    versions = {SCHEMA.fingerprint: (Version(SCHEMA, SCHEMA), None if where is None else compile(where, SCHEMA))}
    return LogReader(store, topic, "quotes", store.log, versions, where is not None)


def numbers(reader: LogReader, offset: int = 0, stop: int | None = None) -> list[int]:
    """The rows; each is at the offset that it is said to be at, and nothing is passed over."""
    found: list[int] = []
    while offset < (COUNT if stop is None else stop):
        for part in reader.read(offset, stop):  # which ends where it likes, when it has taken long
            assert part.start == offset
            offset = part.next
            if part.batch is not None:
                mine = part.batch.column("number").tolist()
                assert [number - 1 for number in mine] == part.offsets.tolist()
                found += mine
    return found


def test_all_rows_and_those_that_match(store: tuple[Rig, Store, int]) -> None:
    _, *log = store
    for offset, stop in ((0, None), (5, None), (199, None), (201, 390), (0, 57), (398, None)):
        wanted = list(range(offset + 1, (COUNT if stop is None else stop) + 1))
        assert numbers(reader(*log), offset, stop) == wanted
        found = numbers(reader(*log, "number % 10 = 3"), offset, stop)
        assert found == [number for number in wanted if number % 10 == 3]


def test_rows_before_damage_are_read_and_then_it_is_told(store: tuple[Rig, Store, int]) -> None:
    rig, *log = store
    rig.sql("UPDATE entries SET data = ? WHERE topic = ? AND first = 150", b"x" * 100, log[1])
    assert numbers(reader(*log), 0, 150) == list(range(1, 151))
    assert reader(*log).read(100)[-1].next <= 150
    with pytest.raises(CorruptLog, match="offset 150"):
        reader(*log).read(150)
