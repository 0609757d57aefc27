"""ZeroMQ clients and native ones share a subscription: each message is done once, and none is passed over."""

import asyncio
import random
import sqlite3
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager, closing

import pytest

from milepost import AsyncClient, testing
from milepost.broker.core.log import subscription as stream
from milepost.gateway.zmq import Gateway, roster, subscriber
from milepost.testing.ledger import Ledger
from tests.integration.req_socket import Process, connected

SECONDS = 600  # for what hangs


def run(test, store, **settings):
    """Run `test(desk, gateway, broker, feeds)`: a REQ socket that is subscribed as "s" to "t", and two publishers."""

    async def whole():
        async with (
            asyncio.timeout(SECONDS),
            testing.broker(store=str(store), **settings) as broker,
            Gateway(broker.uri, "127.0.0.1:0") as gateway,
            connected(gateway.address) as desk,
            AsyncClient(broker.uri, name="a") as a,
            AsyncClient(broker.uri, name="b") as b,
        ):
            await desk.ask("SUB", sub_id="s", topic="t")
            await test(desk, gateway, broker, (a, b))

    asyncio.run(whole())


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request, tmp_path):
    return tmp_path / "store.db" if request.param == "sqlite" else request.getfixturevalue("postgresql")


@asynccontextmanager
async def member(broker, **options):
    """A native member of the subscription, and its client."""
    async with AsyncClient(broker.uri) as client:
        yield await client.subscribe("t", name="s", ack="explicit", prefetch=1, **options), client


async def put(feed, payload):
    await feed.put("t", {"payload": payload})


async def acknowledged(desk, number, sub_id="s", **fields):
    said = await desk.ask("ACK", sub_id=sub_id, message_no=number, **fields)
    assert said.get("message_no") == number, said


async def sweep(gateway):
    """Let five minutes pass in which no subscriber asks for anything."""
    await gateway._roster.sweep(asyncio.get_running_loop().time() + roster.IDLE_S)


# What others have


@pytest.mark.parametrize("leaves", ["before 1 is done", "before 3 is handed out", "before 3 is done", "at last"])
@pytest.mark.parametrize("how", ["detaches", "vanishes"])
def test_what_another_member_had_and_left_comes_again(store, leaves, how):
    """Native holds 2; ZeroMQ acknowledges 1 and 3; native leaves without acknowledging; 2 comes again."""

    async def test(desk, gateway, broker, feeds):
        first, second = feeds
        await put(first, b"1")
        assert await desk.get() == (1, b"1")
        async with member(broker) as (native, client):

            async def leave(when):
                if when == leaves:
                    await (native.detach() if how == "detaches" else client.close(drain=False))

            await put(second, b"2")
            assert (await native.get()).payload == b"2"
            await put(first, b"3")  # of a publisher that ZeroMQ has a message of, and so for ZeroMQ
            await leave("before 1 is done")
            await acknowledged(desk, 1)
            await leave("before 3 is handed out")
            seen = [await desk.get()]
            await leave("before 3 is done")
            await acknowledged(desk, seen[0][0])
            await leave("at last")
        seen.append(await desk.take())
        assert sorted(seen) == [(2, b"2"), (3, b"3")]
        assert await desk.get() == "NoPostsInTopic"
        found = (await first.look("t"))["subscriptions"]
        assert [each["behind"] for each in found] == [0]

    run(test, store)


def test_three_members_of_which_two_leave(store):
    async def test(desk, gateway, broker, feeds):
        async with AsyncClient(broker.uri, name="c") as third:
            await put(feeds[0], b"1")
            assert await desk.get() == (1, b"1")
            async with member(broker) as (one, _), member(broker) as (two, _):
                await put(feeds[1], b"2")
                await put(third, b"3")
                assert {(await each.get()).payload for each in (one, two)} == {b"2", b"3"}
                await put(feeds[0], b"4")
                await acknowledged(desk, 1)
                assert await desk.take() == (4, b"4")
            assert sorted([await desk.take(), await desk.take()]) == [(2, b"2"), (3, b"3")]
            assert await desk.get() == "NoPostsInTopic"

    run(test, store)


