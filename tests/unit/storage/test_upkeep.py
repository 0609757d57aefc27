"""Upkeep, step by step: what is forgotten, and whose logs are looked after."""

from __future__ import annotations

import pytest

from milepost.errors import Fenced
from milepost.operations import Append, Appended, DropTopic, Enrol, Move, Part, Retention
from milepost.storage.upkeep import MEMBER_SILENT_S, NAMED_SILENT_S, UNNAMED_SILENT_S
from tests.unit.storage.conftest import Rig, rows
from tests.unit.storage.test_store import attach

SECOND = 1_000_000


def test_entries_of_a_dropped_topic_go(rig: Rig) -> None:
    store = rig.open()
    topic, other, publisher = rig.topic(store), rig.topic(store, "other"), rig.enrol(store)
    for stamp in range(1, 101):
        rig.append(store, topic, publisher, [stamp])
    rig.append(store, other, publisher, [101])
    rig.do(store, DropTopic(topic))
    assert rig.maintain(store) > 2  # in steps
    assert rig.sql("SELECT topic, count(*) FROM entries GROUP BY topic") == [(other, 1)]
    assert rig.sql("SELECT * FROM dropped") == []
    assert rig.maintain(store) == 1


def test_each_step_is_bounded(rig: Rig) -> None:
    store = rig.open()
    topic, publisher = rig.topic(store, retention=Retention(1.0)), rig.enrol(store)
    for stamp in range(1, 201):
        rig.append(store, topic, publisher, [stamp])
    later = rig.now + 2 * SECOND
    left = []
    while store.maintain(later):
        left.append(store.extents(topic)[topic][store.log].entries)
    assert left[:4] == [136, 72, 8, 0]


def test_silent_publishers_are_forgotten(rig: Rig) -> None:
    rig.now = 2_000_000_000 * SECOND  # stamps are times, so these have to fit
    store = rig.open()
    topic = rig.topic(store)
    numbers = {key: rig.enrol(store, key, 10 + place) for place, key in enumerate(["named", "~aa", "~bb", "~cc"])}
    day = 86_400 * SECOND
    stamp = (rig.now // 1_000) << 16
    active = ((rig.now + 80 * day) // 1_000) << 16
    rig.append(store, topic, numbers["named"], [stamp])
    rig.append(store, topic, numbers["~aa"], [stamp])
    rig.append(store, topic, numbers["~bb"], [active])  # its connection goes on for months, and it puts now and then
    rig.maintain(store, rig.now + int(UNNAMED_SILENT_S * SECOND) - day)
    assert rig.sql("SELECT count(*) FROM publishers") == [(4,)]
    rig.maintain(store, rig.now + int(UNNAMED_SILENT_S * SECOND) + day)
    assert rig.sql("SELECT key FROM publishers ORDER BY key") == [("named",), ("~bb",)]
    assert rig.append(store, topic, numbers["~bb"], [active, active + 1]) == Appended(1, 1)
    with pytest.raises(Fenced):
        rig.append(store, topic, numbers["~aa"], [active])
    assert rig.do(store, Enrol("~aa", 77, create=False)) is None
    rig.maintain(store, rig.now + int(NAMED_SILENT_S * SECOND) + day)
    assert rig.sql("SELECT key FROM publishers") == []
    assert rig.sql("SELECT * FROM trails") == []


def test_silent_members_are_forgotten(rig: Rig) -> None:
    store = rig.open()
    topic = rig.topic(store)
    made = rig.do(store, attach("desk", topic))
    rig.do(store, Move(made.subscription, made.epoch, {}, b"old", 7))
    rig.now += int(MEMBER_SILENT_S * SECOND)
    rig.do(store, Move(made.subscription, made.epoch, {}, b"new", 8))
    rig.maintain(store, rig.now + 1)
    assert rig.do(store, attach("desk", topic, member=b"old")).sequence == 0
    assert rig.do(store, attach("desk", topic, member=b"new")).sequence == 8


def test_logs_of_brokers_that_are_gone_are_looked_after(postgresql_rig: Rig) -> None:
    rig = postgresql_rig
    one, two = rig.open("one"), rig.open("two")
    topic = rig.topic(one)
    publishers = rig.enrol(one, "a", 5), rig.enrol(two, "b", 6)
    for stamp in range(1, 101):
        rig.append(one, topic, publishers[0], [stamp])
        rig.append(two, topic, publishers[1], [stamp])
    rig.maintain(one)
    assert {log: extent.entries for log, extent in one.extents(topic)[topic].items()} == {one.log: 1, two.log: 100}
    two.close()
    rig.maintain(one)
    assert {log: extent.entries for log, extent in one.extents(topic)[topic].items()} == {one.log: 1, two.log: 1}
    assert [row[2] for row in rig.contents(one, topic, two.log)] == list(range(1, 101))
    # And the broker that comes back finds its log as it should be.
    two = rig.open("two")
    rig.enrol(two, "b")
    append = Append(publishers[1], (Part(topic, rows(publishers[1], [100, 101])),))
    assert rig.write(two, append).outcomes == [Appended(1, 1)]
    assert rig.contents(one, topic, two.log)[-1] == (100, publishers[1], 101)


def test_old_rows_of_all_logs_go_oldest_first(postgresql_rig: Rig) -> None:
    rig = postgresql_rig
    one, two = rig.open("one"), rig.open("two")
    topic = rig.topic(one, retention=Retention(None, 20_000, True))
    publishers = rig.enrol(one, "a", 5), rig.enrol(two, "b", 6)
    for stamp in range(1, 11):
        rig.append(one, topic, publishers[0], [stamp], size=5_000)
    for stamp in range(1, 11):
        rig.append(two, topic, publishers[1], [stamp], size=5_000)
    two.close()
    rig.maintain(one)
    extents = one.extents(topic)[topic]
    assert extents[one.log].rows == 0
    assert 0 < extents[two.log].rows < 10
    assert sum(extent.bytes for extent in extents.values()) <= 20_000
