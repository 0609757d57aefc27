"""The load splitter with several logs, at a broker whose clock the tests set: what was stored when is known."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from milepost import testing
from milepost.broker import SystemClock
from milepost.client import Client
from milepost.pipeline import splitter as splitting
from milepost.pipeline.own_topics import OwnTopics, ends
from milepost.pipeline.splitter import Splitter

SCHEMA = "event: [number: long]"
BEGAN = 1_700_000_000  # seconds: when the first row is stored
BESIDE = OwnTopics("p")


class SetClock(SystemClock):
    """Rows are stored when the test says; all else goes by the machine's clock."""

    def __init__(self) -> None:
        self.second = 0.0

    def now(self) -> float:
        """In seconds since 1970."""
        return BEGAN + self.second

    def time_us(self) -> int:
        return round(self.now() * 1_000_000)


class Counting(Client):
    """Counts what it asks for."""

    looks = 0
    timed = 0  # of them, those for a position by time

    def look(self, topic: str, start: Any = None) -> dict[str, Any]:
        self.looks += 1
        self.timed += start is not None
        return super().look(topic, start)


@contextmanager
def broker(store: Path, name: str = "one") -> Iterator[tuple[SetClock, Counting]]:
    """In another thread. Under another name it has a log of its own in the same store."""
    started: queue.Queue[Any] = queue.Queue()
    clock = SetClock()

    async def serve() -> None:
        where = {"listen": "milepost://127.0.0.1:0", "store": str(store), "name": name}
        async with testing.broker(clock=clock, **where) as running:
            started.put((running, asyncio.get_running_loop()))
            await running.serve()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    running, loop = started.get(timeout=60)
    try:
        with Counting(running.uri) as client:
            yield clock, client
    finally:
        loop.call_soon_threadsafe(running.finish)
        thread.join()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[tuple[SetClock, Counting]]:
    with broker(tmp_path / "store.db") as (clock, client):
        for name in ("a", "b"):
            client.declare_topic(name, SCHEMA, durable=True)
        BESIDE.declare(client)
        yield clock, client


def put(clock: SetClock, client: Client, topic: str, second: float, count: int = 10) -> None:
    clock.second = second
    client.put_many(topic, [{"number": number} for number in range(count)])


def made(client: Client, clock: SetClock, inputs: Sequence[str] = ("a", "b"), skew_s: float = 0.0) -> Splitter:
    return Splitter(
        client, BESIDE, inputs, 2, {name: {} for name in inputs}, lambda: clock.now() + skew_s, within_us=2_000_000
    )


def dealt(client: Client) -> list[tuple[int, int, int]]:
    """What was assigned, in this order: (source, log, offset) of each event."""
    told = [row for batch in client.read(BESIDE.splits, {}, ends(client, BESIDE.splits)) for row in batch.to_pylist()]
    return [(row["source"], row["log"], offset) for row in told for offset in range(row["start"], row["stop"])]


