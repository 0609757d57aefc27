"""The five requests over ZeroMQ, from real REQ sockets through the gateway to a broker with a store.

What can fail, each with a test: a post that is put twice, a reply to get that is lost, an acknowledgement that is lost,
a broker that crashes, one that crashes while it saves, and one that loses what it had saved.
"""

import asyncio
import json
import os
import re
import sys
import threading
import uuid
from base64 import b64decode, b64encode
from contextlib import AsyncExitStack
from functools import reduce
from pathlib import Path

import pytest
import uvloop
import zmq
import zmq.asyncio
import zmq.auth

from milepost import AsyncClient, encode, errors, parse_schema, testing
from milepost.broker.log_reader import LogReader
from milepost.gateway.zmq import Gateway
from milepost.gateway.zmq import gateway as module
from milepost.gateway.zmq import roster as roster_module
from milepost.gateway.zmq import subscriber as subscriber_module
from milepost.gateway.zmq.bodies import BODY_BYTES
from tests.integration.req_socket import Process, connected

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 600  # for what hangs: on busy cores a broker takes seconds to start, and one test starts twelve


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request, tmp_path):
    """Runs `test(gateway, broker)` with a broker that stores."""
    loops = {"loop_factory": uvloop.new_event_loop} if request.param == "uvloop" else {}

    def run(test, **settings):
        async def whole():
            store = str(tmp_path / "store.db")
            async with (
                asyncio.timeout(SECONDS),
                testing.broker(store=store, **settings) as broker,
                Gateway(broker.uri, "127.0.0.1:0") as gateway,
            ):
                await test(gateway, broker)

        with asyncio.Runner(**loops) as runner:
            runner.run(whole())

    return run


@pytest.mark.parametrize("encoding", ["json", "bson"])
def test_the_functions(run, encoding):
    async def test(gateway, broker):
        async with connected(gateway.address, 2, encoding) as (desk, feed):
            made = await desk.ask("SUB", sub_id="s", topic="t")
            assert made == {"sub_id": "s", "topic": "t", "post_offset": 0, "broker_id": gateway.broker_id}
            assert gateway.broker_id
            key = str(uuid.uuid4())
            assert await feed.put("t", b"\0one", key) == {
                "message_uuid": key, "topic": "t", "broker_id": gateway.broker_id
            }  # fmt: skip
            await feed.put("t", b"two")
            got = await desk.ask("GET", sub_id="s", topic="t")
            assert got == {
                "sub_id": "s", "message_no": 1, "payload": desk.packed(b"\0one"), "broker_id": gateway.broker_id
            }  # fmt: skip
            acked = await desk.ask("ACK", sub_id="s", message_no=1)
            assert acked == {"sub_id": "s", "message_no": 1, "broker_id": gateway.broker_id}
            assert await desk.take() == (2, b"two")
            assert await desk.get() == "NoPostsInTopic"
            assert await desk.ask("UNSUB", sub_id="s") == {"sub_id": "s", "broker_id": gateway.broker_id}
            assert await desk.get() == "SubscriberNotRegistered"
            assert gateway.statistics()["put"] == 2

    run(test)


def test_a_subscriber_gets_what_comes_after_it_subscribed(run):
    async def test(gateway, broker):
        async with connected(gateway.address) as client:
            await client.ask("SUB", sub_id="first", topic="t")
            for number in range(3):
                await client.put("t", b"%d" % number)
            assert (await client.ask("SUB", sub_id="late", topic="t"))["post_offset"] == 3
            await client.put("t", b"3")
            assert await client.take("late") == (4, b"3")
            assert [await client.take("first") for _ in range(4)] == [(n + 1, b"%d" % n) for n in range(4)]

    run(test)


def test_the_nine_errors(run):
    async def test(gateway, broker):
        async with connected(gateway.address) as client:
            key = str(uuid.uuid4())
            fields = {"pub_id": "p", "topic": "t", "message_uuid": key, "payload": ""}
            assert await client.error("PUT", **fields) == "InexistentTopic"
            assert await client.error("GET", sub_id="s", topic="t") == "InexistentTopic"
            assert await client.error("UNSUB", sub_id="s") == "SubscriberNotRegistered"
            await client.ask("SUB", sub_id="s", topic="t", request_uuid=str(uuid.uuid4()))
            again = await client.error("SUB", sub_id="s", topic="t", request_uuid=str(uuid.uuid4()))
            assert again == "SubscriberAlreadyRegistered"
            assert await client.error("GET", sub_id="nobody", topic="t") == "SubscriberNotRegistered"
            assert await client.error("GET", sub_id="s", topic="t") == "NoPostsInTopic"
            assert await client.error("ACK", sub_id="s", message_no=1) == "NotExpectingAck"
            assert await client.error("ACK", sub_id="nobody", message_no=1) == "SubscriberNotRegistered"
            await client.ask("SUB", sub_id="other", topic="u")
            assert await client.error("GET", sub_id="s", topic="u") == "TopicMismatch"
            assert await client.error("SUB", sub_id="s", topic="u") == "TopicMismatch"
            assert "error_type" not in await client.ask("PUT", **fields)
            assert await client.error("PUT", **fields) == "DuplicateMessage"
            assert await client.get() == (1, b"")
            assert await client.error("ACK", sub_id="s", message_no=2) == "AckMessageMismatch"
            assert await client.error("ACK", sub_id="s", message_no=0) == "AckMessageMismatch"
            assert await client.error("POST", sub_id="s") == "UnknownMessage"
            assert await client.take() == (1, b"")

    run(test)


