"""Clients that make a broker compile, rebuild or evaluate much: others are served meanwhile.

How well is counted in what another client gets done on a topic of its own, between a request and its reply. It puts a
message and waits until its subscription has it, again and again; when the event loop is held up, it does so once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

import milepost
from milepost import errors, limits, testing
from milepost.batch import Batch, Ids
from milepost.broker.peer import MOST_ASKED
from milepost.wire import Declare, Hello, Reply, Subscribe, Unsubscribe, encode_control, put_parts
from tests.integration.test_bad_input import Stranger

QUOTE = "quote: [symbol: string, price: double, size: int]"
WIDER = "quote: [symbol: string, price: double, size: int, more: int?]"
SOME = 3  # round trips of another client: it got on; one that is held up makes one before and one after


class Other:
    """A client with a topic of its own, which counts what it gets done."""

    def __init__(self, client: milepost.AsyncClient) -> None:
        self.client = client
        self.trips = 0

    async def start(self) -> None:
        await self.client.declare_topic("mine", "m: [n: int]")
        self._sub = await self.client.subscribe("mine", where="n >= 0")
        await self._trip()

    async def _go(self) -> None:
        while True:
            await self._trip()

    async def _trip(self) -> None:
        await self.client.put("mine", {"n": self.trips})
        message = await self._sub.get(timeout=60)
        assert message is not None
        self.trips += 1

    async def during(self, request: Awaitable[Any]) -> tuple[Any, int]:
        """What a request came to, and how many round trips were made meanwhile."""
        before = self.trips
        going = asyncio.create_task(self._go())
        try:
            return await request, self.trips - before
        finally:
            assert not going.done()
            going.cancel()
            with suppress(asyncio.CancelledError):
                await going


def beside(test: Callable[[Any, milepost.AsyncClient, Other], Awaitable[None]], **changes: Any) -> None:
    """Run a test with a client that is a burden, beside another one."""

    async def main() -> None:
        async with (
            asyncio.timeout(120),
            testing.broker(listen="milepost://127.0.0.1:0", **changes) as broker,
            milepost.AsyncClient(broker.uri) as burden,
            milepost.AsyncClient(broker.uri) as client,
        ):
            other = Other(client)
            await other.start()
            await test(broker, burden, other)

    asyncio.run(main())


def add_topics(broker: Any, count: int, schema: Callable[[int], str]) -> None:
    """Many topics, which would take a client some time."""
    for number in range(count):
        broker.core.catalogue.add(f"many.t{number}", [milepost.parse_schema(schema(number))], "throttle", [])


def unindexed(number: int) -> str:
    return f"price * 2 = {number} or symbol || 'x' = '{number}x'"


async def subscribed(client: milepost.AsyncClient, topic: str, texts: list[str]) -> list[Any]:
    return [await client.subscribe(topic, where=text) for text in texts]


def test_a_pattern_over_many_schemas():
    async def test(broker: Any, burden: milepost.AsyncClient, other: Other) -> None:
        add_topics(broker, 400, lambda number: f"m{number}: [price: double, f{number}: int]")
        sub, trips = await other.during(burden.subscribe("many.*", where="price * price > 1 and price <> 7"))
        assert len(sub.topics) == 400
        assert trips > SOME
        await burden.put("many.t399", {"price": 2.0, "f399": 1})  # it is there from its reply on
        assert (await sub.get(timeout=60)).price == 2.0

    beside(test)


def test_a_pattern_over_many_topics_of_one_schema():
    async def test(broker: Any, burden: milepost.AsyncClient, other: Other) -> None:
        add_topics(broker, 2_500, lambda number: QUOTE)
        sub, trips = await other.during(burden.subscribe("many.>", where="price > 1"))
        assert len(sub.topics) == 2_500
        assert trips > SOME
        for number in (0, 2_499):
            await burden.put(f"many.t{number}", {"symbol": "A", "price": 2.0, "size": number})
            assert (await sub.get(timeout=60)).size == number

    beside(test)


@pytest.mark.parametrize("durable", [False, True], ids=["live", "durable"])
def test_a_new_version_of_a_topic_with_many_subscriptions(durable: bool):
    async def test(broker: Any, burden: milepost.AsyncClient, other: Other) -> None:
        await burden.declare_topic("quotes", QUOTE, durable=durable)
        subs = await subscribed(burden, "quotes", [f"price > {n} and size % {n + 1} = 0" for n in range(300)])
        _, trips = await other.during(burden.declare_topic("quotes", WIDER, durable=durable))
        assert trips > SOME
        await burden.put("quotes", {"symbol": "A", "price": 1.5, "size": 0, "more": 1})
        assert (await subs[0].get(timeout=60)).more == 1
        assert (await subs[1].get(timeout=60)).more == 1
        assert await subs[2].get(timeout=0) is None

    beside(test)


def test_subscriptions_that_come_and_go_while_a_new_version_is_made():
    async def test(broker: Any, burden: milepost.AsyncClient, other: Other) -> None:
        await burden.declare_topic("quotes", QUOTE)
        await subscribed(burden, "quotes", [f"price > {n} and size % {n + 1} = 0" for n in range(300)])
        leaving = await subscribed(other.client, "quotes", [f"size = {n}" for n in range(20)])
        declared = asyncio.create_task(burden.declare_topic("quotes", WIDER))
        while not broker.core.topics["quotes"]._rebuilds:
            await asyncio.sleep(0)
        came = await asyncio.gather(*(other.client.subscribe("quotes", where=f"size * 1 = {n}") for n in range(20)))
        await asyncio.gather(*(sub.unsubscribe() for sub in leaving[:10]))
        assert not declared.done()
        await declared
        for number in range(20):
            await burden.put("quotes", {"symbol": "A", "price": 0.0, "size": number, "more": 1})
        for number in range(20):
            assert (await came[number].get(timeout=60)).size == number
            if number >= 10:
                assert (await leaving[number].get(timeout=60)).size == number
        versions = broker.core.topics["quotes"].versions.values()
        assert [len(version.index) for version in versions] == [330, 330]

    beside(test)


def test_many_clients_that_declare_one_new_version_make_it_once():
    async def test(broker: Any, burden: milepost.AsyncClient, other: Other) -> None:
        await burden.declare_topic("quotes", QUOTE)
        await subscribed(burden, "quotes", [f"price > {n} and size % {n + 1} = 0" for n in range(200)])
        before = broker.predicates.compiled
        clients = [milepost.AsyncClient(broker.uri) for _ in range(10)]
        for client in clients:
            await client.connect()
        await asyncio.gather(*(client.declare_topic("quotes", WIDER) for client in clients))
        assert broker.predicates.compiled - before <= 2 * 200 + 10  # for each of two versions
        assert len(broker.core.topics["quotes"].schemas) == 2
        for client in clients:
            await client.close()

    beside(test)


def test_a_topic_that_many_patterns_cover():
    async def test(broker: Any, burden: milepost.AsyncClient, other: Other) -> None:
        subs = await subscribed(burden, "many.*", [f"price > {n} and size % {n + 1} = 0" for n in range(600)])
        _, trips = await other.during(burden.declare_topic("many.one", QUOTE))
        assert trips > SOME
        await burden.put("many.one", {"symbol": "A", "price": 0.5, "size": 0})
        assert (await subs[0].get(timeout=60)).size == 0

    beside(test)


def test_a_long_schema():
    async def test(broker: Any, burden: milepost.AsyncClient, other: Other) -> None:
        fields = ", ".join(f"a_field_of_many_{number}: int" for number in range(2_000))
        _, trips = await other.during(burden.declare_topic("wide", f"wide: [{fields}]"))
        assert trips > SOME
        assert "wide" in broker.core.topics

    beside(test)


@pytest.mark.parametrize("durable", [False, True], ids=["live", "durable"])
def test_a_long_predicate(durable: bool):
    async def test(broker: Any, burden: milepost.AsyncClient, other: Other) -> None:
        await burden.declare_topic("quotes", QUOTE, durable=True)
        text = " or ".join(f"price * {number} > size + {number}" for number in range(600))
        assert len(text) < limits.WHERE_CHARS
        sub, trips = await other.during(burden.subscribe("quotes", where=text, name="long" if durable else None))
        assert trips > SOME
        await burden.put("quotes", {"symbol": "A", "price": 2.0, "size": 1})
        assert (await sub.get(timeout=60)).price == 2.0

    beside(test)


def test_a_wrong_predicate_is_refused_and_compiled_once():
    async def test(broker: Any, burden: milepost.AsyncClient, other: Other) -> None:
        await burden.declare_topic("quotes", QUOTE)
        before = broker.predicates.compiled
        for _ in range(3):
            with pytest.raises(errors.QueryError, match="pricee"):
                await burden.subscribe("quotes", where="pricee > 3 and size = 8")
        assert broker.predicates.compiled - before == 1
        assert not broker.core.topics["quotes"].subscriptions

    beside(test)


@pytest.mark.parametrize("durable", [False, True], ids=["live", "durable"])
def test_predicates_that_no_index_answers(durable: bool):
    async def test(broker: Any, burden: milepost.AsyncClient, other: Other) -> None:
        await burden.declare_topic("quotes", QUOTE, durable=durable)
        subs = await subscribed(burden, "quotes", [unindexed(number) for number in range(500)])
        rows = [{"symbol": "A", "price": number / 2, "size": number} for number in range(100)]

        async def put_all() -> None:
            await burden.put_many("quotes", rows)
            for number in range(100):
                assert (await subs[number].get(timeout=60)).size == number

        _, trips = await other.during(put_all())
        assert trips > SOME
        for row in rows:  # one by one, which is another way
            await burden.put("quotes", row)
        for number in range(100):
            assert (await subs[number].get(timeout=60)).size == number
        assert await subs[200].get(timeout=0) is None

    beside(test)


def test_predicates_of_durable_subscriptions_that_no_index_answers():
    async def test(broker: Any, burden: milepost.AsyncClient, other: Other) -> None:
        await burden.declare_topic("quotes", QUOTE, durable=True)
        subs = [await burden.subscribe("quotes", where=unindexed(n), name=f"s{n}") for n in range(120)]
        rows = [{"symbol": "A", "price": number / 2, "size": number} for number in range(100)]

        async def put_all() -> None:
            for start in range(0, 100, 10):
                await burden.put_many("quotes", rows[start : start + 10])
            for number in range(100):
                assert (await subs[number].get(timeout=60)).size == number

        _, trips = await other.during(put_all())
        assert trips > SOME
        assert await subs[110].get(timeout=0) is None

    beside(test)


@pytest.mark.parametrize("queues", [0, 2])
def test_puts_of_a_publisher_stay_in_order_over_topics(queues: int):
    """Some of its topics are matched elsewhere, others in the event loop, or by the short way."""

    async def test(broker: Any, burden: milepost.AsyncClient, other: Other) -> None:
        for name in ("some.light", "some.heavy"):
            await burden.declare_topic(name, QUOTE)
        await subscribed(burden, "some.heavy", [unindexed(-number - 1) for number in range(200)])
        sub = await other.client.subscribe("some.*")
        stranger = await Stranger.at(broker)
        await stranger.send(encode_control(Hello(window=1 << 20, name="stranger")))
        await stranger.next()
        publisher = next(each for each in broker.core.connections.values() if each.name == "stranger").publisher
        schema = milepost.parse_schema(QUOTE)

        def put(number: int) -> bytes:
            topic = broker.core.topics["some.heavy" if number % 50 == 20 else "some.light"]
            ids = Ids.one(publisher.number, broker.core.broker_id, number + 1)
            row = {"symbol": "A", "price": 0.0, "size": number}
            return b"".join(put_parts(topic.number, Batch.encode(schema, [row], ids).data))

        seen = 0
        for number in range(300):
            await stranger.send(put(number))
            if number < 119 or number % 3 == 0:  # it comes alone, and earns a short way
                while seen <= number:
                    assert (await sub.get(timeout=60)).size == seen
                    seen += 1
        while seen < 300:
            assert (await sub.get(timeout=60)).size == seen
            seen += 1
        stranger.close()

    beside(test, input_queues=queues)


def test_requests_behind_one_that_is_compiled_are_answered_in_order():
    async def test(broker: Any, burden: milepost.AsyncClient, other: Other) -> None:
        await burden.declare_topic("quotes", QUOTE)
        stranger = await Stranger.at(broker)
        await stranger.send(encode_control(Hello(window=1 << 20)))
        await stranger.next()
        requests: list[Any] = []
        for number in range(30):
            where = (
                f"size % {number + 2} = 1 and price > {number} or symbol like '%{number}'" + " or price < 0" * number
            )
            requests += [
                Subscribe(request=3 * number, subscription=number, pattern="quotes", where=where),
                Unsubscribe(request=3 * number + 1, subscription=number),
                Declare(request=3 * number + 2, name="quotes"),
            ]
        await stranger.send(b"".join(encode_control(request) for request in requests))
        answered = []
        while len(answered) < len(requests):
            message = await stranger.next()
            if isinstance(message, Reply):
                answered.append(message.request)
        assert answered == list(range(len(requests)))
        assert not broker.core.topics["quotes"].subscriptions
        stranger.close()

    beside(test)


def test_a_client_that_leaves_while_its_predicate_is_compiled():
    async def test(broker: Any, burden: milepost.AsyncClient, other: Other) -> None:
        add_topics(broker, 100, lambda number: f"m{number}: [price: double, f{number}: int]")
        stranger = await Stranger.at(broker)
        await stranger.send(encode_control(Hello(window=1 << 20)))
        await stranger.next()
        here = len(broker.core.connections)
        await stranger.send(
            encode_control(Subscribe(request=1, subscription=1, pattern="many.*", where="price * price > 1")),
            encode_control(Subscribe(request=2, subscription=2, pattern="many.*", where="price * price > 2")),
        )
        while not len(broker._compiling):
            await asyncio.sleep(0)
        stranger.writer.transport.abort()
        while len(broker.core.connections) == here or len(broker._compiling):
            await asyncio.sleep(0)
        assert not broker.holding
        await burden.put("many.t1", {"price": 2.0, "f1": 1})
        assert not any(topic.subscriptions for name, topic in broker.core.topics.items() if name != "mine")

    beside(test)


def test_many_requests_at_once_are_carried_out_some_at_a_time():
    async def test(broker: Any, burden: milepost.AsyncClient, other: Other) -> None:
        await burden.declare_topic("quotes", QUOTE)
        stranger = await Stranger.at(broker)
        await stranger.send(encode_control(Hello(window=1 << 20)))
        await stranger.next()
        count = 64 * MOST_ASKED
        requests = b"".join(
            encode_control(Subscribe(request=number, subscription=number, pattern="quotes", where=f"size = {number}"))
            for number in range(count)
        )

        async def ask() -> None:
            await stranger.send(requests)
            replies = 0
            while replies < count:
                replies += isinstance(await stranger.next(), Reply)

        _, trips = await other.during(ask())
        assert trips > SOME
        assert len(broker.core.topics["quotes"].subscriptions) == count
        stranger.close()

    beside(test)


def test_there_is_a_bound_on_predicates_that_no_index_answers(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "EVALUATED_PER_CONNECTION", 20)
    monkeypatch.setattr(limits, "EVALUATED_PER_TOPIC", 30)

    async def test(broker: Any, burden: milepost.AsyncClient, other: Other) -> None:
        await burden.declare_topic("quotes", QUOTE)
        subs = await subscribed(burden, "quotes", [unindexed(number) for number in range(20)])
        await subscribed(burden, "quotes", [unindexed(3), "size = 4"])  # one of these, and what an index answers
        with pytest.raises(errors.LimitExceeded, match="EVALUATED_PER_CONNECTION"):
            await burden.subscribe("quotes", where=unindexed(20))
        await subs[5].unsubscribe()
        await burden.subscribe("quotes", where=unindexed(20))
        await subscribed(other.client, "quotes", [unindexed(number) for number in range(30, 40)])
        with pytest.raises(errors.LimitExceeded, match="EVALUATED_PER_TOPIC"):
            await other.client.subscribe("quotes", where=unindexed(50))
        await other.client.subscribe("quotes", where=unindexed(2))  # it is there already, of another client
        topic = broker.core.topics["quotes"]
        assert topic.evaluated == 30
        await burden.put("quotes", {"symbol": "A", "price": 1.5, "size": 3})
        assert (await subs[3].get(timeout=60)).size == 3

    beside(test)


@pytest.mark.parametrize("queues", [0, 1])
def test_a_new_version_that_another_broker_of_the_cell_declares(postgresql: str, queues: int):
    """Its rows are read when the predicates here have been read against it, and not before."""

    async def main() -> None:
        options = {"store": postgresql, "input_queues": queues}
        async with (
            asyncio.timeout(120),
            testing.broker(name="a", listen="milepost://127.0.0.1:0", **options) as one,
            testing.broker(name="b", listen="milepost://127.0.0.1:0", **options) as two,
            milepost.AsyncClient(one.uri) as feed,
            milepost.AsyncClient(two.uri) as desk,
        ):
            await feed.declare_topic("quotes", QUOTE, durable=True)
            await feed.put("quotes", {"symbol": "A", "price": 1.0, "size": 0})
            texts = [f"size % {number + 1} = 0" + " and price > 0" * 20 for number in range(60)]
            subs = [await desk.subscribe("quotes", where=text, name=f"s{n}") for n, text in enumerate(texts)]
            wild = await desk.subscribe(">", where="size * 2 >= 0")
            await feed.declare_topic("quotes", WIDER, durable=True)
            await feed.put("quotes", {"symbol": "A", "price": 1.0, "size": 60, "more": 5})
            await feed.declare_topic("new", WIDER, durable=True)
            for number in (0, 1, 59):
                assert (await subs[number].get(timeout=60)).more == 5
            while len(two.core.topics["quotes"].schemas) < 2 or "new" not in two.core.topics:
                await asyncio.sleep(0)
            await desk.put("quotes", {"symbol": "A", "price": 1.0, "size": 120, "more": 6})
            assert (await subs[2].get(timeout=60)).more == 5
            assert (await subs[2].get(timeout=60)).more == 6
            await desk.put("new", {"symbol": "A", "price": 1.0, "size": 7, "more": 8})
            assert {(await wild.get(timeout=60)).size for _ in range(2)} == {120, 7}

    asyncio.run(main())


@pytest.mark.parametrize("what", ["compile", "match"])
def test_a_broker_stops_while_it_compiles_or_matches(what: str):
    async def main() -> None:
        async with (
            asyncio.timeout(120),
            testing.broker(listen="milepost://127.0.0.1:0") as broker,
            milepost.AsyncClient(broker.uri, timeout=1.0) as client,
        ):
            await client.declare_topic("quotes", QUOTE)
            await subscribed(client, "quotes", [unindexed(number) for number in range(300)])
            if what == "compile":
                add_topics(broker, 3_000, lambda number: f"m{number}: [price: double, f{number}: int]")
                task = asyncio.create_task(client.subscribe("many.*", where="price * price > 1"))
                while not len(broker._compiling):
                    await asyncio.sleep(0)
            else:
                rows = [{"symbol": "A", "price": 0.0, "size": 0}] * 20_000
                task = asyncio.create_task(client.put_many("quotes", rows))
                while not len(broker._matching):
                    await asyncio.sleep(0)
            await broker.stop()
            assert not len(broker._compiling)
            assert not len(broker._matching)
            task.cancel()
            with suppress(asyncio.CancelledError, errors.MilepostError):
                await task

    asyncio.run(main())
