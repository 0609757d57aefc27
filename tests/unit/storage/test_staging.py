"""Staging in the store: what is seen, when, and that it is seen once."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milepost import limits
from milepost.errors import CorruptLog, LimitExceeded, StagingLost, UnknownTopic
from milepost.operations import (
    Append,
    ChangeTopic,
    DropTopic,
    Epoch,
    Part,
    Publish,
    Published,
    Retention,
    Stage,
    Staged,
    Trim,
    Unstage,
)
from milepost.query import parse_schema
from milepost.storage import Store, entries, staging, upkeep
from milepost.storage.execution import Committed
from milepost.storage.upkeep import NAMED_SILENT_S
from tests.conftest import Server
from tests.unit.storage.conftest import NEWER, Rig, rows
from tests.unit.storage.test_properties import EACH, fresh

ME, OTHER = b"m" * 16, b"o" * 16
LARGE = entries.KEPT_BYTES  # of a symbol: such a row is a piece that stays where it is


def piece(
    topic: int, stamps: Sequence[int], sequence: int = 0, *, epoch: int = 1, part: int = 0, attempt: int = 0,
    sink: str = "sink", writer: bytes = ME, size: int = 3,
) -> Stage:  # fmt: skip
    return Stage(sink, epoch, part, attempt, sequence, writer, topic, rows(5, stamps, size=size))


def stamps(rig: Rig, store: Store, topic: int, log: int | None = None) -> list[int]:
    """Of every row that can be read; offsets are dense."""
    found = rig.contents(store, topic, log)
    assert [offset for offset, _, _ in found] == list(range(len(found)))
    return [stamp for _, _, stamp in found]


def left(rig: Rig) -> dict[str, int]:
    """Rows of the tables of staging."""
    tables = ("stages", "pieces", "discarded")
    return {table: rig.sql(f"SELECT count(*) FROM {table}")[0][0] for table in tables}


NOTHING = {"stages": 0, "pieces": 0, "discarded": 0}


def test_staged_rows_are_seen_when_they_are_published_and_not_before(rig: Rig) -> None:
    store = rig.open()
    topic = rig.topic(store)
    assert rig.do(store, Epoch("sink")) is None
    assert rig.do(store, piece(topic, [1, 2])) == Staged(2, "staged")
    assert rig.do(store, piece(topic, [3], 1)) == Staged(1, "staged")
    assert stamps(rig, store, topic) == []
    assert store.extents(topic) == {}
    committed = rig.write(store, Publish("sink", 1, ((0, 0),)))
    assert committed.outcomes == [Published(False, 3)]
    assert stamps(rig, store, topic) == [1, 2, 3]
    assert [(entry.topic, entry.first, len(entry.batch)) for entry in committed.entries] == [(topic, 0, 3)]
    assert rig.do(store, Epoch("sink")) == 1
    assert left(rig) == NOTHING


def test_an_epoch_is_published_once(rig: Rig) -> None:
    store = rig.open()
    topic = rig.topic(store)
    rig.do(store, piece(topic, [1]))
    publish = Publish("sink", 1, ((0, 0),))
    assert rig.do(store, publish) == Published(False, 1)
    assert rig.do(store, publish) == Published(True, 0)
    assert rig.do(store, piece(topic, [2])) == Staged(1, "late")
    assert rig.do(store, publish) == Published(True, 0)
    assert rig.do(store, Publish("sink", 0, ())) == Published(True, 0)
    store.close()
    store = rig.open()
    assert rig.do(store, publish) == Published(True, 0)
    assert stamps(rig, store, topic) == [1]
    assert left(rig) == NOTHING


def test_an_epoch_may_be_empty_and_may_leave_some_out(rig: Rig) -> None:
    store = rig.open()
    assert rig.do(store, Publish("sink", 0, ())) == Published(False, 0)
    assert rig.do(store, Epoch("sink")) == 0
    assert rig.do(store, Publish("sink", 7, ())) == Published(False, 0)
    assert rig.do(store, Epoch("sink")) == 7


def test_an_epoch_of_many_parts(rig: Rig) -> None:
    store = rig.open()
    topic = rig.topic(store)
    rig.write(store, *(piece(topic, [part + 1], part=part) for part in range(300)))
    publish = Publish("sink", 1, tuple((part, 0) for part in reversed(range(300))))
    committed = rig.write(store, publish)
    assert committed.outcomes == [Published(False, 300)]
    assert len(committed.entries) == 1, "small pieces are joined"
    assert stamps(rig, store, topic) == list(range(300, 0, -1))
    assert left(rig) == NOTHING


def test_parts_come_in_the_order_they_are_named_in_and_attempts_that_are_not_named_go(rig: Rig) -> None:
    store = rig.open()
    one, two = rig.topic(store), rig.topic(store, "two")
    rig.do(store, piece(one, [1], part=0))
    rig.do(store, piece(one, [2], part=1, attempt=4))
    rig.do(store, piece(two, [3], 1, part=1, attempt=4))
    rig.do(store, piece(one, [4], 2, part=1, attempt=4))
    rig.do(store, piece(one, [5], part=1, attempt=5))
    rig.do(store, piece(one, [6], part=2, epoch=0))
    rig.do(store, piece(one, [7], part=2, epoch=2))
    assert rig.do(store, Publish("sink", 1, ((1, 4), (0, 0)))) == Published(False, 4)
    assert (stamps(rig, store, one), stamps(rig, store, two)) == ([2, 4, 1], [3])
    rig.maintain(store)
    assert left(rig) == {"stages": 1, "pieces": 1, "discarded": 0}, "of the next epoch"
    assert rig.do(store, Publish("sink", 2, ((2, 0),))) == Published(False, 1)
    assert stamps(rig, store, one) == [2, 4, 1, 7]
    assert left(rig) == NOTHING


def test_sinks_are_nothing_to_each_other(rig: Rig) -> None:
    store = rig.open()
    topic = rig.topic(store)
    rig.do(store, piece(topic, [1], sink="a"))
    rig.do(store, piece(topic, [2], sink="b"))
    rig.do(store, Publish("a", 5, ()))
    assert rig.do(store, Publish("b", 1, ((0, 0),))) == Published(False, 1)
    assert [rig.do(store, Epoch(name)) for name in "abc"] == [5, 1, None]
    assert stamps(rig, store, topic) == [2]


def test_a_piece_that_comes_again_is_there_once(rig: Rig) -> None:
    store = rig.open()
    topic = rig.topic(store)
    rig.do(store, piece(topic, [1]))
    rig.do(store, piece(topic, [2], 1))
    assert rig.do(store, piece(topic, [1])) == Staged(1, "repeated")
    assert rig.do(store, piece(topic, [2], 1)) == Staged(1, "repeated")
    assert rig.do(store, piece(topic, [3], 2)) == Staged(1, "staged")
    rig.do(store, Publish("sink", 1, ((0, 0),)))
    assert stamps(rig, store, topic) == [1, 2, 3]


def test_a_piece_behind_one_that_is_missing_is_refused(rig: Rig) -> None:
    store = rig.open()
    topic = rig.topic(store)
    with pytest.raises(StagingLost, match="piece 1 of part 0"):
        rig.do(store, piece(topic, [2], 1))
    rig.do(store, piece(topic, [1]))
    with pytest.raises(StagingLost, match="piece 2"):
        rig.do(store, piece(topic, [3], 2))
    rig.do(store, Unstage("sink", 1))
    with pytest.raises(StagingLost, match="piece 1"):
        rig.do(store, piece(topic, [2], 1))


def test_a_client_that_begins_an_attempt_of_another_takes_its_place(rig: Rig) -> None:
    store = rig.open()
    topic = rig.topic(store)
    rig.do(store, piece(topic, [1], writer=OTHER))
    rig.do(store, piece(topic, [2], 1, writer=OTHER))
    with pytest.raises(StagingLost):
        rig.do(store, piece(topic, [9], 2))  # of which the beginning went elsewhere
    assert rig.do(store, piece(topic, [3])) == Staged(1, "staged")
    with pytest.raises(StagingLost):
        rig.do(store, piece(topic, [4], 2, writer=OTHER))
    rig.do(store, Publish("sink", 1, ((0, 0),)))
    assert stamps(rig, store, topic) == [3]
    rig.maintain(store)
    assert left(rig) == NOTHING


def test_a_part_of_which_nothing_is_there_stops_all(rig: Rig) -> None:
    store = rig.open()
    topic = rig.topic(store)
    with pytest.raises(StagingLost, match="nothing is staged for part 0"):
        rig.do(store, Publish("sink", 1, ((0, 0),)))
    rig.do(store, piece(topic, [1]))
    with pytest.raises(StagingLost, match=r"part 1 \(attempt 3\).*nothing was published"):
        rig.do(store, Publish("sink", 1, ((0, 0), (1, 3))))
    assert rig.do(store, Epoch("sink")) is None
    assert stamps(rig, store, topic) == []
    rig.do(store, piece(topic, [2], part=1, attempt=3))
    assert rig.do(store, Publish("sink", 1, ((0, 0), (1, 3)))) == Published(False, 2)


def test_what_is_unstaged_is_never_seen(rig: Rig) -> None:
    store = rig.open()
    topic = rig.topic(store)
    rig.do(store, Unstage("nobody", 1))
    rig.do(store, piece(topic, [1]))
    rig.do(store, piece(topic, [2], epoch=2))
    rig.do(store, Unstage("sink", 1))
    with pytest.raises(StagingLost):
        rig.do(store, Publish("sink", 1, ((0, 0),)))
    assert rig.do(store, Publish("sink", 2, ((0, 0),))) == Published(False, 1)
    rig.do(store, Unstage("sink", 2))
    assert rig.do(store, Epoch("sink")) == 2
    assert stamps(rig, store, topic) == [2]


def test_a_large_piece_stays_where_it_is_and_is_read_from_there(rig: Rig) -> None:
    store = rig.open()
    topic, publisher = rig.topic(store), rig.enrol(store)
    rig.append(store, topic, publisher, [1])
    rig.do(store, piece(topic, [2], size=LARGE))
    rig.do(store, piece(topic, [3], 1))
    rig.do(store, piece(topic, [4], 2))
    rig.do(store, piece(topic, [5], 3, size=LARGE))
    rig.do(store, piece(topic, [6], 4, size=LARGE))
    committed = rig.write(store, Publish("sink", 1, ((0, 0),)))
    assert [(entry.first, len(entry.batch)) for entry in committed.entries] == [(1, 1), (2, 2), (4, 1), (5, 1)]
    rig.append(store, topic, publisher, [7])
    assert stamps(rig, store, topic) == [1, 2, 3, 4, 5, 6, 7]
    assert left(rig)["pieces"] == 3
    assert store.extents(topic)[topic][store.log].bytes > 3 * LARGE
    store.close()
    store = rig.open()
    assert stamps(rig, store, topic) == [1, 2, 3, 4, 5, 6, 7]
    assert [entry.first for entry in store.read(topic, store.log, 4, max_bytes=1)] == [4]
    rig.maintain(store)
    assert stamps(rig, store, topic) == [1, 2, 3, 4, 5, 6, 7]
    rig.do(store, Trim(topic, {store.log: 5}))
    rig.maintain(store)
    assert left(rig)["pieces"] == 1, "a piece goes with the entry that it is of"
    rig.do(store, DropTopic(topic))
    rig.maintain(store)
    assert left(rig)["pieces"] == 0


def test_a_stage_is_read_some_pieces_at_a_time(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    store = rig.open()
    topic = rig.topic(store)
    monkeypatch.setattr(staging, "READ_BYTES", 2 * len(rows(5, [1]).data))
    for sequence in range(7):
        rig.do(store, piece(topic, [sequence + 1], sequence, size=1000 if sequence == 3 else 3))
    rig.do(store, Publish("sink", 1, ((0, 0),)))
    assert stamps(rig, store, topic) == [1, 2, 3, 4, 5, 6, 7]
    rig.do(store, piece(topic, [8], epoch=2))
    rig.do(store, piece(topic, [9], 1, epoch=2))
    rig.sql("DELETE FROM pieces WHERE sequence = 0")
    with pytest.raises(CorruptLog, match="of 2 pieces that are staged together, 1 are there"):
        rig.do(store, Publish("sink", 2, ((0, 0),)))


def test_pieces_are_compacted_like_other_entries(rig: Rig) -> None:
    store = rig.open()
    topic = rig.topic(store)
    for epoch in range(1, 7):
        rig.do(store, piece(topic, [epoch], epoch=epoch, size=LARGE))
        rig.do(store, Publish("sink", epoch, ((0, 0),)))
    assert left(rig)["pieces"] == 6
    rig.maintain(store)
    assert left(rig)["pieces"] == 0
    assert store.extents(topic)[topic][store.log].entries < 6
    assert stamps(rig, store, topic) == [1, 2, 3, 4, 5, 6]


def test_rows_that_are_old_take_their_pieces_along(rig: Rig) -> None:
    store = rig.open()
    topic = rig.topic(store, retention=Retention(1.0))
    rig.do(store, piece(topic, [1], size=LARGE))
    rig.do(store, Publish("sink", 1, ((0, 0),)))
    rig.maintain(store, rig.now + 2_000_000)
    assert (left(rig)["pieces"], rig.sql("SELECT count(*) FROM entries")) == (0, [(0,)])


def test_a_topic_that_is_gone_stops_all(rig: Rig) -> None:
    store = rig.open()
    one, two = rig.topic(store), rig.topic(store, "two")
    rig.do(store, piece(one, [1]))
    rig.do(store, piece(two, [2], 1))
    rig.do(store, DropTopic(two))
    with pytest.raises((StagingLost, UnknownTopic)):
        rig.do(store, Publish("sink", 1, ((0, 0),)))
    assert stamps(rig, store, one) == []
    rig.do(store, Unstage("sink", 1))
    rig.maintain(store)
    assert left(rig) == NOTHING


def test_rows_of_several_versions_are_published_together(rig: Rig) -> None:
    store = rig.open()
    topic = rig.topic(store)
    rig.do(store, ChangeTopic(topic, schema=NEWER))
    rig.do(store, piece(topic, [1]))
    rig.do(store, Stage("sink", 1, 0, 0, 1, ME, topic, rows(5, [2], parse_schema(NEWER))))
    committed = rig.write(store, Publish("sink", 1, ((0, 0),)))
    assert [len(entry.batch) for entry in committed.entries] == [1, 1]
    assert [entry.batch.schema.fingerprint for entry in committed.entries] == [
        parse_schema(text).fingerprint for text in ("quote: [symbol: string, number: long]", NEWER)
    ]


def test_appends_around_a_publish_keep_their_places(rig: Rig) -> None:
    store = rig.open()
    topic, publisher = rig.topic(store), rig.enrol(store)

    def append(stamp: int) -> Append:
        return Append(publisher, (Part(topic, rows(publisher, [stamp])),))

    committed: Committed = rig.write(
        store, append(1), piece(topic, [10]), append(2), Publish("sink", 1, ((0, 0),)), append(3)
    )
    assert [type(outcome).__name__ for outcome in committed.outcomes] == [
        "Appended", "Staged", "Appended", "Published", "Appended",
    ]  # fmt: skip
    assert stamps(rig, store, topic) == [1, 2, 10, 3]
    assert [(entry.first, len(entry.batch)) for entry in committed.entries] == [(0, 2), (2, 1), (3, 1)]


def test_a_sink_has_a_limit(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    store = rig.open()
    topic = rig.topic(store)
    size = staging.PIECE_LEAST  # which a small one counts for
    monkeypatch.setattr(limits, "STAGED_BYTES", 3 * size)
    for sequence in range(3):
        rig.do(store, piece(topic, [sequence + 1], sequence))
    with pytest.raises(LimitExceeded, match="STAGED_BYTES"):
        rig.do(store, piece(topic, [4], 3))
    assert rig.do(store, piece(topic, [3], 2)) == Staged(1, "repeated")
    rig.do(store, piece(topic, [1], sink="another"))
    with pytest.raises(LimitExceeded):
        rig.do(store, piece(topic, [4], part=1))
    rig.do(store, piece(topic, [5], writer=OTHER))  # takes the place of three
    rig.do(store, piece(topic, [6], 1, writer=OTHER))
    rig.do(store, Publish("sink", 1, ((0, 0),)))
    assert stamps(rig, store, topic) == [5, 6]
    for sequence in range(3):
        rig.do(store, piece(topic, [sequence + 7], sequence, epoch=2))
    rig.do(store, Unstage("sink", 2))
    rig.do(store, piece(topic, [9], epoch=2))
    assert rig.sql("SELECT bytes FROM sinks WHERE name = 'sink'") == [(size,)]
    with pytest.raises(LimitExceeded):
        rig.do(store, piece(topic, [10], 1, epoch=2, size=2 * size))


def test_what_a_silent_sink_has_staged_goes(rig: Rig) -> None:
    store = rig.open(staged_s=10.0)
    topic = rig.topic(store)
    for name in ("silent", "other"):
        rig.do(store, piece(topic, [1], sink=name, epoch=0))
        rig.do(store, Publish(name, 0, ((0, 0),)))
    for sequence in range(200):
        rig.do(store, piece(topic, [sequence + 2], sequence, sink="silent"))
    rig.now += 9_000_000
    rig.do(store, piece(topic, [3], sink="other"))
    rig.maintain(store)
    assert left(rig)["stages"] == 2
    rig.now += 2_000_000
    assert rig.maintain(store) > 200 // upkeep.STEP_ENTRIES, "in steps"
    assert left(rig) == {"stages": 1, "pieces": 1, "discarded": 0}
    assert rig.sql("SELECT bytes FROM sinks WHERE name = 'silent'") == [(0,)]
    with pytest.raises(StagingLost):
        rig.do(store, Publish("silent", 1, ((0, 0),)))
    assert rig.do(store, Epoch("silent")) == 0, "which is remembered for longer"
    rig.maintain(store, rig.now + int(NAMED_SILENT_S * 1e6) + 10_000_000)
    rig.maintain(store, rig.now + int(NAMED_SILENT_S * 1e6) + 10_000_000)
    assert rig.do(store, Epoch("silent")) is None


def test_a_damaged_piece_stops_its_epoch_and_nothing_else(rig: Rig) -> None:
    store = rig.open()
    topic, publisher = rig.topic(store), rig.enrol(store)
    rig.do(store, piece(topic, [1]))
    whole = bytes(rows(5, [1]).data)
    rig.sql("UPDATE pieces SET data = ?", whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(CorruptLog, match="not what was written"):
        rig.do(store, Publish("sink", 1, ((0, 0),)))
    rig.append(store, topic, publisher, [2])
    rig.do(store, Unstage("sink", 1))
    rig.do(store, piece(topic, [3]))
    rig.do(store, Publish("sink", 1, ((0, 0),)))
    assert stamps(rig, store, topic) == [2, 3]
    rig.do(store, piece(topic, [4], epoch=2, size=LARGE))
    rig.do(store, Publish("sink", 2, ((0, 0),)))
    rig.sql("UPDATE pieces SET data = ?", whole)
    with pytest.raises(CorruptLog, match="offset 2"):
        store.read(topic, store.log, 2)
    rig.sql("DELETE FROM pieces")
    with pytest.raises(CorruptLog, match="offset 2"):
        store.read(topic, store.log, 2)


def test_two_brokers_publish_an_epoch_once(postgresql_rig: Rig) -> None:
    """At the same moment, and from what was staged through either of them."""
    rig = postgresql_rig
    stores = [rig.open("one"), rig.open("two")]
    topic = rig.topic(stores[0])
    expected = []
    for epoch in range(1, 11):
        for part, store in enumerate(stores):
            rig.do(store, piece(topic, [10 * epoch + part], epoch=epoch, part=part))
            expected.append(10 * epoch + part)
        outcomes: list[Any] = []
        both = threading.Barrier(2)

        def publish(store: Store, epoch: int = epoch, both: Any = both, outcomes: list[Any] = outcomes) -> None:
            both.wait()
            outcomes.append(store.write([Publish("sink", epoch, ((1, 0), (0, 0)))], rig.now).outcomes[0])

        threads = [threading.Thread(target=publish, args=(store,)) for store in stores]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(outcomes) == [Published(False, 2), Published(True, 0)]
    found = [stamp for store in stores for stamp in stamps(rig, stores[0], topic, store.log)]
    assert sorted(found) == sorted(expected)
    assert left(rig) == NOTHING


# Any order of staging, publishing, throwing away, reopening and upkeep, against a model of dicts.

numbers = st.integers(0, 2)
scripts = st.lists(
    st.one_of(
        # sink, epoch, part, attempt, topic, rows, whose: the next piece of that attempt
        st.tuples(st.just("stage"), numbers, numbers, numbers, numbers, st.integers(0, 1), st.integers(1, 3), numbers),
        # the same, a piece again that came already
        st.tuples(st.just("again"), numbers, numbers, numbers, numbers),
        st.tuples(st.just("publish"), numbers, numbers, st.lists(st.tuples(numbers, numbers), max_size=3)),
        st.tuples(st.just("unstage"), numbers, numbers),
        st.sampled_from([("reopen",), ("maintain",)]),
    ),
    max_size=30,
)


class Model:
    """A dict of what is staged, an epoch for each sink, and a list for each topic."""

    def __init__(self, topics: list[int]) -> None:
        self.epochs: dict[str, int | None] = {}
        self.staged: dict[tuple[str, int, int, int], tuple[bytes, list[tuple[int, list[int]]]]] = {}
        self.seen: dict[int, list[int]] = {topic: [] for topic in topics}

    def stage(self, given: Stage, values: list[int]) -> Any:
        epoch = self.epochs.get(given.sink)
        if epoch is not None and given.epoch <= epoch:
            return Staged(len(values), "late")
        key = given.sink, given.epoch, given.part, given.attempt
        writer, pieces = self.staged.get(key, (given.writer, []))
        if writer != given.writer:
            pieces = []
        if given.sequence < len(pieces):
            return Staged(len(values), "repeated")
        if given.sequence > len(pieces):
            return StagingLost
        self.staged[key] = given.writer, [*pieces, (given.topic, values)]
        return Staged(len(values), "staged")

    def publish(self, given: Publish) -> Any:
        epoch = self.epochs.get(given.sink)
        if epoch is not None and given.epoch <= epoch:
            return Published(True, 0)
        keys = [(given.sink, given.epoch, part, attempt) for part, attempt in given.parts]
        if not all(key in self.staged for key in keys):
            return StagingLost
        count = 0
        for key in keys:
            for topic, values in self.staged[key][1]:
                self.seen[topic] += values
                count += len(values)
        self.epochs[given.sink] = given.epoch
        self.staged = {key: kept for key, kept in self.staged.items() if key[0] != given.sink or key[1] > given.epoch}
        return Published(False, count)

    def unstage(self, given: Unstage) -> None:
        self.staged = {key: kept for key, kept in self.staged.items() if key[:2] != (given.sink, given.epoch)}


def check_script(rig: Rig, script: list[Any], together: int) -> None:
    """`together` operations are a transaction."""
    store = rig.open()
    topics = [rig.topic(store), rig.topic(store, "two")]
    model = Model(topics)
    stamp = 0
    group: list[tuple[Any, Any]] = []

    def write() -> None:
        outcomes = rig.write(store, *(operation for operation, _ in group)).outcomes
        for outcome, (operation, expected) in zip(outcomes, group, strict=True):
            assert type(outcome) is expected if isinstance(expected, type) else outcome == expected, operation
        group.clear()

    for what, *rest in [*script, ("maintain",)]:
        operation: Any
        if what in ("reopen", "maintain") or len(group) == together:
            write()
        if what == "reopen":
            store.close()
            store = rig.open()
            continue
        if what == "maintain":
            rig.maintain(store)
            continue
        sink = f"sink {rest[0]}"
        if what in ("stage", "again"):
            _, epoch, part, attempt, *more = rest
            writer, pieces = model.staged.get((sink, epoch, part, attempt), (ME, []))
            if what == "again":
                topic, values = pieces[0] if pieces else (topics[0], [stamp + 1])
                operation = piece(topic, values, 0, epoch=epoch, part=part, attempt=attempt, sink=sink, writer=writer)
            else:
                chosen, count, whose = more
                values = list(range(stamp + 1, stamp + count + 1))
                sequence = len(pieces)
                if whose == 2:
                    writer, sequence = (OTHER if writer == ME else ME), 0  # a process that came after another
                operation = piece(
                    topics[chosen], values, sequence + (whose == 1 and count == 3), epoch=epoch, part=part,
                    attempt=attempt, sink=sink, writer=writer, size=LARGE if stamp % 4 == 0 else 3,
                )  # fmt: skip
            stamp += len(values)
            expected = model.stage(operation, values)
        elif what == "publish":
            operation = Publish(sink, rest[1], tuple(dict(rest[2]).items()))
            expected = model.publish(operation)
        else:
            operation = Unstage(sink, rest[1])
            expected = model.unstage(operation)
        group.append((operation, expected))
    for topic in topics:
        assert stamps(rig, store, topic) == model.seen[topic]
    for sink, epoch in model.epochs.items():
        assert rig.do(store, Epoch(sink)) == epoch
    rig.maintain(store)
    assert left(rig)["stages"] == len(model.staged)
    held = rig.sql("SELECT coalesce(sum(bytes), 0) FROM stages")[0][0]
    assert rig.sql("SELECT coalesce(sum(bytes), 0) FROM sinks")[0][0] == held
    for topic in topics:
        assert stamps(rig, store, topic) == model.seen[topic]


@given(scripts, st.integers(1, 5))
def test_any_script_does_what_the_model_says(script: list[Any], together: int) -> None:
    with fresh() as rig:
        check_script(rig, script, together)


@settings(max_examples=10, suppress_health_check=EACH)
@given(script=scripts, together=st.integers(1, 5))
def test_any_script_does_what_the_model_says_on_postgresql(
    postgresql_server: Server, script: list[Any], together: int
) -> None:
    url = postgresql_server.database()
    rig = Rig(url)
    try:
        check_script(rig, script, together)
    finally:
        rig.close()
        postgresql_server.drop(url)
