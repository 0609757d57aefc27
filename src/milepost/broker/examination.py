"""Examines puts: decodes, joins and matches them. Runs in the event loop, or in a thread.

Rows that arrive together for one topic are joined before they are matched, whatever their publishers. When a broker
falls behind, frames accumulate in its sockets; the fewer and larger batches that result let it catch up.

This module does not touch the core's state: a put has the version of its schema and the snapshot of its topic's
predicates. The core decides afterwards whether its rows are admitted (`core.admission`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from milepost.batch import Batch
from milepost.batch.header import fingerprint_of, rows_of
from milepost.broker.core.put import Put
from milepost.errors import BrokerError, MilepostError, UnknownSchema
from milepost.query import enforce

if TYPE_CHECKING:
    from milepost.match import Matches

# Frames times receivers: joining costs about 50 µs however few the rows are, and saves a write and some steps for each
# frame and receiver.
WORTH_JOINING: Final = 8

Pause: TypeAlias = Callable[[], None] | None

log = logging.getLogger("milepost.broker")


class Examined(NamedTuple):
    """Puts for `Core.arrived`: one, which may be refused, or several joined ones of a live topic."""

    puts: list[Put]
    batch: Batch | None  # their rows; None: the put is refused
    matches: Matches | None


def is_long(put: Put) -> bool:
    """Whether matching a put may take too long for the event loop."""
    return put.snapshot is not None and put.topic.evaluated > 0 and put.snapshot.long(rows_of(put.data))


def examine(puts: list[Put], join_bytes: int, pause: Pause = None) -> list[Examined]:
    """Decode and match puts, in order. `pause` is called from time to time, so that other threads can run."""
    if len(puts) == 1:
        return [examine_one(puts[0], pause)]
    results: list[Examined] = []
    for _, run in groupby(puts, key=_kind):
        for group in _groups(list(run), join_bytes):
            topic = group[0].topic
            if topic is None or topic.stored or group[0].stage or len(group) * topic.receivers < WORTH_JOINING:
                results += [examine_one(put, pause) for put in group]
            else:
                results += _examine_together(group, pause)
    return results


def examine_one(put: Put, pause: Pause = None) -> Examined:
    """Decode and match one put."""
    if _decoded(put):
        try:
            return Examined([put], put.batch, _matched(put, put.batch, pause))
        except Exception as error:
            put.error = _reason(put, error)
    return Examined([put], None, None)


def _kind(put: Put) -> tuple[int, int, int, bool]:
    return id(put.topic), id(put.version), id(put.snapshot), put.stage is not None


def _groups(run: list[Put], join_bytes: int) -> Iterator[list[Put]]:
    """Groups of neighbours to join: up to a size at which joining costs more than it saves."""
    group: list[Put] = []
    size = 0
    for put in run:
        if group and size + put.size > join_bytes:
            yield group
            group, size = [], 0
        group.append(put)
        size += put.size
    yield group


def _examine_together(group: list[Put], pause: Pause) -> list[Examined]:
    right = [put for put in group if _decoded(put)]
    results = [Examined([put], None, None) for put in group if put.error is not None]
    if len(right) > 1:
        try:
            batch = Batch.concat([put.batch for put in right])
            return [*results, Examined(right, batch, _matched(right[0], batch, pause))]
        except Exception as error:
            # Batches that are valid alone may exceed a limit together: then they are examined one by one.
            log.debug("%d batches for %s were not joined: %s", len(right), right[0].topic.name, error)
    return results + [examine_one(put, pause) for put in right]


def _decoded(put: Put) -> bool:
    """Check the bytes of a put against its schema and the schema's rules; False: `put.error` is the reason."""
    if put.error is None:
        try:
            if put.version is None:
                raise UnknownSchema(
                    f"topic {put.topic.name} does not have the schema {fingerprint_of(put.data):016x}; declare it first"
                )
            schema = put.version.schema
            batch = Batch.decode(put.data, schema)
            if schema.checks:
                enforce(batch)
            put.batch = batch
        except Exception as error:
            put.error = _reason(put, error)
    return put.error is None


def _matched(put: Put, batch: Batch, pause: Pause) -> Matches | None:
    if put.snapshot is None:
        return None
    assert put.version is not None
    return put.snapshot.match(put.version.view(batch), pause)


def _reason(put: Put, error: Exception) -> MilepostError:
    """The error of a refused put. Any other exception is a broker fault: it is logged, and only this put is refused."""
    if isinstance(error, MilepostError):
        return error
    log.exception("a batch for %s could not be examined", put.topic.name, exc_info=error)
    return BrokerError(f"the broker failed on this batch: {type(error).__name__}; its log says more")