def turns(client: Client, rows: int = 10) -> list[tuple[int, int]]:
    """The same as (source, number of the put), when each put had as many rows; neighbours that are equal are one."""
    found: list[tuple[int, int]] = []
    for source, _, offset in dealt(client):
        if found[-1:] != [(source, offset // rows)]:
            found.append((source, offset // rows))
    return found


def side_by_side(puts: int) -> list[tuple[int, int]]:
    return [(source, number) for number in range(puts) for source in (0, 1)]


@pytest.mark.parametrize("skew_s", [0.0, -4_000.0, 4_000.0])  # of the machine that splits
def test_a_backlog_of_two_inputs_is_dealt_by_when_it_was_stored(
    world: tuple[SetClock, Counting], skew_s: float
) -> None:
    clock, client = world
    for number in range(20):  # before there is anything in the other one
        put(clock, client, "a", number)
    assert made(client, clock, skew_s=skew_s).assign() == 200
    assert client.timed == 0
    for number in range(20, 40):
        put(clock, client, "a", number)
        put(clock, client, "b", number + 0.3)
    splitter = made(client, clock, skew_s=skew_s)
    assert splitter.assign() == 400
    assert splitter.assign() == 0
    assert turns(client)[20:] == [each for number in range(20) for each in ((0, 20 + number), (1, number))]


def test_logs_of_one_input_are_dealt_side_by_side(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    for name in ("one", "two"):
        with broker(store, name) as (clock, client):
            client.declare_topic("a", SCHEMA, durable=True)
            for number in range(10):
                put(clock, client, "a", number + (0.3 if name == "two" else 0.0))
            if name == "two":
                BESIDE.declare(client)
                made(client, clock, ["a"]).assign()
                assert [(log, offset // 10) for _, log, offset in dealt(client)[::10]] == [
                    (log, number) for number in range(10) for log in (1, 2)
                ]


def test_nothing_overtakes_a_step_that_lanes_had_no_room_for(
    world: tuple[SetClock, Counting], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, client = world
    for number in range(10):
        put(clock, client, "a", number)
        put(clock, client, "b", number + 0.3)
    monkeypatch.setattr(splitting, "AHEAD_ROWS", 7)  # of each of the two lanes
    splitter = made(client, clock)
    assert 10 < splitter.assign() < 20  # a part of the first step
    asked = client.timed
    assert splitter.assign() == 0
    assert client.timed == asked  # without room there is nothing to find out
    for number in range(10, 20):  # what comes meanwhile is later
        put(clock, client, "a", number)
        put(clock, client, "b", number + 0.3)
    while splitter.done != [runs.assigned for runs in splitter.runs]:
        splitter.done = [runs.assigned for runs in splitter.runs]
        splitter.assign()
    assert turns(client) == side_by_side(20)


def test_what_came_just_now_is_dealt_without_asking_when(world: tuple[SetClock, Counting]) -> None:
    clock, client = world
    splitter = made(client, clock)
    splitter.assign()
    for tick in range(20):
        put(clock, client, "a", tick / 10)
        if tick % 3:
            put(clock, client, "b", tick / 10)
        asked = client.looks
        assert splitter.assign() == (20 if tick % 3 else 10)
        assert (client.looks - asked, client.timed) == (2, 0)
    put(clock, client, "b", 500.0)  # in one log alone, whenever it was
    put(clock, client, "b", 1_000.0)
    assert splitter.assign() == 20
    alone = made(client, clock, ["a"])
    put(clock, client, "a", 2_000.0)
    assert alone.assign() == 10
    assert client.timed == 0


def test_a_day_takes_few_requests_where_inputs_are_sparse_and_no_call_takes_many(
    world: tuple[SetClock, Counting],
) -> None:
    clock, client = world
    for number in range(300):  # far apart, so that a log alone has long steps
        put(clock, client, "ab"[number // 10 % 2], number * 300.0)
    splitter = made(client, clock)
    calls, assigned = 0, 0
    while assigned < 3_000:
        asked = client.timed
        assigned += splitter.assign()
        assert client.timed - asked <= splitting.LOOKS + 1
        calls += 1
    assert client.timed < 1_000
    assert calls > 1
    by_time = [(number // 10 % 2, number // 20 * 10 + number % 10) for number in range(300)]
    assert turns(client) == by_time


def test_targets_are_kept_and_reached_in_several_calls(
    world: tuple[SetClock, Counting], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, client = world
    monkeypatch.setattr(splitting, "LOOKS", 10)
    for number in range(20):
        put(clock, client, "a", number)
        put(clock, client, "b", number + 0.3)
    targets = {"a": {1: 95}, "b": {1: 100}}
    splitter = made(client, clock)
    calls = 0
    while not splitter.reached(targets):
        splitter.assign(targets)
        calls += 1
    assert calls > 1
    assert splitter.assign(targets) == 0
    assert turns(client) == side_by_side(10)
    assert len(dealt(client)) == 195
    splitter.assign()  # with steps beyond: they are not for a call that has targets again
    more = {"a": {1: 105}, "b": {1: 100}}
    while not splitter.reached(more):
        splitter.assign(more)
    assert len(dealt(client)) == 205
    while not splitter.reached({"a": {1: 200}, "b": {1: 200}}):
        splitter.assign()
    assert sorted(dealt(client)) == [(source, 1, offset) for source in (0, 1) for offset in range(200)]


def test_one_that_begins_anew_goes_on_in_the_same_order(
    world: tuple[SetClock, Counting], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, client = world
    monkeypatch.setattr(splitting, "AHEAD_ROWS", 17)
    for number in range(20):
        put(clock, client, "a", number)
        put(clock, client, "b", number + 0.3)
    while True:
        splitter = made(client, clock)
        splitter.done = [runs.assigned for runs in splitter.runs]
        if not splitter.assign():
            break
    assert turns(client) == side_by_side(20)
