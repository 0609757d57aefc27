"""The thread that writes: groups, order, sessions that broke."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest

from milepost.errors import Closed, Fenced, InvalidValue, MilepostError, StoreFull, StoreUnavailable
from milepost.operations import Append, Appended, Entry, Operation, Part, Retention, Work
from milepost.storage import Store, Writer
from milepost.storage.database import Session
from milepost.storage.execution import Committed, Spoiled, WorkContext, execute
from milepost.storage.loop_writer import LoopWriter
from milepost.storage.upkeep import UpkeepStep
from milepost.storage.writer import MaintenancePace
from tests.unit.storage.conftest import Rig, rows


class Results:
    """What a writer reports, to wait for."""

    def __init__(self) -> None:
        self.all: list[tuple[Any, Any]] = []
        self.groups: list[int] = []
        self.entries: list[Entry] = []
        self._changed = threading.Condition()

    def __call__(self, results: list[tuple[Any, Any]], entries: list[Entry]) -> None:
        with self._changed:
            self.all += results
            self.groups.append(len(results))
            self.entries += entries
            self._changed.notify_all()

    def wait(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.all) >= count, timeout=60)


class Faulty:
    """A store that fails when it is told to; everything else is the real one's."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.beat_s = store.beat_s
        self.errors: list[MilepostError | None] = []
        self.looked = threading.Event()  # there is no more upkeep to do

    def write(self, operations: Sequence[Operation], time_us: int) -> Committed:
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        return self.store.write(operations, time_us)

    def maintain(self, time_us: int) -> UpkeepStep:
        step = self.store.maintain(time_us)
        if not step.more:
            self.looked.set()
        return step

    def late(self) -> list[Entry]:
        return self.store.late()


def append(publisher: int, topic: int, stamp: int) -> Append:
    return Append(publisher, (Part(topic, rows(publisher, [stamp])),))


def test_what_waits_is_committed_together(rig: Rig) -> None:
    store = rig.open()
    topic, publisher = rig.topic(store), rig.enrol(store)
    results, gate = Results(), threading.Event()
    writer = Writer(store, time_us=lambda: rig.now, done=results)
    writer.call(lambda: gate.wait(60) and None)
    for stamp in range(1, 101):
        writer.give(append(publisher, topic, stamp), stamp, "connection")
    gate.set()
    results.wait(100)
    assert results.groups == [100]
    assert results.all == [(stamp, Appended(1, 0)) for stamp in range(1, 101)]
    assert [(entry.first, len(entry.batch)) for entry in results.entries] == [(0, 100)]
    writer.close()
    with pytest.raises(Closed):
        writer.give(append(publisher, topic, 101))
    assert len(rig.contents(store, topic)) == 100


def test_closing_writes_what_was_given(rig: Rig) -> None:
    store = rig.open()
    topic, publisher = rig.topic(store), rig.enrol(store)
    results = Results()
    writer = Writer(store, time_us=lambda: rig.now, done=results)
    called: list[int] = []
    for stamp in range(1, 51):
        writer.give(append(publisher, topic, stamp), stamp)
        writer.call(lambda: called.append(len(results.all)))
    writer.close()
    assert called == list(range(1, 51))  # each in its turn
    assert len(rig.contents(store, topic)) == 50


def test_groups_are_bounded_in_bytes(sqlite_rig: Rig) -> None:
    store = sqlite_rig.open()
    topic, publisher = sqlite_rig.topic(store), sqlite_rig.enrol(store)
    results, gate = Results(), threading.Event()
    writer = Writer(store, time_us=lambda: sqlite_rig.now, done=results)
    writer.call(lambda: gate.wait(60) and None)
    for stamp in range(1, 21):
        writer.give(Append(publisher, (Part(topic, rows(publisher, [stamp], size=1 << 20)),)), stamp)
    gate.set()
    writer.close()
    assert results.groups == [8, 8, 4]