def test_two_gateways_serve_one_subscriber(store):
    """As behind two addresses: what one of them has handed out, the other does not, unless the one is gone."""

    async def test(desk, gateway, broker, feeds):
        await put(feeds[0], b"1")
        assert await desk.get() == (1, b"1")
        async with Gateway(broker.uri, "127.0.0.1:0") as other, connected(other.address) as socket:
            assert await socket.get() == "NoPostsInTopic"
            assert await socket.error("ACK", sub_id="s", message_no=1) == "NotExpectingAck"
            await put(feeds[1], b"2")
            assert await socket.get() == (2, b"2")
            assert await desk.error("ACK", sub_id="s", message_no=2) == "AckMessageMismatch"
            await acknowledged(desk, 1)
        assert await desk.take() == (2, b"2")  # what the second had, and left
        assert await desk.get() == "NoPostsInTopic"

    run(test, store)


def test_a_get_does_not_wait_for_what_waits_for_another_member(tmp_path, monkeypatch):
    """So much of one publisher waits for a member that has a message of it that nothing more is read."""
    monkeypatch.setattr(subscriber, "BACKLOG_S", float(SECONDS))
    monkeypatch.setattr(stream, "PENDING_BYTES", 1)

    async def test(desk, gateway, broker, feeds):
        await sweep(gateway)
        async with member(broker) as (native, _):
            await put(feeds[0], b"1")
            first = await native.get()
            for payload in (b"2", b"3"):
                assert await desk.get() == "NoPostsInTopic"
                await put(feeds[0], payload)
            assert await desk.get() == "NoPostsInTopic"
            await native.ack(first)
        assert [await desk.take(), await desk.take()] == [(2, b"2"), (3, b"3")]

    run(test, tmp_path / "store.db")


# Acknowledgements that nobody waits for, and those that come late


def test_an_acknowledgement_without_a_get_consumes_nothing(store):
    async def test(desk, gateway, broker, feeds):
        assert await desk.error("ACK", sub_id="s", message_no=1) == "NotExpectingAck"
        await put(feeds[0], b"1")
        await put(feeds[0], b"2")
        for number in (0, 1, 2, 3, 1 << 40, (1 << 63) - 1):
            assert await desk.error("ACK", sub_id="s", message_no=number) == "NotExpectingAck"
        await sweep(gateway)
        assert await desk.error("ACK", sub_id="s", message_no=1) == "NotExpectingAck"
        assert await desk.take() == (1, b"1")
        assert await desk.error("ACK", sub_id="s", message_no=2) == "NotExpectingAck"
        async with Gateway(broker.uri, "127.0.0.1:0") as other, connected(other.address) as socket:
            await gateway.__aexit__(None, None, None)
            assert await socket.error("ACK", sub_id="s", message_no=2) == "NotExpectingAck"
            await acknowledged(socket, 1)
            assert await socket.error("ACK", sub_id="nobody", message_no=1) == "SubscriberNotRegistered"
            assert await socket.error("ACK", sub_id="nobody", message_no=1, topic="t") == "SubscriberNotRegistered"
            assert await socket.take() == (2, b"2")

    run(test, store)


def test_what_native_members_consumed_was_not_acknowledged_by_zeromq(store):
    async def test(desk, gateway, broker, feeds):
        await sweep(gateway)
        async with member(broker) as (native, _):
            await put(feeds[0], b"1")
            await native.ack(await native.get())
        assert await desk.error("ACK", sub_id="s", message_no=1) == "NotExpectingAck"
        assert await desk.get() == "NoPostsInTopic"

    run(test, store)


@pytest.mark.parametrize("taken", [False, True])
def test_a_silent_subscriber_keeps_its_message_until_another_takes_it_over(store, taken):
    async def test(desk, gateway, broker, feeds):
        await put(feeds[0], b"1")
        await put(feeds[0], b"2")
        assert await desk.get() == (1, b"1")
        async with member(broker) as (native, _):
            assert await native.get(timeout=0.05) is None  # it is the silent one's, and so is what follows it
            await native.detach()
        await sweep(gateway)
        if taken:
            async with member(broker) as (native, _):
                assert (await native.get()).payload == b"1"
                assert await desk.error("ACK", sub_id="s", message_no=1) == "NotExpectingAck"
                await native.ack()
            assert await desk.error("ACK", sub_id="s", message_no=1) == "NotExpectingAck"
        else:
            await acknowledged(desk, 1)
        assert await desk.take() == (2, b"2")
        assert await desk.get() == "NoPostsInTopic"

    run(test, store)


