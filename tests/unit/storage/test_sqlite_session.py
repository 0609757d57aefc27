"""Appends to one topic are one statement on SQLite: it does what the several would have done, or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from milepost.errors import UnknownTopic
from milepost.operations import Append, Appended, Part
from milepost.storage import Store
from milepost.storage.sqlite_session import SqliteSession
from tests.unit.storage.conftest import Rig, rows


@contextmanager
def counted() -> Iterator[list[dict[str, Any]]]:
    """The values of each append that is one statement."""
    seen: list[dict[str, Any]] = []
    plain = SqliteSession.append_at_once

    def append_at_once(session: SqliteSession, values: dict[str, Any]) -> None:
        plain(session, values)
        seen.append(values)

    SqliteSession.append_at_once = append_at_once  # type: ignore[method-assign, assignment]
    try:
        yield seen
    finally:
        SqliteSession.append_at_once = plain  # type: ignore[method-assign]


def behind(store: Store, text: str) -> None:
    """Change something of which the store's memory knows nothing."""
    store._session.say(text)  # type: ignore[union-attr]


def test_many_publishers_are_one_statement(sqlite_rig: Rig) -> None:
    rig = sqlite_rig
    store = rig.open()
    topic = rig.topic(store)
    publishers = [rig.enrol(store, f"feed {number}") for number in range(5)]
    rig.append(store, topic, publishers[0], [1])
    with counted() as seen:
        appends = [Append(each, (Part(topic, rows(each, [7])),)) for each in publishers]
        committed = rig.write(store, *appends)
    assert committed.outcomes == [Appended(1, 0)] * 5
    assert [(values["rows"], values["publishers"]) for values in seen] == [(5, 5)]
    together = [(1 + number, each, 7) for number, each in enumerate(publishers)]
    assert rig.contents(store, topic) == [(0, publishers[0], 1), *together]
    extent = store.extents(topic)[topic][store.log]
    assert (extent.next, extent.entries) == (6, 2)
    store.close()
    again = rig.open()
    assert [rig.append(again, topic, rig.enrol(again, f"feed {n}"), [7, 8]) for n in range(5)] == [Appended(1, 1)] * 5


@pytest.mark.parametrize("case", ["epochs", "topics", "token"])
def test_what_does_not_fit_into_one_takes_several(sqlite_rig: Rig, case: str) -> None:
    rig = sqlite_rig
    store = rig.open()
    topic, other = rig.topic(store), rig.topic(store, "other")
    one, two = rig.enrol(store, "one"), rig.enrol(store, "two")
    if case == "epochs":
        rig.enrol(store, "two")  # once more
    second = Append(two, (Part(other if case == "topics" else topic, rows(two, [1])),), b"k" * 16 * (case == "token"))
    with counted() as seen:
        assert rig.write(store, Append(one, (Part(topic, rows(one, [1])),)), second).outcomes == [Appended(1, 0)] * 2
    assert not seen
    assert rig.append(store, topic, one, [1]) == Appended(0, 1)
    assert rig.append(store, topic, two, [1]) == Appended(0, 1)


def test_a_check_that_fails_leaves_nothing_behind(sqlite_rig: Rig) -> None:
    rig = sqlite_rig
    store = rig.open()
    topic, publisher = rig.topic(store), rig.enrol(store)
    rig.append(store, topic, publisher, [1])
    behind(store, f"UPDATE extents SET next = 5 WHERE topic = {topic}")
    with counted() as seen:
        assert rig.append(store, topic, publisher, [2]) == Appended(1, 0)  # after all was looked up again
        assert not seen
        assert rig.append(store, topic, publisher, [3]) == Appended(1, 0)
    assert [values["first"] for values in seen] == [6]
    behind(store, f"DELETE FROM extents WHERE topic = {topic}")
    behind(store, f"DELETE FROM topics WHERE number = {topic}")
    with pytest.raises(UnknownTopic):
        rig.append(store, topic, publisher, [4])
    other = rig.topic(store, "other")
    assert rig.append(store, other, publisher, [4]) == Appended(1, 0)  # its high water has not moved
