"""A pub_id is a publisher: what one puts stays in order, and different ones are spread over a group.

Also which version of a topic's schema a message is put in, which is the publisher's to know.
"""

import asyncio
import sqlite3
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from milepost import AsyncClient, parse_schema, testing
from milepost.batch.header import fingerprint_of
from milepost.gateway.zmq import Gateway, publishers
from milepost.gateway.zmq.rows import POST_SCHEMA
from tests.integration.req_socket import connected

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60  # for what hangs


@asynccontextmanager
async def serving(store, schema=POST_SCHEMA, name=""):
    """A gateway, a REQ socket, and a native client that has declared the topic "t"."""
    async with (
        asyncio.timeout(SECONDS),
        testing.broker(store=str(store)) as broker,
        Gateway(broker.uri, "127.0.0.1:0", name=name) as gateway,
        connected(gateway.address) as socket,
        AsyncClient(broker.uri) as native,
    ):
        await native.declare_topic("t", schema, durable=True)
        yield broker, gateway, socket, native


async def stored(socket, payload, pub_id):
    said = await socket.put("t", payload, pub_id=pub_id)
    assert "error_type" not in said, said


async def publishers_of(native):
    """The publishers of all messages of the topic, by payload."""
    logs = {each["log"]: each["next"] for each in (await native.look("t"))["logs"]}
    return {
        message.payload: message.id.publisher
        async for batch in native.read("t", dict.fromkeys(logs, 0), logs)
        for message in batch
    }


def test_one_pub_id_stays_in_order_at_one_member_and_others_go_to_other_members(tmp_path):
    async def test():
        async with serving(tmp_path / "s.db") as (broker, _, socket, native), AsyncClient(broker.uri) as other:
            members = [
                await each.subscribe("t", name="group", ack="explicit", prefetch=1, start="earliest")
                for each in (native, other)
            ]
            for payload in (b"a1", b"a2", b"a3"):
                await stored(socket, payload, "a")
            gets = [asyncio.create_task(each.get()) for each in members]
            (first,), (waiting,) = await asyncio.wait(gets, return_when=asyncio.FIRST_COMPLETED)
            assert first.result().payload == b"a1"
            await stored(socket, b"b1", "b")
            # The other one waited for anything at all, and a2 came before b1.
            assert (await waiting).payload == b"b1"
            busy = members[gets.index(first)]
            for payload in (b"a2", b"a3"):
                await busy.ack()
                assert (await busy.get()).payload == payload

    asyncio.run(test())


def test_a_named_gateway_has_the_same_publishers_after_a_restart(tmp_path):
    async def life(pub_ids):
        async with serving(tmp_path / "s.db", name="zeromq.a\tb") as (_, _, socket, native):
            for pub_id in pub_ids:
                await stored(socket, pub_id.encode() + b"%d" % len(await publishers_of(native)), pub_id)
            return await publishers_of(native)

    async def test():
        await life("ab")
        found = await life("ba")
        assert found[b"a0"] == found[b"a3"] != found[b"b1"] == found[b"b2"]

    asyncio.run(test())


def test_a_client_that_takes_the_name_of_a_publisher_does_not_keep_it(tmp_path):
    async def test():
        async with serving(tmp_path / "s.db", name="zeromq") as (broker, _, socket, native):
            await stored(socket, b"1", "a")
            found = [f"zeromq.{number}" for number in range(publishers.PUBLISHERS)]
            thieves = [await AsyncClient(broker.uri, name=name).connect() for name in found]
            said = await socket.put("t", b"2", pub_id="a")
            assert said.get("code") in (None, "fenced")
            await stored(socket, b"3", "a")
            numbers = await publishers_of(native)
            assert numbers[b"1"] == numbers[b"3"]
            for each in thieves:
                await each.close(drain=False)

    asyncio.run(test())


def test_the_number_of_publishers_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(publishers, "PUBLISHERS", 3)

    async def test():
        async with serving(tmp_path / "s.db") as (_, gateway, socket, native):
            for number in range(20):
                await stored(socket, b"%d" % number, f"feed {number}")
            assert gateway.statistics()["publishers"] == 3
            assert len(set((await publishers_of(native)).values())) == 3

    asyncio.run(test())


