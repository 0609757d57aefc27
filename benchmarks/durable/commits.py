"""A hundred publishers with one message in flight each, and one alone: the gain of group commits."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from benchmarks.durable import disk
from benchmarks.load import turns
from benchmarks.load.worker import Worker
from benchmarks.peers import Server

PUBLISHERS = 100
TOPIC = "turns"


@dataclass
class Commits:
    """The results of the rounds."""

    alone: list[float] = field(default_factory=list)  # puts a second of one publisher
    together: list[float] = field(default_factory=list)  # … of all hundred
    p50: list[float] = field(default_factory=list)  # of a put among the hundred, ns
    p99: list[float] = field(default_factory=list)
    alone_p50: list[float] = field(default_factory=list)
    syncs: list[float] = field(default_factory=list)  # ns of an fdatasync, measured beside each round

    @property
    def gain(self) -> float:
        """The ratio of medians, because the best of one over the worst of the other would be too favourable."""
        return float(np.median(self.together) / np.median(self.alone))

    @property
    def p99_syncs(self) -> float:
        return float(np.median(self.p99) / np.median(self.syncs))


def measure(broker: Server, seconds: float, rounds: int) -> Commits:
    """Run both in turns. The first round is a warm-up, and is not counted."""
    found = Commits()
    where = (broker.host, broker.port, TOPIC)
    with (
        Worker("uvloop", turns.publishers, *where, 1) as one,
        Worker("uvloop", turns.publishers, *where, PUBLISHERS) as many,
    ):
        one.hear(), many.hear()
        for round_ in range(1 + rounds):
            sync = disk.fdatasync_s() * 1e9
            taken, latencies = one.ask(seconds if round_ else seconds / 4)
            all_taken, all_latencies = many.ask(seconds if round_ else seconds / 4)
            if round_:
                found.alone.append(len(latencies) / taken)
                found.together.append(len(all_latencies) / all_taken)
                found.alone_p50.append(float(np.percentile(latencies, 50)))
                found.p50.append(float(np.percentile(all_latencies, 50)))
                found.p99.append(float(np.percentile(all_latencies, 99)))
                found.syncs.append((sync + disk.fdatasync_s() * 1e9) / 2)
    return found
