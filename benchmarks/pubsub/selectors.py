"""Ten thousand selectors on one connection, the same for Milepost and ActiveMQ: events a second through the broker."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field

from benchmarks.load import activemq, selective
from benchmarks.load.selection import Selection
from benchmarks.load.worker import Worker
from benchmarks.peers import Server
from benchmarks.pubsub.throughput import Rates

SELECTORS, QUICK_SELECTORS = 10_000, 200
BATCH_ROWS = 2_000  # events in a put of Milepost's


@dataclass
class Selected(Rates):
    """The results of the runs of one broker."""

    name: str
    events: int  # in a run; ActiveMQ gets fewer, as it would take minutes for as many
    matches: int = 0  # pairs of event and selector that the broker should deliver in a run
    delivered: int = 0  # … and that it did, in the last one
    rates: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)


def measure(ours: Server | None, theirs: Server | None, quick: bool, repeats: int) -> list[Selected]:
    """Both in turns, the same selectors. The first turn, not counted, lets Java compile its code."""
    selectors = QUICK_SELECTORS if quick else SELECTORS
    selection = Selection(selectors)
    many, few = (5_000, 100) if quick else (400_000, 2_000)
    with ExitStack() as stack:
        running = []
        for broker, selected, module, more in (
            (ours, Selected("milepost", many), selective, (BATCH_ROWS,)),
            (theirs, Selected("activemq", few), activemq, ()),
        ):
            if broker is None:
                continue
            where = (broker.host, broker.port, selectors)
            taker = stack.enter_context(Worker("asyncio", module.subscribe, *where))
            giver = stack.enter_context(Worker("asyncio", module.publish, *where, selected.events, *more))
            selected.matches = selection.matches(selected.events)
            running.append((broker, selected, giver, taker))
        for _, _, giver, taker in running:
            taker.hear(), giver.hear()
        for turn in range(1 + repeats):
            for broker, selected, giver, taker in running:
                taker.ask(selected.matches)
                before = broker.cpu_seconds()
                giver.tell(selected.events)
                selected.delivered, ended = taker.hear()
                began = giver.hear()
                if turn and selected.delivered == selected.matches:
                    selected.rates.append(selected.events / ((ended - began) / 1e9))
                    selected.cpu_us.append((broker.cpu_seconds() - before) / selected.events * 1e6)
    return [selected for _, selected, _, _ in running]
