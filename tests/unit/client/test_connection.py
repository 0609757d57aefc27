"""A client whose broker misbehaves, or falls silent: a scripted peer speaks the protocol by hand."""

import asyncio
import itertools
from contextlib import AsyncExitStack

import pytest

from milepost import transport
from milepost.batch import Batch, Ids
from milepost.client import AsyncClient
from milepost.errors import BrokerError, ConnectionLost, HandshakeRefused, ProtocolError, TimedOut
from milepost.query import parse_schema
from milepost.transport import parse_address
from milepost.wire import (
    Bye,
    Credit,
    Declare,
    Failure,
    Hello,
    Kind,
    Ping,
    Pong,
    Reply,
    Subscribe,
    TopicAnnounced,
    Welcome,
    decode_control,
    deliver_parts,
    encode_control,
)

SCHEMA = parse_schema("s: [n: int]")
TOPIC = TopicAnnounced(number=7, name="topic", schemas=[str(SCHEMA)])
_names = itertools.count(1)


class Peer:
    """The other end: remembers what it heard, and answers as it was told to."""

    def __init__(self, **welcome):
        self.heard = []
        self.channels = []
        self.welcome = {"broker": "peer", "broker_id": 1, "publisher": 2, "time_us": 0, "window": 1 << 20} | welcome
        self.welcome.setdefault("heartbeat_s", 60.0)
        self.answers_pings = True
        self.news = asyncio.Event()

    def connected(self, channel):
        channel.set_limit(1 << 24)
        self.channels.append(channel)

    def frames(self, frames):
        for kind, _, body in frames:
            said = body if kind == Kind.PUT else decode_control(kind, body)
            self.heard.append(said)
            self.answer(said)
        self.news.set()

    def answer(self, said):
        match said:
            case Hello():
                self.say(Welcome(**self.welcome))
            case Declare():
                self.say(TOPIC, Reply(request=said.request, value={"number": 7, "created": True}))
            case Subscribe():
                self.say(TOPIC, Reply(request=said.request, value={"topics": ["topic"], "skipped": {}}))
            case Ping() if self.answers_pings:
                self.say(Pong(said.number))

    def say(self, *messages):
        for message in messages:
            self.channels[-1].write(encode_control(message))

    def deliver(self, batch, tags=(1,), topic=7):
        self.channels[-1].write(*deliver_parts(topic, tags, batch.data))

    async def hears(self, kind):
        """Wait for something, and give it."""
        while True:
            for said in self.heard:
                if isinstance(said, kind):
                    return said
            self.news.clear()
            await self.news.wait()

    def drained(self): ...
    def refused(self, error): ...
    def lost(self, error): ...


def with_peer(test, *, connect=True, options=None, **welcome):
    async def whole():
        async with asyncio.timeout(120):
            address = f"inproc://peer-{next(_names)}"
            peer = Peer(**welcome)
            listener = await transport.listen(parse_address(address), lambda: peer)
            client = AsyncClient(address, **({"reconnect": False} | (options or {})))
            try:
                if connect:
                    await client.connect()
                await test(peer, client)
            finally:
                await client.close(drain=False)
                await listener.close()

    asyncio.run(whole())


def rows(count):
    return Batch.encode(SCHEMA, [{"n": number} for number in range(count)], Ids.single(2, 1, range(1, count + 1)))


def test_silence_is_a_lost_connection():
    async def test(peer, client):
        peer.answers_pings = False
        with pytest.raises(ConnectionLost, match="nothing was heard"):
            await client.flush()
        assert Ping(0) in peer.heard

    with_peer(test, heartbeat_s=0.01)


def test_a_long_frame_that_still_comes_is_no_silence():
    async def test(peer, client):
        peer.answers_pings = False
        connection = client._session.connection
        parts = b"".join(deliver_parts(7, (1,), bytes(100_000)))
        for start in range(0, 20_000, 1_000):
            peer.channels[-1].write(parts[start : start + 1_000])
            while connection._channel.partial < start + 1_000:
                await asyncio.sleep(0)
            connection._beat(30.0)
        assert connection.alive
        for _ in range(6):
            connection._beat(30.0)  # nothing more of it comes
        assert "nothing was heard" in str(connection._fatal)

    with_peer(test)


def test_a_quiet_client_says_something():
    async def test(peer, client):
        for _ in range(3):
            peer.heard.clear()
            assert await peer.hears(Ping) == Ping(0)
        assert client.statistics().connected

    with_peer(test, heartbeat_s=0.01)


def test_a_ping_is_answered():
    async def test(peer, client):
        peer.say(Ping(42))
        assert (await peer.hears(Pong)).number == 42

    with_peer(test)


def test_credit_goes_back_when_half_of_the_window_was_taken():
    batch = rows(100)
    size = sum(map(len, deliver_parts(7, (1,), batch.data)))

    async def test(peer, client):
        subscription = await client.subscribe("topic")
        for _ in range(6):
            peer.deliver(batch)
        for _ in range(401):
            await subscription.get()
        assert client.statistics().bytes_queued == 2 * size
        assert (await peer.hears(Credit)).bytes == 4 * size
        for _ in range(199):
            await subscription.get()
        assert await subscription.get(timeout=0) is None
        assert client.statistics().bytes_queued == 0

    with_peer(test, options={"window": 8 * size})


def test_a_broker_may_grant_less_than_was_asked_for():
    batch = rows(100)
    size = sum(map(len, deliver_parts(7, (1,), batch.data)))

    async def test(peer, client):
        subscription = await client.subscribe("topic")
        peer.deliver(batch)
        for _ in range(100):
            await subscription.get()
        assert await subscription.get(timeout=0) is None
        assert (await peer.hears(Credit)).bytes == size

    with_peer(test, delivery_window=2 * size, options={"window": 80 * size})


