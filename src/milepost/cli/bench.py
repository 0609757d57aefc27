"""`milepost bench`: experiments on this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from milepost.extras import require

app = typer.Typer(no_args_is_help=True, help="Experiments on this machine.")


@app.callback()
def _group() -> None:
    """Experiments on this machine."""


@app.command(
    epilog="""Examples:
  milepost bench control
  milepost bench control --out /tmp/report
  milepost bench control --quick    [dim]# a simulation, and a short run on Spark[/]
"""
)
def control(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="the folder for plots")] = Path("control-report"),
    quick: Annotated[
        bool, typer.Option("--quick", help="simulate, and run Spark only briefly; the same as QUICK=1")
    ] = False,
) -> None:
    """Show the effect of flow control and load balancing, with a CPU hog on one of two cores.

    Starts its own broker, Spark and source of events, runs for about eleven
    minutes, and stops all of them. The last line of output is JSON.
    """
    from milepost.pipeline.session import require_spark

    require("a broker needs", "server", "numba", "sqlalchemy")
    require_spark()
    require("experiments need", "spark", "control", "matplotlib")
    from milepost.pipeline.experiments import bench

    bench.run(out, quick=quick or os.environ.get("QUICK", "") not in ("", "0"))
