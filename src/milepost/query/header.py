"""The administrative attributes: the metadata of a queue's message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from milepost.query.kinds import DOUBLE, INTEGER, STRING, TIMESTAMP, Scalar

# M of a message's ID S/T/M is a time: microseconds since this moment, then so many bits for the broker that made it.
# It is here because clients, the SQL back end and the queues all read it.
EPOCH_US: Final = 1_704_067_200_000_000  # 2024-01-01T00:00:00Z
LANE_BITS: Final = 12

ATTRIBUTES: Final[Mapping[str, Scalar]] = {
    "priority": DOUBLE,  # from the priority function, or from the sender
    "mid": STRING,  # the message ID
    "message_type": STRING,  # the name of the message type
    "enqueued_at": TIMESTAMP,  # when the message entered the queue
    "abort_count": INTEGER,  # how many transactions took the message and rolled back
}