def test_a_session_that_broke_stays_broken_until_it_resumes(sqlite_rig: Rig) -> None:
    rig = sqlite_rig
    store = rig.open()
    topic = rig.topic(store)
    one, two = rig.enrol(store, "one", 1), rig.enrol(store, "two", 2)
    faulty, results = Faulty(store), Results()
    writer = Writer(faulty, time_us=lambda: rig.now, done=results)  # type: ignore[arg-type]
    full = StoreFull("full")
    faulty.errors = [full]
    writer.give(append(one, topic, 1), "a", session=1)
    results.wait(1)
    writer.give(append(one, topic, 2), "b", session=1)
    writer.give(append(two, topic, 1), "c", session=2)
    results.wait(3)
    writer.resume(1)
    writer.give(append(one, topic, 1), "d", session=1)
    writer.give(append(one, topic, 2), "e", session=1)
    writer.close()
    good = Appended(1, 0)
    assert results.all == [("a", full), ("b", full), ("c", good), ("d", good), ("e", good)]
    assert [row[1:] for row in rig.contents(store, topic)] == [(two, 1), (one, 1), (one, 2)]


def test_once_the_log_is_taken_everything_fails(sqlite_rig: Rig) -> None:
    rig = sqlite_rig
    store = rig.open()
    topic, publisher = rig.topic(store), rig.enrol(store)
    faulty, results = Faulty(store), Results()
    writer = Writer(faulty, time_us=lambda: rig.now, done=results)  # type: ignore[arg-type]
    fenced = Fenced("taken")
    faulty.errors = [StoreUnavailable("away"), fenced]
    for stamp in range(1, 4):
        writer.give(append(publisher, topic, stamp), stamp, session=stamp)
        results.wait(stamp)
    writer.resume(3)
    writer.give(append(publisher, topic, 4), 4, session=4)
    writer.close()
    assert [type(outcome).__name__ for _, outcome in results.all] == ["StoreUnavailable", "Fenced", "Fenced", "Fenced"]


def test_upkeep_goes_on_while_nothing_waits(rig: Rig) -> None:
    store = rig.open()
    topic, publisher = rig.topic(store), rig.enrol(store)
    for stamp in range(1, 101):
        rig.append(store, topic, publisher, [stamp])
    assert store.extents(topic)[topic][store.log].entries == 100
    faulty = Faulty(store)
    writer = Writer(faulty, time_us=lambda: rig.now, done=Results(), maintain_s=0.001)  # type: ignore[arg-type]
    assert faulty.looked.wait(60)
    writer.close()
    assert store.extents(topic)[topic][store.log].entries == 1
    assert [row[2] for row in rig.contents(store, topic)] == list(range(1, 101))


@pytest.mark.slow
def test_upkeep_has_its_share_while_there_is_always_something_to_write(rig: Rig) -> None:
    """Rows that are too old go, small entries are joined and a dropped topic goes, beside writes without a pause."""
    store = rig.open()
    topic, publisher = rig.topic(store, retention=Retention(0.000_001, None, False)), rig.enrol(store)
    kept, dropped = rig.topic(store, "kept"), rig.topic(store, "dropped")
    for stamp in range(1, 201):
        rig.append(store, dropped, publisher, [stamp])
    rig.sql("INSERT INTO dropped (topic) VALUES (?)", dropped)
    stamps, over = count(201), threading.Event()
    results = Results()
    writer: Writer

    def done(outcomes: list[tuple[Any, Any]], entries: list[Entry]) -> None:
        results(outcomes, entries)
        rig.now += 1_000
        if not over.is_set():
            writer.give(append(publisher, (topic, kept)[len(results.groups) % 2], next(stamps)))

    writer = Writer(store, time_us=lambda: rig.now, done=done, maintain_s=0.001)
    writer.call(lambda: writer.give(append(publisher, kept, next(stamps))))
    try:
        results.wait(300)
        patience = time.monotonic() + 60
        while True:
            found = store.extents()
            old, small = found[topic][store.log], found[kept][store.log]
            left = rig.sql("SELECT count(*) FROM entries WHERE topic = ?", dropped)[0][0]
            if old.start > 0 and small.entries < small.rows - 32 and not left:
                break
            assert time.monotonic() < patience, (old, small, left)
    finally:
        over.set()
        writer.close()
    assert max(results.groups) == 1  # there was never a pause, and nothing waited for long enough to join


