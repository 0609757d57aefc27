"""Many connections: a thousand publishers of single rows, and ten thousand that say nothing."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import ExitStack

from benchmarks.load import feeders, fleet, pair
from benchmarks.load.worker import Worker
from benchmarks.peers import Milepost

PUBLISHERS = 1_000
IDLE, QUICK_IDLE = 10_000, 500  # connections
TOPIC = "crowd"
PAIR = ("benchmarks.load.milepost:Put", "benchmarks.load.milepost:Views")


def many_publishers(publishers: int, rows_each: int, repeats: int) -> dict[str, float | None]:
    """All send single rows to one topic with one subscriber, as fast as they are taken: the broker's figures."""
    rates, cpu = [], []
    with (
        Milepost() as broker,
        Worker("asyncio", feeders.rush, broker.host, broker.port, TOPIC, publishers) as rush,
        Worker("asyncio", fleet.crew, broker.host, broker.port) as crew,
    ):
        rush.hear(), crew.hear()
        crew.ask([TOPIC])
        for turn in range(1 + repeats):
            each = rows_each if turn else max(1, rows_each // 10)
            crew.ask(publishers * each)
            before = broker.cpu_seconds()
            rush.tell(each)
            came, ended = crew.hear()
            began = rush.hear()
            if turn and came == publishers * each:
                rates.append(came / ((ended - began) / 1e9))
                cpu.append((broker.cpu_seconds() - before) / came * 1e6)
    return {
        "rows_per_s": max(rates, default=None),
        "cpu_us_per_row": statistics.median(cpu) if cpu else None,
    }


def idle(connections: int, count: int, repeats: int) -> dict[str, float]:
    """Memory of idle connections, and the rate of a hot pair without and with them.

    Two brokers, one of them with the idle connections, take turns: whatever else the machine does hits both alike.
    """
    with ExitStack() as stack:
        brokers, pairs = [], []
        for _ in range(2):
            # All come from one address, which by default may have half of the file descriptors.
            broker = stack.enter_context(Milepost(connections_per_address=2 * connections))
            where = (broker.host, broker.port, "pair")
            taker = stack.enter_context(Worker("uvloop", pair.subscribe, PAIR[1], *where))
            giver = stack.enter_context(Worker("uvloop", pair.publish, PAIR[0], *where))
            taker.hear(), giver.hear()
            brokers.append(broker)
            pairs.append((giver, taker))
            _rate(giver, taker, count // 4)  # memory that a busy broker takes anyway is taken before
        crowded = brokers[1]
        crew = stack.enter_context(Worker("asyncio", fleet.crew, crowded.host, crowded.port))
        crew.hear()
        before = crowded.memory_kb()
        crew.ask([None] * connections)
        kb = (crowded.memory_kb() - before) / connections
        rates: Sequence[list[float]] = ([], [])
        for _ in range(repeats):
            for which, (giver, taker) in enumerate(pairs):
                rates[which].append(_rate(giver, taker, count))
    alone, beside = (max(each) for each in rates)
    return {"kb_per_connection": kb, "alone": alone, "beside": beside, "slowdown": alone / beside}


def _rate(giver: Worker, taker: Worker, count: int) -> float:
    taker.ask(count)
    giver.tell(count)
    came, ended = taker.hear()
    began = giver.hear()
    assert came == count, f"{count - came} rows of the hot pair are missing"
    return float(count / ((ended - began) / 1e9))
