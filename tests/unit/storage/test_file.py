"""The file of a SQLite store, and what becomes of it while a broker has it open."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from milepost.errors import StoreUnavailable
from milepost.operations import Append, Appended, Part
from milepost.storage import Store, sqlite
from tests.unit.storage.conftest import Rig, rows


@pytest.fixture(autouse=True)
def looks_at_each_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not at most a hundred times a second."""
    monkeypatch.setattr(sqlite, "LOOK_S", 0.0)


def names(rig: Rig) -> list[Path]:
    path = Path(rig.url)
    return [path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")]


def deleted(rig: Rig) -> None:
    for path in names(rig):
        path.unlink()


def only_the_file_deleted(rig: Rig) -> None:
    names(rig)[0].unlink()


def moved(rig: Rig) -> None:
    for path in names(rig):
        path.rename(f"{path}.elsewhere")


def replaced_by_a_copy(rig: Rig) -> None:
    path = names(rig)[0]
    shutil.copy(path, f"{path}.copy")
    Path(f"{path}.copy").replace(path)


def filled(rig: Rig) -> tuple[Store, int, int]:
    store = rig.open()
    topic, publisher = rig.topic(store), rig.enrol(store)
    rig.append(store, topic, publisher, [1])
    return store, topic, publisher


@pytest.mark.parametrize("happens", [deleted, only_the_file_deleted, moved, replaced_by_a_copy])
def test_nothing_is_acknowledged_that_nobody_will_find(
    sqlite_rig: Rig, happens: Callable[[Rig], None], caplog: pytest.LogCaptureFixture
) -> None:
    rig = sqlite_rig
    store, topic, publisher = filled(rig)
    happens(rig)
    for stamp in (2, 3, 4):
        with pytest.raises(StoreUnavailable):
            rig.append(store, topic, publisher, [stamp])
    with pytest.raises(StoreUnavailable, match="moved, deleted or replaced"):
        store.maintain(rig.now)
    assert len([record for record in caplog.records if "moved, deleted or replaced" in record.message]) == 1
    assert not names(rig)[0].exists() or happens is replaced_by_a_copy  # no new one is made in its place


def test_readers_do_not_read_another_file(sqlite_rig: Rig) -> None:
    rig = sqlite_rig
    store, topic, _ = filled(rig)
    replaced_by_a_copy(rig)
    with pytest.raises(StoreUnavailable):  # what a pool has open is the right one; a new connection would not be
        store.read(topic, store.log, 0)


def test_a_file_that_is_put_back_goes_on(sqlite_rig: Rig) -> None:
    """What was committed meanwhile is there, and once: it was only not known."""
    rig = sqlite_rig
    store, topic, publisher = filled(rig)
    moved(rig)
    doubtful = Append(publisher, (Part(topic, rows(publisher, [2])),))
    with pytest.raises(StoreUnavailable):
        store.write([doubtful], rig.now)
    for path in names(rig):
        if (there := Path(f"{path}.elsewhere")).exists():
            there.rename(path)
    assert rig.append(store, topic, publisher, [2]) == Appended(0, 1)  # it is known to be stored
    assert rig.append(store, topic, publisher, [3]) == Appended(1, 0)
    assert [row[2] for row in rig.contents(store, topic)] == [1, 2, 3]
    store.close()
    assert [row[2] for row in rig.contents(rig.open(), topic)] == [1, 2, 3]


@pytest.mark.parametrize("reading", [False, True])
def test_a_write_ahead_log_that_is_deleted_loses_nothing(sqlite_rig: Rig, reading: bool) -> None:
    rig = sqlite_rig
    store, topic, publisher = filled(rig)
    if reading:
        rig.contents(store, topic)  # the pool has a connection, so that the writer's is not the last
    for path in names(rig)[1:]:
        path.unlink()
    for stamp in (2, 3):
        assert rig.append(store, topic, publisher, [stamp]) == Appended(1, 0)
    assert [row[2] for row in rig.contents(store, topic)] == [1, 2, 3]
    store.close()
    assert [row[2] for row in rig.contents(rig.open(), topic)] == [1, 2, 3]
