"""The combined stream: whatever the lanes' speeds and wherever micro-batches end, every event once, in order."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from milepost.pipeline.merging import Cut, cut, merged
from milepost.pipeline.watermark import NEVER, NOWHERE, LaneFold, Mark, Order, Quiet, Reach, least, watermark

DISORDER = 50


class Lanes:
    """Lanes that process a stream, and a combiner that reads them: the model holds everything in lists."""

    def __init__(self, times: list[int], lanes: int, run: int, most: int) -> None:
        self.inputs: list[list[int]] = [[] for _ in range(lanes)]
        for index in range(0, len(times), run):
            self.inputs[(index // run) % lanes] += times[index : index + run]
        self.results: list[list[int]] = [[] for _ in range(lanes)]
        self.done = [0] * lanes
        self.marks: list[Mark] = []
        self.folds = [LaneFold() for _ in range(lanes)]
        self.read = 0
        self.most = most
        self.at = Cut(NEVER, (NOWHERE,) * lanes, (NOWHERE,) * lanes)
        self.out: list[int] = []
        self.late = 0

    def process(self, lane: int, count: int, keep: int) -> None:
        """An epoch of a lane: some events, of which every `keep`-th leaves a result."""
        events = self.inputs[lane][self.done[lane] : self.done[lane] + count]
        if events:
            self.done[lane] += len(events)
            kept = events[::keep]
            self.results[lane] += kept
            self.marks.append(Mark(lane, 0, len(self.marks), len(kept), self.done[lane], max(events)))

    def combine(self, silent: bool = False) -> bool:
        for mark in self.marks[self.read :]:
            self.folds[mark.lane].take(mark)
        self.read = len(self.marks)
        quiet = Quiet([len(each) for each in self.inputs], silent)
        time = least([(watermark(self.folds, quiet, DISORDER), silent)])
        start, stop = self.at, cut(self.folds, self.at, time, DISORDER, self.most)
        if stop == start:
            return False
        read: list[tuple[int, bool]] = []
        for lane, rows in enumerate(self.results):
            low, end = (sum(reach.rows.values()) for reach in (start.lows[lane], stop.ends[lane]))
            seen = sum(start.ends[lane].rows.values())
            read += [(rows[index], index < seen) for index in range(low, end)]
        times = np.array([each for each, _ in read], np.int64)
        found = merged(times, np.array([each for _, each in read], np.bool_), start.time_us, stop.time_us)
        self.late += found.late
        self.out += times[found.rows[found.late :]].tolist()
        self.at = stop
        for fold, low in zip(self.folds, stop.lows, strict=True):
            fold.settle(low)
        return True

    def restart(self) -> None:
        """Everything but the offset, which Spark has written down, is lost."""
        told: list[Any] = [(low.json(), end.json()) for low, end in zip(self.at.lows, self.at.ends, strict=True)]
        lows, ends = (tuple(Reach.of(each[side]) for each in told) for side in (0, 1))
        self.at = Cut(self.at.time_us, lows, ends)
        self.folds = [LaneFold(low) for low in lows]
        self.read = 0


@given(st.data())
def test_whatever_the_lanes_do_every_result_comes_once_and_in_order(data: st.DataObject) -> None:
    steps = data.draw(st.lists(st.integers(0, 20), max_size=120))
    base = np.cumsum(steps) if steps else np.array([], np.int64)
    jitter = data.draw(st.lists(st.integers(0, DISORDER - 1), min_size=len(steps), max_size=len(steps)))
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


@given(st.lists(st.integers(-DISORDER + 1, 120), max_size=60), st.integers(1, 15))
def test_what_one_lane_holds_for_the_order_is_what_its_combiner_leaves(steps: list[int], epoch: int) -> None:
    times, latest = [], 0
    for step in steps:
        times.append(latest + step)
        latest = max(latest, times[-1])
    model = Lanes([*times, latest], 1, len(times) + 1, 10_000)  # the last one is never done: more is to come
    order = Order(DISORDER)
    while model.done[0] < len(times):
        model.process(0, min(epoch, len(times) - model.done[0]), 1)
        order.take(model.marks[-1])
        while model.combine():
            pass
        assert order.held == model.done[0] - sum(model.at.lows[0].rows.values())


def test_an_idle_lane_holds_nobody_back_and_a_busy_one_does() -> None:
    folds = [LaneFold(), LaneFold()]
    folds[0].take(Mark(0, 0, 0, 10, 10, 1_000))
    assert watermark(folds, Quiet([10, 0], False), DISORDER) == 950
    assert watermark(folds, Quiet([10, 5], False), DISORDER) == NEVER
    folds[1].take(Mark(1, 0, 1, 5, 4, 400))
    assert watermark(folds, Quiet([10, 5], False), DISORDER) == 350
    assert watermark(folds, Quiet([10, 4], True), DISORDER) == 1_000


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