def test_a_put_waits_for_credit():
    async def test(peer, client):
        await client.declare_topic("topic", SCHEMA)
        await client.put("topic", {"n": 0})  # one frame may overshoot
        first = client.statistics().put_outstanding
        assert first > 16
        await client.put("topic", {"n": 1})
        await client.put("topic", {"n": 2})
        assert (client.statistics().rows_put, client.statistics().rows_waiting) == (1, 2)
        flushing = asyncio.create_task(client.flush())
        await asyncio.sleep(0)
        peer.say(Credit(first))
        await flushing
        assert (client.statistics().rows_put, client.statistics().batches_put) == (3, 2)

    with_peer(test, window=16)


@pytest.mark.parametrize(
    "misbehave",
    [
        lambda peer: peer.deliver(rows(1), topic=8),  # a topic that was not announced
        lambda peer: peer.deliver(Batch.encode(parse_schema("o: [x: int]"), [{"x": 1}])),  # … or a schema
        lambda peer: peer.say(Welcome(**peer.welcome)),
        lambda peer: peer.say(Hello(window=1)),
        lambda peer: peer.say(TopicAnnounced(number=9, name="other", schemas=[])),
        lambda peer: peer.channels[-1].write(b"GET / HTTP/1.1\r\n"),
    ],
)
def test_a_broker_that_cannot_be_understood_is_left(misbehave):
    async def test(peer, client):
        subscription = await client.subscribe("topic")
        misbehave(peer)
        with pytest.raises(ProtocolError):
            await subscription.get()
        with pytest.raises(ProtocolError):
            await client.status()

    with_peer(test)


def test_a_damaged_delivery_is_not_used():
    async def test(peer, client):
        subscription = await client.subscribe("topic")
        batch = rows(3)
        data = bytearray(batch.data)
        data[-1] ^= 1
        peer.channels[-1].write(*deliver_parts(7, (1,), bytes(data)))
        with pytest.raises(Exception, match="checksum"):
            await subscription.get()

    with_peer(test)


def test_a_fatal_failure_says_why():
    async def test(peer, client):
        peer.say(Failure(code="slow_consumer", message="too slow", fatal=True))
        peer.channels[-1].close()
        with pytest.raises(BrokerError, match="too slow"):
            await client.flush()

    with_peer(test)


def test_a_goodbye_is_a_lost_connection():
    async def test(peer, client):
        peer.say(Bye("for maintenance"))
        with pytest.raises(ConnectionLost, match="for maintenance"):
            await client.status()

    with_peer(test)


def test_a_refused_handshake_raises_its_error():
    async def test(peer, client):
        def refuse(said):
            peer.say(Failure(code="handshake_refused", message="not you", fatal=True))
            peer.channels[-1].close()

        peer.answer = refuse
        with pytest.raises(HandshakeRefused, match="not you"):
            await client.connect()

    with_peer(test, connect=False)


class Choosy(Peer):
    """A broker that, once it was upgraded, refuses clients."""

    upgraded = False

    def answer(self, said):
        if self.upgraded and isinstance(said, Hello):
            self.say(Failure(code="handshake_refused", message="another protocol", fatal=True))
            self.channels[-1].close()
        else:
            super().answer(said)


def test_a_client_that_one_broker_refuses_goes_to_the_next_and_gives_up_when_all_do():
    async def test():
        async with asyncio.timeout(120), AsyncExitStack() as stack:
            peers = [Choosy(), Choosy()]
            addresses = [f"inproc://peer-{next(_names)}" for _ in peers]
            for address, peer in zip(addresses, peers, strict=True):
                listener = await transport.listen(parse_address(address), lambda peer=peer: peer)
                stack.push_async_callback(listener.close)
            first, second = peers

            def client():
                made = AsyncClient(",".join(addresses))
                stack.push_async_callback(made.close, drain=False)
                return made

            desk = await client().connect()
            await desk.declare_topic("topic", SCHEMA)
            first.upgraded = True
            first.channels[-1].abort()
            await desk.declare_topic("topic", SCHEMA)
            assert any(isinstance(said, Declare) for said in second.heard)
            assert desk.statistics().reconnects == 1
            other = await client().connect()
            assert [isinstance(said, Hello) for said in second.heard].count(True) == 2
            await other.close()  # a peer answers on its latest channel, so one client at a time comes back
            second.upgraded = True
            for channel in second.channels:
                channel.abort()
            with pytest.raises(HandshakeRefused, match="another protocol"):
                await desk.topics()
            with pytest.raises(HandshakeRefused, match="another protocol"):
                await client().connect()

    asyncio.run(test())


def test_a_handshake_takes_no_longer_than_told():
    async def test(peer, client):
        peer.answer = lambda said: None
        with pytest.raises(TimedOut):
            await client.connect()

    with_peer(test, connect=False, options={"timeout": 0.01})


def test_after_a_broken_connection_it_comes_back_by_itself():
    async def test(peer, client):
        subscription = await client.subscribe("topic")
        await client.declare_topic("topic", SCHEMA)
        for _ in range(3):
            peer.heard.clear()
            peer.channels[-1].abort()
            assert (await peer.hears(Subscribe)).subscription == subscription.number
            await client.flush()
            peer.deliver(rows(1))
            assert (await subscription.get()).n == 0
        assert client.statistics().reconnects == 3

    with_peer(test, options={"reconnect": True})
