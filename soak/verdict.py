"""From a play to its verdict: what all soaks with a ledger have in common."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from soak.database import Database, database
from soak.stage import Stuck


class Playing(Protocol):
    """Load and kills on one store, from `open` to the verdict of `close`, which is true when it is good."""

    complaints: list[str]

    def open(self) -> None: ...

    def close(self) -> Any: ...

    def clear(self) -> None:
        """End all processes, whatever happened."""


P = TypeVar("P", bound=Playing)


def judged(
    store: str, made: Callable[[Path, Database], P], run: Callable[[P], str], again: str, keep: bool = False
) -> int:
    """Play on a store of its own, and print what came of it; 0 when all is well.

    `run` does the kills, and says how many. `again` is the command that makes the same choices. The records stay when
    something is wrong, or when they are to be kept.
    """
    folder = Path(tempfile.mkdtemp(prefix="milepost-soak-"))
    began, well = time.monotonic(), False
    try:
        with database(store, folder) as base:
            play = made(folder, base)
            try:
                play.open()
                show(f"  draining after {run(play)}")
                verdict = play.close()
            finally:
                play.clear()
        print(verdict)
        for complaint in play.complaints:
            print(f"complaint: {complaint}")
        well = bool(verdict) and not play.complaints
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
    """Print at once: somebody may be watching."""
    print(line, flush=True)
