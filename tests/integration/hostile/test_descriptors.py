"""Connections that use up the file descriptors: others get in, what is there goes on, and the log says so."""

import asyncio
import logging
import os
import resource
import selectors
import socket
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from milepost import AsyncClient, limits
from milepost.errors import Overloaded
from milepost.transport import listen, parse_address
from milepost.transport.admission import ConnectionAdmission
from milepost.wire import FrameReader, Hello, Kind, decode_control, encode_control
from tests.integration.hostile.process import PATIENCE, Process, run

EVENT = "event: [n: long]"
DESCRIPTORS = 96  # a quarter of them is the reserve, and one address has half of the rest
ONE_ADDRESS = 36


class Reconnecting(threading.Thread):
    """Sockets that connect, say nothing, and connect again when they are closed."""

    def __init__(self, port, host, count):
        super().__init__()
        self.opened = 0
        self.ending = threading.Event()
        self.port, self.host, self.count = port, host, count

    def run(self):
        with selectors.DefaultSelector() as selector, ExitStack() as stack:
            stack.callback(lambda: [key.fileobj.close() for key in list(selector.get_map().values())])
            for _ in range(self.count):
                selector.register(self.connected(), selectors.EVENT_READ)
            while not self.ending.is_set():
                for key, _ in selector.select(0.1):
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
                    selector.register(self.connected(), selectors.EVENT_READ)

    def connected(self):
        self.opened += 1
        return stranger(self.port, self.host)

    def end(self):
        self.ending.set()
        self.join()


def stranger(port, host):
    return socket.create_connection(("127.0.0.1", port), PATIENCE, (host, 0))


def greeted(port, host):
    """A connection that has shaken hands, or the code of the error that it was told."""
    sock = stranger(port, host)
    frames = FrameReader(limit=limits.FRAME_BYTES)
    found = []
    try:
        sock.sendall(encode_control(Hello(window=1 << 20)))
        while not found and (data := sock.recv(65_536)):
            found = frames.feed(data)
    except ConnectionError:
        pass
    if found and found[0].kind == Kind.WELCOME:
        return sock
    sock.close()
    return decode_control(found[0].kind, found[0].body).code if found else "reset"


def descriptors(process):
    """The numbers of those that a process has open."""
    return [int(each.name) for each in Path(f"/proc/{process}/fd").iterdir()]


async def work(broker, clients):
    """What clients that come one after the other get done; the broker's figures at the end."""
    for number in range(clients):
        async with AsyncClient(broker.address, timeout=PATIENCE) as client:
            await client.declare_topic("events", EVENT, durable=True)
            await client.subscribe("events", name="desk")
            await client.put("events", {"n": number})
            assert (await client.get("events", timeout=PATIENCE)).n == number
            figures = await client.status()
    return figures


def test_sockets_that_connect_again_and_again_keep_no_other_address_out(tmp_path):
    async def body():
        async with Process(tmp_path, DESCRIPTORS) as broker:
            hostile = Reconnecting(broker.port, "127.0.0.2", 2 * DESCRIPTORS)
            hostile.start()
            try:
                while hostile.opened < 3 * DESCRIPTORS:
                    await asyncio.sleep(0)
                figures = await work(broker, clients=5)
            finally:
                await asyncio.to_thread(hostile.end)
            assert figures["connections_refused"] > 0
        said = broker.errors.read_text().splitlines()
        assert any("connections were not taken" in line for line in said)
        assert len(said) < 50, "one line for many"

    run(body())


def test_sockets_that_say_nothing_make_room_for_clients_of_the_same_address(tmp_path):
    async def body():
        async with Process(tmp_path, DESCRIPTORS) as broker:
            with ExitStack() as silent:
                for _ in range(2 * DESCRIPTORS):
                    silent.enter_context(stranger(broker.port, "127.0.0.1"))
                await work(broker, clients=5)

    run(body())


async def connected(broker: Process) -> AsyncClient:
    """A client, as soon as the broker has seen that others closed their sockets."""
    while True:
        try:
            return await AsyncClient(broker.address, timeout=PATIENCE).connect()
        except Overloaded:
            continue


def test_who_shook_hands_from_everywhere_leaves_the_reserve_to_the_store(tmp_path):
    async def body():
        async with Process(tmp_path, DESCRIPTORS) as broker, AsyncClient(broker.address, timeout=PATIENCE) as client:
            await client.declare_topic("events", EVENT, durable=True)
            await client.subscribe("events", name="desk")
            writers, codes = [], set()
            for number in range(2, 9):
                for _ in range(ONE_ADDRESS):
                    found = greeted(broker.port, f"127.0.0.{number}")
                    codes.add(found) if isinstance(found, str) else writers.append(found)
            assert codes
            assert codes <= {"overloaded", "reset"}
            assert len(descriptors(broker.process.pid)) < DESCRIPTORS
            for number in range(20):
                await client.put("events", {"n": number})
                assert (await client.get("events", timeout=PATIENCE)).n == number
            await client.declare_topic("more", EVENT, durable=True)
            for writer in writers:
                writer.close()
            late = await connected(broker)
            await late.put("more", {"n": 1})
            await late.close()
        assert "the reserve of file descriptors" in broker.errors.read_text()

    run(body())


def test_one_address_has_its_share_and_hears_why_there_is_no_more(tmp_path):
    async def body():
        async with Process(tmp_path, connections_per_address=5) as broker:
            found = [greeted(broker.port, "127.0.0.2") for _ in range(8)]
            writers = [each for each in found if not isinstance(each, str)]
            assert len(writers) == 5
            assert set(found[5:]) <= {"overloaded", "reset"}
            writers.append(greeted(broker.port, "127.0.0.3"))
            writers.pop(0).close()
            while isinstance(again := greeted(broker.port, "127.0.0.2"), str):
                pass
            for each in (*writers, again):
                each.close()

    run(body())


def test_accept_that_fails_is_logged_once_and_tried_again(caplog):
    class Ear:
        def __init__(self):
            self.there = asyncio.Event()

        def connected(self, channel):
            channel.abort()
            self.there.set()

        def frames(self, frames): ...
        def drained(self): ...
        def refused(self, error): ...
        def lost(self, error): ...

    async def body():
        ear = Ear()
        listener = await listen(parse_address("milepost://127.0.0.1:0"), lambda: ear)
        client = socket.socket()
        client.setblocking(False)
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        highest = max(descriptors("self"))
        filled = [os.dup(client.fileno())]
        while filled[-1] < highest:  # no number is free below it then
            filled.append(os.dup(client.fileno()))
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(filled) + 1, before[1]))
        try:
            client.connect_ex(("127.0.0.1", listener.address.port))
            while not listener.refused:
                await asyncio.sleep(0)
            assert not ear.there.is_set()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
            for each in filled:
                os.close(each)
        await ear.there.wait()
        client.close()
        await listener.close()

    with caplog.at_level(logging.WARNING, "milepost.transport"):
        run(body())
    assert len([line for line in caplog.messages if "accept failed" in line]) == 1


def test_an_address_of_ipv6_is_a_network():
    async def body():
        admission = ConnectionAdmission(per_address=1)
        first = admission.require(10, "2001:db8::1")
        admission.came(object(), first)
        admission.greeted(next(iter(admission._strangers)))
        with pytest.raises(Overloaded, match="connections_per_address"):
            admission.require(10, "2001:db8::2")
        assert admission.require(10, "2001:db8:0:1::2") != first
        assert admission.require(10, "::ffff:10.0.0.1") == admission.require(10, "10.0.0.1")
        admission.close()

    run(body())
