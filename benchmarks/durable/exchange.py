"""One publisher with 500 messages in flight, then one consumer that acknowledges 500 at a time."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from benchmarks.load import acknowledged
from benchmarks.load.worker import Worker, WorkerFailed
from benchmarks.peers import Server

LOAD = "benchmarks.load"
WARM_PART = 5  # the first run, which is not counted, has one in so many of the messages


@dataclass
class Contestant:
    """A broker, a way to use it, and the results of its runs."""

    name: str
    broker: str
    putter: str  # module:class, as `benchmarks.load.acknowledged` wants it
    getter: str
    count: int  # messages in a run
    synced: bool = True  # an acknowledged message is on the disk
    puts: list[float] = field(default_factory=list)  # a second
    gets: list[float] = field(default_factory=list)
    put_cpu: list[float] = field(default_factory=list)  # µs of the broker for each message
    get_cpu: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)  # messages of each run that was counted; all of them came

    @property
    def putting(self) -> str:
        """How it puts, in words."""
        return self.name.removeprefix(f"{self.broker}, ").partition("; ")[0]

    @property
    def put(self) -> float | None:
        return max(self.puts, default=None)

    @property
    def get(self) -> float | None:
        return max(self.gets, default=None)

    def cpu(self, taken: list[float]) -> float | None:
        return statistics.median(taken) if taken else None

    def figures(self) -> dict[str, float | bool | None]:
        return {"put_per_s": self.put, "get_per_s": self.get, "synced": self.synced}


BY_ROW, MANY = "put(wait=False), flush; loop", "put_many of 500; get_many"
ROWS_IN_TURNS, MANY_IN_TURNS = "put(wait=False), 2 × 250; get_many", "put_many, 2 × 250; get_many"
ENCODED = "put_many of 500, the next encoded meanwhile; get_many"


def ours(broker: str, quick: bool) -> list[Contestant]:
    """Milepost's ways to put and to get.

    Puts are by row or by list, and all 500 at once, in two halves, or with the next 500 made while the last are stored,
    as Redis has them. The gets of the first are compared: message by message, as the peers are used; `get_many`
    promises more than the peers, since its messages are not delivered again. A short run leaves out the ways
    that are rarely the best.
    """
    ways = {BY_ROW: ("Rows", "Iterate"), MANY: ("Many", "GetMany")}
    if broker == "milepost":
        ways |= {MANY_IN_TURNS: ("ManyInTurns", "GetMany"), ENCODED: ("Encoded", "GetMany")}
        if not quick:
            ways |= {ROWS_IN_TURNS: ("Sliding", "GetMany"), "500 tasks of put; loop": ("Tasks", "Iterate")}
    count = 4_000 if quick else 100_000
    return [
        Contestant(f"{broker}, {named}", broker, f"{LOAD}.durable:{put}", f"{LOAD}.durable:{get}", count)
        for named, (put, get) in ways.items()
    ]


def peers(quick: bool) -> list[Contestant]:
    few, some, many = (500, 1_000, 3_000) if quick else (10_000, 30_000, 60_000)
    rabbitmq = (f"{LOAD}.confirms:Publish", f"{LOAD}.confirms:Consume")
    jetstream = (f"{LOAD}.jetstream:Publish", f"{LOAD}.jetstream:Fetch")
    ways = {"500 XADDs in a pipeline": "Add", "2 × 250 XADDs in two threads": "AddInTurns"}
    if not quick:
        ways["500 XADDs, the next made meanwhile"] = "AddAhead"
    return [
        *(
            Contestant(f"redis streams, {named}", "redis", f"{LOAD}.streams:{put}", f"{LOAD}.streams:ReadGroup", many)
            for named, put in ways.items()
        ),
        Contestant("rabbitmq, 500 unconfirmed", "rabbitmq", *rabbitmq, few),
        Contestant("jetstream, unsynced, 500 pending", "jetstream", *jetstream, some, synced=False),
        Contestant("jetstream, synced, 500 pending", "jetstream synced", *jetstream, few),
    ]


# In every run RabbitMQ has a tenth of the rate of Redis. JetStream without syncs has less than half of Redis with
# them, so JetStream with syncs, which not every server can do, has less.
NEVER_BEST = ("rabbitmq", "jetstream synced")


def could_be_best(given: Sequence[Contestant], synced: bool) -> set[str]:
    """The brokers that may be the quickest, of those that sync or of all."""
    return {each.broker for each in given if each.broker not in NEVER_BEST and (each.synced or not synced)}


def measure(given: Sequence[Contestant], brokers: Mapping[str, Server], repeats: int) -> dict[str, str]:
    """Run all whose broker is there, in turns, so that noise affects all alike. Returns errors by name."""
    wrong = {}
    with ExitStack() as stack:
        running: list[tuple[Contestant, Server, Worker, Worker]] = []
        for number, contestant in enumerate(given):
            broker = brokers.get(contestant.broker)
            if broker is None:
                continue
            where = (broker.host, broker.port, f"kept{number}")
            try:
                # The consumer starts first: it creates the subscription or queue that keeps the messages.
                getter = stack.enter_context(Worker("uvloop", acknowledged.get, contestant.getter, *where))
                getter.hear()
                putter = stack.enter_context(Worker("uvloop", acknowledged.put, contestant.putter, *where))
                putter.hear()
            except WorkerFailed as error:
                wrong[contestant.name] = str(error)
                continue
            running.append((contestant, broker, putter, getter))
        for turn in range(1 + repeats):
            for each in list(running):
                count = each[0].count if turn else each[0].count // WARM_PART
                try:
                    _run(*each, count, counted=turn > 0)
                except WorkerFailed as error:
                    wrong[each[0].name] = str(error)
                    running.remove(each)
    return wrong


def _run(contestant: Contestant, broker: Server, putter: Worker, getter: Worker, count: int, counted: bool) -> None:
    start = broker.cpu_seconds()
    began, ended = putter.ask(count)
    middle = broker.cpu_seconds()
    came, asked, done = getter.ask(count)
    if came != count:
        raise WorkerFailed(f"{count - came} of {count} messages did not come")
    if counted:
        contestant.counts.append(count)
        contestant.puts.append(count / ((ended - began) / 1e9))
        contestant.gets.append(count / ((done - asked) / 1e9))
        contestant.put_cpu.append((middle - start) / count * 1e6)
        contestant.get_cpu.append((broker.cpu_seconds() - middle) / count * 1e6)


def by_round(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """The median of how many times as fast each round was: neighbours that are busy in one round hit both sides."""
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=False)]
    return statistics.median(ratios) if ratios else None


def single(broker: Server, count: int, repeats: int) -> float:
    """Messages a second, one to each `get`; the best of some runs."""
    where = (broker.host, broker.port, "single")
    best = 0.0
    with (
        Worker("uvloop", acknowledged.get, f"{LOAD}.durable:Get", *where) as getter,
        Worker("uvloop", acknowledged.put, f"{LOAD}.durable:Many", *where) as putter,
    ):
        getter.hear(), putter.hear()
        for _ in range(repeats):
            putter.ask(count)
            came, began, ended = getter.ask(count)
            if came != count:
                raise WorkerFailed(f"{count - came} of {count} messages did not come")
            best = max(best, count / ((ended - began) / 1e9))
    return best