def test_mismatches_are_found_by_a_gateway_that_has_just_started(run):
    async def test(gateway, broker):
        async with connected(gateway.address) as client:
            await client.ask("SUB", sub_id="s", topic="t")
            await client.ask("SUB", sub_id="other", topic="u")
        async with Gateway(broker.uri, "127.0.0.1:0") as fresh, connected(fresh.address) as client:
            assert await client.error("GET", sub_id="s", topic="u") == "TopicMismatch"
            assert await client.error("SUB", sub_id="s", topic="u") == "TopicMismatch"
            assert await client.get() == "NoPostsInTopic"

    run(test)


# A duplicated post


def test_a_post_that_is_put_twice_is_stored_once(run):
    async def test(gateway, broker):
        async with connected(gateway.address, 3) as (desk, one, two):
            await desk.ask("SUB", sub_id="s", topic="t")
            key = str(uuid.uuid4())
            said = await asyncio.gather(one.put("t", b"x", key), two.put("t", b"x", key))
            errors_ = [each.get("error_type") for each in said]
            assert sorted(errors_, key=str) == ["DuplicateMessage", None]
            assert (await one.put("t", b"x", key.upper()))["error_type"] == "DuplicateMessage"
            await one.put("t", b"x")  # the same payload in another message is another message
            assert [await desk.take(), await desk.take()] == [(1, b"x"), (2, b"x")]
            assert await desk.get() == "NoPostsInTopic"

    run(test)


def test_a_put_whose_answer_was_lost_can_be_put_again(run):
    async def test(gateway, broker):
        async with connected(gateway.address, 2) as (desk, other):
            await desk.ask("SUB", sub_id="s", topic="t")
            key = str(uuid.uuid4())
            body = other.body("PUT", pub_id="p", topic="t", message_uuid=key, payload="eA==")
            await other.socket.send(body)
            while not gateway.statistics().get("put"):
                await asyncio.sleep(0)
            other.close()  # and never hears of it
            assert (await desk.put("t", b"x", key)).get("error_type") in (None, "DuplicateMessage")
            assert await desk.take() == (1, b"x")
            assert await desk.get() == "NoPostsInTopic"

    run(test)


# A reply to get, or an acknowledgement, that is lost


def test_a_message_comes_again_until_it_is_acknowledged(run):
    async def test(gateway, broker):
        async with connected(gateway.address, 2) as (desk, other):
            await desk.ask("SUB", sub_id="s", topic="t")
            for number in range(3):
                await desk.put("t", b"%d" % number)
            await other.socket.send(other.body("GET", sub_id="s", topic="t"))
            while not gateway.statistics().get("get"):
                await asyncio.sleep(0)
            other.close()  # the reply is lost
            assert await desk.get() == (1, b"0")
            assert await desk.get() == (1, b"0")
            assert await desk.take() == (1, b"0")
            assert await desk.take() == (2, b"1")

    run(test)


def test_an_acknowledgement_whose_answer_was_lost_can_be_said_again(run):
    async def test(gateway, broker):
        async with connected(gateway.address) as desk:
            await desk.ask("SUB", sub_id="s", topic="t")
            for number in range(2):
                await desk.put("t", b"%d" % number)
            assert await desk.take() == (1, b"0")
            for _ in range(2):
                assert (await desk.ask("ACK", sub_id="s", message_no=1))["message_no"] == 1
            assert await desk.get() == (2, b"1")
            assert (await desk.ask("ACK", sub_id="s", message_no=1))["message_no"] == 1
            assert await desk.take() == (2, b"1")
            assert await desk.error("ACK", sub_id="s", message_no=1) == "NotExpectingAck"

    run(test)


