"""The outcome and the delay of every event, measured by what is in the topics at the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from milepost.client import Client
from milepost.pipeline.experiments import events
from milepost.pipeline.experiments.pipelines import LATE, OUTPUT
from milepost.pipeline.own_topics import IEP, OwnTopics, Tail, ends


@dataclass(frozen=True)
class Account:
    """The events of one run. An event is lost when it was put, and is neither a result, nor discarded by a rule, nor
    waiting.
    """

    put: int
    discarded: int
    results: int
    late: int  # results that came too late for their place in the order, and are in the late topic
    waiting: int
    lost: int
    doubled: int

    def __str__(self) -> str:
        told = f"{self.put:,} put: {self.results:,} results, {self.discarded:,} discarded, {self.waiting:,} wait"
        return f"{told}, {self.late:,} late, {self.lost:,} lost, {self.doubled:,} twice"


def account(client: Client, pipeline: str, put: int, waiting: int = 0) -> Account:
    """Compare the numbers of all events with the numbers of all results. The last `waiting` events are still in the
    topic.

    Called after the combiner has consumed all results of the lanes.
    """
    ids = np.arange(put, dtype=np.int64)
    test = events.is_test(ids)
    expected = np.where(test, 0, 1)
    results, late = (_counted(client, f"{pipeline}.{topic}", put) for topic in (OUTPUT, LATE))
    found = results + late
    missing = (found < expected) & (ids < put - waiting)
    return Account(
        put=put,
        discarded=int(np.count_nonzero(test & (found == 0))),
        results=int(results.sum()),
        late=int(late.sum()),
        waiting=waiting,
        lost=int(np.count_nonzero(missing)),
        doubled=int(np.maximum(found - expected, 0).sum()),
    )


def _counted(client: Client, topic: str, put: int) -> npt.NDArray[np.int64]:
    """How often each number is in a topic."""
    counts = np.zeros(put, np.int64)
    for batch in client.read(topic, {}, ends(client, topic)):
        counts += np.bincount(batch.column("id").astype(np.int64), minlength=put)
    return counts


def delays(client: Client, pipeline: str, came_us: events.Numbers) -> npt.NDArray[np.float64]:
    """Seconds from each event to its emission by the combiner; NaN for events that were not emitted.

    Each progress row of tier 2 has its watermark and its time. The combiner emits an event with the first commit whose
    watermark is at or after the time of the event.
    """
    told = [(row.time, row.at) for _, _, row in Tail(client, OwnTopics(pipeline).progress).news() if row.lane == IEP]
    reached = np.maximum.accumulate(np.array([_us(time) for time, _ in told] or [0], np.int64))
    when = np.array([_us(at) for _, at in told] or [0], np.int64)
    place = np.searchsorted(reached, came_us, side="left")
    out = np.where(place < len(when), when[np.minimum(place, len(when) - 1)], -1)
    return np.where(out < 0, np.nan, (out - came_us) / 1e6)


def _us(moment: Any) -> int:
    return 0 if moment is None else round(moment.timestamp() * 1_000_000)


def mean_between(came_us: events.Numbers, delays_s: npt.NDArray[np.float64], start: float, stop: float) -> float:
    """The mean delay of the events between two times, in seconds since 1970; NaN when none was emitted."""
    chosen = delays_s[(came_us >= start * 1e6) & (came_us < stop * 1e6)]
    chosen = chosen[np.isfinite(chosen)]
    return float(chosen.mean()) if len(chosen) else float("nan")
