"""Looking into queues beside readers that take what is looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import pytest

from milepost import limits
from milepost.operations import Lags
from milepost.operations import queues as ops
from milepost.queues import inspection
from milepost.storage import lookups
from milepost.storage.watch import too_long
from tests.unit.queues.conftest import Queues


class Interrupted(int):
    """A bound of bytes. It is first compared when headers are read and contents are not: then something is done."""

    between: Callable[[], object] | None = None

    def __gt__(self, size: int) -> bool:
        between, self.between = self.between, None
        if between is not None:
            between()
        return int(self) > size


@pytest.mark.parametrize("look", [ops.Peek, ops.Browse])
def test_what_is_taken_during_a_look_is_still_seen_by_it(
    queues: Queues, look: type[ops.Peek] | type[ops.Browse]
) -> None:
    queues.notes()
    queues.party().put("one", "two")
    reader, bound = queues.party(), Interrupted(1 << 20)

    def take() -> None:
        assert reader.dequeue(2) == ["one", "two"]
        reader.commit()

    bound.between = take
    store = queues.store()
    got = store.inspect(look("notes", count=2, most_bytes=bound), queues.now)
    assert [row["text"] for group in got.groups for row in group.batch.to_pylist()] == ["one", "two"]
    assert bound.between is None, "nobody took anything meanwhile"
    assert store.inspect(look("notes", count=2), queues.now).count == 0, "the next look sees what is there then"


@pytest.mark.parametrize("level", ["none", "ordered"])
def test_a_look_of_a_transaction_sees_what_that_would_take(queues: Queues, level: str) -> None:
    queues.notes(level)
    queues.party().put("one", "two")
    reader = queues.party()
    assert reader.dequeue(2) == ["one", "two"]
    reader.enqueue("own")
    store = queues.store()
    assert store.inspect(ops.Peek("notes", count=3), queues.now).count == 0
    assert store.inspect(ops.Peek("notes", count=3, owner=reader.number), queues.now).count == 1
    assert reader.dequeue(3) == ["own"]


def test_queues_are_counted_in_turn_and_as_far_as_time_and_bounds_go(
    queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues.notes(name="dead")
    queues.notes(dead_letter="dead", max_deliveries=1)
    writer, reader = queues.party(), queues.party()
    writer.put("one", "two", "three", "four")
    writer.put("later", due_us=queues.now + 1_000_000_000)
    assert reader.one() == "one"
    store = queues.store()

    def counted(after: int = 0) -> inspection.Counted:
        found = store.inspect(ops.Count(after, 10), queues.now)
        assert isinstance(found, inspection.Counted)
        return found

    found = counted()
    assert {state: found.queues["notes"][state] for state in ("waiting", "delayed", "taken")} == {
        "waiting": 3, "delayed": 1, "taken": 1
    }  # fmt: skip
    assert 0 < found.queues["notes"]["oldest_us"] <= queues.now
    assert found.dead == {"dead": None, "notes": "dead"}
    assert (list(found.queues), found.after, found.time_us) == (["dead", "notes"], 0, queues.now)
    assert found.lags == Lags([], 0, 0)
    assert list(counted(after=1).queues) == ["notes", "dead"], "it goes on behind the last one"
    monkeypatch.setattr(inspection, "COUNTED", 2)
    assert counted().queues["notes"]["waiting"] == 1, "of the two oldest, one is taken"
    monkeypatch.setattr(limits, "QUERY_MS", 0)
    found = counted(after=1)
    assert (found.queues, found.lags, found.after) == ({}, None, 2), "no time at all: the next count goes on behind it"
    assert set(found.dead) == {"dead", "notes"}


def test_queues_are_counted_when_lags_take_too_long_and_the_other_way_round(
    queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues.notes()
    queues.party().put("one")
    store, now = queues.store(), queues.now

    def counted(after: int) -> tuple[list[str], bool, int]:
        found = store.inspect(ops.Count(after, 10), now)
        assert isinstance(found, inspection.Counted)
        return list(found.queues), found.lags is not None, found.after

    def costly(*_: object) -> NoReturn:
        raise too_long(1.0)

    with monkeypatch.context() as slow:
        slow.setattr(lookups, "lags", costly)
        assert counted(0) == (["notes"], False, 1), "lags are the first of the next count"
        assert counted(1) == ([], False, 0), "and are passed over when they alone take too long"
    monkeypatch.setattr(inspection, "statistics", costly)
    assert counted(0) == ([], False, 1)
    assert counted(1) == ([], True, 0)
