"""Reports are drawn from a trace: files where Matplotlib is there, text everywhere."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from milepost.pipeline.control import Record, Trace, report
from milepost.pipeline.experiments.simulation import flow_control, load_balancing, no_control


def test_a_sparkline_goes_from_the_least_to_the_greatest() -> None:
    assert report.sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == report.BLOCKS
    assert report.sparkline([5, 5, 5]) == "▄▄▄"
    assert report.sparkline([0, np.nan, 7]) == "▁ █"
    assert report.sparkline([np.nan]) == " "
    assert report.sparkline([]) == ""
    assert len(report.sparkline(np.arange(1000.0), width=40)) == 40


def test_the_terminal_shows_each_lane() -> None:
    shown = io.StringIO()
    trace = load_balancing(60).trace
    Console(file=shown, width=160).print(report.table(trace))
    assert "response time (s)" in shown.getvalue()
    assert "dropped" not in shown.getvalue()  # nothing was
    lines = report.text(trace).splitlines()
    assert any(line.startswith("lane 1  weight") for line in lines)
    Console(file=shown, width=160).print(report.table(Trace()))
    assert "no records yet" in shown.getvalue()


@pytest.mark.slow
def test_figures_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    flow, lanes = flow_control(60).trace, load_balancing(40).trace
    drawn = [
        report.figure3(no_control(40).trace, tmp_path / "3.png"),
        report.figure6(flow, tmp_path / "6.svg", hog=(20, 40)),
        report.figure8({"round robin": lanes, "controlled": lanes}, tmp_path / "8.svg"),
        report.figure9({"wrong": flow, "right": flow}, tmp_path / "new" / "9.svg"),
        report.overview(lanes, tmp_path / "all.svg"),
    ]
    for path in drawn:
        head = path.read_bytes()[:200]
        assert (b"<?xml" if path.suffix == ".svg" else b"PNG") in head


def test_a_trace_with_gaps_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    trace = Trace(Record(k, 2.0 * k, 0, measurement=None if k % 2 else 1e6) for k in range(10))
    assert report.figure6(trace, tmp_path / "gaps.svg").stat().st_size > 1000
