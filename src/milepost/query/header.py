"""The administrative attributes: what a queue knows about a message beside its content."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from milepost.query.kinds import DOUBLE, INTEGER, STRING, TIMESTAMP, Scalar

ATTRIBUTES: Final[Mapping[str, Scalar]] = {
    "priority": DOUBLE,  # what the priority function gave, or the sender
    "mid": STRING,  # the message ID
    "message_type": STRING,  # the name of the message type
    "enqueued_at": TIMESTAMP,  # when the message entered the queue
    "abort_count": INTEGER,  # how many transactions took the message and rolled back
}