@pytest.mark.parametrize("name", ["", "zeromq"])
def test_a_publisher_that_has_met_many_topics_is_opened_again(tmp_path, monkeypatch, name):
    """As the same publisher, also while it is never idle by itself; what it puts stays in order."""
    monkeypatch.setattr(publishers, "PUBLISHERS", 1)
    monkeypatch.setattr(publishers, "PUBLISHER_TOPICS", 3)

    async def test():
        async with (
            serving(tmp_path / "s.db", name=name) as (_, gateway, _, native),
            connected(gateway.address, 4) as feeds,
        ):
            for number in range(9):
                await native.declare_topic(f"t{number}", POST_SCHEMA, durable=True)
            clients = []

            async def feed(index):
                for number in range(9):
                    for topic in ("t", f"t{number}"):
                        said = await feeds[index].put(topic, b"%d-%d" % (index, number))
                        assert "error_type" not in said, said
                        (found,) = gateway._publishers._all
                        clients.append(found.client)
                        assert len(found.client._publisher.boxes) <= 3

            async with asyncio.TaskGroup() as group:
                for index in range(len(feeds)):
                    group.create_task(feed(index))
            assert len(set(clients)) > 2
            assert [each.failure is None for each in set(clients)].count(True) == 1
            found = await publishers_of(native)
            for index in range(len(feeds)):
                own = [payload for payload in found if payload.startswith(b"%d-" % index)]
                assert own == [b"%d-%d" % (index, number) for number in range(9)]
            assert len(set(found.values())) == 1

    asyncio.run(test())


def test_the_document_says_how_many_there_are():
    assert f"{publishers.PUBLISHERS} publishers" in (ROOT / "docs" / "zeromq.md").read_text()


# Versions


def versions_stored(store):
    with closing(sqlite3.connect(store)) as database:
        return [fingerprint_of(data) for (data,) in database.execute("SELECT data FROM entries ORDER BY first")]


def test_a_version_that_another_client_declares_is_put_from_then_on(tmp_path):
    """Also an object that an older version takes as well, by a gateway that has put into the topic before."""
    old, new = "quote: [symbol: string]", "quote: [symbol: string, lot: int?]"

    async def test():
        async with serving(tmp_path / "s.db", old) as (_, _, socket, native):
            await socket.ask("SUB", sub_id="s", topic="t")
            await stored(socket, {"symbol": "A"}, "a")
            assert await socket.take() == (1, {"symbol": "A"})
            await native.declare_topic("t", new)
            await stored(socket, {"symbol": "B"}, "a")
            await stored(socket, {"symbol": "C", "lot": 3}, "a")
            assert await socket.take() == (2, {"symbol": "B", "lot": None})
            assert await socket.take() == (3, {"symbol": "C", "lot": 3})

    asyncio.run(test())
    before, after = parse_schema(old).fingerprint, parse_schema(new).fingerprint
    assert versions_stored(tmp_path / "s.db") == [before, after, after]


def test_bytes_are_put_in_the_newest_version_that_takes_them(tmp_path):
    async def test():
        async with serving(tmp_path / "s.db") as (_, _, socket, native):
            await socket.ask("SUB", sub_id="s", topic="t")
            await stored(socket, b"1", "a")
            await native.declare_topic("t", "post: [payload: bytes, at: timestamp]")
            await stored(socket, b"2", "a")
            assert await socket.take() == (1, b"1")
            assert await socket.take() == (2, {"payload": "Mg==", "at": None})

    asyncio.run(test())


def test_versions_that_are_announced_need_no_asking(tmp_path):
    async def test():
        async with serving(tmp_path / "s.db") as (broker, _, _, native), AsyncClient(broker.uri) as feed:
            first = parse_schema(POST_SCHEMA)
            assert await feed.versions("t") == (first,)
            await feed.put("t", {"payload": b""})
            second = parse_schema("post: [payload: bytes, at: timestamp?]")
            await native.declare_topic("t", second)
            assert await feed.versions("t", again=True) == await feed.versions("t") == (first, second)

    asyncio.run(test())


@pytest.mark.parametrize("encoding", ["json", "bson"])
def test_message_types_are_put_and_got(tmp_path, encoding):
    shop = """DEFINE MESSAGETYPE Shop;
      NODE order; day: DATE; lines: REFERENCE TO line; END;
      NODE line; due: DATE?; after: REFERENCE TO line; END;
      ROOT order; END;"""
    line = {"due": None, "after": []}

    async def test():
        async with (
            serving(tmp_path / "s.db", shop) as (_, gateway, _, native),
            connected(gateway.address, 1, encoding) as socket,
        ):
            await socket.ask("SUB", sub_id="s", topic="t")
            tree = {"day": "2026-03-02", "lines": [{"due": "2026-03-03", "after": [line]}, line]}
            shared = {"order": [{"day": "2026-03-02", "lines": [0, 0]}], "line": [line]}
            for payload in (tree, shared):
                await stored(socket, payload, "a")
            (first, second) = [(await native.read("t", {1: at}, {1: at + 1}).__anext__())[0] for at in (0, 1)]
            assert first.lines[0].after[0].due is None
            assert second.lines[0] is second.lines[1]
            assert await socket.take() == (1, tree)
            assert await socket.take() == (2, shared)

    asyncio.run(test())
