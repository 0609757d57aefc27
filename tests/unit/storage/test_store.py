"""What every store promises, over SQLite and PostgreSQL alike."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from milepost.batch import Batch, Ids
from milepost.errors import (
    ConfigError,
    DuplicateMessage,
    Fenced,
    InvalidValue,
    ServedElsewhere,
    SubscriptionExists,
    TopicMismatch,
    UnknownSubscription,
    UnknownTopic,
)
from milepost.operations import (
    Append,
    Appended,
    Attach,
    Attached,
    ChangeTopic,
    Cursor,
    DropTopic,
    Enrol,
    Enrolled,
    MakeTopic,
    Move,
    Part,
    Release,
    Remove,
    Retention,
    RetentionHold,
    Trim,
    Work,
)
from milepost.query import parse_schema
from milepost.storage import lookups
from milepost.storage.database import Session
from milepost.storage.execution import WorkContext, execute
from tests.unit.storage.conftest import KEEP, NEWER, SCHEMA, TEXT, Rig, rows


class _Lags(Work):
    def __init__(self, most: int) -> None:
        self.most = most


@execute.register
def _(operation: _Lags, session: Session, context: WorkContext) -> Any:
    return lookups.lags(session, operation.most)


def attach(name: str, topic: int, **options: Any) -> Attach:
    given: dict[str, Any] = {
        "where": None, "start": "new", "create": True, "token": b"", "options": {}, "member": b"m", **options
    }  # fmt: skip
    return Attach(name, topic, **given)


# Opening


def test_a_store_keeps_its_identity_and_its_log(rig: Rig) -> None:
    store = rig.open(broker_id=77)
    identity, log = store.id, store.log
    topic = rig.topic(store)
    rig.append(store, topic, rig.enrol(store), [1, 2])
    store.close()
    again = rig.open(broker_id=78)
    assert (again.id, again.log, again.broker_id) == (identity, log, 77)
    assert len(again.id) == 32
    assert rig.contents(again, topic) == [(0, 5, 1), (1, 5, 2)]
    assert rig.append(again, topic, rig.enrol(again), [2, 3]) == Appended(1, 1)


def test_topics_are_listed_with_all_they_have(rig: Rig) -> None:
    store = rig.open()
    made = rig.do(store, MakeTopic("a", (TEXT,), "drop", Retention(3.5, 10_000, False)))
    assert made.created
    assert made.topic.retention == Retention(3.5, 10_000, False)
    again = rig.do(store, MakeTopic("a", (NEWER,), "block", Retention()))
    assert not again.created
    assert again.topic == made.topic
    number = made.topic.topic
    rig.do(store, ChangeTopic(number, schema=NEWER, slow="block"))
    rig.do(store, ChangeTopic(number, retention=KEEP))
    rig.append(store, number, rig.enrol(store), [1, 2, 3])
    (found,) = store.topics()
    assert (found.name, found.schemas, found.slow, found.retention) == ("a", (TEXT, NEWER), "block", KEEP)
    extent = found.extents[store.log]
    assert (extent.start, extent.next, extent.rows, extent.entries) == (0, 3, 3, 1)
    assert extent.bytes == len(store.read(number, store.log, 0)[0].data)
    assert store.extents(number) == store.extents() == {number: found.extents}
    with pytest.raises(UnknownTopic):
        rig.do(store, ChangeTopic(99, slow="x"))


def test_a_dropped_topic_is_gone_and_its_number_is_never_used_again(rig: Rig) -> None:
    store = rig.open()
    topic = rig.topic(store)
    publisher = rig.enrol(store)
    rig.append(store, topic, publisher, [1])
    rig.do(store, attach("desk", topic))
    rig.do(store, DropTopic(topic))
    assert store.topics() == []
    assert store.read(topic, store.log, 0) == []
    with pytest.raises(UnknownTopic):
        rig.append(store, topic, publisher, [2])
    with pytest.raises(UnknownTopic):
        rig.do(store, DropTopic(topic))
    with pytest.raises(UnknownSubscription):
        rig.do(store, attach("desk", topic, create=False))
    assert rig.topic(store) > topic
    rig.maintain(store)
    # In one group: what was appended before the drop is gone, what comes after it is refused.
    second = rig.topic(store, "second")
    outcomes = rig.write(
        store,
        Append(publisher, (Part(second, rows(publisher, [5])),)),
        DropTopic(second),
        Append(publisher, (Part(second, rows(publisher, [6])),)),
    ).outcomes
    assert outcomes[0] == Appended(1, 0)
    assert isinstance(outcomes[2], UnknownTopic)


# Appending


def test_appends_of_one_write_join_into_one_entry(rig: Rig) -> None:
    store = rig.open()
    topic, other = rig.topic(store), rig.topic(store, "other")
    publishers = [rig.enrol(store, f"p{number}", 100 + number) for number in range(10)]
    committed = rig.write(
        store,
        *[Append(number, (Part(topic, rows(number, [7])), Part(other, rows(number, [8])))) for number in publishers],
    )
    assert committed.outcomes == [Appended(2, 0)] * 10
    assert [(entry.topic, entry.first, len(entry.batch)) for entry in committed.entries] == [
        (topic, 0, 10),
        (other, 0, 10),
    ]
    (stored,) = store.read(topic, store.log, 0)
    assert bytes(committed.entries[0].batch) == stored.data
    assert stored.time_us == rig.now
    assert rig.contents(store, other) == [(row, 100 + row, 8) for row in range(10)]


def test_entries_are_bounded_and_schemas_are_not_mixed(rig: Rig) -> None:
    store = rig.open()
    topic = rig.topic(store)
    publisher = rig.enrol(store)
    newer = parse_schema(NEWER)
    batches = [rows(publisher, [1]), rows(publisher, [2], newer), rows(publisher, [3], newer), rows(publisher, [4])]
    large = [rows(publisher, range(10 + 10 * number, 15 + 10 * number), size=90_000) for number in range(5)]
    committed = rig.write(store, *[Append(publisher, (Part(topic, batch),)) for batch in batches + large])
    assert [len(entry.batch) for entry in committed.entries] == [1, 2, 11, 10, 5]
    assert [entry.first for entry in committed.entries] == [0, 1, 3, 14, 24]
    assert committed.entries[1].batch.schema == newer
    huge = rows(publisher, range(1_000, 1_020), size=100_000)
    committed = rig.write(store, Append(publisher, (Part(topic, huge),)))
    assert [entry.batch for entry in committed.entries] == [huge]


def test_repeated_rows_are_not_stored_again(rig: Rig) -> None:
    store = rig.open()
    topic = rig.topic(store)
    publisher = rig.enrol(store)
    assert rig.append(store, topic, publisher, [10, 20, 30]) == Appended(3, 0)
    assert rig.append(store, topic, publisher, [10, 20, 30]) == Appended(0, 3)
    assert rig.append(store, topic, publisher, [20, 30, 40, 50]) == Appended(2, 2)
    assert rig.append(store, topic, publisher, [5]) == Appended(0, 1)
    # In one group, each against what came before it.
    one = Append(publisher, (Part(topic, rows(publisher, [60, 70])),))
    two = Append(publisher, (Part(topic, rows(publisher, [70, 80])),))
    assert rig.write(store, one, one, two).outcomes == [Appended(2, 0), Appended(0, 2), Appended(1, 1)]
    assert [row[2] for row in rig.contents(store, topic)] == [10, 20, 30, 40, 50, 60, 70, 80]
    assert rig.do(store, Enrol("feed", 1)) == Enrolled(5, 80)


def test_rows_for_several_topics_are_stored_all_or_none(rig: Rig) -> None:
    store = rig.open()
    topic = rig.topic(store)
    publisher = rig.enrol(store)
    both = Append(publisher, (Part(topic, rows(publisher, [1])), Part(99, rows(publisher, [2]))))
    fine = Append(publisher, (Part(topic, rows(publisher, [3])),))
    first, second = rig.write(store, both, fine).outcomes
    assert isinstance(first, UnknownTopic)
    assert second == Appended(1, 0)
    assert rig.contents(store, topic) == [(0, publisher, 3)]


def test_stamps_must_increase(rig: Rig) -> None:
    store = rig.open()
    topic = rig.topic(store)
    publisher = rig.enrol(store)
    row = [{"symbol": "x", "number": 1}]
    bad = [
        (Part(topic, rows(publisher, [2, 1])),),
        (Part(topic, rows(publisher, [5])), Part(topic, rows(publisher, [4]))),
        (Part(topic, Batch.encode(SCHEMA, row, Ids.single(publisher, 9, [1 << 63]))),),
        (Part(topic, Batch.encode(SCHEMA, row)),),
        (Part(topic, Batch.encode(SCHEMA, [])),),
    ]
    for parts in bad:
        with pytest.raises(InvalidValue):
            rig.do(store, Append(publisher, parts))
    assert rig.contents(store, topic) == []


def test_a_publisher_that_nobody_enrolled_is_refused(rig: Rig) -> None:
    store = rig.open()
    topic = rig.topic(store)
    with pytest.raises(Fenced):
        rig.append(store, topic, 12345, [1])
    publisher = rig.enrol(store)
    store.close()
    again = rig.open()
    with pytest.raises(Fenced):  # its connection ended with the process
        rig.append(again, topic, publisher, [1])


def test_numbers_of_publishers_are_their_own(rig: Rig) -> None:
    store = rig.open()
    assert rig.do(store, Enrol("nobody", 3, create=False)) is None
    assert rig.do(store, Enrol("a", 3)) == Enrolled(3, 0)
    other = rig.do(store, Enrol("b", 3))
    assert other.number != 3
    assert rig.do(store, Enrol("a", 8)) == Enrolled(3, 0)
    assert rig.do(store, Enrol("b", 8, create=False)) == other
    assert rig.do(store, Enrol("zero", 0)).number > 0


def test_tokens_are_remembered_for_their_time(rig: Rig) -> None:
    store = rig.open(remember_s=10.0)
    topic = rig.topic(store)
    publisher, other = rig.enrol(store), rig.enrol(store, "other", 6)
    key = bytes(range(16))
    assert rig.append(store, topic, publisher, [1], token=key) == Appended(1, 0)
    assert rig.append(store, topic, publisher, [1], token=key) == Appended(0, 1)  # the same rows: a repetition
    with pytest.raises(DuplicateMessage):
        rig.append(store, topic, publisher, [2], token=key)
    with pytest.raises(DuplicateMessage):
        rig.append(store, topic, other, [2], token=key)
    outcomes = rig.write(
        store,
        Append(publisher, (Part(topic, rows(publisher, [3])),), b"k" * 16),
        Append(other, (Part(topic, rows(other, [3])),), b"k" * 16),
    ).outcomes
    assert outcomes[0] == Appended(1, 0)
    assert isinstance(outcomes[1], DuplicateMessage)
    # An append that is refused leaves no token behind.
    with pytest.raises(UnknownTopic):
        rig.append(store, 99, publisher, [4], token=b"n" * 16)
    assert rig.append(store, topic, publisher, [4], token=b"n" * 16) == Appended(1, 0)
    rig.maintain(store, rig.now + 9_000_000)
    with pytest.raises(DuplicateMessage):
        rig.append(store, topic, publisher, [5], token=key)
    rig.maintain(store, rig.now + 11_000_000)
    assert rig.append(store, topic, publisher, [5], token=key) == Appended(1, 0)


def test_keys_are_of_their_topics(rig: Rig) -> None:
    store = rig.open()
    quotes, orders, third = (rig.topic(store, name) for name in ("quotes", "orders", "third"))
    publisher = rig.enrol(store)
    key = bytes(range(16))
    assert rig.append(store, quotes, publisher, [1], token=key) == Appended(1, 0)
    assert rig.append(store, orders, publisher, [2], token=key) == Appended(1, 0)
    for topic in (quotes, orders):
        with pytest.raises(DuplicateMessage, match="in this topic already"):
            rig.append(store, topic, publisher, [3], token=key)
    # In one group of writes, as clients that put at the same time have it.
    outcomes = rig.write(
        store,
        *(Append(publisher, (Part(topic, rows(publisher, [stamp])),), b"k" * 16)
          for stamp, topic in enumerate((quotes, orders, quotes, third), 4)),
    ).outcomes  # fmt: skip
    assert [isinstance(each, DuplicateMessage) for each in outcomes] == [False, False, True, False]
    assert [len(rig.contents(store, topic)) for topic in (quotes, orders, third)] == [2, 2, 1]


def test_a_put_into_several_topics_has_one_key_which_is_taken_in_each(rig: Rig) -> None:
    store = rig.open()
    quotes, orders, third = (rig.topic(store, name) for name in ("quotes", "orders", "third"))
    publisher = rig.enrol(store)

    def together(stamp: int, key: bytes, *topics: int) -> Appended:
        parts = tuple(Part(topic, rows(publisher, [stamp + place])) for place, topic in enumerate(topics))
        outcome: Appended = rig.do(store, Append(publisher, parts, key))
        return outcome

    assert together(1, b"a" * 16, quotes, orders) == Appended(2, 0)
    with pytest.raises(DuplicateMessage, match="one of these topics"):
        together(10, b"a" * 16, quotes, orders)
    with pytest.raises(DuplicateMessage, match="one of these topics"):
        together(10, b"a" * 16, orders, third)
    assert rig.contents(store, third) == []  # all or nothing
    assert together(10, b"a" * 16, third) == Appended(1, 0)
    with pytest.raises(DuplicateMessage):
        together(20, b"a" * 16, orders)
    assert together(20, b"a" * 16, rig.topic(store, "fourth"), rig.topic(store, "fifth")) == Appended(2, 0)


def test_keys_of_one_token_are_forgotten_each_in_its_time(rig: Rig) -> None:
    store = rig.open(remember_s=10.0)
    quotes, orders = rig.topic(store), rig.topic(store, "orders")
    publisher = rig.enrol(store)
    key = bytes(16)
    rig.append(store, quotes, publisher, [1], token=key)
    rig.now += 9_000_000
    rig.append(store, orders, publisher, [2], token=key)
    rig.maintain(store, rig.now + 2_000_000)
    assert rig.append(store, quotes, publisher, [3], token=key) == Appended(1, 0)
    with pytest.raises(DuplicateMessage):
        rig.append(store, orders, publisher, [4], token=key)


def test_the_token_of_a_removal_is_that_of_one_name(rig: Rig) -> None:
    store = rig.open()
    topic = rig.topic(store)
    for name in ("desk", "other"):
        rig.do(store, attach(name, topic))
    for name in ("desk", "other", "desk", "other"):
        assert rig.do(store, Remove(name, b"t" * 16)) is True
    assert store.subscriptions(topic) == []


# Reading


def test_reading_begins_with_the_entry_that_holds_the_offset(rig: Rig) -> None:
    store = rig.open()
    topic = rig.topic(store)
    publisher = rig.enrol(store)
    for number in range(10):
        rig.append(store, topic, publisher, range(1 + number * 10, 11 + number * 10))
    assert [entry.first for entry in store.read(topic, store.log, 35)] == [30, 40, 50, 60, 70, 80, 90]
    assert [entry.first for entry in store.read(topic, store.log, 35, max_rows=6)] == [30, 40]
    assert [entry.first for entry in store.read(topic, store.log, 39, max_rows=1)] == [30]
    size = len(store.read(topic, store.log, 0)[0].data)
    assert [entry.first for entry in store.read(topic, store.log, 0, max_bytes=size + 1)] == [0, 10]
    assert [entry.first for entry in store.read(topic, store.log, 0, max_bytes=1)] == [0]
    assert store.read(topic, store.log, 100) == []
    assert store.read(topic, store.log, 1_000) == []
    assert store.read(topic, 99, 0) == []
    assert store.read(99, store.log, 0) == []


def test_starts_are_resolved_in_all_logs(rig: Rig) -> None:
    store = rig.open()
    topic = rig.topic(store)
    assert store.resolve(topic, "new") == {}
    publisher = rig.enrol(store)
    times = []
    for number in range(20):
        rig.append(store, topic, publisher, [2 * number + 1, 2 * number + 2])
        times.append(rig.now)
        rig.now += 100
    assert store.resolve(topic, "new") == {store.log: 40}
    assert store.resolve(topic, "earliest") == {store.log: 0}
    assert store.resolve(topic, ("position", {3: 4})) == {3: 4}
    for number, time_us in enumerate(times):
        assert store.resolve(topic, ("time", time_us)) == {store.log: 2 * number}
        assert store.resolve(topic, ("time", time_us + 1)) == {store.log: 2 * number + 2}
    assert store.resolve(topic, ("time", 0)) == {store.log: 0}
    rig.do(store, Trim(topic, {store.log: 5}))
    assert store.resolve(topic, "earliest") == {store.log: 5}
    assert store.resolve(topic, ("time", 0)) == {store.log: 5}
    assert store.resolve(topic, ("time", times[2])) == {store.log: 5}


def test_a_start_is_resolved_while_rows_are_trimmed(rig: Rig) -> None:
    store = rig.open()
    topic = rig.topic(store)
    publisher = rig.enrol(store)
    for number in range(4):
        rig.append(store, topic, publisher, [number + 1])

    class Time(int):
        """It is asked for its value when it is known where the log begins, and before its rows are looked at."""

        def __int__(self) -> int:
            rig.do(store, Trim(topic, {store.log: 1_000}))
            rig.maintain(store)
            return 0

    assert store.resolve(topic, ("time", Time())) == {store.log: 0}, "as it was when it was asked"
    assert store.resolve(topic, ("time", 0)) == {store.log: 4}


def test_times_do_not_go_back_within_a_log(rig: Rig) -> None:
    store = rig.open()
    topic = rig.topic(store)
    publisher = rig.enrol(store)
    rig.append(store, topic, publisher, [1])
    before = rig.now
    store.write([Append(publisher, (Part(topic, rows(publisher, [2])),))], 5)
    store.close()
    again = rig.open()
    rig.enrol(again)
    again.write([Append(publisher, (Part(topic, rows(publisher, [3])),))], 6)
    assert all(entry.time_us >= before for entry in again.read(topic, again.log, 0))
    assert again.resolve(topic, ("time", before)) == {again.log: 0}


def test_trimmed_rows_are_gone(rig: Rig) -> None:
    store = rig.open()
    topic = rig.topic(store)
    publisher = rig.enrol(store)
    for number in range(5):
        rig.append(store, topic, publisher, range(1 + number * 10, 11 + number * 10))
    rig.do(store, attach("desk", topic, start="earliest"))
    assert rig.do(store, Trim(topic, {store.log: 25, 99: 5})) == 25
    assert rig.do(store, Trim(topic, {store.log: 20})) == 0
    extent = store.extents(topic)[topic][store.log]
    assert (extent.start, extent.next, extent.rows) == (25, 50, 25)
    assert [entry.first for entry in store.read(topic, store.log, 0)] == [20, 30, 40]
    rig.maintain(store)
    extent = store.extents(topic)[topic][store.log]
    assert (extent.start, extent.next, extent.rows) == (25, 50, 25)
    assert [entry.first for entry in store.read(topic, store.log, 0)] == [20, 30, 40]
    assert rig.do(store, Trim(topic, {store.log: 1_000})) == 25
    assert store.read(topic, store.log, 0) == []
    rig.maintain(store)
    assert store.extents(topic)[topic][store.log] == (50, 50, 0, 0, 0)
    assert rig.append(store, topic, publisher, [99]) == Appended(1, 0)
    assert [entry.first for entry in store.read(topic, store.log, 0)] == [50]


def test_threads_read_while_one_writes(rig: Rig) -> None:
    store = rig.open()
    topic = rig.topic(store)
    publisher = rig.enrol(store)
    wrong: list[Any] = []
    over = threading.Event()

    def read() -> None:
        try:
            while not over.is_set():
                found = [row[2] for row in rig.contents(store, topic)]
                if found != list(range(1, len(found) + 1)):
                    wrong.append(found)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(200):
        rig.append(store, topic, publisher, [number + 1])
        if number % 40 == 39:
            rig.maintain(store)
    over.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(rig.contents(store, topic)) == 200


# Named subscriptions


def test_a_subscription_is_found_again(rig: Rig) -> None:
    store = rig.open()
    topic = rig.topic(store)
    publisher = rig.enrol(store)
    rig.append(store, topic, publisher, [1, 2, 3])
    with pytest.raises(UnknownSubscription):
        rig.do(store, attach("desk", topic, create=False))
    made: Attached = rig.do(store, attach("desk", topic, where="number > 1", token=b"t", options={"most": 3}))
    assert made.created
    assert (made.topic, made.where, made.options, made.sequence) == (topic, "number > 1", {"most": 3}, 0)
    assert made.cursors == {store.log: Cursor(3)}
    again = rig.do(store, attach("desk", topic, where="number > 1", token=b"t", options={}))
    assert again == made  # the same request again: it made it
    other = rig.do(store, attach("desk", topic, where="number > 1", token=b"u"))
    assert other == made._replace(created=False)
    with pytest.raises(SubscriptionExists):
        rig.do(store, attach("desk", topic))
    with pytest.raises(TopicMismatch):
        rig.do(store, attach("desk", rig.topic(store, "other"), where="number > 1"))
    with pytest.raises(UnknownTopic):
        rig.do(store, attach("else", 99))
    (record,) = store.subscriptions(topic)
    assert (record.name, record.where, record.options, record.cursors) == (
        "desk",
        "number > 1",
        {"most": 3},
        made.cursors,
    )
    with pytest.raises(UnknownTopic):
        store.subscriptions(99)


def test_starts_of_subscriptions(rig: Rig) -> None:
    store = rig.open()
    topic = rig.topic(store)
    publisher = rig.enrol(store)
    rig.append(store, topic, publisher, [1, 2])
    between = rig.now + 1
    # Resolved within the transaction: what is appended before it in the group counts.
    append = Append(publisher, (Part(topic, rows(publisher, [3, 4, 5])),))
    committed = rig.write(store, append, attach("new", topic))
    assert committed.outcomes[1].cursors == {store.log: Cursor(5)}
    assert rig.do(store, attach("all", topic, start="earliest")).cursors == {}
    assert rig.do(store, attach("time", topic, start=("time", between))).cursors == {store.log: Cursor(2)}
    assert rig.do(store, attach("there", topic, start=("position", {store.log: 4}))).cursors == {store.log: Cursor(4)}
    rig.do(store, Trim(topic, {store.log: 3}))
    assert rig.do(store, attach("rest", topic, start="earliest")).cursors == {store.log: Cursor(3)}


def test_cursors_move_with_their_acknowledgement_and_dead_rows(rig: Rig) -> None:
    store = rig.open()
    topic, dead = rig.topic(store), rig.topic(store, "dead")
    publisher = rig.enrol(store)
    rig.append(store, topic, publisher, [1, 2, 3])
    made: Attached = rig.do(store, attach("desk", topic, start="earliest", member=b"me"))
    number, epoch = made.subscription, made.epoch
    move = Move(number, epoch, {store.log: Cursor(1, b"state")}, b"me", 1, (Part(dead, rows(publisher, [1])),))
    committed = rig.write(store, move, Move(number, epoch, {store.log: Cursor(2)}, b"me", 2))
    assert committed.outcomes == [None, None]
    assert [(entry.topic, entry.first) for entry in committed.entries] == [(dead, 0)]
    assert rig.contents(store, dead) == [(0, publisher, 1)]
    found: Attached = rig.do(store, attach("desk", topic, member=b"me"))
    assert (found.cursors, found.sequence, found.epoch) == ({store.log: Cursor(2)}, 2, epoch)
    assert rig.do(store, attach("desk", topic, member=b"you")).sequence == 0
    with pytest.raises(UnknownSubscription):
        rig.do(store, Move(99, 1, {}))
    with pytest.raises(ServedElsewhere):
        rig.do(store, Move(number, epoch + 1, {}))
    store.close()
    again = rig.open()
    taken: Attached = rig.do(again, attach("desk", topic, member=b"me"))
    assert taken.epoch > epoch
    assert taken.sequence == 2
    with pytest.raises(ServedElsewhere):
        rig.do(again, Move(number, epoch, {}))


def test_lags_are_of_all_logs_and_of_rows_that_are_there(rig: Rig) -> None:
    store = rig.open()
    topic = rig.topic(store, "it's \u201codd\u201d")
    empty = rig.topic(store, "empty")
    publisher = rig.enrol(store)
    for name, start in (("behind", "earliest"), ("cut", "earliest")):
        rig.do(store, attach(name, topic, start=start))
    rig.do(store, attach("nothing", empty))
    rig.append(store, topic, publisher, range(1, 11))
    rig.do(store, attach("new", topic, start="new"))
    rig.do(store, RetentionHold("held", topic, None))
    moved = Cursor(7, b"")
    found = store.inspect(_Lags(2), rig.now)
    assert found == ([("it's \u201codd\u201d", "behind", 10), ("it's \u201codd\u201d", "cut", 10)], 4, 20)
    epoch = rig.do(store, attach("cut", topic)).epoch
    rig.do(store, Move(rig.do(store, attach("cut", topic)).subscription, epoch, {store.log: moved}))
    rig.do(store, Trim(topic, {store.log: 4}))
    found = store.inspect(_Lags(10), rig.now)
    assert [(name, rows) for _, name, rows in found[0]] == [("behind", 6), ("cut", 3), ("new", 0), ("nothing", 0)]
    assert found[1:] == (4, 9)


def test_removing_is_done_once(rig: Rig) -> None:
    store = rig.open()
    topic = rig.topic(store)
    rig.do(store, attach("desk", topic))
    assert rig.do(store, Remove("desk", b"t")) is True
    assert rig.do(store, Remove("desk", b"t")) is True
    with pytest.raises(UnknownSubscription):
        rig.do(store, Remove("desk", b"u"))
    with pytest.raises(UnknownSubscription):
        rig.do(store, Remove("desk"))
    rig.do(store, attach("desk", topic))
    assert rig.do(store, Remove("desk", b"t")) is True  # a late repetition: it does not mean the new one
    assert [record.name for record in store.subscriptions(topic)] == ["desk"]


def test_an_epoch_that_was_given_up_moves_nothing_any_more(rig: Rig) -> None:
    store = rig.open()
    topic = rig.topic(store)
    rig.append(store, topic, rig.enrol(store), [1, 2])
    made: Attached = rig.do(store, attach("desk", topic, start="earliest"))
    assert rig.do(store, attach("desk", topic)).epoch == made.epoch, "one that joins takes nothing away"
    move = Move(made.subscription, made.epoch, {store.log: Cursor(1)})
    rig.do(store, move)
    rig.do(store, Release(made.subscription, made.epoch))
    rig.do(store, move)  # nobody serves it yet: what was under way may still be stored
    released: Attached = rig.do(store, attach("desk", topic))
    assert (released.epoch, released.cursors) == (made.epoch + 1, {store.log: Cursor(1)})
    with pytest.raises(ServedElsewhere):
        rig.do(store, move)
    # The process knows that it serves it no longer, and the store does not.
    over = released.subscription, released.epoch
    again: Attached = rig.do(store, attach("desk", topic, given_up=over))
    assert again.epoch == released.epoch + 1
    assert rig.do(store, attach("desk", topic, given_up=over)).epoch == again.epoch, "that epoch is over already"
    with pytest.raises(ServedElsewhere):
        rig.do(store, Move(*over, {store.log: Cursor(2)}))
    rig.do(store, Release(*over))
    assert rig.do(store, attach("desk", topic)).epoch == again.epoch, "nor is a later one released with it"
    rig.do(store, Move(again.subscription, again.epoch, {store.log: Cursor(2)}))


def test_a_subscription_says_whether_it_was_let_go(rig: Rig) -> None:
    store = rig.open()
    topic = rig.topic(store)
    made: Attached = rig.do(store, attach("desk", topic))
    assert not made.unreleased
    assert not rig.do(store, attach("desk", topic)).unreleased
    store.close()  # in order
    store = rig.open()
    taken: Attached = rig.do(store, attach("desk", topic))
    assert (taken.epoch, taken.unreleased) == (made.epoch + 1, False)
    store._drop()  # killed
    store._database.close()
    again: Attached = rig.do(rig.open(), attach("desk", topic))
    assert (again.epoch, again.unreleased) == (taken.epoch + 1, True)


# Several brokers


def test_brokers_share_a_database(postgresql_rig: Rig) -> None:
    rig = postgresql_rig
    one, two = rig.open("one"), rig.open("two", broker_id=10)
    assert one.shared
    assert one.id == two.id
    assert one.log != two.log
    topic = rig.topic(one)
    assert rig.topic(two) == topic
    first, second = rig.enrol(one, "a", 5), rig.enrol(two, "b", 6)
    rig.append(one, topic, first, [1, 2])
    rig.append(two, topic, second, [1])
    assert rig.contents(one, topic, two.log) == [(0, second, 1)]
    assert one.resolve(topic, "new") == {one.log: 2, two.log: 1}
    made: Attached = rig.do(one, attach("desk", topic))
    assert made.cursors == {one.log: Cursor(2), two.log: Cursor(1)}
    three = rig.open("three")
    rig.append(three, topic, rig.enrol(three, "c", 7), [9])
    assert rig.do(one, attach("desk", topic)).cursors == made.cursors  # the third log begins at 0
    # It is served by one broker at a time.
    with pytest.raises(ServedElsewhere, match="'one'"):
        rig.do(two, attach("desk", topic))
    rig.do(one, Release(made.subscription, made.epoch))
    taken: Attached = rig.do(two, attach("desk", topic))
    assert taken.epoch == made.epoch + 1
    with pytest.raises(ServedElsewhere):
        rig.do(one, Move(made.subscription, made.epoch, {one.log: Cursor(9)}))
    two.close()  # whoever ends gives back what it served
    assert rig.do(one, attach("desk", topic)).epoch == taken.epoch + 1
    # A topic that another broker has dropped is gone here as well.
    rig.do(three, DropTopic(topic))
    with pytest.raises(UnknownTopic):
        rig.append(one, topic, first, [3])


def test_a_publisher_is_in_one_place(postgresql_rig: Rig) -> None:
    rig = postgresql_rig
    one, two = rig.open("one"), rig.open("two")
    topic = rig.topic(one)
    publisher = rig.enrol(one)
    rig.append(one, topic, publisher, [1])
    assert rig.do(two, Enrol("feed", 1)) == Enrolled(publisher, 1)
    with pytest.raises(Fenced):
        rig.append(one, topic, publisher, [2])
    assert rig.append(two, topic, publisher, [1, 2]) == Appended(1, 1)
    # One group of the broker that lost it: the others of the group go on.
    other = rig.enrol(one, "other", 6)
    outcomes = rig.write(
        one,
        Append(publisher, (Part(topic, rows(publisher, [3])),)),
        Append(other, (Part(topic, rows(other, [3])),)),
    ).outcomes
    assert isinstance(outcomes[0], Fenced)
    assert outcomes[1] == Appended(1, 0)


def test_rows_of_a_publisher_that_moves_come_after_those_before(postgresql_rig: Rig) -> None:
    rig = postgresql_rig
    one, two, three = rig.open("one"), rig.open("two"), rig.open("three")
    topics = [rig.topic(one, f"t{number}") for number in range(3)]
    publisher = rig.enrol(one)
    for topic in topics:
        rig.append(one, topic, publisher, [10 + topic])
    rig.enrol(two)
    committed = rig.write(two, Append(publisher, (Part(topics[0], rows(publisher, [20])),)))
    assert committed.entries[0].after == (one.log, 1)
    assert two.read(topics[0], two.log, 0)[0].after == (one.log, 1)
    assert rig.write(two, Append(publisher, (Part(topics[0], rows(publisher, [21])),))).entries[0].after is None
    two.close()
    two = rig.open("two")  # what was written since the move is remembered
    rig.enrol(two)
    assert rig.write(two, Append(publisher, (Part(topics[0], rows(publisher, [22])),))).entries[0].after is None
    assert rig.write(two, Append(publisher, (Part(topics[1], rows(publisher, [23])),))).entries[0].after == (one.log, 1)
    rig.enrol(three)
    parts = tuple(Part(topic, rows(publisher, [30 + topic])) for topic in topics)
    committed = rig.write(three, Append(publisher, parts))
    assert [entry.after for entry in committed.entries] == [(two.log, 3), (two.log, 1), (one.log, 1)]
    rig.enrol(one)
    committed = rig.write(one, Append(publisher, (Part(topics[2], rows(publisher, [40])),)))
    assert [entry.after for entry in committed.entries] == [(three.log, 1)]
    # Two that come from different places are not joined; what follows them is.
    others = [rig.enrol(two, "x", 8), rig.enrol(three, "y", 9)]
    rig.append(two, topics[0], others[0], [1])
    rig.append(three, topics[0], others[1], [1])
    rig.enrol(one, "x")
    rig.enrol(one, "y")
    committed = rig.write(one, *[Append(number, (Part(topics[0], rows(number, [2])),)) for number in others])
    assert [entry.after for entry in committed.entries] == [(two.log, 4), (three.log, 2)]


def test_a_broker_whose_clock_is_set_back_keeps_its_name(postgresql_rig: Rig) -> None:
    """It goes on to say that it is alive: by a clock that nobody sets."""
    store = postgresql_rig.open("one", lease_s=0.4)
    hour = 3_600_000_000
    for _ in range(4):
        seen, patience = postgresql_rig.sql("SELECT seen_us FROM logs"), time.monotonic() + 60
        while postgresql_rig.sql("SELECT seen_us FROM logs") == seen:  # a third of the lease, or sooner
            assert time.monotonic() < patience, "it does not say any more that it is alive"
            store.maintain(postgresql_rig.now - hour)
        with pytest.raises(ConfigError, match="is alive"):
            postgresql_rig.open("one", lease_s=60.0)
