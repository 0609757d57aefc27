"""Strangers on the port: a clear error to that client, a counter, and nobody else notices."""

import asyncio
import struct

import pytest

import milepost
from milepost import limits, testing
from milepost.wire import (
    Declare,
    FrameReader,
    Hello,
    Kind,
    Ping,
    Subscribe,
    decode_control,
    encode_control,
    put_parts,
)
from milepost.wire.frames import HEADER, MAGIC

QUOTE = "quote: [symbol: string, price: double]"
GREETING = encode_control(Hello(window=1 << 20))


class Stranger:
    """A raw socket."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self.frames = FrameReader(limit=limits.FRAME_BYTES)
        self.seen = []

    @classmethod
    async def at(cls, broker):
        address = broker.address
        return cls(*await asyncio.open_connection(address.host, address.port))

    async def send(self, *parts):
        for part in parts:
            self.writer.write(part)
        await self.writer.drain()

    async def next(self):
        """The next frame, or None at the end of the connection."""
        async with asyncio.timeout(60):
            while not self.seen:
                data = await self.reader.read(65536)
                if not data:
                    return None
                self.seen += self.frames.feed(data)
        frame = self.seen.pop(0)
        return decode_control(frame.kind, frame.body)

    async def ends_with(self, code):
        """The connection is closed, behind an error that says why."""
        last = None
        while (message := await self.next()) is not None:
            last = message
        assert last is not None
        assert (last.code, last.fatal) == (code, True)
        return last.message

    def close(self):
        self.writer.close()


def among_others(test, **changes):
    """Run a test beside a publisher and a subscriber who must not notice."""

    async def main():
        clock = testing.FakeClock()
        async with (
            testing.broker(listen="milepost://127.0.0.1:0", clock=clock, **changes) as broker,
            milepost.AsyncClient(broker.uri) as feed,
            milepost.AsyncClient(broker.uri) as desk,
        ):
            await feed.declare_topic("quotes", QUOTE)
            sub = await desk.subscribe("quotes", where="price > 0")
            await feed.put("quotes", {"symbol": "before", "price": 1.0})
            assert (await anext(sub)).symbol == "before"
            await test(broker, clock)
            await feed.put("quotes", {"symbol": "after", "price": 1.0})
            assert (await anext(sub)).symbol == "after"
            return broker.statistics()

    async def bounded():
        async with asyncio.timeout(60):
            return await main()

    return asyncio.run(bounded())


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
        bytes(64),
        b"\xff" * 1000,
        b'CONNECT {"verbose":false}\r\nPING\r\n',
    ],
    ids=["http", "tls", "zeros", "ones", "nats"],
)
def test_garbage_on_the_port(garbage):
    async def test(broker, clock):
        stranger = await Stranger.at(broker)
        await stranger.send(garbage)
        assert "another program" in await stranger.ends_with("protocol")
        stranger.close()

    assert among_others(test)["errors"] == {"protocol": 1}


@pytest.mark.parametrize(
    ("frame", "greeted", "code"),
    [
        (HEADER.pack(limits.HELLO_BYTES + 1, Kind.HELLO, 0, MAGIC), False, "limit_exceeded"),
        (HEADER.pack(2**32 - 1, Kind.PUT, 0, MAGIC), True, "limit_exceeded"),
        (HEADER.pack(2**32 - 1, Kind.HELLO, 0, MAGIC), True, "limit_exceeded"),
        (HEADER.pack(4, Kind.SUBSCRIBE, 0, MAGIC) + b"\xc1\xc1\xc1\xc1", True, "protocol"),
        (HEADER.pack(0, 99, 0, MAGIC), True, "protocol"),
        (b"".join(put_parts(1, bytes(32))), False, "protocol"),
        (HEADER.pack(3, Kind.PUT, 0, MAGIC) + b"abc", True, "protocol"),
        (encode_control(Ping(1)), False, "protocol"),
        (GREETING, True, "protocol"),
    ],
)
def test_frames_that_cannot_be(frame, greeted, code):
    async def test(broker, clock):
        stranger = await Stranger.at(broker)
        await stranger.send(*([GREETING] if greeted else []), frame)
        await stranger.ends_with(code)
        stranger.close()

    assert among_others(test)["errors"] == {code: 1}


def test_one_who_says_nothing_and_one_who_drips():
    async def test(broker, clock):
        silent, dripping = await Stranger.at(broker), await Stranger.at(broker)
        while broker.statistics()["connections"]["greeting"] < 2:
            await asyncio.sleep(0)
        for byte in GREETING[:11]:
            await dripping.send(bytes([byte]))
            clock.advance(1.0)
        for stranger in (silent, dripping):
            assert "HELLO" in await stranger.ends_with("timed_out")
            stranger.close()

    assert among_others(test, handshake_s=10)["errors"] == {"timed_out": 2}


def test_one_who_is_stuck_in_the_middle_of_a_frame():
    async def test(broker, clock):
        stranger = await Stranger.at(broker)
        await stranger.send(GREETING, encode_control(Ping(1)))
        await stranger.next()
        await stranger.next()
        await stranger.send(HEADER.pack(1_000_000, Kind.PUT, 0, MAGIC) + b"only this")
        connection = max(broker.core.connections.values(), key=lambda each: each.number)
        while not connection.channel.partial:
            await asyncio.sleep(0)
        clock.advance(61)
        assert "not finished" in await stranger.ends_with("timed_out")
        stranger.close()

    assert among_others(test, frame_s=30, heartbeat_s=60)["errors"] == {"timed_out": 1}


def test_a_batch_that_contradicts_its_schema_and_a_predicate_on_a_field_that_is_not_there():
    async def test(broker, clock):
        stranger = await Stranger.at(broker)
        await stranger.send(GREETING)
        await stranger.next()
        await stranger.send(encode_control(Declare(request=1, name="quotes", schema=QUOTE)))
        topic = await stranger.next()
        await stranger.next()
        schema = milepost.parse_schema(QUOTE)
        batch = bytearray(milepost.encode(schema, [{"symbol": "A", "price": 1.0}]).data)
        batch[-1] ^= 1
        await stranger.send(*put_parts(topic.number, bytes(batch)), *put_parts(77, bytes(batch)))
        refused = await stranger.next()
        assert (refused.code, refused.put, refused.topic) == ("malformed_batch", 1, "quotes")
        refused = await stranger.next()
        assert (refused.code, refused.put) == ("unknown_topic", 2)
        for number in range(1_000):
            await stranger.send(
                encode_control(Subscribe(request=number, subscription=number, pattern="quotes", where="pric > 1"))
            )
        for number in range(1_000):
            refused = await stranger.next()
            assert (refused.code, refused.request) == ("query_type", number)
            assert "did you mean 'price'" in refused.message
        await stranger.send(encode_control(Ping(5)))
        assert (await stranger.next()).number == 5
        stranger.close()

    figures = among_others(test)
    assert figures["errors"] == {"malformed_batch": 1, "unknown_topic": 1, "query_type": 1_000}


def test_many_who_break_off_anywhere():
    """Connections cut at every byte of a session leave nothing behind."""
    session = GREETING + encode_control(Declare(request=1, name="quotes", schema=QUOTE)) + struct.pack("<IB", 5, 4)

    async def test(broker, clock):
        before = len(broker.core.connections)
        for end in range(0, len(session), 7):
            stranger = await Stranger.at(broker)
            await stranger.send(session[:end])
            stranger.writer.transport.abort()
        while broker.core.totals["connections_accepted"] < before + len(range(0, len(session), 7)):
            await asyncio.sleep(0)
        while len(broker.core.connections) > before:
            await asyncio.sleep(0)

    assert among_others(test)["connections"]["open"] == 2
