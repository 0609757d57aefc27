"""What holds for any sequence of appends, any upkeep, any reopening."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from milepost.batch import Batch
from milepost.batch.neighbours import ENTRY
from milepost.errors import DuplicateMessage
from milepost.operations import Append, Appended, Attach, Cursor, Move, Part, Retention
from milepost.storage import Store, compaction
from milepost.storage.compaction import EntryHeader, run_of
from tests.conftest import Server
from tests.unit.storage.conftest import Rig, rows

EACH = [*settings.get_profile("check").suppress_health_check, HealthCheck.function_scoped_fixture]


@contextmanager
def fresh() -> Iterator[Rig]:
    # In memory where that can be had: hundreds of examples, each synced some fifty times.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        rig = Rig(str(Path(folder) / "store.db"))
        try:
            yield rig
        finally:
            rig.close()


# One append: a publisher, its first topic, the stamps of its parts, a token or none. Stamps begin anywhere, so most
# repeat something.
appends = st.tuples(
    st.integers(0, 2),
    st.integers(0, 2),
    st.integers(1, 30),
    st.lists(st.integers(1, 6), min_size=1, max_size=3),
    st.sampled_from([b"", b"", b"a" * 16, b"b" * 16]),
)
steps = st.lists(
    st.one_of(st.lists(appends, min_size=1, max_size=4), st.just("reopen"), st.just("maintain")), max_size=12
)


def check_appends(rig: Rig, script: list[object]) -> None:
    """Run a script against a store and against the simplest model of it: a list for each topic."""
    store = rig.open()
    topics = [rig.topic(store, f"t{number}") for number in range(3)]
    keys = ["p0", "p1", "p2"]
    numbers = [rig.enrol(store, key, 100 + place) for place, key in enumerate(keys)]
    high_waters = [0, 0, 0]
    seen: set[tuple[int, bytes]] = set()
    logs: dict[int, list[tuple[int, int]]] = {topic: [] for topic in topics}
    for step in script:
        if step == "maintain":
            rig.maintain(store)
        elif step == "reopen":
            store.close()
            store = rig.open()
            numbers = [rig.enrol(store, key) for key in keys]
        else:
            assert isinstance(step, list)
            operations, expected = [], []
            for place, turn, first, sizes, token in step:
                parts, stamp, new, old = [], first, [], 0
                for topic, size in zip(itertools.cycle(topics[turn:] + topics[:turn]), sizes, strict=False):
                    stamps = range(stamp, stamp + size)
                    parts.append(Part(topic, rows(numbers[place], stamps)))
                    new += [(topic, value) for value in stamps if value > high_waters[place]]
                    old += sum(value <= high_waters[place] for value in stamps)
                    stamp += size
                operations.append(Append(numbers[place], tuple(parts), token))
                keyed = {(part.topic, token) for part in parts if token}
                if new and keyed & seen:
                    expected.append(None)
                    continue
                if new:
                    seen |= keyed
                    high_waters[place] = new[-1][1]
                    for topic, value in new:
                        logs[topic].append((numbers[place], value))
                expected.append(Appended(len(new), old))
            outcomes = rig.write(store, *operations).outcomes
            for outcome, wanted in zip(outcomes, expected, strict=True):
                assert outcome == wanted or (wanted is None and isinstance(outcome, DuplicateMessage))
        for topic in topics:
            assert [row[1:] for row in rig.contents(store, topic)] == logs[topic]
            assert [row[0] for row in rig.contents(store, topic)] == list(range(len(logs[topic])))
    for key, number, high_water in zip(keys, numbers, high_waters, strict=True):
        assert rig.enrol(store, key) == number
        (found,) = rig.sql("SELECT high_water FROM publishers WHERE key = ?", key)
        assert found[0] == high_water


@given(script=steps)
@settings(suppress_health_check=EACH)
def test_each_row_once_in_order_on_sqlite(script: list[object]) -> None:
    with fresh() as rig:
        check_appends(rig, script)


@pytest.mark.slow
@given(script=steps)
@settings(max_examples=8, suppress_health_check=EACH)
def test_each_row_once_in_order_on_postgresql(postgresql_server: Server, script: list[object]) -> None:
    rig = Rig(postgresql_server.database())
    try:
        check_appends(rig, script)
    finally:
        rig.close()
        postgresql_server.drop(rig.url)


# Upkeep


def filled(rig: Rig, sizes: list[int], retention: Retention) -> tuple[Store, int, list[int]]:
    """A topic with an entry for each size, a second apart; the time of each row."""
    store = rig.open()
    topic, publisher = rig.topic(store, retention=retention), rig.enrol(store)
    stamp, times = 1, []
    for size in sizes:
        rig.now += 1_000_000
        rig.append(store, topic, publisher, range(stamp, stamp + size))
        times += [rig.now] * size
        stamp += size
    return store, topic, times


@given(
    sizes=st.lists(st.integers(1, 5), min_size=10, max_size=80),
    age_s=st.sampled_from([None, 0, 0, 3, 8, 40]),
    size=st.sampled_from([None, None, 0, 500, 3_000]),
    hold=st.booleans(),
    consumed=st.lists(st.floats(0, 1), max_size=2),
)
@example(sizes=[3] * 40, age_s=0, size=None, hold=True, consumed=[0.25, 0.5])
@example(sizes=[3] * 40, age_s=None, size=500, hold=True, consumed=[0.25])
@settings(suppress_health_check=EACH)
def test_what_goes_may_go(
    sizes: list[int], age_s: int | None, size: int | None, hold: bool, consumed: list[float]
) -> None:
    """Held rows stay until they are consumed, and the others go when they are over a bound, and not before."""
    with fresh() as rig:
        store, topic, times = filled(rig, sizes, Retention(age_s, size, hold))
        before = rig.contents(store, topic)
        cursors = [int(part * len(before)) for part in consumed]
        for number, cursor in enumerate(cursors):
            made = rig.do(store, Attach(f"s{number}", topic, None, "earliest", True, b"", {}, b""))
            rig.do(store, Move(made.subscription, made.epoch, {store.log: Cursor(cursor)}))
        rig.maintain(store)
        extent = store.extents(topic)[topic][store.log]
        assert rig.contents(store, topic) == before[extent.start :]
        assert extent.next == len(before)
        entries = store.read(topic, store.log, 0)
        assert (extent.entries, extent.bytes) == (len(entries), sum(len(entry.data) for entry in entries))
        if hold:
            assert extent.start <= min(cursors, default=len(before))
        if extent.start:
            old = age_s is not None and times[extent.start - 1] + age_s * 1_000_000 <= rig.now
            assert old or size is not None
        bounded = not hold or not cursors
        if bounded and size is not None:
            assert extent.bytes <= size or not entries
        if bounded and age_s is not None and extent.rows:
            assert times[-1] + age_s * 1_000_000 > rig.now or extent.start == len(before)


@pytest.mark.slow
@given(sizes=st.lists(st.integers(1, 4), min_size=40, max_size=120), more=st.lists(st.integers(1, 4), max_size=60))
@settings(suppress_health_check=EACH)
def test_compaction_changes_nothing_that_can_be_seen(sizes: list[int], more: list[int]) -> None:
    with fresh() as rig:
        store, topic, times = filled(rig, sizes, Retention(None))
        total = len(times)
        asked = sorted({*times, *(time_us + 1 for time_us in times), 0, rig.now + 5})
        contents = rig.contents(store, topic)
        found = {time_us: store.resolve(topic, ("time", time_us)) for time_us in asked}
        assert all(found[time_us] == {store.log: times.index(time_us)} for time_us in times)
        publisher = rig.enrol(store)
        for count in [0, *more]:
            if count:
                rig.append(store, topic, publisher, range(total + 1, total + count + 1))
                total += count
            if count % 4 == 0:
                rig.maintain(store)
        rig.maintain(store)
        assert store.extents(topic)[topic][store.log].entries < 2 * compaction.RUN_WORTH
        assert rig.contents(store, topic)[: len(contents)] == contents
        assert [row[2] for row in rig.contents(store, topic)] == list(range(1, total + 1))
        later = {time_us: place for time_us, place in found.items() if place[store.log] < len(times)}
        assert {time_us: store.resolve(topic, ("time", time_us)) for time_us in later} == later
        for offset in range(0, len(times), 7):
            first = store.read(topic, store.log, offset, max_rows=1)[0]
            assert first.first <= offset < first.first + first.rows
            assert first.time_us == times[offset]


@given(st.lists(st.tuples(st.integers(1, 40_000), st.integers(1, 700_000), st.booleans(), st.booleans()), max_size=200))
def test_runs_are_neighbours_within_bounds(drawn: list[tuple[int, int, bool, bool]]) -> None:
    entries, first = [], 0
    for count, size, gap, after in drawn:
        first += 5 if gap and count % 7 == 0 else 0
        entries.append(EntryHeader(first, count, size, after and count % 5 == 0))
        first += count
    run, done = run_of(entries)
    if run:
        assert len(run) > 1
        assert sum(entry.bytes for entry in run) <= ENTRY.bytes
        assert sum(entry.rows for entry in run) <= ENTRY.rows
        assert not any(entry.after for entry in run[1:])
        assert all(one.first + one.rows == two.first for one, two in itertools.pairwise(run))
        start = entries.index(run[0])
        assert entries[start : start + len(run)] == run
        assert done <= run[0].first


@given(st.integers(1, 3_000), st.integers(1, 300))
def test_compaction_writes_a_row_a_few_times_only(rows: int, size: int) -> None:
    """Entries of one row each. A joined entry that took every new neighbour would be written again for each of them."""
    entries = [EntryHeader(first, 1, size, False) for first in range(rows)]
    written, done = 0, 0
    while True:
        window = [entry for entry in entries if entry.first >= done][: 2 * compaction.RUN_ENTRIES]
        run, done = run_of(window)
        if not run:
            break
        joined = EntryHeader(run[0].first, sum(e.rows for e in run), sum(e.bytes for e in run), False)
        written += joined.rows
        at = entries.index(run[0])
        entries[at : at + len(run)] = [joined]
    assert sum(entry.rows for entry in entries) == rows
    assert len(entries) < 2 * compaction.RUN_WORTH
    assert written <= rows * 8


def test_space_is_given_back(sqlite_rig: Rig) -> None:
    rig = sqlite_rig
    store = rig.open()
    topic, publisher = rig.topic(store), rig.enrol(store)
    for stamp in range(1, 41):
        rig.append(store, topic, publisher, [stamp], size=500_000)
    rig.maintain(store)
    path = Path(rig.url)
    large = path.stat().st_size
    assert large > 15_000_000
    from milepost.operations import Trim

    rig.do(store, Trim(topic, {store.log: 38}))
    rig.maintain(store)
    store.close()
    assert path.stat().st_size < large / 3
    again = rig.open()
    assert [row[2] for row in rig.contents(again, topic)] == [39, 40]


def test_entries_of_other_schemas_are_not_mixed_by_compaction(rig: Rig) -> None:
    from milepost.operations import ChangeTopic
    from milepost.query import parse_schema
    from tests.unit.storage.conftest import NEWER

    store = rig.open()
    topic, publisher = rig.topic(store), rig.enrol(store)
    newer = parse_schema(NEWER)
    rig.do(store, ChangeTopic(topic, schema=NEWER))
    for stamp in range(1, 201):
        rig.append(store, topic, publisher, [stamp], **({"schema": newer} if 70 < stamp <= 140 else {}))
    rig.maintain(store)
    entries = store.read(topic, store.log, 0)
    assert len(entries) < 60
    found: list[int] = []
    for entry in entries:
        inner = newer if 70 <= entry.first < 140 else None
        batch = Batch.decode(entry.data, inner or parse_schema("quote: [symbol: string, number: long]"))
        found += batch.column("number").tolist()
    assert found == list(range(1, 201))