def test_a_message_that_was_taken_over_and_sent_back_is_not_the_late_ones(store):
    async def test(desk, gateway, broker, feeds):
        await put(feeds[0], b"1")
        assert await desk.get() == (1, b"1")
        await sweep(gateway)
        async with member(broker) as (native, _):
            assert (await native.get()).payload == b"1"
        assert await desk.error("ACK", sub_id="s", message_no=1) == "NotExpectingAck"
        assert await desk.take() == (1, b"1")

    run(test, store)


def test_a_message_that_an_operator_removed_is_passed_over(store):
    async def test(desk, gateway, broker, feeds):
        await put(feeds[0], b"1")
        await put(feeds[0], b"2")
        assert await desk.get() == (1, b"1")
        await sweep(gateway)
        (log,) = (await feeds[0].look("t"))["logs"]
        await feeds[0].trim("t", {log["log"]: 1})
        assert await desk.take() == (2, b"2")
        assert await desk.get() == "NoPostsInTopic"

    run(test, store)


def test_the_same_uuid_in_two_topics_is_two_messages(store):
    async def test(desk, gateway, broker, feeds):
        await desk.ask("SUB", sub_id="v", topic="u")
        key = "2f1e9a0c-0000-4000-8000-000000000001"
        assert "error_type" not in await desk.put("t", b"x", key)
        assert "error_type" not in await desk.put("u", b"y", key)
        for topic in ("t", "u"):
            assert (await desk.put(topic, b"z", key))["error_type"] == "DuplicateMessage"
        assert await desk.take("s", "t") == (1, b"x")
        assert await desk.take("v", "u") == (1, b"y")

    run(test, store)


# A broker that goes away


def test_what_was_handed_out_moves_with_the_subscription_to_another_broker_of_the_cell(postgresql):
    async def whole():
        options = {"store": postgresql, "zmq": ""}
        async with (
            asyncio.timeout(SECONDS),
            testing.broker(name="b", listen="inproc://handouts-b", **options) as second,
            AsyncClient(second.uri) as feed,
        ):
            async with (
                testing.broker(name="a", listen="inproc://handouts-a", **options) as first,
                Gateway(first.uri, "127.0.0.1:0") as gateway,
                connected(gateway.address) as desk,
            ):
                await desk.ask("SUB", sub_id="s", topic="t")
                await desk.put("t", b"1")
                await desk.put("t", b"2")
                numbers = [(await desk.take())[0]]
                number, payload = await desk.get()
                assert payload == b"2"
                numbers.append(number)
            async with Gateway(second.uri, "127.0.0.1:0") as gateway, connected(gateway.address) as desk:
                await acknowledged(desk, numbers[0])  # its answer was lost
                await acknowledged(desk, numbers[1])
                assert await desk.get() == "NoPostsInTopic"
                await desk.put("t", b"3")
                number, payload = await desk.get()
                assert payload == b"3"
                assert abs(number - numbers[0]) >= 1 << 39  # it is in another log
                await acknowledged(desk, number)
                for each in (numbers[1], number):
                    await acknowledged(desk, each)
                found = (await feed.look("t"))["subscriptions"]
                assert [each["behind"] for each in found] == [0]

    asyncio.run(whole())


@pytest.mark.slow
def test_the_first_acknowledgement_after_a_kill_counts(tmp_path):
    """With the bodies of the document: no topic in an ACK."""
    process = Process(tmp_path, "127.0.0.1:0")
    process.start()

    async def again():
        process.kill()
        process.start()

    async def whole():
        options = {"req_relaxed": True, "req_correlate": True}
        async with asyncio.timeout(SECONDS), connected(f"tcp://{process.zmq}", **options) as desk:
            await desk.ask("SUB", sub_id="s", topic="t")
            for number in range(1, 4):
                await desk.put("t", b"%d" % number)
            assert await desk.error("ACK", sub_id="s", message_no=1) == "NotExpectingAck"
            assert await desk.get() == (1, b"1")
            await again()
            assert await desk.error("ACK", sub_id="s", message_no=2) == "AckMessageMismatch"
            await acknowledged(desk, 1)
            await again()
            await acknowledged(desk, 1)  # as if its answer had been lost
            assert await desk.error("ACK", sub_id="s", message_no=2) == "NotExpectingAck"
            assert await desk.get() == (2, b"2")
            await again()
            assert await desk.get() == (2, b"2")
            await acknowledged(desk, 1)
            await acknowledged(desk, 2)
            assert await desk.take() == (3, b"3")
            assert await desk.error("ACK", sub_id="nobody", message_no=1) == "SubscriberNotRegistered"

    try:
        asyncio.run(whole())
    finally:
        process.kill()


