"""The eight bytes before every frame.

::

    ┌────────────────────────┬─────────┬──────────┬─────────────┐
    │ length of the body u32 │ kind u8 │ flags u8 │ magic   u16 │   then the body
    └────────────────────────┴─────────┴──────────┴─────────────┘

All numbers are little-endian. The magic number, "MP", shows at once when a peer does not speak Milepost: a browser on
the wrong port is refused after its first eight bytes, and a misaligned stream is found at the next frame.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, NamedTuple

HEADER: Final = struct.Struct("<IBBH")
MAGIC: Final = int.from_bytes(b"MP", "little")
PROTOCOL: Final = 3  # increases when an old peer could misunderstand a new one


class Kind(IntEnum):
    """The kind of a frame; the numbers are fixed for ever."""

    HELLO = 1  # client: the first frame
    WELCOME = 2  # broker: the answer to HELLO
    FAILURE = 3  # broker: a request, a put or the connection failed
    PING = 4  # either: asks for a PONG. A client's ping is answered after everything that it sent before
    PONG = 5
    CREDIT = 6  # either: the peer may send this many more bytes
    BYE = 7  # either: a deliberate close
    REPLY = 8  # broker: a request succeeded
    TOPIC = 9  # broker: a topic's number, name and schemas; precedes the first delivery from it
    DROPPED = 10  # broker: rows that a client will never get: it was slow, or an operator removed them
    STORED = 11  # broker: durable puts up to this one are committed and synced
    TYPE = 12  # broker: a message type of queues, its name and text; precedes the first messages of it
    CAUGHT_UP = 13  # broker: a resumed plain subscription has all rows of a topic that it missed
    ENDED = 15  # broker: a read has handed out all rows before its stop

    DECLARE = 16  # client: requests, each with a number that its reply repeats
    DELETE = 17
    SUBSCRIBE = 18
    UNSUBSCRIBE = 19
    LIST = 20
    STATUS = 21
    ACK = 22
    RESUME = 23  # client: it knows of failed puts; those after this frame count again
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
    STAGE = 35  # client: a batch that is stored, and visible when its epoch is published; a request with a reply
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
    """A whole frame: `kind` is a known one, `body` the bytes after the header."""

    kind: int
    flags: int
    body: bytes | bytearray | memoryview
