"""Holds on both stores: cursors that nobody is served from, and that keep rows all the same."""

from __future__ import annotations

import pytest

from milepost.errors import BrokerError, SubscriptionExists, TopicMismatch, UnknownSubscription, UnknownTopic
from milepost.operations import Cursor, DropTopic, Remove, Retention, RetentionHold, Trim
from tests.unit.storage.conftest import Rig
from tests.unit.storage.test_store import attach

SECOND = 1_000_000


def test_a_hold_is_made_moves_forward_only_and_says_where_it_is(rig: Rig) -> None:
    store = rig.open()
    topic, publisher = rig.topic(store), rig.enrol(store)
    assert rig.do(store, RetentionHold("lane", topic)) == {}  # nothing was ever put
    rig.append(store, topic, publisher, [1, 2, 3, 4, 5])
    log = store.log
    assert rig.do(store, RetentionHold("lane", topic)) == {log: 0}
    assert rig.do(store, RetentionHold("lane", topic, {log: 3})) == {log: 3}
    assert rig.do(store, RetentionHold("lane", topic, {log: 3})) == {log: 3}
    assert rig.do(store, RetentionHold("lane", topic, {log: 2})) == {log: 3}
    assert rig.do(store, RetentionHold("lane", topic, {})) == {log: 3}
    assert rig.do(store, RetentionHold("lane", topic)) == {log: 3}
    (record,) = store.subscriptions(topic)
    assert (record.name, record.where, record.options) == ("lane", None, {"hold": True})
    assert record.cursors == {log: Cursor(3)}
    store.close()
    assert rig.do(rig.open(), RetentionHold("lane", topic)) == {log: 3}


def test_where_a_hold_begins(rig: Rig) -> None:
    store = rig.open()
    topic, publisher = rig.topic(store), rig.enrol(store)
    rig.append(store, topic, publisher, [1, 2, 3, 4, 5])
    log = store.log
    rig.do(store, Trim(topic, {log: 2}))
    assert rig.do(store, RetentionHold("all", topic)) == {log: 2}
    assert rig.do(store, RetentionHold("there", topic, {log: 4})) == {log: 4}
    assert rig.do(store, RetentionHold("end", topic, {log: 5})) == {log: 5}
    for position in ({log: 6}, {log + 1: 1}):
        with pytest.raises(BrokerError, match="ends at"):
            rig.do(store, RetentionHold("beyond", topic, position))
        with pytest.raises(BrokerError, match="ends at"):
            rig.do(store, RetentionHold("all", topic, position))
    assert {each.name for each in store.subscriptions(topic)} == {"all", "there", "end"}
    assert rig.do(store, RetentionHold("all", topic)) == {log: 2}


def test_a_name_is_a_hold_or_a_subscription(rig: Rig) -> None:
    store = rig.open()
    topic, other = rig.topic(store), rig.topic(store, "other")
    rig.do(store, attach("desk", topic))
    rig.do(store, RetentionHold("lane", topic))
    with pytest.raises(SubscriptionExists, match="no hold"):
        rig.do(store, RetentionHold("desk", topic))
    with pytest.raises(TopicMismatch):
        rig.do(store, RetentionHold("desk", other))
    with pytest.raises(TopicMismatch, match="another topic"):
        rig.do(store, RetentionHold("lane", other))
    for create in (True, False):
        with pytest.raises(SubscriptionExists, match="is a hold"):
            rig.do(store, attach("lane", topic, create=create))
    with pytest.raises(UnknownTopic):
        rig.do(store, RetentionHold("else", 99))
    assert rig.do(store, Remove("lane", b"t" * 16)) is True
    assert rig.do(store, Remove("lane", b"t" * 16)) is True
    with pytest.raises(UnknownSubscription):
        rig.do(store, Remove("lane"))
    assert rig.do(store, attach("lane", topic)).created
    rig.do(store, RetentionHold("gone", topic))
    rig.do(store, DropTopic(topic))
    assert rig.do(store, RetentionHold("gone", other)) == {}


def test_rows_stay_while_they_are_held_and_go_when_the_hold_moves(rig: Rig) -> None:
    store = rig.open()
    topic, publisher = rig.topic(store, retention=Retention(1.0)), rig.enrol(store)
    for number in range(5):
        rig.append(store, topic, publisher, range(1 + number * 10, 11 + number * 10))
    log = store.log
    rig.do(store, RetentionHold("lane", topic, {log: 10}))
    rig.do(store, RetentionHold("slow", topic, {log: 5}))
    later = rig.now + 100 * SECOND
    rig.maintain(store, later)
    assert store.extents(topic)[topic][log][:2] == (0, 50)
    rig.do(store, RetentionHold("slow", topic, {log: 37}))
    rig.maintain(store, later)
    assert store.extents(topic)[topic][log][:2] == (10, 50)
    rig.do(store, RetentionHold("lane", topic, {log: 50}))
    rig.maintain(store, later)
    assert store.extents(topic)[topic][log][:2] == (30, 50)  # whole entries go: the rest of one stays
    rig.do(store, Remove("slow"))
    rig.maintain(store, later)
    assert store.extents(topic)[topic][log][:2] == (50, 50)


def test_any_broker_of_a_cell_moves_a_hold(postgresql_rig: Rig) -> None:
    rig = postgresql_rig
    one, two = rig.open("one"), rig.open("two")
    topic = rig.topic(one)
    rig.append(one, topic, rig.enrol(one, "a", 5), [1, 2, 3])
    rig.append(two, topic, rig.enrol(two, "b", 6), [4, 5])
    assert rig.do(one, RetentionHold("lane", topic)) == {one.log: 0, two.log: 0}
    assert rig.do(two, RetentionHold("lane", topic, {one.log: 2})) == {one.log: 2, two.log: 0}
    assert rig.do(one, RetentionHold("lane", topic, {one.log: 1, two.log: 2})) == {one.log: 2, two.log: 2}
    with pytest.raises(SubscriptionExists):
        rig.do(two, attach("lane", topic))
    assert rig.do(two, Remove("lane")) is True
    assert rig.do(one, RetentionHold("lane", topic, {one.log: 3})) == {one.log: 3, two.log: 0}
