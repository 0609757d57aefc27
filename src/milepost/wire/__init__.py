"""Frames and their bytes: pure functions, no sockets.

::

    frames      the eight bytes before every frame, and the kinds of frames
    control     what control frames say, in MessagePack
    payload     PUT and DELIVER: a batch as it is, behind a few words about it
    reader      bytes as they arrive -> whole frames, with every length checked first

`docs/wire.md` draws the bytes.
"""

from milepost.wire.control import (
    Bye,
    Control,
    Credit,
    Declare,
    Delete,
    Dropped,
    Failure,
    Hello,
    List,
    Ping,
    Pong,
    Reply,
    Status,
    Subscribe,
    Topic,
    Unsubscribe,
    Welcome,
    decode_control,
    encode_control,
)
from milepost.wire.frames import HEADER, PROTOCOL, Frame, Kind
from milepost.wire.payload import Delivery, Marks, deliver_parts, put_parts, read_deliver, read_put
from milepost.wire.reader import FrameReader

__all__ = [
    "Bye",
    "Control",
    "Credit",
    "Declare",
    "Delete",
    "Delivery",
    "Dropped",
    "Failure",
    "Frame",
    "FrameReader",
    "HEADER",
    "Hello",
    "Kind",
    "List",
    "Marks",
    "PROTOCOL",
    "Ping",
    "Pong",
    "Reply",
    "Status",
    "Subscribe",
    "Topic",
    "Unsubscribe",
    "Welcome",
    "decode_control",
    "deliver_parts",
    "encode_control",
    "put_parts",
    "read_deliver",
    "read_put",
]