@pytest.mark.slow
def test_after_a_kill_a_message_waits_for_its_subscriber_and_not_for_other_members(tmp_path):
    process = Process(tmp_path, "127.0.0.1:0")
    process.start()

    async def whole():
        options = {"req_relaxed": True, "req_correlate": True}
        async with asyncio.timeout(SECONDS), connected(f"tcp://{process.zmq}", **options) as desk:
            await desk.ask("SUB", sub_id="s", topic="t")
            async with AsyncClient(process.uri, name="a") as first, AsyncClient(process.uri, name="b") as second:
                await put(first, b"1")
                assert await desk.get() == (1, b"1")
                async with member(process) as (native, _):
                    process.kill()
                    process.start()
                    await put(first, b"2")  # behind what the subscriber has
                    await put(second, b"3")
                    message = await native.get()
                    assert message.payload == b"3"
                    await native.ack(message)
                    await acknowledged(desk, 1)
                    seen = {await desk.get(), "NoPostsInTopic"}
                    if seen == {"NoPostsInTopic"}:
                        message = await native.get()
                        assert message.payload == b"2"
                        await native.ack(message)
                    else:
                        assert seen == {(2, b"2"), "NoPostsInTopic"}
                        await acknowledged(desk, 2)
                    assert await desk.get() == "NoPostsInTopic"

    try:
        asyncio.run(whole())
    finally:
        process.kill()


# Any schedule


class World:
    """A broker on SQLite, publishers, and gateways with a REQ socket each."""

    def __init__(self, stack, store, gateways):
        self.stack, self.store, self.count = stack, store, gateways

    async def start(self):
        enter = self.stack.enter_async_context
        self.broker = await enter(testing.broker(store=str(self.store)))
        self.gateways = [await enter(Gateway(self.broker.uri, "127.0.0.1:0")) for _ in range(self.count)]
        self.sockets = [await enter(connected(each.address)) for each in self.gateways]
        self.feeds = {name: await enter(AsyncClient(self.broker.uri, name=name)) for name in "ab"}

    async def kill(self):
        """What a kill leaves: all that was committed, and nothing of what the broker knew."""
        before = self.store
        self.store = before.with_name(f"{before.stem}-killed.db")
        with closing(sqlite3.connect(before)) as source, closing(sqlite3.connect(self.store)) as copy:
            source.backup(copy)
        await self.start()


