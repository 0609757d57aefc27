"""The topics that a pipeline declares for itself. Its parts exchange everything through them, and all are durable.

Besides its input and its outputs, a pipeline `dns` has:

- `dns.splits`: which run of the input's offsets belongs to which lane. The load splitter writes it, lanes read it.
- `dns.lane.0`, …: the results of one lane. The lane writes them, the combiner consumes them.
- `dns.marks`: the progress of each lane and of tier 2, written in the transaction that makes results visible.
- `dns.control`: what the controllers measured and decided, one row for each lane and interval. A pipeline without lanes
  writes one row for tier 2, which shows that it runs.
- `dns.monitor`: the statistics of the monitors.
- `dns.orders`: an operator's order to stop, and the runner's answer.

So any client that may read these topics can watch a pipeline, and lanes may run on any machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from milepost.pipeline.tier2.rules import quantile_name

if TYPE_CHECKING:
    from milepost.client import Client, TopicInfo
    from milepost.schema import Schema

SPLIT: Final = """
    split: [source: int, log: long, start: long, stop: long, lane: int, first: long, at: timestamp]
"""
# The topic is named `marks` and its schema `mark`, although the code says progress: stores of brokers hold both names.
PROGRESS: Final = """
    mark: [lane: int, epoch: long, position: long, time: timestamp?, rows: long, bytes: long, rejected: long,
           dropped: long, late: long, busy: double, at: timestamp, offset: string?, elsewhere: bool?,
           sink: string?, disorder: double?]
"""
CONTROL: Final = """
    control: [interval: long, at: timestamp, lane: int, assigned: long, admitted: long, batch: long, done: long,
              reference: double, free: double, queued: double, input: double, response: double?, weight: double,
              dropped: long, every: double?]
"""
STATISTIC: Final = """
    statistic: [monitor: string, start: timestamp, stop: timestamp, count: long, rate: double, mean: double?,
                min: double?, max: double?, quantiles: *([quantile: double, value: double?])*]
"""
ORDER: Final = "order: [order: string, at: timestamp]"
STOP: Final = "stop"  # order of an operator
STOPPED: Final = "stopped"  # answer of the runner, also written whenever it ends normally

RESULTS_S: Final = 7 * 86_400.0  # retention of results that no pipeline combines yet
_WEEK: Final = {"age_s": RESULTS_S, "hold": True}
_TIDIED: Final = {"age_s": None, "hold": True}  # trimmed by `tidy`: the last rows must stay, however old they are
_DAY: Final = {"age_s": 86_400.0, "hold": True}
_CONSUMED: Final = {"age_s": 0.0, "hold": True}  # results of a lane are removed as soon as they are combined

IEP: Final = -1  # value of `lane` in progress rows of tier 2


class OwnTopics:
    """The names of a pipeline's own topics, and of the holds of its parts."""

    def __init__(self, pipeline: str) -> None:
        self.pipeline: Final = pipeline
        self.splits: Final = f"{pipeline}.splits"
        self.progress: Final = f"{pipeline}.marks"
        self.control: Final = f"{pipeline}.control"
        self.monitor: Final = f"{pipeline}.monitor"
        self.orders: Final = f"{pipeline}.orders"

    def lane(self, number: int) -> str:
        """The topic with the results of a lane."""
        return f"{self.pipeline}.lane.{number}"

    def hold(self, holder: str) -> str:
        """The name of a hold. `holder` is "lane 0", "splitter" or "tier 2"."""
        return f"{self.pipeline}: {holder}"

    def owns(self, topic: str) -> bool:
        """Whether a topic with this name would belong to the pipeline."""
        lane = topic.removeprefix(f"{self.pipeline}.lane.")
        fixed = (self.splits, self.progress, self.control, self.monitor, self.orders)
        return topic in fixed or (lane != topic and lane.isdecimal())

    def declare(self, client: Client) -> None:
        """Declare the topics whose schema does not depend on the pipeline. Topics that exist stay as they are."""
        for name, schema, retain in (
            (self.splits, SPLIT, _TIDIED),
            (self.progress, PROGRESS, _TIDIED),
            (self.control, CONTROL, _DAY),
            (self.monitor, STATISTIC, _WEEK),
            (self.orders, ORDER, _DAY),
        ):
            client.declare_topic(name, schema, durable=True, retain=retain)

    def declare_lanes(self, client: Client, lanes: int, schema: Schema, *, combined: bool = True) -> None:
        """Declare the topics of the lanes' results. With `combined` false, results wait a week for another pipeline."""
        for lane in range(lanes):
            client.declare_topic(self.lane(lane), schema, durable=True, retain=_CONSUMED if combined else _WEEK)


