"""TAKEN frames: messages of queues for a client."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from milepost import limits
from milepost.broker.core.delivery import Delivery
from milepost.broker.core.effects import Deliver, Effect, Say
from milepost.broker.core.sessions.connection import Connection
from milepost.operations.steps import Group
from milepost.wire import Reply, Taken, TypeAnnounced, encode_control, taken_parts
from milepost.wire.payload import Buffer


def messages(
    delivery: Delivery, connection: Connection, request: int, groups: Iterable[Group], reply: Reply
) -> list[Effect]:
    """Announce the types that the client does not know, then write the TAKEN frames and the reply in one write.

    They take no credit: a client gets as many messages as it asks for, one request after the other.
    """
    effects: list[Effect] = []
    written: list[Buffer] = []
    for group in groups:
        schema = group.batch.schema
        if connection.types is None:
            connection.types = set()
        if schema.fingerprint not in connection.types:
            connection.types.add(schema.fingerprint)
            effects.append(Say(connection, TypeAnnounced(name=group.type, text=str(schema.message_type or schema))))
        for part in _fitting(group):
            taken = Taken(
                request,
                part.type,
                np.asarray(part.mids, np.int64),
                np.asarray(part.s, np.int64),
                np.asarray(part.t, np.int64),
                np.asarray(part.priorities, np.float64),
                np.asarray(part.aborts, np.int32),
                part.batch.data,
            )
            parts = taken_parts(taken)
            sent = delivery.send(
                [connection], parts, len(parts[0]) + len(parts[1]), len(part.mids), None, part, answer=True
            )
            written += sent.parts
    return [*effects, Deliver((*written, encode_control(reply)), [connection], answer=True)]


def _fitting(group: Group) -> list[Group]:
    """The group, split into pieces that each fit into a frame."""
    rows = len(group.mids)
    if rows == 1 or len(group.batch.data) + _ROW_BYTES * rows + _HEAD_BYTES <= limits.FRAME_BYTES:
        return [group]
    half, pieces = rows // 2, list[Group]()
    for start, stop in ((0, half), (half, rows)):
        pieces += _fitting(
            Group(
                group.type, group.schema, group.batch.slice(start, stop), group.mids[start:stop], group.s[start:stop],
                group.t[start:stop], group.priorities[start:stop], group.aborts[start:stop],
            )
        )  # fmt: skip
    return pieces


_ROW_BYTES = 40  # upper bound, for each message, of a TAKEN frame's bytes beside the batch
_HEAD_BYTES = 2_048  # upper bound of the bytes of a TAKEN frame's head
