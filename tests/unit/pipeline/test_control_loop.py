"""What is decided once an interval."""

from __future__ import annotations

import pytest

from milepost.pipeline.control_loop import EVERYTHING, ControlLoop, LaneCommit, Measured, rows
from milepost.pipeline.definition import Control
from milepost.pipeline.definition.quantity import Duration

CONTROL = Control(queue_bytes=1_000_000, reference=500_000)


class Lane:
    """A lane that commits whatever it is admitted, `bytes` for each event, into a queue that is drained at a rate."""

    def __init__(self, drained: int, size: int = 100) -> None:
        self.done = self.taken = 0
        self.drained, self.size = drained, size

    def work(self, admitted: int, assigned: int, at: float) -> Measured:
        self.done = max(self.done, min(admitted, assigned))
        self.taken = min(self.done, self.taken + self.drained)
        queued = float((self.done - self.taken) * self.size)
        return Measured(assigned, self.done, queued, float(self.size), (LaneCommit(at, self.done, 1.0),))


def test_free_space_is_held_at_its_reference_while_more_comes_than_goes() -> None:
    control_loop, lane = ControlLoop(CONTROL, [0]), Lane(drained=2_000)
    admitted, assigned = 0, 0
    for interval in range(60):
        assigned += 10_000
        if interval == 30:
            lane.drained = 1_000
        (decided,) = control_loop.step(interval * 2.0, [lane.work(admitted, assigned, interval * 2.0)])
        admitted = decided.admitted
        assert admitted >= lane.done
        if interval in (29, 59):
            assert decided.free == pytest.approx(500_000, rel=0.05)
            assert decided.input == pytest.approx(lane.drained, rel=0.05)


def test_what_waits_for_the_order_does_not_stop_what_it_waits_for() -> None:
    control_loop = ControlLoop(CONTROL, [0])
    assigned, admitted, done = 1_000_000, 0, 0
    for interval in range(100):
        done = min(admitted, assigned)
        queued = done * 100.0  # nothing of it can be combined before the last event is there
        measured = Measured(assigned, done, queued, 100.0, (LaneCommit(interval * 2.0, done, 1.0),), held=queued)
        (decided,) = control_loop.step(interval * 2.0, [measured])
        admitted = decided.admitted
        if done > 5_000:
            assert decided.free == pytest.approx(750_000)
    assert done == assigned


def test_a_little_that_waits_for_the_order_counts() -> None:
    found = [
        ControlLoop(CONTROL, [0]).step(0.0, [Measured(9, 0, 400_000.0, 100.0, held=held)]) for held in (0.0, 250_000)
    ]
    assert found[0] == found[1]
    assert found[0][0].free == 600_000


def test_without_flow_control_and_without_a_combiner_everything_is_admitted() -> None:
    free = ControlLoop(Control(flow=False), [0])
    assert free.step(0.0, [Measured(10, 0, 0.0, 0.0)])[0].admitted == EVERYTHING
    alone = ControlLoop(CONTROL, [0])
    assert alone.step(0.0, [Measured(10, 0, None, 0.0)])[0].admitted == EVERYTHING


def test_a_lane_that_slows_down_gets_less() -> None:
    control_loop = ControlLoop(CONTROL, [0, 0])
    done = [0, 0]
    for interval in range(20):
        assigned = (interval + 1) * 1_000
        measured = []
        for lane, busy in ((0, 1.0), (1, 3.0)):
            done[lane] = assigned - (0 if lane == 0 else interval * 100)
            measured.append(Measured(assigned, done[lane], 0.0, 100.0, (LaneCommit(interval * 2.0, done[lane], busy),)))
        control_loop.step(interval * 2.0, measured)
    fast, slow = control_loop.weights
    assert fast > 0.6
    assert fast + slow == pytest.approx(1)
    unbalanced = ControlLoop(Control(balance=False), [0, 0])
    unbalanced.step(0.0, [Measured(0, 0, 0.0, 0.0)] * 2)
    assert unbalanced.weights == [0.5, 0.5]


@pytest.mark.parametrize("combined", [True, False])
def test_a_lane_that_everybody_would_wait_for_pauses_and_is_probed(combined: bool) -> None:
    control_loop = ControlLoop(CONTROL, [0, 0])
    probes = 0
    for interval in range(12):
        assigned = (interval + 1) * 1_000
        measured = [
            Measured(
                assigned,
                assigned,
                0.0 if combined else None,
                100.0,
                (LaneCommit(2.0 * interval, assigned, turn, turn),),
            )
            for turn in (0.4, 3.0 if interval > 2 else 0.4)
        ]
        decided = control_loop.step(2.0 * interval, measured)
        probes += decided[1].probe
        assert not decided[0].probe
    if combined:
        assert [each.weight for each in decided] == [1.0, 0.0]
        assert decided[1].batch == EVERYTHING
        assert probes == 1
    else:
        assert 0 < decided[1].weight < 0.5
        assert probes == 0


def test_a_pipeline_that_goes_on_counts_from_where_it_was() -> None:
    control_loop = ControlLoop(CONTROL, [5_000_000])
    (decided,) = control_loop.step(0.0, [Measured(5_000_100, 5_000_000, 0.0, 0.0)])
    assert 5_000_000 < decided.admitted < 5_100_000
    assert (
        rows(1, 0.0, CONTROL, [Measured(5_000_100, 5_000_000, 0.0, 0.0)], [decided])[0]["admitted"] == decided.admitted
    )


def test_an_interval_may_be_any() -> None:
    ControlLoop(Control(interval=Duration.of("500ms")), [0]).step(0.0, [Measured(0, 0, 0.0, 10.0)])
