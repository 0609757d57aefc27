"""Eight clients that read one queue together, each a process of its own, against one of them alone."""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from dataclasses import dataclass, field

from benchmarks.load import queues
from benchmarks.load.worker import Worker, WorkerFailed

READERS = 8
QUEUE = "shared"


@dataclass
class Readers:
    """The results of the rounds, for so many messages to a transaction."""

    size: int
    alone: list[float] = field(default_factory=list)  # messages a second
    together: list[float] = field(default_factory=list)
    least: int = 0  # messages that the reader with the fewest had, in the last round
    twice: int = 0
    lost: int = 0

    @property
    def gain(self) -> float:
        """The ratio of medians, because the best of one over the worst of the other would be too favourable."""
        return statistics.median(self.together) / statistics.median(self.alone)


def measure(url: str, given: dict[int, int], rounds: int) -> list[Readers]:
    """`given` has the messages of a round, by the size of a transaction. The first round is a warm-up."""
    found = [Readers(size) for size in given]
    with ExitStack() as stack:
        writer = stack.enter_context(Worker("uvloop", queues.backlog, url))
        writer.hear()
        writer.ask(("make", QUEUE, False, "none"))
        readers = [stack.enter_context(Worker("uvloop", queues.read, url, QUEUE)) for _ in range(READERS)]
        for reader in readers:
            reader.hear()
        for turn in range(1 + rounds):
            for each in found:
                for some in (readers[:1], readers):
                    writer.ask(("fill", QUEUE, given[each.size], 0))
                    rate = _round(each, some, given[each.size])
                    if turn:
                        (each.together if some is readers else each.alone).append(rate)
    return found


def _round(found: Readers, readers: list[Worker], count: int) -> float:
    """All begin at once and read until nothing is left; messages a second, from the first start to the last commit."""
    for reader in readers:
        reader.tell(found.size)
    answers = [reader.hear() for reader in readers]
    sizes = [size for came, _, _ in answers for size in came]
    if not sizes:
        raise WorkerFailed(f"none of {count} messages came")
    found.twice += len(sizes) - len(set(sizes))
    found.lost += count - len(set(sizes))
    found.least = min(len(came) for came, _, _ in answers)
    taken_ns: int = max(ended for _, _, ended in answers) - min(began for _, began, _ in answers)
    return len(sizes) / (taken_ns / 1e9)
