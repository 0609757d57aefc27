"""Clients that make a broker hold what they do not take: it holds a bounded amount, and the others are served.

Bounds are tested by the broker's own account, and by the memory of its process with a generous margin.
"""

import asyncio
import socket
from contextlib import AsyncExitStack, ExitStack

import pytest

from milepost import AsyncClient, encode, limits, parse_schema
from milepost.errors import Overloaded
from milepost.wire import (
    Dequeue,
    FrameReader,
    Hello,
    Kind,
    Publish,
    Reply,
    StatusRequest,
    Subscribe,
    decode_control,
    encode_control,
    put_parts,
)
from milepost.wire.frames import HEADER, MAGIC
from tests.integration.hostile.process import PATIENCE, Process, run

MB = 1 << 20
EVENT = "event: [n: long, text: string]"
MARGIN = 300 * MB  # of a process: what is made while an answer is, and what Python does not give back
SETTINGS = {"memory_bytes": 64 * MB, "heartbeat_s": 1.0, "frame_s": 2.0}


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.xdist_group("postgresql"))])
def store(request):
    """Settings of a broker with a store of each kind."""
    return {} if request.param == "sqlite" else {"store": request.getfixturevalue("postgresql")}


class Hostile:
    """A client by hand, in blocking calls: the broker is another process. It reads only what it is told to."""

    def __init__(self, port, window=1 << 20, buffer=None):
        self.socket = socket.socket()
        if buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(("127.0.0.1", port))
        self.frames = FrameReader(limit=limits.FRAME_BYTES)
        self.seen = []
        self.send(encode_control(Hello(window=window)))
        assert self.next(Kind.WELCOME)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, *parts):
        for part in parts:
            self.socket.sendall(part)

    def offer(self, data):
        """Send as much as is taken at once."""
        self.socket.setblocking(False)
        try:
            sent = self.socket.send(data)
        except OSError:
            sent = 0
        self.socket.settimeout(PATIENCE)
        return sent

    def next(self, kind):
        """The next frame of a kind; None at the end of the connection."""
        while True:
            while self.seen:
                frame = self.seen.pop(0)
                if frame.kind == kind:
                    return frame
            data = self.socket.recv(1 << 16)
            if not data:
                return None
            self.seen += self.frames.feed(data)

    @property
    def closed(self):
        """Whether the broker has closed it, behind whatever is still to be read."""
        self.socket.settimeout(PATIENCE)
        try:
            while self.socket.recv(1 << 16):
                pass
        except ConnectionError:
            pass
        return True


async def settled(client, others=0):
    """Wait until nobody else is connected, and nothing is held any more; the figures then."""
    while True:
        figures = await client.status()
        if len(figures["clients"]) <= 1 + others and figures["memory"]["held"] < MB:
            return figures


async def work(client, rounds=20):
    """What an honest client gets done: each put is stored, each message comes."""
    for number in range(rounds):
        await client.put("events", {"n": number, "text": "honest"})
        message = await client.get("events", timeout=PATIENCE)
        assert message.n == number


async def prepare(client):
    await client.declare_topic("events", EVENT, durable=True)
    await client.subscribe("events", name="desk")
    # What honest work brings is there before anything is measured: with the builtins comes Numba, which is large.
    await work(client)
    while not (await client.status())["pauses"]["loading kernels"]["count"]:
        pass


def most(figures, bound):
    assert figures["memory"]["held"] <= bound, figures["memory"]


@pytest.mark.slow
def test_clients_that_peek_and_do_not_read(tmp_path, store):
    async def body():
        async with (
            Process(tmp_path, **SETTINGS, **store) as broker,
            AsyncClient(broker.address, timeout=PATIENCE) as client,
        ):
            await prepare(client)
            await client.declare_type("note: [text: string]")
            await client.declare_queue("notes", ["note"])
            for _ in range(10):
                async with client.transaction() as tx:
                    await tx.enqueue("notes", [{"text": "x" * 100_000}] * 40, "note")
            before = broker.resident()
            with ExitStack() as stack:
                hostile = [stack.enter_context(Hostile(broker.port, buffer=4096)) for _ in range(24)]
                for each in hostile:
                    for number in range(1, 21):
                        each.send(encode_control(Dequeue(request=number, queue="notes", count=400, peek=True)))
                await work(client)
                most(await client.status(), 64 * MB + 32 * MB)  # two are looked up at a time
                figures = await settled(client)
                assert figures["errors"]["timed_out"] == 24
                await work(client)
                assert all(each.closed for each in hostile)
            assert broker.resident() - before < MARGIN
            found = await client.peek("notes", count=400)
            assert 8 * MB <= sum(len(each.text) for each in found) < 20 * MB
            assert [each async for each in client.browse("notes")][-1].text == "x" * 100_000

    run(body())