def test_an_acknowledgement_that_was_lost_with_the_gateway_is_taken_by_the_next(run):
    async def test(first, broker):
        async with connected(first.address) as desk:
            await desk.ask("SUB", sub_id="s", topic="t")
            await desk.put("t", b"x")
            await desk.put("t", b"y")
            assert await desk.get() == (1, b"x")
        await first.__aexit__(None, None, None)
        async with Gateway(broker.uri, "127.0.0.1:0") as second, connected(second.address) as desk:
            assert (await desk.ask("ACK", sub_id="s", message_no=1))["message_no"] == 1
            assert await desk.take() == (2, b"y")
        async with Gateway(broker.uri, "127.0.0.1:0") as third, connected(third.address) as desk:
            assert (await desk.ask("ACK", sub_id="s", message_no=2))["message_no"] == 2  # its answer was lost
            assert await desk.error("ACK", sub_id="s", message_no=1) == "NotExpectingAck"
            assert await desk.error("ACK", sub_id="s", message_no=2, topic="u") == "TopicMismatch"
            assert await desk.get() == "NoPostsInTopic"

    run(test)


# Subscribing and unsubscribing


def test_subscribing_again_has_the_effect_that_it_had(run):
    async def test(gateway, broker):
        async with connected(gateway.address) as client:
            key = str(uuid.uuid4())
            first = await client.ask("SUB", sub_id="s", topic="t", request_uuid=key)
            await client.put("t", b"x")
            assert await client.ask("SUB", sub_id="s", topic="t", request_uuid=key) == first
            assert await client.ask("SUB", sub_id="s", topic="t") == first
            assert await client.take() == (1, b"x")

    run(test)


def test_unsubscribing_again_is_answered_in_the_same_way(run):
    """Also by another gateway, as after a restart. A subscription that was made since is removed as well."""

    async def test(gateway, broker):
        async with (
            connected(gateway.address) as client,
            Gateway(broker.uri, "127.0.0.1:0") as other,
            connected(other.address) as elsewhere,
        ):
            assert await client.error("UNSUB", sub_id="s") == "SubscriberNotRegistered"
            await client.ask("SUB", sub_id="s", topic="t")
            first = await client.ask("UNSUB", sub_id="s")
            assert first == {"sub_id": "s", "broker_id": gateway.broker_id}
            for each in (client, elsewhere):
                assert await each.ask("UNSUB", sub_id="s") == first
                assert await each.get() == "SubscriberNotRegistered"
            for each in (client, elsewhere):
                await client.ask("SUB", sub_id="s", topic="t")
                assert await each.ask("UNSUB", sub_id="s") == first
                assert await each.get() == "SubscriberNotRegistered"

    run(test)


def test_requests_that_waited_while_the_gateway_began_anew_leave_it_as_it_is(tmp_path):
    """The broker comes back without its state while three publishers wait for their connections."""

    async def test():
        async with AsyncExitStack() as gateway_life:
            async with testing.broker(store=str(tmp_path / "first.db")) as broker:
                gateway = await gateway_life.enter_async_context(Gateway(broker.uri, "127.0.0.1:0"))
                client, *feeds = await gateway_life.enter_async_context(connected(gateway.address, 4))
                first = await client.ask("SUB", sub_id="s", topic="t")
                opening = [each.opening for each in gateway._publishers._all]
                for each in opening:
                    await each.acquire()
                puts = [
                    asyncio.create_task(feed.put("t", b"old", pub_id=f"feed {number}"))
                    for number, feed in enumerate(feeds)
                ]
                while gateway.statistics().get("put") != len(feeds):
                    await asyncio.sleep(0)
            async with testing.broker(store=str(tmp_path / "second.db"), listen=broker.uri):
                assert (await client.ask("GET", sub_id="s", topic="t"))["code"] == "state_lost"
                assert (await client.ask("SUB", sub_id="s", topic="t"))["broker_id"] != first["broker_id"]
                healthy = gateway._client
                for each in opening:
                    each.release()
                assert [said.get("code") for said in await asyncio.gather(*puts)] == ["state_lost"] * len(feeds)
                assert gateway._client is healthy
                assert "error_type" not in await client.put("t", b"new")
                assert await client.take() == (1, b"new")
                await gateway_life.aclose()

    asyncio.run(asyncio.wait_for(test(), SECONDS))


