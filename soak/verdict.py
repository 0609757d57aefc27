"""Runs a scenario and prints its verdict: shared by all soaks with a ledger."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from soak.database import Database, database
from soak.processes import Stuck


class AnyScenario(Protocol):
    """Load and kills on one store, from `open` to the verdict of `close`, which is true when it is good."""

    complaints: list[str]

    def open(self) -> None: ...

    def close(self) -> Any: ...

    def clear(self) -> None:
        """End all processes, whatever happened."""


P = TypeVar("P", bound=AnyScenario)


def judged(
    store: str, made: Callable[[Path, Database], P], run: Callable[[P], str], again: str, keep: bool = False
) -> int:
    """Run a scenario on a store of its own, and print the result; returns 0 when all is well.

    `run` does the kills, and says how many. `again` is the command that makes the same choices. The records stay when
    something is wrong, or when they are to be kept.
    """
    folder = Path(tempfile.mkdtemp(prefix="milepost-soak-"))
    began, well = time.monotonic(), False
    try:
        with database(store, folder) as base:
            scenario = made(folder, base)
            try:
                scenario.open()
                show(f"  draining after {run(scenario)}")
                verdict = scenario.close()
            finally:
                scenario.clear()
        print(verdict)
        for complaint in scenario.complaints:
            print(f"complaint: {complaint}")
        well = bool(verdict) and not scenario.complaints
    except Stuck as error:
        print(f"verdict: BAD, stuck: {error}")
    finally:
        if well and not keep:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            print(f"the records are in {folder}")
    show(f"{time.monotonic() - began:.0f} s; the same choices: {again}")
    return 0 if well else 1


def show(line: str) -> None:
    """Print at once, for people who watch."""
    print(line, flush=True)
