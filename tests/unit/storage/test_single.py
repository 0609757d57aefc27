"""Entries of one row each, read as one: what `read` brings, or nothing."""

from __future__ import annotations

import pytest

from milepost.errors import CorruptLog
from milepost.operations import ChangeTopic, Trim
from milepost.query import parse_schema
from milepost.storage import Store
from milepost.storage.lookups import SINGLE_BYTES, SINGLE_ENTRIES
from tests.unit.storage.conftest import NEWER, Rig

COUNT = 60


@pytest.fixture
def log(rig: Rig) -> tuple[Store, int]:
    """A topic with sixty rows, each in an entry of its own; the texts differ in length, and are not all ASCII."""
    store = rig.open()
    topic, publisher = rig.topic(store), rig.enrol(store)
    for stamp in range(1, COUNT + 1):
        rig.append(store, topic, publisher, [stamp], size=stamp % 7)
    return store, topic


def test_they_are_what_a_read_brings(rig: Rig, log: tuple[Store, int]) -> None:
    store, topic = log
    for offset, most in ((0, None), (0, 7), (17, None), (17, 1), (COUNT - 1, None)):
        plain = store.read(topic, store.log, offset, max_rows=most)
        assert store.read_single(topic, store.log, offset, max_rows=most) == [entry.data for entry in plain]
        assert len(plain) == min(COUNT - offset, most or SINGLE_ENTRIES)
    rig.do(store, Trim(topic, {store.log: 20}))
    assert store.read_single(topic, store.log, 10) == []
    assert len(store.read_single(topic, store.log, 20)) == COUNT - 20
    rig.maintain(store)
    assert store.read_single(topic, store.log, 20) == []  # it is compacted
    assert store.read_single(topic, store.log, COUNT) == []
    assert store.read_single(topic, store.log, COUNT) == []
    assert store.read_single(topic, store.log + 1, 0) == []
    assert store.read_single(topic + 1, store.log, 0) == []


def test_nothing_where_an_entry_is_of_several_rows_or_large_or_of_another_schema(
    rig: Rig, log: tuple[Store, int]
) -> None:
    store, topic = log
    publisher = rig.enrol(store)
    rig.append(store, topic, publisher, [COUNT + 1, COUNT + 2])
    rig.append(store, topic, publisher, [COUNT + 3])
    rig.append(store, topic, publisher, [COUNT + 4], size=SINGLE_BYTES)
    rig.append(store, topic, publisher, [COUNT + 5])
    for offset in (0, COUNT, COUNT + 1, COUNT + 2, COUNT + 3):
        assert store.read_single(topic, store.log, offset) == []
    assert len(store.read_single(topic, store.log, 0, max_rows=COUNT)) == COUNT
    assert len(store.read_single(topic, store.log, COUNT + 4)) == 1
    rig.do(store, ChangeTopic(topic, schema=NEWER))
    rig.append(store, topic, publisher, [COUNT + 6], schema=parse_schema(NEWER))
    assert store.read_single(topic, store.log, COUNT + 4) == []
    assert len(store.read_single(topic, store.log, COUNT + 5)) == 1


DAMAGES = {
    "a byte of a value": "UPDATE entries SET data = ?",
    "cut off": "UPDATE entries SET data = ?",
    "emptied": "UPDATE entries SET data = ?",
    "the data of another": (
        "UPDATE entries SET data = (SELECT data FROM entries AS o WHERE o.topic = entries.topic AND o.first = 26)"
    ),
    "another size": "UPDATE entries SET bytes = bytes + 1",
    "another seal": "UPDATE entries SET seal = seal + 1",
    "another offset": "UPDATE entries SET first = first + 1000",
    "removed": "DELETE FROM entries",
}


def test_nothing_that_is_damaged(rig: Rig) -> None:
    store = rig.open()
    publisher = rig.enrol(store)
    stamp = 0
    for number, (damage, change) in enumerate(DAMAGES.items()):
        topic = rig.topic(store, f"topic{number}")
        for _ in range(30):
            stamp += 1
            rig.append(store, topic, publisher, [stamp])
        ((data,),) = rig.sql("SELECT data FROM entries WHERE topic = ? AND first = 25", topic)
        data = bytes(data)
        flipped = data[:40] + bytes([data[40] ^ 1]) + data[41:]
        changed = {"a byte of a value": [flipped], "cut off": [data[:-7]], "emptied": [b""]}.get(damage, [])
        rig.sql(f"{change} WHERE topic = ? AND first = 25", *changed, topic)
        assert store.read_single(topic, store.log, 0) == [], damage
        assert len(store.read_single(topic, store.log, 0, max_rows=25)) == 25
        if damage != "another size":  # which a read does not need
            with pytest.raises(CorruptLog):
                store.read(topic, store.log, 0)
