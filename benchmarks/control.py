"""`make bench NAME=control`: the same as `milepost bench control`, which comes with the package."""

from __future__ import annotations

from pathlib import Path

from milepost.pipeline.experiments import bench

OUT = Path("control-report")


def run(quick: bool) -> None:
    bench.run(OUT, quick=quick)
