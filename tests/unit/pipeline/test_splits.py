"""Runs of offsets, and a lane's positions in them."""

from __future__ import annotations

from bisect import bisect_left
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.pipeline.splits import FAR_US, LONG_AGO_US, LaneRun, LaneRuns, Place, RunPart, TimeStep, partitioned


@st.composite
def lanes_of_runs(draw: st.DrawFn) -> list[LaneRun]:
    runs: list[LaneRun] = []
    first, offset = 0, 0
    for gap, count in draw(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 30)), min_size=1, max_size=20)):
        offset += gap
        runs.append(LaneRun(0, 1, offset, offset + count, 2, first, 0, (1, len(runs))))
        first, offset = first + count, offset + count
    return runs


@given(lanes_of_runs(), st.data())
def test_positions_are_offsets_in_order(runs: list[LaneRun], data: st.DataObject) -> None:
    lane = LaneRuns(2)
    lane.extend([*runs, LaneRun(0, 1, 0, 99, 1, 0, 0)])  # another lane's is passed over
    everything = [offset for run in runs for offset in range(run.start, run.stop)]
    assert lane.assigned == len(everything)
    start = data.draw(st.integers(0, len(everything)))
    stop = data.draw(st.integers(start, len(everything)))
    pieces = lane.pieces(start, stop)
    assert [offset for piece in pieces for offset in range(piece.start, piece.stop)] == everything[start:stop]
    count = data.draw(st.integers(1, 5))
    parts = partitioned(pieces, count)
    assert len(parts) <= count
    assert [offset for part in parts for each in part for offset in range(each.start, each.stop)] == everything[
        start:stop
    ]


def test_runs_that_come_out_of_order_are_sorted_and_what_is_missing_is_an_error() -> None:
    lane = LaneRuns(0)
    lane.extend([LaneRun(0, 1, 10, 20, 0, 10, 0), LaneRun(0, 1, 0, 10, 0, 0, 0)])
    assert lane.pieces(5, 15) == [RunPart(0, 1, 5, 15)]
    with pytest.raises(LookupError, match="position 20"):
        lane.pieces(15, 25)


def test_a_part_does_not_go_to_and_fro_between_inputs() -> None:
    turns = [RunPart(turn % 2, 1, 10 * turn, 10 * turn + 10) for turn in range(40)]
    parts = partitioned(turns, 3)
    assert sorted(offset for part in parts for each in part for offset in range(each.start, each.stop)) == list(
        range(400)
    )
    assert [[source for source, _ in groupby(part, key=lambda piece: piece.source)] for part in parts] == [
        [0],
        [0, 1],
        [1],
    ]


SHORT_US = 50
logs_of_times = st.dictionaries(
    st.tuples(st.integers(0, 2), st.integers(1, 2)),
    st.lists(st.integers(1, 20_000), max_size=12).map(sorted),
    max_size=4,
)


@given(logs_of_times, st.integers(0, 30_000), st.data())
def test_steps_are_in_the_order_of_storing_and_short_where_that_matters(
    logs: dict[Place, list[int]], near_us: int, data: st.DataObject
) -> None:
    starts = {place: data.draw(st.integers(0, len(times))) for place, times in logs.items()}
    wanted = sorted(time for place, times in logs.items() for time in times[starts[place] :])
    steps = [TimeStep(LONG_AGO_US, FAR_US, {place: len(times) for place, times in logs.items()})]
    taken: list[list[int]] = []
    cuts = 0
    while steps:
        step = steps[-1]
        middle_us = step.middle(starts, SHORT_US, near_us)
        if middle_us is not None:
            cuts += 1
            position = {place: bisect_left(times, middle_us) for place, times in logs.items()}
            steps[-1:] = reversed(step.cut(middle_us, position))
            continue
        found = {place: logs[place][starts[place] : step.stops[place]] for place in step.logs(starts)}
        times = sorted(time for some in found.values() for time in some)
        assert len(found) < 2 or times[-1] - times[0] < SHORT_US
        if times:
            taken.append(times)
        starts |= {place: step.stops[place] for place in found}
        steps.pop()
    assert [time for times in taken for time in times] == wanted
    assert cuts <= 60 * len(wanted)


@pytest.mark.parametrize(("ago_us", "most"), [(3 * SHORT_US, 6), (1_000_000 * SHORT_US, 45)])
def test_what_came_long_ago_is_found_with_a_few_more_cuts_than_what_came_just_now(ago_us: int, most: int) -> None:
    now_us = 1_700_000_000_000_000
    logs = {(0, 1): [now_us - ago_us], (1, 1): [now_us - ago_us + 1]}
    steps, starts, cuts = [TimeStep(LONG_AGO_US, FAR_US, dict.fromkeys(logs, 1))], dict.fromkeys(logs, 0), 0
    while (middle_us := steps[-1].middle(starts, SHORT_US, now_us)) is not None or not steps[-1].logs(starts):
        if middle_us is None:
            steps.pop()
            continue
        position = {place: bisect_left(times, middle_us) for place, times in logs.items()}
        steps[-1:] = reversed(steps[-1].cut(middle_us, position))
        cuts += 1
    assert cuts <= most
