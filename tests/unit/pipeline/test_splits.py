"""Runs of offsets, and a lane's positions in them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.pipeline.splits import Piece, Run, Runs, partitioned


@st.composite
def lanes_of_runs(draw: st.DrawFn) -> list[Run]:
    runs: list[Run] = []
    first, offset = 0, 0
    for gap, count in draw(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 30)), min_size=1, max_size=20)):
        offset += gap
        runs.append(Run(0, 1, offset, offset + count, 2, first, 0, (1, len(runs))))
        first, offset = first + count, offset + count
    return runs


@given(lanes_of_runs(), st.data())
def test_positions_are_offsets_in_order(runs: list[Run], data: st.DataObject) -> None:
    lane = Runs(2)
    lane.extend([*runs, Run(0, 1, 0, 99, 1, 0, 0)])  # another lane's is passed over
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
    lane = Runs(0)
    lane.extend([Run(0, 1, 10, 20, 0, 10, 0), Run(0, 1, 0, 10, 0, 0, 0)])
    assert lane.pieces(5, 15) == [Piece(0, 1, 5, 15)]
    with pytest.raises(LookupError, match="position 20"):
        lane.pieces(15, 25)
