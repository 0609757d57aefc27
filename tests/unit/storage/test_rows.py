"""Rows of many publishers in one operation: what an append for each of them would do."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from milepost.batch.neighbours import ENTRY
from milepost.errors import Fenced, StoreFull, UnknownTopic
from milepost.operations import Append, AppendedRows, AppendRows, Part
from milepost.storage import Store, Writer
from tests.unit.storage.conftest import SCHEMA, Rig, rows
from tests.unit.storage.test_writer import Faulty, Results


def together(topic: int, given: Sequence[tuple[int, int]], size: int = 3) -> AppendRows:
    """Rows by publisher and stamp."""
    datas = [bytes(rows(publisher, [stamp], size=size).data) for publisher, stamp in given]
    return AppendRows(topic, SCHEMA, [each[0] for each in given], [each[1] for each in given], datas)


def publishers(rig: Rig, store: Store, count: int = 3) -> list[int]:
    return [rig.enrol(store, f"feed {number}", 100 + number) for number in range(count)]


def test_rows_are_stored_in_their_order_as_one_entry(rig: Rig) -> None:
    store = rig.open()
    topic, (one, two, three) = rig.topic(store), publishers(rig, store)
    given = [(two, 5), (one, 7), (three, 1), (two, 6)]
    committed = rig.write(store, together(topic, given))
    assert committed.outcomes == [AppendedRows({}, 0)]
    assert [row[1:] for row in rig.contents(store, topic)] == given
    if not rig.shared:
        assert [(entry.first, len(entry.batch)) for entry in committed.entries] == [(0, 4)]
    assert rig.append(store, topic, two, [6]).repeated == 1  # the high waters went with them


def test_one_row_alone(rig: Rig) -> None:
    store = rig.open()
    topic, (one, *_) = rig.topic(store), publishers(rig, store)
    rig.do(store, together(topic, [(one, 4)]))
    assert [row[1:] for row in rig.contents(store, topic)] == [(one, 4)]


def test_what_is_stored_already_is_not_stored_again(rig: Rig) -> None:
    store = rig.open()
    topic, (one, two, _) = rig.topic(store), publishers(rig, store)
    rig.do(store, together(topic, [(one, 4), (two, 4)]))
    assert rig.do(store, together(topic, [(one, 4), (two, 5), (two, 5), (one, 3)])) == AppendedRows({}, 3)
    assert [row[1:] for row in rig.contents(store, topic)] == [(one, 4), (two, 4), (two, 5)]
    assert rig.do(store, together(topic, [(one, 4)])) == AppendedRows({}, 1)  # nothing at all is left of it


def test_they_keep_their_place_among_other_appends(rig: Rig) -> None:
    store = rig.open()
    topic, (one, two, _) = rig.topic(store), publishers(rig, store)
    rig.write(
        store,
        together(topic, [(one, 1), (two, 1)]),
        Append(one, (Part(topic, rows(one, [2, 3])),)),
        together(topic, [(one, 4)]),
        together(topic, [(two, 2), (one, 5)]),
    )
    wanted = [(one, 1), (two, 1), (one, 2), (one, 3), (one, 4), (two, 2), (one, 5)]
    assert [row[1:] for row in rig.contents(store, topic)] == wanted


def test_a_stranger_among_them_is_refused_alone(rig: Rig) -> None:
    store = rig.open()
    topic, (one, two, _) = rig.topic(store), publishers(rig, store)
    outcome = rig.do(store, together(topic, [(one, 1), (999, 1), (two, 1)]))
    assert list(outcome.refused) == [1]
    assert isinstance(outcome.refused[1], Fenced)
    assert [row[1:] for row in rig.contents(store, topic)] == [(one, 1), (two, 1)]


def test_without_the_topic_all_are_refused(rig: Rig) -> None:
    store = rig.open()
    rig.topic(store)
    one, *_ = publishers(rig, store)
    (outcome,) = rig.write(store, together(77, [(one, 1)])).outcomes
    assert isinstance(outcome, UnknownTopic)


def test_many_large_rows_are_several_entries(sqlite_rig: Rig) -> None:
    rig = sqlite_rig
    store = rig.open()
    topic, (one, *_) = rig.topic(store), publishers(rig, store)
    given = [(one, stamp) for stamp in range(1, 13)]
    committed = rig.write(store, together(topic, given, size=ENTRY.bytes // 5))
    assert [len(entry.batch) for entry in committed.entries] == [4, 4, 4]
    assert [row[1:] for row in rig.contents(store, topic)] == given


def test_of_broken_sessions_nothing_is_stored(sqlite_rig: Rig) -> None:
    rig = sqlite_rig
    store = rig.open()
    topic, (one, two, three) = rig.topic(store), publishers(rig, store)
    faulty, results = Faulty(store), Results()
    writer = Writer(faulty, time_us=lambda: rig.now, done=results)  # type: ignore[arg-type]
    full = StoreFull("full")
    faulty.errors = [full]
    writer.give(together(topic, [(one, 1), (two, 1)]), "a", session=("one", "two"))
    results.wait(1)
    writer.resume("two")
    writer.give(together(topic, [(one, 2), (two, 1), (three, 1)]), "b", session=("one", "two", "three"))
    writer.give(Append(one, (Part(topic, rows(one, [3])),)), "c", session="one")
    results.wait(3)
    writer.resume("one")
    writer.give(together(topic, [(one, 1), (one, 2)]), "d", session=("one", "one"))
    writer.close()
    good = AppendedRows({}, 0)
    assert results.all == [("a", full), ("b", AppendedRows({0: full}, 0)), ("c", full), ("d", good)]
    assert [row[1:] for row in rig.contents(store, topic)] == [(two, 1), (three, 1), (one, 1), (one, 2)]


@pytest.mark.parametrize("count", [1, 40])
def test_what_waits_is_one_entry(sqlite_rig: Rig, count: int) -> None:
    rig = sqlite_rig
    store = rig.open()
    topic, known = rig.topic(store), publishers(rig, store, 5)
    results, gate = Results(), threading.Event()
    writer = Writer(store, time_us=lambda: rig.now, done=results)
    writer.call(lambda: gate.wait(60) and None)
    for stamp in range(1, 1 + count):
        writer.give(together(topic, [(publisher, stamp) for publisher in known]), stamp, session=tuple(known))
    gate.set()
    writer.close()
    assert [(entry.first, len(entry.batch)) for entry in results.entries] == [(0, 5 * count)]
    assert len(rig.contents(store, topic)) == 5 * count