@pytest.mark.parametrize("key", [None, "2f1e9a0c-5d53-4b6e-9d3b-0a4f5d1c2b3a"])
def test_unsubscribing_again_after_a_restart_of_the_broker(tmp_path, key):
    """The first removes the subscription, the second repeats that, and the third comes when there is another one."""
    fields = {"sub_id": "s"} | ({"request_uuid": key} if key else {})

    async def life(*requests):
        async with (
            asyncio.timeout(SECONDS),
            testing.broker(store=str(tmp_path / "store.db")) as broker,
            Gateway(broker.uri, "127.0.0.1:0") as gateway,
            connected(gateway.address) as client,
        ):
            return [await client.ask(name, **(fields if name == "UNSUB" else each)) for name, each in requests]

    async def test():
        sub, unsub, get = ("SUB", {"sub_id": "s", "topic": "t"}), ("UNSUB", {}), ("GET", {"sub_id": "s", "topic": "t"})
        _, first = await life(sub, unsub)
        second, gone, _, third, after = await life(unsub, get, sub, unsub, get)
        assert first == second == third
        assert gone["error_type"] == "SubscriberNotRegistered"
        assert after["error_type"] == ("NoPostsInTopic" if key else "SubscriberNotRegistered")

    asyncio.run(test())


def test_unsubscribing_again_by_its_uuid_leaves_what_was_subscribed_since(run):
    async def test(gateway, broker):
        async with (
            connected(gateway.address) as client,
            Gateway(broker.uri, "127.0.0.1:0") as other,
            connected(other.address) as elsewhere,
        ):
            key = str(uuid.uuid4())
            await client.ask("SUB", sub_id="s", topic="t")
            first = await client.ask("UNSUB", sub_id="s", request_uuid=key)
            assert await elsewhere.ask("UNSUB", sub_id="s", request_uuid=key) == first
            assert await client.error("UNSUB", sub_id="s", request_uuid=str(uuid.uuid4())) == "SubscriberNotRegistered"
            assert await client.error("UNSUB", sub_id="s") == "SubscriberNotRegistered"
            await client.ask("SUB", sub_id="s", topic="t")
            await client.put("t", b"x")
            for each in (client, elsewhere):
                assert await each.ask("UNSUB", sub_id="s", request_uuid=key) == first
            assert await client.take() == (1, b"x")
            await client.ask("UNSUB", sub_id="s", request_uuid=str(uuid.uuid4()))
            assert await client.get() == "SubscriberNotRegistered"

    run(test)


def test_native_clients_see_the_same_subscription(run):
    async def test(gateway, broker):
        async with connected(gateway.address) as client, AsyncClient(broker.uri) as native:
            await client.ask("SUB", sub_id="s", topic="t")
            await native.put("t", {"payload": b"x"})
            assert await client.take() == (1, b"x")
            await client.put("t", b"y")
            found = (await native.look("t"))["subscriptions"]
            assert [each["name"] for each in found] == ["s"]
            await native.declare_topic("live", "q: [a: int]")
            assert await client.error("SUB", sub_id="v", topic="live") == "InexistentTopic"
            await native.subscribe("t", "payload is not null", name="filtered")
            assert await client.error("SUB", sub_id="filtered", topic="t") == "SubscriberAlreadyRegistered"

    run(test)


@pytest.mark.parametrize("encoding", ["json", "bson"])
def test_topics_with_a_schema_of_their_own_take_objects(run, encoding):
    async def test(gateway, broker):
        async with connected(gateway.address, 1, encoding) as client, AsyncClient(broker.uri) as native:
            await native.declare_topic("quotes", "quote: [symbol: string, price: double, raw: bytes]", durable=True)
            await client.ask("SUB", sub_id="s", topic="quotes")
            raw = client.packed(b"\xff")
            await client.put("quotes", {"symbol": "IBM", "price": 5, "raw": raw})
            assert await client.take("s", "quotes") == (1, {"symbol": "IBM", "price": 5.0, "raw": raw})
            said = await client.put("quotes", {"symbol": "IBM"})
            assert (said["error_type"], said["code"], said["retry"]) == ("UnknownMessage", "invalid_value", False)
            assert (await client.put("quotes", b"bytes"))["error_type"] == "UnknownMessage"
            assert (await client.put("nothing", {"a": 1}))["error_type"] == "InexistentTopic"

    run(test)


@pytest.mark.parametrize("encoding", ["json", "bson"])
def test_a_message_that_cannot_be_shown_is_named_and_can_be_acknowledged(run, encoding):
    schema = parse_schema("deep: " + "[a: " * 40 + "deep?" + "]" * 40)
    short, value = (reduce(lambda inner, _: {"a": inner}, range(times * 40), None) for times in (1, 16))
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)  # as a publisher may have it
    try:
        batch = encode(schema, [value])
    finally:
        sys.setrecursionlimit(usual)

    async def test(gateway, broker):
        async with connected(gateway.address, 1, encoding) as client, AsyncClient(broker.uri) as native:
            await native.declare_topic("t", schema, durable=True)
            await client.ask("SUB", sub_id="s", topic="t")
            await native.put_many("t", batch)
            await native.put("t", short)
            for _ in range(2):
                said = await client.ask("GET", sub_id="s", topic="t")
                assert (said["code"], said["message_no"], said["retry"]) == ("invalid_value", 1, False)
                assert "message 1 cannot be shown: it is nested too deep" in said["description"]
            assert "error_type" not in await client.ask("ACK", sub_id="s", message_no=said["message_no"])
            assert await client.take() == (2, short)

    run(test)


