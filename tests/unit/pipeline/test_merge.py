"""The combined stream: whatever the lanes' speeds and wherever micro-batches end, every event once, in order."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from milepost.pipeline.merge import MergePoint, merged, next_point, wanted
from milepost.pipeline.tier2.panes import Grid
from milepost.pipeline.watermark import (
    LAST_US,
    NEVER,
    NOWHERE,
    HeldResults,
    LaneFold,
    LaneProgress,
    LaneReach,
    beginning,
    drained,
    least,
    watermark,
)

DISORDER = 50


class Lanes:
    """Lanes that process a stream, and a combiner that reads them: the model holds everything in lists."""

    def __init__(self, times: list[int], lanes: int, run: int, most: int) -> None:
        self.inputs: list[list[int]] = [[] for _ in range(lanes)]
        for index in range(0, len(times), run):
            self.inputs[(index // run) % lanes] += times[index : index + run]
        self.results: list[list[int]] = [[] for _ in range(lanes)]
        self.done = [0] * lanes
        self.progress: list[LaneProgress] = []
        self.folds = [LaneFold() for _ in range(lanes)]
        self.read = 0
        self.most = most
        self.at = MergePoint(NEVER, (NOWHERE,) * lanes, (NOWHERE,) * lanes)
        self.out: list[int] = []
        self.late = self.most_read = 0

    def process(self, lane: int, count: int, keep: int) -> None:
        """An epoch of a lane: some events, of which every `keep`-th leaves a result."""
        events = self.inputs[lane][self.done[lane] : self.done[lane] + count]
        if events:
            self.done[lane] += len(events)
            kept = events[::keep]
            self.results[lane] += kept
            self.progress.append(LaneProgress(lane, 0, len(self.progress), len(kept), self.done[lane], max(events)))

    def combine(self, silent: bool = False) -> bool:
        for each in self.progress[self.read :]:
            self.folds[each.lane].take(each)
        self.read = len(self.progress)
        assigned = [len(each) for each in self.inputs]
        time = least([(watermark(self.folds, assigned, silent, DISORDER), silent)])
        start, stop = self.at, next_point(self.folds, self.at, time, DISORDER, self.most)
        if stop == start:
            return False
        read: list[tuple[int, bool]] = []
        firsts = start.lows if stop.time_us > start.time_us else start.ends
        for lane, rows in enumerate(self.results):
            first, end = (sum(reach.rows.values()) for reach in (firsts[lane], stop.ends[lane]))
            seen = sum(start.ends[lane].rows.values())
            read += [(rows[index], index < seen) for index in range(first, end)]
        self.most_read = max(self.most_read, len(read))
        times = np.array([each for each, _ in read], np.int64)
        old = np.array([each for _, each in read], np.bool_)
        some = wanted(times, old, start.time_us, stop.time_us)
        times, old = times[some], old[some]
        found = merged(times, old, start.time_us, stop.time_us)
        assert len(found.rows) == len(times)
        self.late += found.late
        self.out += times[found.rows[found.late :]].tolist()
        self.at = stop
        for fold, low in zip(self.folds, stop.lows, strict=True):
            fold.settle(low)
        return True

    def restart(self) -> None:
        """Everything but the offset, which Spark has written down, is lost."""
        told: list[Any] = [(low.json(), end.json()) for low, end in zip(self.at.lows, self.at.ends, strict=True)]
        lows, ends = (tuple(LaneReach.of(each[side]) for each in told) for side in (0, 1))
        self.at = MergePoint(self.at.time_us, lows, ends)
        self.folds = [LaneFold(low) for low in lows]
        self.read = 0


@given(st.data())
def test_whatever_the_lanes_do_every_result_comes_once_and_in_order(data: st.DataObject) -> None:
    steps = data.draw(st.lists(st.integers(0, 20), max_size=120))
    base = np.cumsum(steps) if steps else np.array([], np.int64)
    jitter = data.draw(st.lists(st.integers(0, DISORDER), min_size=len(steps), max_size=len(steps)))
    times = [int(each) - late for each, late in zip(base, jitter, strict=True)]
    lanes = data.draw(st.integers(1, 4))
    model = Lanes(times, lanes, data.draw(st.integers(1, 15)), data.draw(st.sampled_from([3, 20, 10_000])))
    keep = data.draw(st.integers(1, 3))
    for _ in range(data.draw(st.integers(0, 30))):
        match data.draw(st.sampled_from(["process", "process", "combine", "restart"])):
            case "process":
                model.process(data.draw(st.integers(0, lanes - 1)), data.draw(st.integers(1, 20)), keep)
            case "combine":
                model.combine()
            case _:
                model.restart()
        assert model.out == sorted(model.out)
    for lane in range(lanes):
        model.process(lane, len(times), keep)
    while model.combine(silent=True):
        pass
    assert model.late == 0
    assert model.out == sorted(time for rows in model.results for time in rows)


@given(st.lists(st.integers(-DISORDER, 120), max_size=60), st.integers(1, 15))
def test_what_one_lane_holds_for_the_order_is_what_its_combiner_leaves(steps: list[int], epoch: int) -> None:
    times, latest = [], 0
    for step in steps:
        times.append(latest + step)
        latest = max(latest, times[-1])
    model = Lanes([*times, latest], 1, len(times) + 1, 10_000)  # the last one is never done: more is to come
    order = HeldResults(DISORDER)
    while model.done[0] < len(times):
        model.process(0, min(epoch, len(times) - model.done[0]), 1)
        order.take(model.progress[-1])
        while model.combine():
            pass
        assert order.held == model.done[0] - sum(model.at.lows[0].rows.values())


def progress(rows: list[int], first: int = 0) -> list[LaneProgress]:
    return [LaneProgress(0, 7, first + number, count, 10 * (number + 1), number) for number, count in enumerate(rows)]


def test_a_combiner_begins_where_marks_and_results_are_both_still_there() -> None:
    assert beginning(progress([5, 0, 5]), {7: (0, 10)}) == LaneReach({7: 0}, {7: 0})
    assert beginning(progress([5, 0, 5], first=90), {7: (0, 1_010)}) == LaneReach(
        {7: 90}, {7: 1_000}
    )  # older marks are gone
    assert beginning(progress([5, 0, 5]), {7: (2, 10)}) == LaneReach({7: 1}, {7: 5}, 10)  # and here older results
    assert beginning(progress([5, 0, 5]), {7: (10, 10)}) == LaneReach({7: 3}, {7: 10}, 30)
    assert beginning(progress([5, 0, 5]), {}) == LaneReach({7: 3}, {7: 0}, 30)  # they went elsewhere
    assert beginning([], {7: (0, 0)}) == LaneReach({7: 0}, {7: 0})
    fold = LaneFold(beginning(progress([5, 0, 5], first=90), {7: (0, 1_010)}))
    for each in progress([5, 0, 5], first=90):
        fold.take(each)
    assert fold.end == LaneReach({7: 93}, {7: 1_010}, 30, 2)


def test_what_comes_exactly_as_late_as_it_may_is_not_late() -> None:
    model = Lanes([100, 150, 100, 101, 150, 300], 1, 10, 10_000)
    for _ in range(6):
        model.process(0, 1, 1)
        model.combine()
    model.combine(silent=True)
    assert (model.out, model.late) == ([100, 100, 101, 150, 150, 300], 0)


def test_late_ones_are_handed_on_while_more_come_and_some_at_a_time() -> None:
    model = Lanes([1_000, *[5] * 3_000, 2_000], 1, 10_000, 100)
    model.process(0, 1, 1)
    model.combine()  # up to 949: the first one waits
    while model.done[0] < 3_001:
        model.process(0, 20, 1)
    while model.late < 3_000:
        assert model.combine()
    assert model.most_read <= 120
    model.process(0, 1, 1)
    while model.combine(silent=True):
        pass
    assert model.out == [1_000, 2_000]


def test_an_idle_lane_holds_nobody_back_and_a_busy_one_does() -> None:
    folds = [LaneFold(), LaneFold()]
    folds[0].take(LaneProgress(0, 0, 0, 10, 10, 1_000))
    assert watermark(folds, [10, 0], False, DISORDER) == 949
    assert watermark(folds, [10, 5], False, DISORDER) == NEVER
    folds[1].take(LaneProgress(1, 0, 1, 5, 4, 400))
    assert watermark(folds, [10, 5], False, DISORDER) == 349
    assert watermark(folds, [10, 4], True, DISORDER) == 1_000


def test_a_silent_pipeline_does_not_hold_another_back() -> None:
    assert least([(100, True), (500, False)]) == 500
    assert least([(100, True), (50, True)]) == 100
    assert least([(None, True), (500, False)]) == 500
    assert least([(None, True)]) == NEVER


def test_what_is_too_late_comes_first_and_is_counted() -> None:
    times = np.array([5, 30, 12, 25, 8], np.int64)
    seen = np.array([True, False, False, False, False])
    found = merged(times, seen, after_us=10, until_us=28)
    assert times[found.rows].tolist() == [8, 12, 25]
    assert found.late == 1


@given(st.integers(-(10**9), 10**9), st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)), max_size=4))
def test_draining_goes_to_the_end_of_the_last_window_of_an_event_and_no_further(
    latest: int, windows: list[tuple[int, int]]
) -> None:
    until = drained(latest, windows)
    grids = [Grid(size, slide) for size, slide in windows]
    assert all(grid.closed(until) >= latest // grid.slide for grid in grids)
    assert until == latest or any(grid.closed(until - 1) < latest // grid.slide for grid in grids)


def test_draining_nothing_and_the_end_of_time() -> None:
    assert drained(NEVER, [(10, 10)]) == NEVER
    assert drained(LAST_US - 5, [(10, 10), (1 << 50, 1)]) == LAST_US
