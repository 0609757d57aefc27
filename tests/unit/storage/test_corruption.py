"""Damage: it is found and reported, and nothing is read in the place of what was written."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from milepost.errors import CorruptLog, StoreError
from milepost.operations import Trim
from milepost.storage import Store
from tests.unit.storage.conftest import Rig

ROWS = 10


def filled(rig: Rig) -> tuple[Store, int, int]:
    """A store with two topics, of five entries each."""
    store = rig.open()
    one, two = rig.topic(store, "one"), rig.topic(store, "two")
    publisher = rig.enrol(store)
    stamp = 1
    for _ in range(5):
        for topic in (one, two):
            rig.append(store, topic, publisher, range(stamp, stamp + ROWS), size=300)
            stamp += ROWS
    return store, one, two


DAMAGES = {
    "a byte of a value": "data = ?",
    "cut off": "data = ?",
    "emptied": "data = ?",
    "another number of rows": "rows = 9",
    "rows that were never there": "rows = 11",
    "another offset": "first = first + 1",
    "another seal": "seal = seal + 1",
}


@pytest.mark.parametrize("damage", [*DAMAGES, "removed"])
def test_a_damaged_entry_is_reported(rig: Rig, damage: str) -> None:
    store, one, two = filled(rig)
    ((data,),) = rig.sql("SELECT data FROM entries WHERE topic = ? AND first = 20", one)
    where = "topic = ? AND first = 20"
    if damage == "removed":
        rig.sql(f"DELETE FROM entries WHERE {where}", one)
    elif "?" in DAMAGES[damage]:
        data = bytes(data)
        changed = {
            "a byte of a value": data[:500] + bytes([data[500] ^ 1]) + data[501:],
            "cut off": data[:-7],
            "emptied": b"",
        }[damage]
        rig.sql(f"UPDATE entries SET data = ? WHERE {where}", changed, one)
    else:
        rig.sql(f"UPDATE entries SET {DAMAGES[damage]} WHERE {where}", one)
    for offset in (0, 15, 20, 25):
        with pytest.raises(CorruptLog, match=rf"topic {one}, log {store.log}, offset 2\d.*milepost topic trim"):
            store.read(one, store.log, offset)
    with pytest.raises(CorruptLog):
        store.read(one, store.log, 25, max_rows=1)
    assert [entry.first for entry in store.read(one, store.log, 0, max_rows=15)] == [0, 10]
    if damage != "rows that were never there":
        assert [entry.first for entry in store.read(one, store.log, 30)] == [30, 40]
    # Other topics go on, and so does upkeep.
    assert len(rig.contents(store, two)) == 50
    rig.maintain(store)
    with pytest.raises(CorruptLog):
        rig.contents(store, one)
    # An operator gives the rows up.
    assert rig.do(store, Trim(one, {store.log: 30})) == 30
    rig.maintain(store)
    assert [row[0] for row in rig.contents(store, one)] == list(range(30, 50))


def test_damage_is_not_joined_away(rig: Rig) -> None:
    store = rig.open()
    topic, publisher = rig.topic(store), rig.enrol(store)
    for stamp in range(1, 101):
        rig.append(store, topic, publisher, [stamp])
    rig.sql("UPDATE entries SET data = ? WHERE topic = ? AND first = 50", b"x" * 100, topic)
    rig.maintain(store)
    assert store.extents(topic)[topic][store.log].entries < 100
    assert store.read(topic, store.log, 0, max_rows=1)[0].rows == 50
    with pytest.raises(CorruptLog, match="offset 50"):
        rig.contents(store, topic)
    assert store.read(topic, store.log, 51)[0].first == 51


@pytest.mark.parametrize("fill", [0, None])
def test_a_damaged_page_is_never_read_as_rows(sqlite_rig: Rig, fill: int | None) -> None:
    """Each page of the file in turn, in zeros or in noise: what is read is what was written, or an error."""
    store, one, two = filled(sqlite_rig)
    wanted = {topic: sqlite_rig.contents(store, topic) for topic in (one, two)}
    log = store.log
    store.close()
    path = Path(sqlite_rig.url)
    whole = path.read_bytes()
    noise = random.Random(7)
    told = 0
    for start in range(0, len(whole), 4096):
        page = noise.randbytes(4096) if fill is None else bytes(4096)
        path.write_bytes(whole[:start] + page + whole[start + 4096 :])
        try:
            store = sqlite_rig.open()
        except StoreError:
            told += 1
            continue
        for topic in (one, two):
            try:
                assert sqlite_rig.contents(store, topic, log) == wanted[topic], start
            except StoreError:
                told += 1
        store.close()
    assert told > len(whole) // 4096 // 3  # the others are of tables that nothing was written to


def test_a_file_that_was_cut_off(sqlite_rig: Rig) -> None:
    store, one, two = filled(sqlite_rig)
    wanted = {topic: sqlite_rig.contents(store, topic) for topic in (one, two)}
    store.close()
    path = Path(sqlite_rig.url)
    whole = path.read_bytes()
    for keep in (len(whole) - 4096, len(whole) // 2, 5_000):
        path.write_bytes(whole[:keep])
        try:
            store = sqlite_rig.open()
        except StoreError:
            continue
        for topic in (one, two):
            try:
                assert sqlite_rig.contents(store, topic, store.log) == wanted[topic]
            except StoreError:
                pass
        store.close()
