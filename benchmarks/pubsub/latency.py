"""From put to message at 1,000 messages a second, one row at a time: Milepost and NATS, in short windows in turns.

Other load on the machine comes and goes within seconds, and decides the tail: one long window of each gave p99
ratios from 1.2 to 5.1. So each window of ours is compared with the one of theirs beside it, which comes before and
after it in turns, and the median of these ratios counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from benchmarks.load import latency
from benchmarks.load.worker import Worker
from benchmarks.peers import Server

INTERVAL = 1_000_000  # ns between two messages
LOAD = "benchmarks.load"
CLIENTS = {"milepost": f"{LOAD}.milepost:Timed", "nats": f"{LOAD}.nats:Timed"}
WARM_MESSAGES = 300  # in a window that is not counted,
WARM_WINDOWS = 10  # of which there are at most so many


@dataclass
class Latency:
    """The results of one contestant's windows, in microseconds: from the call that sent, and from when it was due."""

    name: str
    broker: str
    loop: str
    sent: list[float] = field(default_factory=list)
    due: list[float] = field(default_factory=list)
    windows: dict[int, dict[int, float]] = field(default_factory=dict)  # percentiles, by number of the window
    pauses: list[float] = field(default_factory=list)  # of the collector of its subscriber, in ms
    lost: int = 0

    def percentile(self, share: float) -> float | None:
        return float(np.percentile(self.sent, share)) if self.sent else None

    def from_due(self, share: float) -> float | None:
        return float(np.percentile(self.due, share)) if self.due else None


class Ratios(NamedTuple):
    """How one contestant compares with another, window by window."""

    median: float
    quartiles: tuple[float, float]
    extremes: tuple[float, float]


def compared(ours: Latency, theirs: Latency, share: int) -> Ratios | None:
    """The ratios of a percentile, of the windows that both have."""
    both = sorted(ours.windows.keys() & theirs.windows.keys())
    if not both:
        return None
    found = [ours.windows[number][share] / theirs.windows[number][share] for number in both]
    low, middle, high = (float(np.percentile(found, part)) for part in (25, 50, 75))
    return Ratios(middle, (low, high), (min(found), max(found)))


def measure(
    brokers: Mapping[str, Server], loops: tuple[str, ...], windows: int, seconds: float, warm: Callable[[], bool]
) -> list[Latency]:
    """`windows` windows of `seconds` for each contestant, in turns; none counts before `warm` says so, or for long."""
    made = [Latency(f"{name}, {loop}", name, loop) for loop in loops for name in CLIENTS if name in brokers]
    with ExitStack() as stack:
        running = []
        for number, contestant in enumerate(made):
            broker = brokers[contestant.broker]
            where = (CLIENTS[contestant.broker], broker.host, broker.port, f"latency{number}")
            listener = stack.enter_context(Worker(contestant.loop, latency.listen, *where))
            sender = stack.enter_context(Worker(contestant.loop, latency.send, *where, INTERVAL))
            running.append((contestant, sender, listener))
        for _, sender, listener in running:
            listener.hear(), sender.hear()
        for turn in range(-WARM_WINDOWS, 1 + windows):
            if turn <= 0 and turn > -WARM_WINDOWS and warm():
                continue
            count = round(seconds * 1e9 / INTERVAL) if turn > 0 else WARM_MESSAGES
            for contestant, sender, listener in running if turn % 2 else reversed(running):
                planned = np.array(sender.ask(count))
                given, pauses = listener.ask("window")
                arrivals = np.array(given, dtype=np.int64).reshape(-1, 2)
                if turn <= 0:
                    continue
                if len(arrivals) != count:
                    contestant.lost += count - len(arrivals)
                    continue
                sent, came = arrivals.T
                contestant.sent += ((came - sent) / 1e3).tolist()
                contestant.due += ((came - planned) / 1e3).tolist()
                contestant.windows[turn] = {share: float(np.percentile(came - sent, share) / 1e3) for share in (50, 99)}
                contestant.pauses += pauses
    return made
