import json
import os
import sys

import pytest

KEYS = {
    "settle_intervals", "left_band", "balanced_ratio", "round_robin_ratio", "events_lost", "events_doubled", "drops",
    "identified", "wrong_swing", "redesigned_swing", "capacity_events_per_s", "missed",
}  # fmt: skip
FIGURES = {"figure3.png", "figure6.png", "figure8.png", "figure9.png", "figure6-spark.png"}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("spark of its own"),
    pytest.mark.skipif(
        sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2, reason="a hog takes one of two cores"
    ),
]


def test_control_ends_with_its_figures_and_every_event(milepost, tmp_path):
    done = milepost("bench", "control", "--out", tmp_path / "report", QUICK="1")
    assert done.returncode == 0, done.stderr[-2_000:] + done.stdout[-2_000:]
    lines = done.stdout.splitlines()
    figures = json.loads(lines[-1])
    assert (figures["bench"], figures["quick"], figures["simulated"]) == ("control", True, True)
    assert figures.keys() >= KEYS
    assert figures["identified"].keys() >= {"a", "b", "delay", "r2", "gain_error"}
    # However slow the machine is: what was put is accounted for.
    assert figures["events_put"] > 0
    assert (figures["events_lost"], figures["events_doubled"]) == (0, 0)
    assert any("on Spark: events lost" in line for line in lines)
    assert {each.name for each in (tmp_path / "report").iterdir()} == FIGURES