@pytest.mark.slow
@pytest.mark.parametrize("connections", [1, 24])
def test_publish_requests_with_all_parts_that_one_may_have(tmp_path, connections):
    async def body():
        settings = SETTINGS | {"heartbeat_s": 30.0, "frame_s": 30.0}
        async with Process(tmp_path, **settings) as broker, AsyncClient(broker.address, timeout=PATIENCE) as client:
            await prepare(client)
            before = broker.resident()
            parts = [(2 * number + 100_000, number + 100_000) for number in range(limits.STAGED_PARTS)]
            count = 30 // connections or 1
            asked = [
                encode_control(Publish(request=number, sink="s", epoch=number, parts=parts))
                for number in range(1, count + 1)
            ]
            with ExitStack() as stack:
                hostile = [stack.enter_context(Hostile(broker.port)) for _ in range(connections)]

                def attack(each):
                    each.send(*asked)
                    return sum(each.next(Kind.FAILURE) is not None for _ in range(count))

                attacks = asyncio.gather(*(asyncio.to_thread(attack, each) for each in hostile))
                await work(client)
                assert await attacks == [count] * connections, "some had to wait for others"
            assert broker.resident() - before < MARGIN // 2
            most(await settled(client), MB)

    run(body())


@pytest.mark.slow
def test_frames_that_are_begun_and_not_finished(tmp_path):
    async def body():
        async with Process(tmp_path, **SETTINGS) as broker, AsyncClient(broker.address, timeout=PATIENCE) as client:
            await prepare(client)
            before = broker.resident()
            begun = HEADER.pack(8 * MB, Kind.PUT, 0, MAGIC) + bytes(8 * MB - 1)
            with ExitStack() as stack:
                hostile = [stack.enter_context(Hostile(broker.port)) for _ in range(40)]
                sending = asyncio.gather(*(asyncio.to_thread(_send, each, begun) for each in hostile))
                await work(client)
                most(await client.status(), 64 * MB + 40 * MB + 8 * MB)  # and one read of each
                await sending
                figures = await settled(client)
                assert figures["errors"].keys() <= {"timed_out", "overloaded"}
                assert sum(figures["errors"].values()) == 40
            assert broker.resident() - before < MARGIN

    run(body())


def _send(hostile, data):
    try:
        hostile.send(data)
    except OSError:
        pass  # closed by the broker


@pytest.mark.slow
def test_honest_frames_get_through_while_memory_is_short(tmp_path):
    """More large puts at once than there is memory for: each is stored, some later than others."""

    async def body():
        settings = {"memory_bytes": 8 * MB, "heartbeat_s": 30.0, "frame_s": 60.0}
        async with Process(tmp_path, **settings) as broker, AsyncExitStack() as stack:
            made = [AsyncClient(broker.address, timeout=PATIENCE) for _ in range(12)]
            clients = [await stack.enter_async_context(each) for each in made]
            await clients[0].declare_topic("events", EVENT, durable=True)
            sub = await clients[0].subscribe("events", name="desk", where="n >= 0")
            rows = [{"n": n, "text": "y" * 10_000} for n in range(300)]
            await asyncio.gather(*(each.put_many("events", rows) for each in clients[1:]))
            counts = [0] * len(rows)
            for _ in range(len(rows) * 11):
                counts[(await anext(sub)).n] += 1
            assert counts == [11] * len(rows)

    run(body())


def test_subscribers_that_do_not_take_their_messages(tmp_path):
    async def body():
        settings = SETTINGS | {"memory_bytes": 16 * MB, "heartbeat_s": 30.0}
        async with Process(tmp_path, **settings) as broker, AsyncClient(broker.address, timeout=PATIENCE) as client:
            await client.declare_topic("live", EVENT, slow="drop")
            quick = await client.subscribe("live")
            with ExitStack() as stack:
                for number in range(30):  # each wants other rows, so that nothing is shared
                    each = stack.enter_context(Hostile(broker.port, window=1))
                    where = f"n <> {number}"
                    each.send(encode_control(Subscribe(request=1, subscription=1, pattern="live", where=where)))
                    assert each.next(Kind.REPLY)
                held = 0
                for _ in range(20):
                    await client.put_many("live", [{"n": number, "text": "z" * 10_000} for number in range(40)])
                    for number in range(40):
                        assert (await anext(quick)).n == number
                    held = max(held, (await client.status())["memory"]["held"])
                figures = await client.status()
                assert max(held, figures["memory"]["held"]) <= 20 * MB
                assert figures["totals"]["rows_dropped"] > 0
            most(await settled(client), MB)

    run(body())


