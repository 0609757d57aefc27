"""One publisher, one subscriber, 100-byte messages: messages a second, and the broker's CPU time for each."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from benchmarks.load import pair
from benchmarks.load.worker import Worker, WorkerFailed
from benchmarks.peers import Server


class Rates:
    """The figures of a contestant's runs; subclasses are dataclasses with these fields."""

    rates: list[float]
    cpu_us: list[float]

    @property
    def best(self) -> float | None:
        return max(self.rates, default=None)

    @property
    def median(self) -> float | None:
        return statistics.median(self.rates) if self.rates else None

    @property
    def cpu(self) -> float | None:
        return statistics.median(self.cpu_us) if self.cpu_us else None


@dataclass
class Contestant(Rates):
    """A broker, a kind of client on both ends, and the results of their runs."""

    name: str
    broker: str
    publisher: str  # module:class, as `benchmarks.load.pair` wants it
    subscriber: str
    count: int  # messages in a run, for about a second of it
    loop: str = "uvloop"
    rates: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)  # the broker's, for each message
    lost: int = 0  # messages that did not arrive, in all runs

    def figures(self) -> dict[str, float | None]:
        return {"rows_per_s": self.best, "cpu_us_per_row": self.cpu}


LOAD = "benchmarks.load"
WARM_PART = 10  # the first run, which is not counted, sends one in so many of the messages


def contestants(quick: bool) -> list[Contestant]:
    """All contestants, in the order of the table. Milepost and nats-py run on both event loops; the better one counts.

    A short run has time for one loop only.
    """
    ours, theirs, raw = (10_000, 5_000, 50_000) if quick else (400_000, 200_000, 2_000_000)
    made = []
    for loop in ("uvloop",) if quick else ("uvloop", "asyncio"):
        made.append(Contestant(f"milepost rows, {loop}", "milepost", f"{LOAD}.milepost:Put", f"{LOAD}.milepost:Views",
                               ours, loop))  # fmt: skip
        made.append(Contestant(f"nats-py, {loop}", "nats", f"{LOAD}.nats:Publish", f"{LOAD}.nats:Callback",
                               theirs, loop))  # fmt: skip
    made += [
        Contestant("milepost columns", "milepost", f"{LOAD}.milepost:PutColumns", f"{LOAD}.milepost:Columns", raw),
        Contestant("nats raw sockets", "nats", f"{LOAD}.nats:RawPublish", f"{LOAD}.nats:RawCount", raw),
        Contestant("redis, pipelines of 500", "redis", f"{LOAD}.redis:Publish", f"{LOAD}.redis:Listen", theirs // 2),
        Contestant("mosquitto, QoS 0", "mosquitto", f"{LOAD}.mosquitto:Publish", f"{LOAD}.mosquitto:Callback",
                   theirs // 5),
        Contestant("rabbitmq, transient", "rabbitmq", f"{LOAD}.rabbitmq:Publish", f"{LOAD}.rabbitmq:Consume",
                   theirs // 10),
    ]  # fmt: skip
    return made


def measure(given: Sequence[Contestant], brokers: Mapping[str, Server], repeats: int) -> dict[str, str]:
    """Run all whose broker is there, in turns, so that noise affects all alike. Returns errors by name."""
    wrong = {}
    with ExitStack() as stack:
        running: list[tuple[Contestant, Worker, Worker]] = []
        for number, contestant in enumerate(given):
            broker = brokers.get(contestant.broker)
            if broker is None:
                continue
            where = (broker.host, broker.port, f"ticks{number}")  # a topic of its own: all are open at once
            taker = stack.enter_context(Worker(contestant.loop, pair.subscribe, contestant.subscriber, *where))
            giver = stack.enter_context(Worker(contestant.loop, pair.publish, contestant.publisher, *where))
            running.append((contestant, giver, taker))
        for contestant, giver, taker in list(running):
            try:
                taker.hear(), giver.hear()
            except WorkerFailed as error:
                wrong[contestant.name] = str(error)
                running.remove((contestant, giver, taker))
        for turn in range(1 + repeats):
            for contestant, giver, taker in list(running):
                count = contestant.count if turn else contestant.count // WARM_PART
                try:
                    _run(contestant, brokers[contestant.broker], giver, taker, count, counted=turn > 0)
                except WorkerFailed as error:
                    wrong[contestant.name] = str(error)
                    running.remove((contestant, giver, taker))
    return wrong


def _run(contestant: Contestant, broker: Server, giver: Worker, taker: Worker, count: int, counted: bool) -> None:
    taker.ask(count)
    before = broker.cpu_seconds()
    giver.tell(count)
    came, ended = taker.hear()
    began = giver.hear()
    spent = broker.cpu_seconds() - before
    if came != count:
        contestant.lost += count - came
    elif counted:
        contestant.rates.append(count / ((ended - began) / 1e9))
        contestant.cpu_us.append(spent / count * 1e6)