@pytest.mark.parametrize("first", ["old", "new"])
def test_objects_of_several_versions_are_put_and_got(run, first):
    """A ZeroMQ client declares no version, so its objects go in the newest that takes them."""
    old, new = "quote: [symbol: string]", "quote: [symbol: string, at: timestamp]"

    async def test(gateway, broker):
        async with connected(gateway.address) as client, AsyncClient(broker.uri) as native:
            await native.declare_topic("quotes", old if first == "old" else new, durable=True)
            await client.ask("SUB", sub_id="s", topic="quotes")
            time = "2026-01-31T12:00:00Z"
            given = {"symbol": "IBM"} if first == "old" else {"symbol": "IBM", "at": time}
            assert (await client.put("quotes", given))["topic"] == "quotes"
            assert await client.take("s", "quotes") == (1, given)
            await native.declare_topic("quotes", new if first == "old" else old)
            await native.declare_topic("quotes", "quote: [symbol: string, lot: int]")
            objects = [{"symbol": "B"}, {"symbol": "C", "at": time}, {"symbol": "D", "lot": 3}]
            for each in objects:
                assert (await client.put("quotes", each))["topic"] == "quotes"
            assert (await client.put("quotes", {"symbol": "C", "ta": time}))["code"] == "invalid_value"
            absent = {"at": None, "lot": None}
            for number, each in enumerate(objects, 2):
                assert await client.take("s", "quotes") == (number, absent | each)

            await native.delete_topic("quotes")
            await native.declare_topic("quotes", "quote: [symbol: string, price: double]", durable=True)
            await client.put("quotes", {"symbol": "A", "price": 1.0})  # it may meet the topic that was deleted
            for each in ({"symbol": "B", "price": 1.0}, {"symbol": "B", "price": 2}):
                assert (await client.put("quotes", each))["topic"] == "quotes"
            assert (await client.put("quotes", {"symbol": "B"}))["code"] == "invalid_value"
            (topic,) = await native.topics("quotes")
            assert len(topic.versions) == 1  # those of before are not brought back by who only knew them

    run(test)


# Waiting


def test_a_get_may_wait(run):
    async def test(gateway, broker):
        async with connected(gateway.address, 2) as (desk, feed):
            await desk.ask("SUB", sub_id="s", topic="t")
            waiting = asyncio.create_task(desk.get(timeout_ms=50_000))
            while not gateway.statistics()["waiting"]:
                await asyncio.sleep(0)
            await feed.put("t", b"x")
            assert await waiting == (1, b"x")
            assert gateway.statistics()["waiting"] == 0

    run(test)


def test_a_get_does_not_wait_for_the_search_of_a_filter(run, monkeypatch):
    """The broker's read goes on when the test says so, and whoever waits for it waits for ever."""
    monkeypatch.setattr(subscriber_module, "BACKLOG_S", float(SECONDS))
    go_on, read = threading.Event(), LogReader.read

    def held_up(*arguments, **options):
        assert go_on.wait(SECONDS)
        return read(*arguments, **options)

    async def test(gateway, broker):
        async with connected(gateway.address) as desk, AsyncClient(broker.uri) as native:
            await native.declare_topic("t", "quote: [price: int]", durable=True)
            await (await native.subscribe("t", "price > 5", name="s")).detach()
            await native.put_many("t", [{"price": price} for price in range(7)])
            monkeypatch.setattr(LogReader, "read", held_up)
            try:
                for _ in range(2):
                    assert await desk.get() == "NoPostsInTopic"
            finally:
                go_on.set()
            assert await desk.get(timeout_ms=60_000) == (7, {"price": 6})

    run(test)


def test_a_get_that_waits_gives_way_to_the_next_request(run):
    async def test(gateway, broker):
        async with connected(gateway.address, 2) as (desk, other):
            await desk.ask("SUB", sub_id="s", topic="t")
            waiting = asyncio.create_task(desk.get(timeout_ms=50_000))
            while not gateway.statistics()["waiting"]:
                await asyncio.sleep(0)
            assert await other.get() == "NoPostsInTopic"
            assert await waiting == "NoPostsInTopic"
            await other.put("t", b"x")
            assert await desk.take() == (1, b"x")

    run(test)