def test_upkeep_rests_for_its_last_step_and_not_for_all_before_it() -> None:
    pace = MaintenancePace(1.0, 0.0)
    now = 0.0
    for _ in range(100):  # a long catch-up, alone: without a pause
        pace.stepped(now, now + 0.5, UpkeepStep(more=True, worked=True))
        now += 0.5
        assert pace.due == now
    pace.stepped(now, now + 0.001, UpkeepStep(more=False, worked=False))
    assert pace.due == pytest.approx(now + 1.001)
    pace.wrote = True
    pace.stepped(now, now + 0.01, UpkeepStep(more=True, worked=True))  # beside writes: its share,
    assert pace.due == pytest.approx(now + 0.01 + 2.0)
    pace.wrote = True
    pace.stepped(now + 60, now + 60.01, UpkeepStep(more=True, worked=True))  # which grows while it is behind
    assert pace.due == pytest.approx(now + 60.01 + 0.03)
    pace.stepped(now, now + 60.0, UpkeepStep(more=False, worked=False))  # a database that was away
    assert pace.due == pytest.approx(now + 63.0)
    assert MaintenancePace(1.0, 0.0, 0.1).due == 0.1


class Piece(Work):
    """Counts how often it is run; a bad one fails half done."""

    def __init__(self, bad: bool) -> None:
        self.bad = bad
        self.runs = 0


@execute.register
def _(piece: Piece, session: Session, context: WorkContext) -> str:
    piece.runs += 1
    if piece.bad:
        raise Spoiled(InvalidValue("bad"))
    return "good"


def test_what_fails_half_done_costs_the_others_little(rig: Rig) -> None:
    """A group is not written again for each of a hundred mistakes in it."""
    store = rig.open()
    results, gate = Results(), threading.Event()
    writer = Writer(store, time_us=lambda: rig.now, done=results)
    writer.call(lambda: gate.wait(60) and None)
    pieces = [Piece(bad=number >= 100) for number in range(200)]
    for number, piece in enumerate(pieces):
        writer.give(piece, number)
    gate.set()
    results.wait(200)
    writer.close()
    assert [context for context, _ in results.all] == list(range(200))
    assert [outcome == "good" for _, outcome in results.all] == [not piece.bad for piece in pieces]
    assert all(isinstance(outcome, InvalidValue) for _, outcome in results.all[100:])
    assert max(piece.runs for piece in pieces) <= 16  # four for each time that the group falls apart


def test_upkeep_has_its_share_in_an_event_loop_too(postgresql_rig: Rig) -> None:
    """A client without a broker that writes again as soon as something is written."""
    rig = postgresql_rig
    store = rig.open()
    topic, publisher = rig.topic(store, retention=Retention(0.000_001, None, False)), rig.enrol(store)

    async def play() -> None:
        stamps, over, ended = count(1), asyncio.Event(), asyncio.Event()
        writer: LoopWriter

        def done(outcomes: list[tuple[Any, Any]], entries: list[Entry]) -> None:
            rig.now += 1_000
            if store.extents(topic)[topic][store.log].start > 0:
                over.set()
            if over.is_set():
                ended.set()
            else:
                writer.give(append(publisher, topic, next(stamps)))

        writer = LoopWriter(store, time_us=lambda: rig.now, done=done, brief=lambda _: False, maintain_s=0.001)
        writer.give(append(publisher, topic, next(stamps)))
        try:
            async with asyncio.timeout(60):
                await ended.wait()
        finally:
            over.set()
            await writer.end()

    asyncio.run(play())
