"""Batches as they arrive: checked, joined and matched. Runs in the event loop, or in the threads of `input_queues`.

Rows that arrive together for one topic are joined before they are matched, whoever sent them: when a broker falls
behind, frames gather in its sockets, and the fewer and larger batches that result let it catch up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from milepost.batch import Batch
from milepost.batch.header import fingerprint_of, rows_of
from milepost.broker.core import Connection, Core, Topic, Version
from milepost.broker.core.core import Source
from milepost.broker.core.log.staging import CheckedStage
from milepost.broker.core.log.topics import Checked
from milepost.broker.core.sessions.stamps import stamped, stamped_durable
from milepost.errors import BrokerError, MilepostError, NotDurable, UnknownSchema
from milepost.query import decode, enforce
from milepost.wire import Stage

if TYPE_CHECKING:
    from milepost.match import MaskSnapshot, Matches, Snapshot

# Frames times receivers: joining costs some fifty microseconds however few the rows, and saves a write and some steps
# for each frame and receiver.
WORTH_JOINING: Final = 8

Pause: TypeAlias = Callable[[], None] | None

log = logging.getLogger("milepost.broker")


class Arrival(NamedTuple):
    """A PUT frame, or a STAGE."""

    connection: Connection
    topic: Topic
    version: Version | None  # of the topic's schema; None when the batch is of a schema that the topic does not have
    snapshot: Snapshot | MaskSnapshot | None  # of its predicates, as of now; None when there are none
    data: Any
    size: int  # bytes of the frame
    put: int  # 1-based number of the PUT of its connection
    key: bytes = b""  # of a durable put
    more: bool = False  # it is stored together with the next one
    stage: Stage | None = None  # of a STAGE frame: whose it is; it is no PUT then


class Taken(NamedTuple):
    """Rows that are right, and whom they match."""

    topic: Topic
    batch: Batch
    sources: list[Source]
    matches: Matches | None


class Refused(NamedTuple):
    """A batch that is not."""

    arrival: Arrival
    error: MilepostError


class Misput(NamedTuple):
    """A PUT frame, or a STAGE, for no topic that there is."""

    source: Source
    put: int
    error: MilepostError
    more: bool
    stage: Stage | None = None


def arrival(
    connection: Connection,
    topic: Topic,
    data: Any,
    size: int,
    key: bytes = b"",
    more: bool = False,
    stage: Stage | None = None,
) -> Arrival:
    """Take a snapshot for a batch. In the thread that owns the topics."""
    version = topic.versions.get(fingerprint_of(data))
    live = version is not None and topic.subscriptions and not topic.stored  # stored rows are matched when they are
    snapshot = version.index.snapshot() if live and version is not None else None
    return Arrival(connection, topic, version, snapshot, data, size, connection.puts, key, more, stage)


def is_long(topic: Topic, data: Any) -> bool:
    """Whether matching a batch may take too long for the event loop."""
    if not topic.evaluated or topic.stored:
        return False
    version = topic.versions.get(fingerprint_of(data))
    return version is not None and version.index.snapshot().long(rows_of(data))


def examine(
    core: Core, arrivals: list[Arrival], join_bytes: int, pause: Pause = None
) -> list[Taken | Refused | Checked | CheckedStage]:
    """Check and match what arrived, in order. `pause` is called now and then, for others to have their turn."""
    if len(arrivals) == 1:
        return [_alone(core, arrivals[0], pause)]
    results: list[Taken | Refused | Checked | CheckedStage] = []
    for _, run in groupby(arrivals, key=_kind):
        for group in _groups(list(run), join_bytes):
            if (
                group[0].topic.stored
                or group[0].stage is not None
                or len(group) * group[0].topic.receivers < WORTH_JOINING
            ):
                results += [_alone(core, each, pause) for each in group]
            else:
                results += _together(core, group, pause)
    return results


def _kind(arrival: Arrival) -> tuple[int, int, int, bool]:
    return id(arrival.topic), id(arrival.version), id(arrival.snapshot), arrival.stage is not None


def _groups(run: list[Arrival], join_bytes: int) -> Iterator[list[Arrival]]:
    """Neighbours that are joined: up to a size at which joining costs more than it saves."""
    group: list[Arrival] = []
    size = 0
    for each in run:
        if group and size + each.size > join_bytes:
            yield group
            group, size = [], 0
        group.append(each)
        size += each.size
    yield group


def _checked(core: Core, arrival: Arrival) -> Batch:
    if arrival.stage is not None:
        core.staging.require(arrival.topic, arrival.stage)
    if arrival.version is None:
        raise _unknown(arrival.topic, arrival.data)
    batch = decode(arrival.data, arrival.version.schema)
    if arrival.topic.stored:
        stamped_durable(arrival.connection, batch)
        return batch
    if arrival.key or arrival.more:
        raise NotDurable(
            f"topic {arrival.topic.name!r} is live: keys, and puts to several topics at once, are for durable ones"
        )
    stamped(arrival.connection, batch, core.broker_id)
    return batch


def at_once(core: Core, connection: Connection, topic: Topic, data: Any) -> tuple[Batch, Matches | None]:
    """The short way for one batch in the thread that owns the topics: checked and matched, or the error raised."""
    version = topic.versions.get(fingerprint_of(data))
    if version is None:
        raise _unknown(topic, data)
    batch = Batch.decode(data, version.schema)
    if version.schema.checks:
        enforce(batch)
    stamped(connection, batch, core.broker_id)
    if not topic.subscriptions:
        return batch, None
    return batch, version.index.snapshot().match(version.view(batch))


def _unknown(topic: Topic, data: Any) -> UnknownSchema:
    return UnknownSchema(f"topic {topic.name} does not have the schema {fingerprint_of(data):016x}; declare it first")


def _alone(core: Core, arrival: Arrival, pause: Pause) -> Taken | Refused | Checked | CheckedStage:
    try:
        batch = _checked(core, arrival)
        source = Source(arrival.connection, arrival.size, len(batch))
        if arrival.stage is not None:
            return CheckedStage(arrival.topic, batch, source, arrival.stage._replace(data=b""))
        if arrival.topic.stored:
            return Checked(arrival.topic, batch, source, arrival.put, arrival.key, arrival.more)
        return Taken(arrival.topic, batch, [source], _matched(arrival, batch, pause))
    except Exception as error:
        return refusal(arrival, error)


def _together(core: Core, group: list[Arrival], pause: Pause) -> list[Taken | Refused]:
    batches: list[Batch] = []
    sources: list[Source] = []
    results: list[Taken | Refused] = []
    for arrival in group:
        try:
            batch = _checked(core, arrival)
        except Exception as error:
            results.append(refusal(arrival, error))
        else:
            batches.append(batch)
            sources.append(Source(arrival.connection, arrival.size, len(batch)))
    if batches:
        try:
            joined = batches[0] if len(batches) == 1 else Batch.concat(batches)
            return [*results, Taken(group[0].topic, joined, sources, _matched(group[0], joined, pause))]
        except Exception as error:
            # Batches that are right one by one may be too much together, for some limit: then one by one it is.
            log.debug("%d batches for %s were not joined: %s", len(batches), group[0].topic.name, error)
    return results + [_after_all(group[0], *each, pause) for each in zip(batches, sources, strict=True)]


def _after_all(arrival: Arrival, batch: Batch, source: Source, pause: Pause) -> Taken | Refused:
    """A batch that was checked, and could not be joined with its neighbours."""
    try:
        return Taken(arrival.topic, batch, [source], _matched(arrival, batch, pause))
    except Exception as error:
        return refusal(arrival._replace(connection=source.connection, size=source.size), error)


def _matched(arrival: Arrival, batch: Batch, pause: Pause) -> Matches | None:
    if arrival.snapshot is None:
        return None
    assert arrival.version is not None
    return arrival.snapshot.match(arrival.version.view(batch), pause)


def refusal(arrival: Arrival, error: Exception) -> Refused:
    """Why a batch is not taken. What is not the batch's fault is ours: it is refused, and everybody else goes on."""
    if isinstance(error, MilepostError):
        return Refused(arrival, error)
    log.exception("a batch for %s could not be examined", arrival.topic.name, exc_info=error)
    return Refused(arrival, BrokerError(f"the broker failed on this batch: {type(error).__name__}; its log says more"))
