"""Frames and their bytes: pure functions, no sockets.

::

    frames      the eight bytes before every frame, and the kinds of frames
    control     what control frames say, in MessagePack
    payload     PUT, DELIVER and HAND: a batch as it is, behind a few words about it
    stage       STAGE: the same, with whose it is
    reader      bytes as they arrive -> whole frames, with every length checked first

`docs/wire.md` draws the bytes.
"""

from milepost.wire.control import (
    Ack,
    Bye,
    Control,
    Credit,
    Declare,
    Delete,
    Dropped,
    Ended,
    Failure,
    Hello,
    Hold,
    List,
    Look,
    Ping,
    Pong,
    Publish,
    Published,
    Reply,
    Resume,
    Status,
    Stored,
    Subscribe,
    Topic,
    Trim,
    Unstage,
    Unsubscribe,
    Welcome,
    decode_control,
    encode_control,
)
from milepost.wire.frames import HEADER, PROTOCOL, Frame, Kind
from milepost.wire.payload import (
    LINKED,
    Delivery,
    Hand,
    Marks,
    deliver_parts,
    hand_parts,
    put_parts,
    read_deliver,
    read_hand,
    read_key,
    read_put,
)
from milepost.wire.reader import FrameReader
from milepost.wire.stage import Stage, read_stage, stage_parts

__all__ = [
    "Ack",
    "Bye",
    "Control",
    "Credit",
    "Declare",
    "decode_control",
    "Delete",
    "deliver_parts",
    "Delivery",
    "Dropped",
    "encode_control",
    "Ended",
    "Failure",
    "Frame",
    "FrameReader",
    "Hand",
    "hand_parts",
    "HEADER",
    "Hello",
    "Hold",
    "Kind",
    "LINKED",
    "List",
    "Look",
    "Marks",
    "Ping",
    "Pong",
    "PROTOCOL",
    "Publish",
    "Published",
    "put_parts",
    "read_deliver",
    "read_hand",
    "read_key",
    "read_put",
    "read_stage",
    "Reply",
    "Resume",
    "Stage",
    "stage_parts",
    "Status",
    "Stored",
    "Subscribe",
    "Topic",
    "Trim",
    "Unstage",
    "Unsubscribe",
    "Welcome",
]