@pytest.mark.parametrize("named", [False, True], ids=["reads", "named subscriptions"])
def test_logs_that_one_client_reads_and_takes_nothing_of(tmp_path, named):
    async def body():
        async with Process(tmp_path, **SETTINGS) as broker, AsyncClient(broker.address, timeout=PATIENCE) as client:
            await prepare(client)
            await client.put_many("events", [{"n": n, "text": "r" * 10_000} for n in range(1_000)])
            with Hostile(broker.port, window=1) as hostile:
                for number in range(1, 201):
                    what = {"name": f"hostile {number}", "start": "earliest"}
                    if not named:
                        what = {"start": {"position": {1: 0}}, "stop": {1: 1_000}}
                    asked = Subscribe(request=number, subscription=number, pattern="events", durable=True, **what)
                    hostile.send(encode_control(asked))
                for _ in range(200):
                    assert hostile.next(Kind.REPLY)
                most(await client.status(), 48 * MB)
                for number in range(1_000):
                    assert (await client.get("events", timeout=PATIENCE)).n == number
                most(await client.status(), 48 * MB)
            most(await settled(client), MB)

    run(body())


def test_transactions_that_keep_what_they_took(tmp_path):
    async def body():
        settings = SETTINGS | {"memory_bytes": 4 * MB, "heartbeat_s": 30.0}
        async with Process(tmp_path, **settings) as broker, AsyncExitStack() as stack:
            greedy = await stack.enter_async_context(AsyncClient(broker.address, timeout=PATIENCE))
            client = await stack.enter_async_context(AsyncClient(broker.address, timeout=PATIENCE))
            await client.declare_type("note: [text: string]")
            await client.declare_queue("notes", ["note"])
            for _ in range(10):
                async with client.transaction() as tx:
                    await tx.enqueue("notes", [{"text": "x" * 100_000}] * 20, "note")
            taken = 0
            with pytest.raises(Overloaded, match="memory_bytes"):  # noqa: PT012
                for _ in range(20):
                    tx = await greedy.transaction().__aenter__()  # never left
                    taken += len(await tx.dequeue("notes", count=10))
            assert 20 <= taken < 200
            async with client.transaction() as tx:
                assert len(await tx.dequeue("notes", count=1)) == 1, "one who holds nothing is served"
            await greedy.close()
            await settled(client)
            async with client.transaction() as tx:
                assert len(await tx.dequeue("notes", count=10)) == 10

    run(body())


@pytest.mark.slow
def test_answers_to_requests_that_are_many_at_once(tmp_path):
    async def body():
        async with Process(tmp_path, **SETTINGS) as broker, AsyncClient(broker.address, timeout=PATIENCE) as client:
            await prepare(client)
            for number in range(200):
                await client.declare_topic(f"t{number}", EVENT)
            with Hostile(broker.port, buffer=4096) as hostile:
                asked = b"".join(encode_control(StatusRequest(request=number)) for number in range(1, 1_001))
                sent = 0
                while (more := hostile.offer(asked[sent:])) and sent < len(asked):
                    sent += more
                await work(client)
                most(await client.status(), 8 * MB)
                figures = await settled(client)
                assert figures["errors"]["timed_out"] == 1
            with Hostile(broker.port) as patient:  # one that reads gets every answer
                for number in range(1, 101):
                    patient.send(encode_control(StatusRequest(request=number)))
                for _ in range(100):
                    found = patient.next(Kind.REPLY)
                    assert isinstance(decode_control(found.kind, found.body), Reply)

    run(body())


def test_puts_of_connections_that_are_gone_count_until_they_are_stored(tmp_path, store):
    async def body():
        async with (
            Process(tmp_path, **SETTINGS, **store) as broker,
            AsyncClient(broker.address, timeout=PATIENCE) as client,
        ):
            await prepare(client)
            topic = client._session.connection.by_name["events"].number
            batch = bytes(encode(parse_schema(EVENT), [{"n": 1, "text": "p" * 3_000_000}]).data)
            for _ in range(20):
                with Hostile(broker.port) as hostile:
                    hostile.send(*put_parts(topic, batch))
            await work(client, rounds=5)
            most(await settled(client), MB)

    run(body())