def test_idle_subscribers_are_detached_and_come_back(run):
    async def test(gateway, broker):
        async with connected(gateway.address) as desk:
            await desk.ask("SUB", sub_id="s", topic="t")
            await desk.put("t", b"x")
            await desk.put("t", b"y")
            assert await desk.get() == (1, b"x")
            assert gateway.statistics()["attached"] == 1
            later = asyncio.get_running_loop().time() + roster_module.IDLE_S
            await gateway._roster.sweep(later)
            assert gateway.statistics()["attached"] == 0
            assert (await desk.ask("ACK", sub_id="s", message_no=1))["message_no"] == 1
            await gateway._roster.sweep(later + roster_module.IDLE_S)
            assert await desk.take() == (2, b"y")

    run(test)


def test_the_number_of_attached_subscribers_is_bounded(run, monkeypatch):
    monkeypatch.setattr(roster_module, "ATTACHED", 3)
    monkeypatch.setattr(roster_module, "KNOWN", 8)

    async def test(gateway, broker):
        async with connected(gateway.address) as client:
            for number in range(10):
                await client.ask("SUB", sub_id=f"s{number}", topic="t")
                assert gateway.statistics()["attached"] <= 3
                assert gateway.statistics()["subscribers"] <= 8
            await client.put("t", b"x")
            for number in range(10):
                assert await client.take(f"s{number}") == (1, b"x")

    run(test)


# Hostile peers


def test_hostile_bodies_are_answered_and_harm_nobody(run):
    async def test(gateway, broker):
        async with connected(gateway.address, 2) as (hostile, client):
            await client.ask("SUB", sub_id="s", topic="t")
            for body in (b"", b"\0" * 100, b"{" * 10_000, b"\xff" * 1000, b'{"msg_type": "GET", "payload": 3}', b"5"):
                assert json.loads(await hostile.raw(body))["payload"]["error_type"] == "UnknownMessage"
            for fields in (
                {"sub_id": "x" * 256, "topic": "t"},
                {"sub_id": "s", "topic": "*"},
                {"sub_id": "s", "topic": ">"},
                {"sub_id": "s", "topic": "\0"},
                {"sub_id": "\ud800".encode("utf-8", "replace").decode(), "topic": "t"},
            ):
                assert "error_type" in await hostile.ask("GET", **fields)
            for topic in ("*", "a.>", "\n", " "):
                await hostile.ask("SUB", sub_id="h", topic=topic)
            await client.put("t", b"x")
            assert await client.take() == (1, b"x")

    run(test)


def test_frames_that_no_req_socket_sends_are_dropped_and_counted(run):
    async def test(gateway, broker):
        context = zmq.asyncio.Context()
        dealer = context.socket(zmq.DEALER)
        dealer.connect(gateway.address)
        good = b'{"msg_type": "GET", "payload": {"sub_id": "s", "topic": "t"}}'
        for frames in ([good], [b"", good, b"more"], [b""] * 50, [b"a"] * 30, [b"", b"", good]):
            await dealer.send_multipart(frames)
        await dealer.send_multipart([b"tag", b"", good])  # as a REQ socket that numbers its requests
        assert (await dealer.recv_multipart())[:2] == [b"tag", b""]
        assert gateway.statistics()["dropped"] == 5
        context.destroy(linger=0)

    run(test)


def test_a_body_that_is_too_long_costs_its_sender_the_connection_only(run):
    async def test(gateway, broker):
        async with connected(gateway.address, 2) as (hostile, client):
            await client.ask("SUB", sub_id="s", topic="t")
            await hostile.socket.send(b" " * (BODY_BYTES + 1))
            await client.put("t", b"y" * 1_000_000)
            assert await client.take() == (1, b"y" * 1_000_000)
            assert not await hostile.socket.poll(0)

    run(test)


def test_bytes_that_are_not_zeromq_harm_nobody(run):
    async def test(gateway, broker):
        host, port = gateway.address.removeprefix("tcp://").split(":")
        async with connected(gateway.address) as client:
            await client.ask("SUB", sub_id="s", topic="t")
            for data in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" + bytes(8) + b"\x7f\x03", b"\0" * 1000, b"\xff" * 1000):
                _, writer = await asyncio.open_connection(host, int(port))
                writer.write(data)
                await writer.drain()
                writer.close()
            await client.put("t", b"x")
            assert await client.take() == (1, b"x")

    run(test)


def test_more_requests_at_once_than_there_are_places(run, monkeypatch):
    monkeypatch.setattr(module, "REQUESTS", 4)

    async def test(gateway, broker):
        async with connected(gateway.address, 60) as clients:
            await clients[0].ask("SUB", sub_id="s", topic="t")
            said = await asyncio.gather(*(each.put("t", b"x") for each in clients))
            assert not [each for each in said if "error_type" in each]
            assert [(await clients[0].take())[0] for _ in clients] == list(range(1, 61))

    run(test)


