"""Queues with many waiting messages: the time of a dequeue, with a selection and without one."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.load import queues
from benchmarks.load.worker import Worker
from benchmarks.queues.scan import scan_ms

QUALIFYING = 10
INDEXED = "indexed"  # the name of the series
WARM = 3  # dequeues that are not counted


@dataclass
class Series:
    """One queue, and the time of a dequeue by the number of waiting messages; medians in ms.

    Without the commit, whose sync takes the same time for any backlog and would hide the growth.
    """

    store: str
    name: str
    ms: dict[int, float] = field(default_factory=dict)
    commit_ms: float = 0.0  # of the longest backlog
    scan_ms: dict[int, float] = field(default_factory=dict)  # of a scan of the tables, for the queue without an index

    @property
    def scan_ratio(self) -> float:
        """The time of a dequeue from the longest backlog, over a scan of its tables. Short ones have other costs."""
        longest = max(self.scan_ms)
        return self.ms[longest] / self.scan_ms[longest]

    @property
    def growth(self) -> float:
        """The time for the longest backlog divided by the time for the shortest."""
        return self.ms[max(self.ms)] / self.ms[min(self.ms)]

    def take(self, client: Worker, backlog: int, times: int, *asked: object) -> None:
        client.ask(("take", *asked, WARM))  # plans, and pages that were written just now
        taken = client.ask(("take", *asked, times))
        self.ms[backlog] = statistics.median(dequeue for dequeue, _ in taken) / 1e6
        self.commit_ms = statistics.median(commit for _, commit in taken) / 1e6

    def figures(self) -> dict[str, float]:
        return {str(waiting): ms for waiting, ms in self.ms.items()}


def selective(store: str, url: str, tables: str, backlogs: Sequence[int], times: int) -> list[Series]:
    """Take one message of the ten that qualify, in an order by another attribute: indexed, then without an index.

    `tables` is where the broker has its store: each backlog without an index is scanned there, right after the
    dequeues from it.
    """
    found: list[Series] = []
    with Worker("uvloop", queues.backlog, url) as client:
        client.hear()
        for indexed in (True, False):
            series = Series(store, INDEXED if indexed else "no index")
            queue = "indexed" if indexed else "unindexed"
            client.ask(("make", queue, indexed, "none"))
            waiting = 0
            for backlog in backlogs:
                client.ask(("fill", queue, backlog - waiting, 0 if waiting else QUALIFYING))
                waiting = backlog
                series.take(client, backlog, times, queue, queues.SELECT, queues.ORDER, 1)
                if not indexed:
                    series.scan_ms[backlog] = scan_ms(tables, queue, times)
            found.append(series)
    return found


def plain(store: str, url: str, backlogs: Sequence[int], times: int) -> list[Series]:
    """Take one message and a hundred, without selection, from a queue without order and from an ordered one."""
    found: list[Series] = []
    with Worker("uvloop", queues.backlog, url) as client:
        client.hear()
        for level in ("none", "ordered"):
            queue = f"growing_{level}"
            client.ask(("make", queue, False, level))
            by_count = {count: Series(store, f"{level}, {count} at a time") for count in (1, 100)}
            waiting = 0
            for backlog in backlogs:
                client.ask(("fill", queue, backlog - waiting, 0))
                waiting = backlog
                for count, series in by_count.items():
                    series.take(client, backlog, times, queue, None, None, count)
            found += by_count.values()
    return found
