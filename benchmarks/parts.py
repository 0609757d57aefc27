"""The parts of a benchmark that starts other people's brokers: one after the other, whichever of them fails."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from benchmarks.load.worker import WorkerFailed
from benchmarks.peers import Unavailable
from benchmarks.report import Report

Run = TypeVar("Run")


def carry_out(
    report: Report,
    run: Run,
    chosen: Iterable[str],
    parts: Mapping[str, Callable[[Run], None]],
    keys: Mapping[str, Sequence[str]],
) -> bool:
    """Run parts by name; whether all went well. One that fails says why, and leaves its figures null."""
    well = True
    for name in chosen:
        report.figures |= dict.fromkeys(keys[name])
        try:
            parts[name](run)
        except (Unavailable, WorkerFailed) as error:
            report.leave_out(name, str(error))
            well = False
    return well


def stop_in_order() -> None:
    """Let SIGTERM end the benchmark as Ctrl-C does: what it started is stopped."""
    signal.signal(signal.SIGTERM, _terminated)


def _terminated(number: int, frame: object) -> None:
    raise SystemExit(128 + number)
