"""Bytes of a stranger into a broker: whatever they are, the broker stays up and the others get their rows.

The bytes go the whole way, through frames, control messages, the core and the examination of batches; only the sockets
are missing. Half of the inputs come behind a proper handshake, where there is more to reach.
"""

from __future__ import annotations

import sys
from typing import Any

import atheris

with atheris.instrument_imports(include=["milepost"], enable_loader_override=False):
    import milepost
    from milepost.batch import Ids
    from milepost.broker.peer import Peer
    from milepost.broker.server import Broker
    from milepost.config import settings
    from milepost.errors import MilepostError
    from milepost.wire import (
        Bye,
        Credit,
        Declare,
        Delete,
        FrameReader,
        Hello,
        Kind,
        List,
        Ping,
        Status,
        Subscribe,
        Unsubscribe,
        encode_control,
        put_parts,
    )
    from milepost.wire.frames import HEADER, MAGIC

from fuzz.target import start

SHARED = memoryview(bytearray(1 << 16))
SCHEMA = milepost.parse_schema("q: [a: int, s: string]")
GREETING = encode_control(Hello(window=1 << 20))


class Later:
    """Instead of an event loop: `one_input` calls itself what would be called soon."""

    def __init__(self) -> None:
        self._now = 0.0

    def call_soon(self, *call: Any) -> None:
        pass

    def time(self) -> float:
        self._now += 1.0
        return self._now


class Wire:
    """A link that keeps what is written to it, and its peer."""

    peer = "fuzz"
    partial = False

    def __init__(self, broker: Broker) -> None:
        self.reader = FrameReader(SHARED)
        self.delivered = 0
        self.end = Peer(broker)
        self.end.connected(self)

    def write(self, *parts: Any) -> bool:
        self.delivered += b"".join(parts)[4] == Kind.DELIVER
        return True

    def send(self, data: bytes) -> None:
        try:
            frames = self.reader.feed(data)
        except MilepostError as error:
            self.end.refused(error)
            return
        self.end.frames(frames)

    def set_limit(self, limit: int) -> None:
        self.reader.limit = limit

    def close(self) -> None:
        self.end.lost(None)

    abort = resume = pause = close


SMALL = settings(queue_bytes=4096, put_window=4096, http="", zmq="", store="")


def one_input(data: bytes) -> None:
    broker = Broker(SMALL)
    broker._loop = Later()
    other = Wire(broker)
    other.send(GREETING + encode_control(Declare(request=1, name="q", schema=str(SCHEMA))))
    other.send(encode_control(Subscribe(request=2, subscription=1, pattern="q")))
    stranger = Wire(broker)
    if data[:1] < b"\x80":
        stranger.send(GREETING)
    stranger.send(_framed(data[1:]))
    broker._process()
    broker.run(broker.core.turn())
    assert other.end.connection is not None, "somebody else was disconnected"
    me = other.end.connection
    before = other.delivered
    ids = Ids.single(me.publisher.number, broker.core.broker_id, [1 << 60])
    if "q" in broker.core.topics and me.subscriptions and me.credit > 0:
        number = broker.core.topics["q"].number
        other.send(b"".join(put_parts(number, milepost.encode(SCHEMA, [{"a": 1, "s": "x"}], ids).data)))
        broker._process()
        assert other.delivered == before + 1, "a row was lost"


def _framed(data: bytes) -> bytes:
    """Make frames of the input: a length that fits and the magic number would hardly ever be guessed."""
    out = []
    while len(data) > 2:
        kind, size, data = data[0], data[1], data[2:]
        if kind == 255:
            out.append(data[:size])  # raw
        else:
            out.append(HEADER.pack(min(size, len(data)), kind, 0, MAGIC) + data[:size])
        data = data[size:]
    return b"".join(out)


def _seed(*frames: bytes, greeted: bool = True) -> bytes:
    body = b"".join(bytes([frame[4], min(255, len(frame) - 8)]) + frame[8:263] for frame in frames)
    return (b"\x00" if greeted else b"\xff") + body


SEEDS = [
    _seed(GREETING, greeted=False),
    _seed(encode_control(Declare(request=1, name="q", schema="q: [a: int, s: string, t: int?]"))),
    _seed(encode_control(Subscribe(request=1, subscription=1, pattern="q.>", where="a > 1"))),
    _seed(
        encode_control(Subscribe(request=1, subscription=7, pattern="q", where="a > 1 and s like 'x%'")),
        encode_control(Unsubscribe(request=2, subscription=7)),
    ),
    _seed(b"".join(put_parts(1, milepost.encode(SCHEMA, [{"a": 1, "s": "x"}]).data))),
    _seed(encode_control(Ping(1)), encode_control(Credit(5)), encode_control(Status(request=3))),
    _seed(encode_control(List(request=1, pattern="*")), encode_control(Bye())),
    _seed(encode_control(Delete(request=1, name="r"))),
]

if __name__ == "__main__":
    start(one_input, iter(SEEDS))
    sys.exit(0)
