"""The stamps of a publisher's messages, checked where they come in."""

from __future__ import annotations

from milepost.batch import Batch, Ids
from milepost.broker.core.sessions.connection import Connection
from milepost.errors import InvalidValue


def stamped_durable(connection: Connection, batch: Batch) -> None:
    """Check the stamps of a batch for a durable topic. Whether they were seen before, the store will tell."""
    ids = batch.ids
    if ids is None or not len(batch):
        raise InvalidValue("a put has messages, and they have IDs; this batch has none")
    number = connection.publisher.number
    for run in ids.runs:
        if run.publisher != number:
            raise InvalidValue("the message IDs of a put are those of its publisher, as WELCOME gave it")
    first, last = _increasing(ids)
    if not 0 < first <= last < 1 << 63:
        raise InvalidValue("the stamps of messages that are stored are above 0 and below 2**63")


def stamped(connection: Connection, batch: Batch, broker_id: int) -> None:
    """Check and keep the stamps of a publisher's batch, in the order of its puts; `InvalidValue` if they are wrong.

    Another thread than the core's may call this: the one that checks all batches of that publisher.
    """
    ids = batch.ids
    if ids is None:
        raise InvalidValue("a put has message IDs; this batch has none")
    if not len(batch):
        return
    publisher = connection.publisher
    if len(ids.runs) != 1 or ids.runs[0][1:] != (publisher.number, broker_id):
        raise InvalidValue("the message IDs of a put are those of its publisher and its broker, as WELCOME gave them")
    first, last = _increasing(ids)
    if first <= publisher.last_stamp:
        raise InvalidValue("the stamps of a publisher's messages increase; these are not above the last ones")
    publisher.last_stamp = last


def _increasing(ids: Ids) -> tuple[int, int]:
    """The first stamp and the last one, which all others are between, in their order."""
    if len(ids) == 1:
        stamp = ids[0].stamp
        return stamp, stamp
    stamps = ids.stamps
    if not (stamps[1:] > stamps[:-1]).all():
        raise InvalidValue("the stamps of a publisher's messages increase; these do not")
    return int(stamps[0]), int(stamps[-1])
