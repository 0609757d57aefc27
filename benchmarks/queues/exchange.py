"""One process fills a queue and empties it: a hundred messages to a transaction, and one."""

from __future__ import annotations

import importlib.util
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from benchmarks.load import transactions
from benchmarks.load.worker import Worker, WorkerFailed

LOAD = "benchmarks.load"
MANY, ONE = 100, 1  # messages to a transaction
WARM_PART = 5  # the first run, which is not counted, has one in so many of the messages
WHATS = ("enqueue", "dequeue")


@dataclass
class Contestant:
    """A queue, its place, and the results of its runs."""

    name: str
    kind: str  # module:class, as `benchmarks.load.transactions` wants it
    url: str
    many: int  # messages in a run, a hundred to a transaction
    one: int  # … and one to a transaction; 0: not tried
    needs: str | None = None  # a Python package
    cpu_seconds: Callable[[], float] | None = None  # of the broker, if there is one
    rates: dict[tuple[str, int], list[float]] = field(default_factory=dict)  # a second, by what and size
    cpu: dict[tuple[str, int], list[float]] = field(default_factory=dict)  # µs of the broker for a message

    def best(self, what: str, size: int) -> float | None:
        return max(self.rates.get((what, size), ()), default=None)

    def cpu_us(self, what: str, size: int) -> float | None:
        found = self.cpu.get((what, size))
        return statistics.median(found) if found else None

    def missing(self) -> str | None:
        """Why it cannot take part, as a sentence."""
        if self.needs and importlib.util.find_spec(self.needs) is None:
            return f"the Python package {self.needs} is not installed (pip install {self.needs}): left out"
        return None

    def figures(self) -> dict[str, float | None]:
        return {f"{what}_{size}_per_s": self.best(what, size) for size in (MANY, ONE) for what in WHATS}


@contextmanager
def running(
    queue: str, given: Sequence[Contestant], wrong: dict[str, str]
) -> Iterator[list[tuple[Contestant, Worker]]]:
    """A process for each contestant that can take part; `wrong` gets the reasons of the others, by name."""
    with ExitStack() as stack:
        found = []
        for contestant in given:
            if reason := contestant.missing():
                wrong[contestant.name] = reason
                continue
            arguments = (contestant.kind, contestant.url, queue)
            worker = stack.enter_context(Worker("uvloop", transactions.work, *arguments))
            try:
                worker.hear()
            except WorkerFailed as error:
                wrong[contestant.name] = str(error)
                continue
            found.append((contestant, worker))
        yield found


def measure(queue: str, given: Sequence[Contestant], rounds: int) -> dict[str, str]:
    """Run all in turns, so that noise affects all alike. Returns errors by name.

    Each has its own queue of this name, which must be new.
    """
    wrong: dict[str, str] = {}
    with running(queue, given, wrong) as all_:
        for turn in range(1 + rounds):
            for contestant, worker in list(all_):
                try:
                    for size, count in ((MANY, contestant.many), (ONE, contestant.one)):
                        if count:
                            _run(contestant, worker, count if turn else -(-count // WARM_PART), size, counted=turn > 0)
                except WorkerFailed as error:
                    wrong[contestant.name] = str(error)
                    all_.remove((contestant, worker))
    return wrong


def _run(contestant: Contestant, worker: Worker, count: int, size: int, counted: bool) -> None:
    count = -(-count // size) * size  # whole transactions
    for what in WHATS:
        before = contestant.cpu_seconds() if contestant.cpu_seconds else 0.0
        went, began, ended = worker.ask((what, count, size))
        if went != count:
            raise WorkerFailed(f"{count - went} of {count} messages did not arrive")
        if counted:
            contestant.rates.setdefault((what, size), []).append(count / ((ended - began) / 1e9))
            if contestant.cpu_seconds:
                used = (contestant.cpu_seconds() - before) / count * 1e6
                contestant.cpu.setdefault((what, size), []).append(used)


def peers(urls: Callable[[str], str], quick: bool) -> list[Contestant]:
    """`urls` has a separate database for each, by name."""
    many, few = (500, 100) if quick else (10_000, 2_000)
    one, one_slow = (20, 20) if quick else (800, 400)
    return [
        Contestant("PGQueuer", f"{LOAD}.pgqueuer:Queue", urls("pgqueuer"), many, one, "pgqueuer"),
        Contestant(
            "procrastinate", f"{LOAD}.procrastinate:Queue", urls("procrastinate"), few, one_slow, "procrastinate"
        ),
    ]