def test_many_requests_of_one_subscriber_are_refused_beyond_a_bound(run):
    async def test(gateway, broker):
        async with connected(gateway.address, 40) as clients:
            await clients[0].ask("SUB", sub_id="s", topic="t")
            said = await asyncio.gather(*(each.ask("GET", sub_id="s", topic="t") for each in clients))
            assert {each["error_type"] for each in said} <= {"NoPostsInTopic", "UnknownMessage"}
            assert {each["code"] for each in said} <= {"nothing_there", "busy"}
            assert all(each["retry"] for each in said)

    run(test)


# Encryption


def test_curve(run, tmp_path):
    public, secret = zmq.auth.create_certificates(tmp_path, "broker")
    mine, my_secret = zmq.curve_keypair()

    async def test(_, broker):
        async with Gateway(broker.uri, "127.0.0.1:0", curve=secret) as gateway:
            key = zmq.auth.load_certificate(public)[0]
            keys = {"curve_serverkey": key, "curve_publickey": mine, "curve_secretkey": my_secret}
            async with connected(gateway.address, **keys) as client, connected(gateway.address) as plain:
                await plain.socket.send(plain.body("SUB", sub_id="plain", topic="t"))
                await client.ask("SUB", sub_id="s", topic="t")
                await client.put("t", b"x")
                assert await client.take() == (1, b"x")
                assert not await plain.socket.poll(0)
                assert gateway.statistics()["sub"] == 1

    run(test)


def test_settings_that_cannot_be(run, tmp_path):
    public, _ = zmq.auth.create_certificates(tmp_path, "broker")
    (tmp_path / "nonsense").write_text("nonsense")

    async def test(gateway, broker):
        for curve, word in (
            (public, "secret"),
            (str(tmp_path / "nonsense"), "certificate"),
            ("/no/such", "certificate"),
        ):
            with pytest.raises(errors.ConfigError, match=word):
                Gateway(broker.uri, "127.0.0.1:0", curve=curve)
        for listen in ("", "7451", "host", "127.0.0.1:x", "127.0.0.1:70000"):
            with pytest.raises(errors.ConfigError, match="HOST:PORT"):
                Gateway(broker.uri, listen)
        with pytest.raises(OSError, match="in use"):
            await Gateway(broker.uri, gateway.address).__aenter__()
        with pytest.raises(errors.ConnectionLost):
            await Gateway("inproc://nobody", "127.0.0.1:0").__aenter__()

    run(test)


# A broker that crashes, also while it saves, or loses its state


@pytest.fixture
def process(tmp_path):
    made = Process(tmp_path)
    made.start()
    yield made
    made.kill()


@pytest.fixture
def crashing(process):
    """Runs `test(gateway, *clients)` with so many clients of a gateway whose broker is a process."""

    def crashing(test, count=1):
        async def whole():
            async with (
                asyncio.timeout(SECONDS),
                Gateway(process.uri, "127.0.0.1:0") as gateway,
                connected(gateway.address, count) as clients,
            ):
                await test(gateway, *(clients if count > 1 else [clients]))

        asyncio.run(whole())

    return crashing


@pytest.mark.slow
def test_a_broker_that_crashes_loses_nothing(process, crashing):
    async def test(gateway, client):
        made = await client.ask("SUB", sub_id="s", topic="t")
        for number in range(3):
            await client.put("t", b"%d" % number)
        assert await client.take() == (1, b"0")
        assert await client.get() == (2, b"1")
        process.kill()
        process.start()
        assert (await client.ask("ACK", sub_id="s", message_no=2))["message_no"] == 2
        assert await client.take() == (3, b"2")
        assert (await client.put("t", b"3"))["broker_id"] == made["broker_id"]
        assert await client.take() == (4, b"3")
        assert await client.get() == "NoPostsInTopic"

    crashing(test)


@pytest.mark.slow
def test_a_broker_that_crashes_while_it_saves_loses_nothing(process, crashing):
    """Puts are under way when it is killed; each is put again with its UUID until it is answered."""

    async def insist(client, key, payload):
        while True:
            said = await client.put("t", payload, key)
            if said.get("error_type") in (None, "DuplicateMessage"):
                return
            assert said["retry"], said

    async def test(gateway, desk, *feeds):
        await desk.ask("SUB", sub_id="s", topic="t")

        async def feed(index, client):
            for number in range(60):
                await insist(client, str(uuid.uuid4()), b"%d-%d" % (index, number))

        feeding = [asyncio.create_task(feed(index, client)) for index, client in enumerate(feeds)]
        for _ in range(3):
            puts = gateway.statistics().get("put", 0)
            while gateway.statistics().get("put", 0) < puts + 40:
                await asyncio.sleep(0)
            process.kill()
            process.start()
        await asyncio.gather(*feeding)
        got = [await desk.take() for _ in range(8 * 60)]
        assert await desk.get() == "NoPostsInTopic"
        assert [number for number, _ in got] == list(range(1, 8 * 60 + 1))
        assert sorted(payload for _, payload in got) == sorted(
            b"%d-%d" % (index, number) for index in range(8) for number in range(60)
        )

    crashing(test, 9)