def pipeline_topics(topics: Iterable[TopicInfo]) -> set[str]:
    """The names of those topics that pipelines have declared for themselves.

    A pipeline is recognised by the schema of its progress topic, since a user may have a topic of the same name.
    """
    schemas = {each.name: each.schema for each in topics}
    pipelines = [
        OwnTopics(name.removesuffix(".marks"))
        for name, schema in schemas.items()
        if name.endswith(".marks") and schema.name == "mark" and f"{name.removesuffix('.marks')}.splits" in schemas
    ]
    return {name for name in schemas for pipeline in pipelines if pipeline.owns(name)}


def last_progress(client: Client, topics: OwnTopics, lane: int, other_than: str = "") -> Any | None:
    """The farthest progress row of a lane, or of tier 2; None before the first one. It is nearly always among the last
    rows.

    `other_than` ignores the rows of the sink with this name.
    """
    stops = ends(client, topics.progress)
    for back in (1_000, 1 << 62):
        rows = Tail(client, topics.progress, {log: max(0, stop - back) for log, stop in stops.items()}).news()
        found = [row for _, _, row in rows if row.lane == lane]
        if other_than:
            found = [row for row in found if getattr(row, "sink", None) != other_than]
        if found:
            # Tier 2 may advance in time but not in position: among such rows the last one counts.
            return max(reversed(found), key=lambda row: (row.position, row.at))
    return None


def statistics(row: Any) -> dict[str, Any]:
    """The statistics in one row of the monitors' topic, by the names that rules use."""
    told = {name: getattr(row, name) for name in ("count", "rate", "mean", "min", "max")}
    return told | {quantile_name(each.quantile): each.value for each in row.quantiles}


def combiner_hold(reader: str, topic: str) -> str:
    """The hold of a pipeline's combiner on a topic of its own lanes, or of a pipeline that feeds it."""
    return f"{reader}: tier 2 of {topic}"


def queue(client: Client, topics: OwnTopics, lane: int) -> tuple[int, float]:
    """The result queue of a lane: the number of results that its combiner has not consumed, and the bytes of one.

    The bytes are 0.0 while the topic is empty. Where several pipelines combine one lane, the slowest one counts.
    """
    told = client.look(topics.lane(lane))
    rows, size = (sum(int(each[name]) for each in told["logs"]) for name in ("rows", "bytes"))
    behind = max((int(each["behind"]) for each in told["subscriptions"] if each.get("hold")), default=0)
    return behind, size / rows if rows else 0.0


def tidy(client: Client, topic: str, before: datetime, keep: Mapping[int, int]) -> int:
    """Remove rows that were stored before a time and are not needed any more. Returns how many were removed.

    `keep` has, by log, the first offset that a restarted reader needs. Rows that holds protect stay as well.
    """
    told = client.look(topic, before)
    position = {int(log): int(offset) for log, offset in told["position"].items()}
    for cursor in (keep, *(each["cursor"] for each in told["subscriptions"] if each.get("hold"))):
        for log in position:
            position[log] = min(position[log], int(cursor.get(log, 0)))
    return client.trim(topic, position) if any(position.values()) else 0


def ends(client: Client, topic: str) -> dict[int, int]:
    """Where each log of a topic ends."""
    return {int(each["log"]): int(each["next"]) for each in client.look(topic)["logs"]}


def newest(client: Client, topic: str) -> list[Any]:
    """The last row of each log."""
    last = {log: max(0, offset - 1) for log, offset in ends(client, topic).items()}
    return [row for _, _, row in Tail(client, topic, last).news()]


class Tail:
    """Reads a small topic as it grows: each call of `news` returns the rows stored since the previous call."""

    def __init__(self, client: Client, topic: str, position: dict[int, int] | None = None) -> None:
        self._client = client
        self._topic = topic
        self.position: dict[int, int] = dict(position or {})

    def news(self) -> list[Any]:
        """The new rows as (log, offset, row), the oldest of each log first."""
        logs = self._client.look(self._topic)["logs"]
        stop = {int(each["log"]): int(each["next"]) for each in logs}
        start = {int(each["log"]): max(int(each["start"]), self.position.get(int(each["log"]), 0)) for each in logs}
        if all(start[log] >= end for log, end in stop.items()):
            return []
        found = [
            (batch.log, int(offset), row)
            for batch in self._client.read(self._topic, start, stop)
            for offset, row in zip(batch.offsets, batch, strict=True)
        ]
        self.position = stop
        return found
