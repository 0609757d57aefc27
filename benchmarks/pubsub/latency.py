"""From put to message at 1,000 messages a second, one row at a time: Milepost and NATS, taking turns."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np

from benchmarks.load import latency
from benchmarks.load.worker import Worker
from benchmarks.peers import Server

INTERVAL = 1_000_000  # ns between two messages
LOAD = "benchmarks.load"
CLIENTS = {"milepost": f"{LOAD}.milepost:Timed", "nats": f"{LOAD}.nats:Timed"}
WARM_MESSAGES = 300  # before the first round, not counted


@dataclass
class Latency:
    """What the rounds of one contestant gave, in microseconds: from the call that sent, and from when it was due."""

    name: str
    broker: str
    loop: str
    sent: list[float] = field(default_factory=list)
    due: list[float] = field(default_factory=list)
    rounds: list[float] = field(default_factory=list)  # the 99th percentile of each round
    lost: int = 0

    def percentile(self, share: float) -> float | None:
        return float(np.percentile(self.sent, share)) if self.sent else None

    def from_due(self, share: float) -> float | None:
        return float(np.percentile(self.due, share)) if self.due else None


def measure(brokers: Mapping[str, Server], loops: tuple[str, ...], rounds: int, seconds: float) -> list[Latency]:
    """`rounds` rounds of `seconds` for each contestant, in turns."""
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
        for turn in range(1 + rounds):
            count = round(seconds * 1e9 / INTERVAL) if turn else WARM_MESSAGES
            for contestant, sender, listener in running:
                planned = np.array(sender.ask(count))
                arrivals = np.array(listener.ask("round"), dtype=np.int64).reshape(-1, 2)
                if not turn:
                    continue
                if len(arrivals) != count:
                    contestant.lost += count - len(arrivals)
                    continue
                sent, came = arrivals.T
                contestant.sent += ((came - sent) / 1e3).tolist()
                contestant.due += ((came - planned) / 1e3).tolist()
                contestant.rounds.append(float(np.percentile(came - sent, 99) / 1e3))
    return made
