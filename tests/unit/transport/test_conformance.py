"""One suite over every transport."""

import asyncio

import pytest

from milepost import limits
from milepost.errors import ConnectionLost, LimitExceeded, ProtocolError
from milepost.transport import connect, listen, parse_address
from milepost.wire import Hello, Kind, Ping, decode_control, encode_control, put_parts


class Ear:
    """A receiver that writes down what it is told, and lets a test wait for it."""

    def __init__(self):
        self.channel = None
        self.heard = asyncio.Queue()
        self.emptied = asyncio.Event()

    def connected(self, channel):
        self.channel = channel
        channel.set_limit(limits.FRAME_BYTES)

    def frames(self, frames):
        for frame in frames:
            self.heard.put_nowait(frame)

    def drained(self):
        self.emptied.set()

    def refused(self, error):
        self.heard.put_nowait(error)

    def lost(self, error):
        self.heard.put_nowait("lost")

    async def next(self):
        async with asyncio.timeout(60):
            return await self.heard.get()


@pytest.fixture(params=["milepost://127.0.0.1:0", "inproc://conformance"])
def pair(request):
    """Runs a test with both ends of a fresh connection."""

    def run(test):
        async def main():
            far = Ear()
            listener = await listen(parse_address(request.param), lambda: far)
            near = Ear()
            await connect(listener.address, near)
            while far.channel is None:
                await asyncio.sleep(0)
            try:
                await test(near, far)
            finally:
                near.channel.abort()
                far.channel.abort()
                await listener.close()
                await near.next()

        asyncio.run(main())

    return run


def test_frames_arrive_whole_and_in_order(pair):
    async def test(near, far):
        for number in range(100):
            near.channel.write(encode_control(Ping(number)))
        near.channel.write(*put_parts(1, b"x" * 100_000))
        for number in range(100):
            frame = await far.next()
            assert decode_control(frame.kind, frame.body) == Ping(number)
        frame = await far.next()
        assert frame.kind == Kind.PUT
        assert len(frame.body) == 100_008
        far.channel.write(encode_control(Ping(5)))
        assert (await near.next()).kind == Kind.PING

    pair(test)


def test_thousands_of_parts_may_be_written_at_once(pair):
    async def test(near, far):
        near.channel.write(*(encode_control(Ping(number)) for number in range(5_000)))
        for number in range(5_000):
            frame = await far.next()
            assert decode_control(frame.kind, frame.body) == Ping(number)

    pair(test)


def test_a_link_keeps_what_a_paused_peer_does_not_read_and_says_when_it_is_gone(pair):
    async def test(near, far):
        far.channel.pause()
        sent = 0
        while near.channel.write(*put_parts(1, b"y" * 1_000_000)):
            sent += 1
        sent += 1
        assert near.channel.waiting > 0
        assert not near.channel.write(*put_parts(1, b"z" * 500_000))
        far.channel.resume()
        async with asyncio.timeout(60):
            await near.emptied.wait()
        assert near.channel.waiting == 0
        for _ in range(sent):
            assert bytes((await far.next()).body[8:9]) == b"y"
        assert bytes((await far.next()).body[8:9]) == b"z"
        assert near.channel.write(encode_control(Ping(1)))

    pair(test)


def test_garbage_is_refused_and_read_no_further(pair):
    async def test(near, far):
        near.channel.write(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        assert isinstance(await far.next(), ProtocolError)
        near.channel.write(encode_control(Ping(1)))
        far.channel.write(encode_control(Ping(2)))  # the other way still works: the receiver can say why
        assert (await near.next()).kind == Kind.PING
        assert far.heard.empty()

    pair(test)


def test_a_frame_longer_than_allowed_is_refused_by_its_header(pair):
    async def test(near, far):
        far.channel.set_limit(1_000)
        near.channel.write(put_parts(1, b"x" * 5_000)[0])
        error = await far.next()
        assert isinstance(error, LimitExceeded)
        assert not far.channel.partial

    pair(test)


def test_a_frame_under_way_is_partial(pair):
    async def test(near, far):
        frame = encode_control(Hello(window=1))
        near.channel.write(encode_control(Ping(1)) + frame[:20])
        await far.next()
        while not far.channel.partial:
            await asyncio.sleep(0)
        near.channel.write(frame[20:])
        await far.next()
        assert not far.channel.partial

    pair(test)


def test_close_sends_what_was_written_and_both_ends_are_told_once(pair):
    async def test(near, far):
        near.channel.write(encode_control(Ping(1)))
        near.channel.close()
        assert (await far.next()).kind == Kind.PING
        assert await far.next() == "lost"
        assert await near.next() == "lost"
        assert near.channel.write(encode_control(Ping(2)))  # into the void, without a fuss
        assert far.heard.empty()
        near.heard.put_nowait("for the fixture")

    pair(test)


@pytest.mark.parametrize("address", ["milepost://127.0.0.1:1", "inproc://nobody"])
def test_nobody_there_is_connection_lost(address):
    async def main():
        with pytest.raises(ConnectionLost, match="no broker at"):
            await connect(parse_address(address), Ear())

    asyncio.run(main())
