"""A log read again from its beginning, through a filter that one row in a hundred satisfies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.durable import logs
from benchmarks.load import replay
from benchmarks.load.worker import Worker, WorkerFailed
from benchmarks.peers.milepost_store import MilepostWithStore


@dataclass
class Replay:
    """One log, and how fast it was read."""

    name: str
    rows: int
    entries: int
    rows_per_s: float  # of the log, not of the matching rows
    cpu_us: float  # of the broker for each row


# Of the log that is written one row at a time. A short log is read within milliseconds, and the
# request is a part of that time.
ROWS, QUICK_ROWS = 300_000, 20_000


def measure(batched: Path, many: int, quick: bool) -> list[Replay]:
    """A log written in batches, one written one row at a time and compacted, and that one as it was before."""
    few = QUICK_ROWS if quick else ROWS
    repeats = 1 if quick else 5
    found = [_measured("in batches of 10,000", batched, many, many // logs.BATCH_ROWS, repeats)]
    with logs.one_by_one(few) as (raw, entries, compacted, joined):
        found.append(_measured("one row at a time, compacted", compacted, few, joined, 4 * repeats))
        # Once only, and at once: the broker's upkeep begins to compact it.
        found.append(_measured("one row at a time, as it was", raw, few, entries, 1))
    return found


def _measured(name: str, file: Path, rows: int, entries: int, repeats: int) -> Replay:
    """The best of some replays, through a client in a process of its own."""
    wanted = rows // logs.MATCHING
    best, cpu = float("inf"), 0.0
    with (
        MilepostWithStore(str(file)) as broker,
        Worker("uvloop", replay.replay, broker.host, broker.port, logs.TOPIC) as reader,
    ):
        reader.hear()
        for _ in range(repeats):
            before = broker.cpu_seconds()
            came, seconds = reader.ask((logs.WHERE, wanted))
            if came != wanted:
                raise WorkerFailed(f"{came} rows came of {wanted} that match")
            if seconds < best:
                best, cpu = seconds, (broker.cpu_seconds() - before) / rows * 1e6
    return Replay(name, rows, entries, rows / best, cpu)