@pytest.mark.slow
def test_a_broker_that_lost_its_state_has_another_id(process, crashing):
    async def test(gateway, client):
        first = await client.ask("SUB", sub_id="s", topic="t")
        await client.put("t", b"x")
        process.kill()
        for path in process.folder.glob("store.db*"):
            path.unlink()
        process.start()
        said = await client.ask("GET", sub_id="s", topic="t")
        assert said["error_type"] == "UnknownMessage"
        assert said["code"] == "state_lost"
        said = await client.ask("GET", sub_id="s", topic="t")
        assert said["error_type"] == "InexistentTopic"
        assert said["broker_id"] not in ("", first["broker_id"])
        again = await client.ask("SUB", sub_id="s", topic="t")
        assert again["post_offset"] == 0
        assert again["broker_id"] == said["broker_id"]

    crashing(test)


@pytest.mark.slow
def test_a_client_that_asks_again_gets_everything_once_from_a_broker_that_is_killed_with_its_port(tmp_path):
    """One REQ socket goes through all of it: whatever is not answered is asked again, word for word."""
    process = Process(tmp_path, "127.0.0.1:0")
    process.start()
    options = {"req_relaxed": True, "req_correlate": True}

    async def insist(client, msg_type, **fields):
        body = client.body(msg_type, **fields)
        while True:
            await client.socket.send(body)
            while await client.socket.poll(500):
                try:
                    return json.loads(await client.socket.recv(zmq.NOBLOCK))["payload"]
                except zmq.Again:
                    continue  # it was the answer to an earlier request, which ZeroMQ drops

    async def test():
        async with asyncio.timeout(SECONDS), connected(f"tcp://{process.zmq}", **options) as client:
            request = {"sub_id": "s", "topic": "t", "request_uuid": str(uuid.uuid4())}
            first = await insist(client, "SUB", **request)
            seen, last = [], 0
            for number in range(40):
                key, payload = str(uuid.uuid4()), b64encode(b"%d" % number).decode()
                put = client.body("PUT", pub_id="p", topic="t", message_uuid=key, payload=payload)
                if number % 10 == 5:
                    await client.socket.send(put)  # perhaps it arrives, perhaps it does not
                    process.kill()
                    process.start()
                said = await insist(client, "PUT", pub_id="p", topic="t", message_uuid=key, payload=payload)
                assert said.get("error_type") in (None, "DuplicateMessage")
                assert said["broker_id"] == first["broker_id"]
                if number % 10 == 8:
                    process.kill()
                    process.start()
                said = await insist(client, "GET", sub_id="s", topic="t")
                if number % 10 == 2:
                    process.kill()
                    process.start()
                assert said["message_no"] == last + 1
                last = said["message_no"]
                seen.append(b64decode(said["payload"]))
                said = await insist(client, "ACK", sub_id="s", message_no=last, topic="t")
                assert said["message_no"] == last
            assert seen == [b"%d" % number for number in range(40)]
            assert (await insist(client, "GET", sub_id="s", topic="t"))["error_type"] == "NoPostsInTopic"
            said = await insist(client, "SUB", **request)
            assert said == first | {"post_offset": 40}
            async with AsyncClient(process.uri) as native:  # over all kills, what one pub_id put is of one publisher
                rows = [message async for batch in native.read("t", {1: 0}, {1: 40}) for message in batch]
                assert len({message.id.publisher for message in rows}) == 1

    try:
        asyncio.run(test())
    finally:
        process.kill()


def test_the_example_runs_and_imports_nothing_of_milepost(run):
    path = ROOT / "examples" / "zeromq_req.py"
    text = path.read_text()
    assert not re.search(r"^\s*(import|from) +milepost", text, re.MULTILINE)
    assert len(text.splitlines()) <= 20

    async def test(gateway, broker):
        for said in (b"subscribed behind message 0\n1 hello\n", b"subscribed behind message 1\n2 hello\n"):
            process = await asyncio.create_subprocess_exec(
                sys.executable, str(path), env=os.environ | {"MILEPOST_ZMQ": gateway.address},
                stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            assert (await process.communicate())[0] == said

    run(test)
