"""The eight bytes before every frame.

::

    ┌────────────────────────┬─────────┬──────────┬─────────────┐
    │ length of the body u32 │ kind u8 │ flags u8 │ magic   u16 │   then the body
    └────────────────────────┴─────────┴──────────┴─────────────┘

All numbers are little-endian. The magic number, "MP", tells at once that whatever talks here is not Milepost: a
browser on the wrong port is refused after its first eight bytes, and a stream that slipped is found at the next frame.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, NamedTuple

HEADER: Final = struct.Struct("<IBBH")
MAGIC: Final = int.from_bytes(b"MP", "little")
PROTOCOL: Final = 3  # counts up when an old peer could misunderstand a new one


class Kind(IntEnum):
    """What a frame is; the numbers are fixed for ever."""

    HELLO = 1  # client: the first frame
    WELCOME = 2  # broker: the answer to it
    FAILURE = 3  # broker: a request, a put or the connection failed
    PING = 4  # either: are you there? A client's ping is answered after everything that it sent before
    PONG = 5
    CREDIT = 6  # either: so many bytes more may be sent to me
    BYE = 7  # either: I close now, on purpose
    REPLY = 8  # broker: a request was carried out
    TOPIC = 9  # broker: a topic's number, name and schemas; comes before the first delivery from it
    DROPPED = 10  # broker: rows that a client will never get: it was slow, or an operator removed them
    STORED = 11  # broker: durable puts up to this one are committed and synced
    TYPE = 12  # broker: a message type of queues, its name and text; comes before the first messages of it
    CAUGHT_UP = 13  # broker: a plain subscription that was resumed has all that it missed of a topic
    ENDED = 15  # broker: a read has handed out everything before its stop

    DECLARE = 16  # client: requests, each with a number that its reply repeats
    DELETE = 17
    SUBSCRIBE = 18
    UNSUBSCRIBE = 19
    LIST = 20
    STATUS = 21
    ACK = 22
    RESUME = 23  # client: puts failed, I know; those behind this frame count again
    TRIM = 24
    LOOK = 25
    PUBLISH = 26
    UNSTAGE = 27
    PUBLISHED = 28
    POSITIONS = 29
    HOLD = 30

    PUT = 32  # client: a batch
    DELIVER = 33  # broker: a batch, or rows of one
    HAND = 34  # broker: rows of a log, with their offsets, for one durable subscription
    STAGE = 35  # client: a batch that is stored, and seen when its epoch is published; a request with a reply
    ENQUEUE = 36  # client: a batch for a queue
    TAKEN = 37  # broker: messages out of a queue; a reply to the same request follows

    DECLARE_TYPE = 48  # client: requests about queues
    TYPES = 49
    DELETE_TYPE = 50
    DECLARE_QUEUE = 51
    DELETE_QUEUE = 52
    QUEUES = 53
    DEQUEUE = 54
    FINISH = 55
    BROWSE = 56
    MOVE_MESSAGES = 57
    PURGE = 58
    DECIDE = 59
    IN_DOUBT = 60
    DECISIONS = 61
    FORGET_DECISION = 62
    SETTLE = 63
    HOLDING = 64
    SET_TRANSFER = 65
    DELETE_TRANSFER = 66
    TRANSFERS = 67


class Frame(NamedTuple):
    """A whole frame: `kind` is a known one, `body` the bytes behind the header."""

    kind: int
    flags: int
    body: bytes | bytearray | memoryview
