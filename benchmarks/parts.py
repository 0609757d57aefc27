"""The parts of a benchmark that starts peers: they run one after the other, and a part that fails stops no other."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

from benchmarks.load.worker import WorkerFailed
from benchmarks.peers import Server, Unavailable
from benchmarks.report import Report

Run = TypeVar("Run")
Bar = tuple[str, float, str, float]


class PartsRun:
    """Shared by the parts of one run: the report, the bars so far, and whether the run is a short one."""

    def __init__(self, report: Report, quick: bool) -> None:
        self.report = report
        self.quick = quick
        self.bars: list[Bar] = []
        self._began = time.monotonic()

    def put(self, **figures: Any) -> None:
        self.report.figures |= figures

    def bar(self, name: str, measured: float | None, relation: str, bound: float) -> None:
        if measured is not None:
            self.bars.append((name, measured, relation, bound))

    def progress(self, sentence: str) -> None:
        print(f"{time.monotonic() - self._began:5.1f} s: {sentence}", file=sys.stderr, flush=True)

    def some(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    @contextmanager
    def brokers(self, ours: type[Server], *peers: type[Server]) -> Iterator[dict[str, Server]]:
        """Our broker, and the peers that can be started, by name. The report says why the other peers are left out."""
        with ExitStack() as stack:
            running: dict[str, Server] = {ours.name: stack.enter_context(ours())}
            for kind in peers:
                self.progress(f"starting {kind.name}")
                try:
                    running[kind.name] = stack.enter_context(kind())
                except Unavailable as reason:
                    self.report.leave_out(kind.name, str(reason))
            yield running


def carry_out(
    report: Report,
    run: Run,
    chosen: Iterable[str],
    parts: Mapping[str, Callable[[Run], None]],
    keys: Mapping[str, Sequence[str]],
) -> bool:
    """Run parts by name. Returns whether all went well. The report says why a part failed, and its figures are null."""
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
    """Let SIGTERM end the benchmark as Ctrl-C does, so that the processes it has started are stopped."""
    signal.signal(signal.SIGTERM, _terminated)


def _terminated(number: int, frame: object) -> None:
    raise SystemExit(128 + number)
