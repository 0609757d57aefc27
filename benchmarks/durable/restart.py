"""A broker that ends and starts again over a long log: the time until it serves, and its memory."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.durable import logs
from benchmarks.load import replay
from benchmarks.load.worker import Worker, WorkerFailed
from benchmarks.peers.milepost_store import MilepostWithStore

NAME = "middle"  # of the subscription


@dataclass
class Restart:
    """One log."""

    rows: int
    seconds: float  # from starting the process to a message of a subscription in the middle of the log; the median
    started_mb: float  # resident memory, then
    replayed_mb: float  # … and after the whole log was read once through a filter


def measure(file: Path, rows: int, repeats: int) -> Restart:
    """Measure over a store whose log has so many rows. A subscription is added to it."""
    with MilepostWithStore(str(file)) as broker:
        where = (broker.host, broker.port, logs.TOPIC, NAME, rows // 2)
        with Worker("uvloop", replay.place, *where) as placer:
            placer.hear()
    taken = []
    started = replayed = 0.0
    with Worker("uvloop", replay.first, logs.TOPIC, NAME) as client:
        for turn in range(repeats):
            began = time.monotonic_ns()
            with MilepostWithStore(str(file)) as broker:
                offset, came = client.ask((broker.host, broker.port))
                if offset != rows // 2 + turn:
                    raise WorkerFailed(f"the message has offset {offset}, and should have {rows // 2 + turn}")
                taken.append((came - began) / 1e9)
                started = max(started, broker.rss_mb())
                if turn == repeats - 1:
                    replayed = _replayed_mb(broker, rows)
    return Restart(rows, sorted(taken)[len(taken) // 2], started, replayed)


def _replayed_mb(broker: MilepostWithStore, rows: int) -> float:
    with Worker("uvloop", replay.replay, broker.host, broker.port, logs.TOPIC) as reader:
        reader.hear()
        wanted = rows // logs.MATCHING
        came, _ = reader.ask((logs.WHERE, wanted))
        if came != wanted:
            raise WorkerFailed(f"{came} rows came of {wanted} that match")
        return broker.rss_mb()