class Schedule:
    """Members of both kinds get, acknowledge, send back, come and go, at random; a ledger judges.

    What a ZeroMQ client has in hand it can acknowledge, unless it fell silent: then a native member may have got it.
    """

    def __init__(self, seed, world, *, kills):
        self.random = random.Random(seed)
        self.world = world
        self.kills = kills
        self.ledger = Ledger()
        self.ledger.subscription("s", "t", "at least once", marked=False)
        self.confirmed = Counter()  # acknowledgements by message
        self.natives = []  # client, subscription, messages in hand
        self.in_hand = [None] * world.count
        self.silent = False  # the first ZeroMQ client was, and what it has in hand may be another's by now
        self.absent = False  # it has not asked for anything since a kill
        self.acknowledged = set()  # numbers, over ZeroMQ
        self.sequences = Counter()

    async def put(self):
        name = self.random.choice("ab")
        self.sequences[name] += 1
        number = self.sequences[name]
        self.ledger.put(name, "t", number)
        await put(self.world.feeds[name], f"{name} {number}".encode())
        self.ledger.stored(name, "t", number)

    def got(self, payload, member):
        name, number = payload.decode().split()
        self.ledger.got("s", name, int(number), member=member)

    def done(self, payload):
        name, number = payload.decode().split()
        self.ledger.done("s", name, int(number))
        self.confirmed[payload] += 1

    async def zeromq_get(self, place):
        found = await self.world.sockets[place].get()
        if found != self.in_hand[place]:
            assert self.in_hand[place] is None or self.silent, "the same one until it is acknowledged"
            self.in_hand[place] = None
            if found != "NoPostsInTopic":
                self.got(found[1], f"zeromq {place}")
                self.in_hand[place] = found
        self.silent = self.absent = False
        return self.in_hand[place] is not None

    async def zeromq_ack(self, place):
        held, socket = self.in_hand[place], self.world.sockets[place]
        if held is None:
            number = self.random.randrange(1, 2 + sum(self.sequences.values()))
            said = await socket.ask("ACK", sub_id="s", message_no=number)
            assert "error_type" in said or number in self.acknowledged
            return
        said = await socket.ask("ACK", sub_id="s", message_no=held[0])
        self.absent = False
        self.in_hand[place] = None
        if self.silent and said.get("error_type") == "NotExpectingAck":
            return
        assert said.get("message_no") == held[0], said
        self.acknowledged.add(held[0])
        self.done(held[1])

    async def zeromq_falls_silent(self, place):
        await sweep(self.world.gateways[place])
        self.silent = True

    async def native_joins(self):
        client = await AsyncClient(self.world.broker.uri).connect()
        prefetch = self.random.choice([1, 2, 20])
        self.natives.append((client, await client.subscribe("t", name="s", ack="explicit", prefetch=prefetch), []))

    async def native_gets(self):
        _, subscription, held = self.random.choice(self.natives)
        message = await subscription.get(timeout=0.01)
        if message is None:
            return
        self.got(message.payload, f"native {id(subscription)}")
        held.append(message)
        for place, mine in enumerate(self.in_hand):
            if mine is not None and mine[1] == message.payload:
                assert self.silent, "nobody else gets what is handed out"
                said = await self.world.sockets[place].error("ACK", sub_id="s", message_no=mine[0])
                assert said == "NotExpectingAck", "a late acknowledgement of what another has"
                self.in_hand[place] = None

    async def native_acks(self):
        _, subscription, held = self.random.choice(self.natives)
        if held:
            message = held.pop(self.random.randrange(len(held)))
            await subscription.ack(message)
            self.done(message.payload)

    async def native_sends_back(self):
        _, subscription, held = self.random.choice(self.natives)
        if held:
            await subscription.nack(held.pop())

    async def native_leaves(self):
        client, subscription, _ = self.natives.pop(self.random.randrange(len(self.natives)))
        if self.random.random() < 0.5:
            await subscription.detach()
        await client.close(drain=self.random.random() < 0.5)
        self.silent |= self.absent and not self.natives  # what is reserved is so while somebody else is there

    async def broker_is_killed(self):
        for client, *_ in self.natives:
            await client.close(drain=False)
        self.natives.clear()
        await self.world.kill()
        self.absent = True

    async def step(self):
        place = self.random.randrange(self.world.count)
        choices = [(self.put, (), 8), (self.zeromq_get, (place,), 8), (self.zeromq_ack, (place,), 6)]
        if self.kills:
            choices += [(self.broker_is_killed, (), 1), (self.zeromq_falls_silent, (place,), 1)]
        if len(self.natives) < 3:
            choices.append((self.native_joins, (), 2))
        if self.natives:
            choices += [
                (self.native_gets, (), 8), (self.native_acks, (), 6), (self.native_sends_back, (), 2),
                (self.native_leaves, (), 2),
            ]  # fmt: skip
        call, arguments, _ = self.random.choices(choices, [weight for *_, weight in choices])[0]
        await call(*arguments)

    async def finish(self):
        """Everybody but one ZeroMQ client leaves, which then gets all that is left."""
        while self.natives:
            await self.native_leaves()
        for place in range(1, self.world.count):
            if self.in_hand[place] is not None:
                await self.zeromq_ack(place)
            await sweep(self.world.gateways[place])
        while await self.zeromq_get(0):
            await self.zeromq_ack(0)
        verdict = self.ledger.verdict()
        assert verdict, verdict
        assert set(self.confirmed.values()) <= {1}, "each message is done once"
        assert sum(self.confirmed.values()) == sum(self.sequences.values())


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kills", [False, True], ids=["two gateways", "kills"])
def test_members_of_both_kinds_in_any_order(tmp_path, seed, kills):
    async def whole():
        async with asyncio.timeout(SECONDS), AsyncExitStack() as stack:
            world = World(stack, tmp_path / "store.db", 1 if kills else 2)
            await world.start()
            await world.sockets[0].ask("SUB", sub_id="s", topic="t")
            schedule = Schedule(seed, world, kills=kills)
            try:
                for _ in range(80):
                    await schedule.step()
                await schedule.finish()
            finally:
                for client, *_ in schedule.natives:
                    await client.close(drain=False)

    print(f"seed {seed}")
    asyncio.run(whole())
