"""The client against the real broker: one suite over both transports, and on both event loops."""

import asyncio
import dataclasses
import itertools
import logging

import numpy as np
import pytest
import uvloop

import milepost
from milepost import errors, testing

QUOTE = "quote: [symbol: string, price: double, size: int]"
SECONDS = 120  # what nothing here comes near, on busy cores either; a test that hangs ends with it
_names = itertools.count(1)


@pytest.fixture(params=["inproc", "tcp", "tcp-uvloop"])
def run(request):
    """Runs `test(broker)` beside a broker whose settings are given by name."""
    loops = {"loop_factory": uvloop.new_event_loop} if request.param == "tcp-uvloop" else {}

    def run(test, **settings):
        async def whole():
            async with asyncio.timeout(SECONDS), testing.broker(listen=address(), **settings) as broker:
                await test(broker)

        with asyncio.Runner(**loops) as runner:
            runner.run(whole())

    def address():
        return f"inproc://client-{next(_names)}" if request.param == "inproc" else "milepost://127.0.0.1:0"

    run.address = address
    return run


def quote(symbol="IBM", price=101.5, size=200):
    return {"symbol": symbol, "price": price, "size": size}


async def until(condition):
    """Let the event loop go round until something is so; the test's own limit ends what never is."""
    while not condition():
        await asyncio.sleep(0)


async def taken(subscription, count):
    return [message async for message, _ in _counted(subscription, count)]


async def _counted(subscription, count):
    if not count:
        return
    async for message in subscription:
        count -= 1
        yield message, count
        if not count:
            return


# Topics


def test_topics_are_declared_listed_and_deleted(run):
    async def test(broker):
        async with milepost.AsyncClient(broker.uri) as client:
            made = await client.declare_topic("quotes", QUOTE)
            assert (made.name, made.created, made.slow) == ("quotes", True, "throttle")
            assert made.schema == milepost.parse_schema(QUOTE)
            assert not (await client.declare_topic("quotes", milepost.parse_schema(QUOTE))).created
            await client.declare_topic("news.sport", "news: [text: string]", slow="drop")
            assert [(topic.name, topic.slow) for topic in await client.topics("news.*")] == [("news.sport", "drop")]
            assert {topic.name for topic in await client.topics()} == {"quotes", "news.sport"}
            await client.delete_topic("quotes")
            with pytest.raises(errors.UnknownTopic):
                await client.delete_topic("quotes")
            with pytest.raises(errors.UnknownTopic):
                await client.put("quotes", quote())
            assert isinstance(await client.status(), dict)

    run(test)


def test_a_schema_may_be_a_dataclass_and_rows_its_instances(run):
    @dataclasses.dataclass
    class Reading:
        sensor: str
        value: float

    async def test(broker):
        async with milepost.AsyncClient(broker.uri) as client:
            await client.declare_topic("readings", Reading)
            readings = await client.subscribe("readings")
            await client.put("readings", Reading("a", 1.5))
            await client.put("readings", Reading("b", 2.5))
            assert [(each.sensor, each.value) for each in await taken(readings, 2)] == [("a", 1.5), ("b", 2.5)]

    run(test)


def test_a_message_type_travels_as_nodes(run):
    async def test(broker):
        async with milepost.AsyncClient(broker.uri) as client:
            await client.declare_topic("orders", "DEFINE MESSAGETYPE m; NODE head; number: INT; END; ROOT head; END;")
            orders = await client.subscribe("orders")
            await client.put("orders", {"number": 7})
            assert (await orders.get()).number == 7

    run(test)


def test_a_broken_schema_says_where(run):
    async def test(broker):
        async with milepost.AsyncClient(broker.uri) as client:
            with pytest.raises(errors.SchemaSyntaxError, match=r"\^"):
                await client.declare_topic("quotes", "quote: [symbol string]")
            with pytest.raises(errors.InvalidValue, match="a schema is a text"):
                await client.declare_topic("quotes", 7)
            await client.declare_topic("quotes", QUOTE)
            with pytest.raises(errors.IncompatibleSchema):
                await client.declare_topic("quotes", "quote: [symbol: long]")

    run(test)


def test_what_is_no_text_is_refused_before_it_is_sent(run):
    async def test(broker):
        with pytest.raises(errors.InvalidValue, match="name of a client"):
            milepost.AsyncClient(broker.uri, name=7)
        async with milepost.AsyncClient(broker.uri) as client:
            for use in (
                client.declare_topic(7, QUOTE),
                client.declare_topic("quotes", QUOTE, slow=7),
                client.delete_topic(b"quotes"),
                client.topics(None),
                client.subscribe(7),
                client.subscribe("quotes", 7),
                client.put(7, quote()),
                client.put_many(None, []),
            ):
                with pytest.raises(errors.InvalidValue, match="is a text, not a"):
                    await use
            assert client.statistics().connected

    run(test)


def test_versions_of_a_topic_reach_those_who_know_it(run):
    newer = "quote: [symbol: string, price: double, size: int, venue: string?]"

    async def test(broker):
        async with milepost.AsyncClient(broker.uri) as old, milepost.AsyncClient(broker.uri) as new:
            await old.declare_topic("quotes", QUOTE)
            quotes, wider = await old.subscribe("quotes"), await new.subscribe("quotes")
            await old.put("quotes", quote())
            info = await new.declare_topic("quotes", newer)
            assert len(info.versions) == 2
            await new.put("quotes", {**quote("SUN"), "venue": "X"})
            await old.put("quotes", quote("DEC"))  # in the version that this client declared
            # Each as the version that its client has declared, whatever the rows are of.
            assert ["venue" in message for message in await taken(quotes, 3)] == [False] * 3
            assert [message.venue for message in (await taken(wider, 3))[1:]] == ["X", None]

    run(test)


# Putting


def test_rows_arrive_in_order_and_with_ids(run):
    async def test(broker):
        async with (
            milepost.AsyncClient(broker.uri, name="feed") as feed,
            milepost.AsyncClient(broker.uri) as desk,
        ):
            await feed.declare_topic("quotes", QUOTE)
            quotes = await desk.subscribe("quotes")
            row = quote()
            for size in range(10_000):
                row["size"] = size  # one dict, used again: what was put is a copy
                await feed.put("quotes", row)
            messages = await taken(quotes, 10_000)
            assert [each.size for each in messages] == list(range(10_000))
            ids = [each.id for each in messages]
            assert ids == sorted(set(ids))
            assert len({(each.publisher, each.broker) for each in ids}) == 1
            assert feed.statistics().batches_put < 100

    run(test)


def test_the_first_row_leaves_at_once_and_rows_in_flight_gather(run):
    async def test(broker):
        async with milepost.AsyncClient(broker.uri) as client:
            await client.declare_topic("quotes", QUOTE)
            await client.put("quotes", quote())
            assert (client.statistics().batches_put, client.statistics().rows_waiting) == (1, 0)
            await asyncio.gather(*(client.put("quotes", quote(size=size)) for size in range(99)))
            await client.flush()
            assert (client.statistics().rows_put, client.statistics().rows_waiting) == (100, 0)
            assert client.statistics().batches_put <= 4

    run(test)


def test_bad_rows_raise_in_the_call_that_brought_them_and_lose_nothing_else(run):
    async def test(broker):
        async with milepost.AsyncClient(broker.uri) as client:
            await client.declare_topic("quotes", QUOTE)
            await client.declare_topic("checked", "c: [price: double] check (price > 0)")
            quotes = await client.subscribe("quotes")
            for size in range(3):
                await client.put("quotes", quote(size=size))
                with pytest.raises(errors.InvalidValue, match="size") as raised:
                    await client.put("quotes", quote(size="many"))
                assert raised.value.path == "size"
                with pytest.raises(errors.InvalidValue, match="there is no field 'sise'"):
                    await client.put("quotes", {**quote(), "sise": 1})
            with pytest.raises(errors.CheckFailed):
                await client.put("checked", {"price": -1.0})
            await client.flush()
            assert [each.size for each in await taken(quotes, 3)] == [0, 1, 2]

    run(test)


def test_rows_of_every_kind_keep_their_order(run):
    """Some go the short way and some the long way, in turns."""

    async def test(broker):
        async with milepost.AsyncClient(broker.uri) as client:
            await client.declare_topic("notes", "note: [number: int, text: string?]")
            notes = await client.subscribe("notes")
            texts = [None, "short", "x" * 5_000, "ünï", "x" * 100_000, ""]
            for number in range(600):
                await client.put("notes", {"number": number, "text": texts[number % 6]})
            found = await taken(notes, 600)
            assert [(each.number, each.text) for each in found] == [(n, texts[n % 6]) for n in range(600)]

    run(test)


def test_topics_that_somebody_else_declared_are_looked_up(run):
    async def test(broker):
        async with milepost.AsyncClient(broker.uri) as one, milepost.AsyncClient(broker.uri) as other:
            await one.declare_topic("quotes", QUOTE)
            quotes = await one.subscribe("quotes")
            await other.put("quotes", quote("SUN"))
            assert (await quotes.get()).symbol == "SUN"

    run(test)


def test_put_many_takes_rows_columns_frames_iterators_and_batches(run):
    async def test(broker):
        async with milepost.AsyncClient(broker.uri) as client:
            info = await client.declare_topic("quotes", QUOTE)
            quotes = await client.subscribe("quotes")
            columns = {"symbol": ["A", "B"], "price": np.array([1.0, 2.0]), "size": [1, 2]}
            batch = milepost.encode(info.schema, columns)
            total = 0
            for source in ([quote()] * 3, columns, batch.to_arrow(), batch, (quote() for _ in range(20_000)), []):
                total += await client.put_many("quotes", source)
            assert total == 3 + 2 + 2 + 2 + 20_000
            with pytest.raises(errors.InvalidValue, match="row 1"):
                await client.put_many("quotes", [quote(), quote(size=None)])
            other = milepost.encode(milepost.parse_schema("o: [x: int]"), [{"x": 1}])
            with pytest.raises(errors.InvalidValue, match="does not have"):
                await client.put_many("quotes", other)
            assert len(await taken(quotes, total)) == total

    run(test)


def test_a_large_batch_is_split_and_flows_through_a_small_window(run):
    async def test(broker):
        async with milepost.AsyncClient(broker.uri) as feed, milepost.AsyncClient(broker.uri, window=65_536) as desk:
            await feed.declare_topic("quotes", QUOTE)
            quotes = await desk.subscribe("quotes")
            rows = 300_000
            columns = {"symbol": ["IBM"] * rows, "price": np.arange(rows) / 2, "size": np.arange(rows, dtype=np.int32)}
            async with asyncio.TaskGroup() as group:
                sent = group.create_task(feed.put_many("quotes", columns))
                sizes = []
                async for batch in quotes.batches():
                    sizes.append(batch.column("size"))
                    if sum(map(len, sizes)) >= rows:
                        break
            assert sent.result() == rows
            assert np.array_equal(np.concatenate(sizes), np.arange(rows))
            assert feed.statistics().batches_put > 5

    run(test, put_window=1 << 20)


def test_rows_put_before_a_batch_leave_before_it(run):
    async def test(broker):
        async with milepost.AsyncClient(broker.uri) as client:
            await client.declare_topic("quotes", QUOTE)
            quotes = await client.subscribe("quotes")
            for size in range(5):
                await client.put("quotes", quote(size=size))
            await client.put_many("quotes", [quote(size=size) for size in range(5, 10)])
            await client.put("quotes", quote(size=10))
            assert [each.size for each in await taken(quotes, 11)] == list(range(11))

    run(test)


def test_flush_tells_about_a_put_that_the_broker_refused(run):
    async def test(broker):
        async with milepost.AsyncClient(broker.uri) as one, milepost.AsyncClient(broker.uri) as other:
            await one.declare_topic("quotes", QUOTE)
            await other.put("quotes", quote())
            await one.delete_topic("quotes")
            await other.put("quotes", quote())
            with pytest.raises(errors.UnknownTopic):
                await other.flush()
            await one.declare_topic("quotes", QUOTE)  # under another number
            quotes = await one.subscribe("quotes")
            await other.put("quotes", quote("SUN"))
            await other.flush()
            assert (await quotes.get()).symbol == "SUN"
            assert other.statistics().batches_refused == 1

    run(test)


# Subscribing


def test_predicates_choose_rows(run):
    async def test(broker):
        async with milepost.AsyncClient(broker.uri) as client:
            await client.declare_topic("quotes", QUOTE)
            cheap = await client.subscribe("quotes", "price < 100")
            dear = await client.subscribe("quotes", "price >= 100 and symbol = 'IBM'")
            every = await client.subscribe("quotes")
            prices = [float(price) for price in range(50, 150)]
            await client.put_many("quotes", [quote(price=price) for price in prices])
            assert [each.price for each in await taken(cheap, 50)] == prices[:50]
            assert [each.price for each in await taken(dear, 50)] == prices[50:]
            assert [each.price for each in await taken(every, 100)] == prices
            assert await client.flush() is None
            assert await cheap.get(timeout=0) is None

    run(test)


def test_some_rows_of_a_batch_are_a_batch(run):
    async def test(broker):
        async with milepost.AsyncClient(broker.uri) as client:
            await client.declare_topic("quotes", QUOTE)
            odd = await client.subscribe("quotes", "size % 2 = 1")
            every = await client.subscribe("quotes")
            await client.put_many("quotes", [quote(size=size) for size in range(10)])
            batch = await anext(odd.batches())
            assert batch.column("size").tolist() == [1, 3, 5, 7, 9]
            assert len(await anext(every.batches())) == 10

    run(test)


def test_a_predicate_that_does_not_fit_raises_its_own_error(run):
    async def test(broker):
        async with milepost.AsyncClient(broker.uri) as client:
            await client.declare_topic("quotes", QUOTE)
            with pytest.raises(errors.QueryTypeError, match=r"prise[\s\S]*\^"):
                await client.subscribe("quotes", "prise > 100")
            with pytest.raises(errors.QuerySyntaxError):
                await client.subscribe("quotes", "price >")
            with pytest.raises(errors.UnknownTopic, match="did you mean 'quotes'"):
                await client.subscribe("quote")
            assert client.statistics().subscriptions == 0

    run(test)


def test_patterns_cover_topics_that_come_later(run):
    async def test(broker):
        async with milepost.AsyncClient(broker.uri) as client:
            await client.declare_topic("news.sport", "n: [text: string]")
            await client.declare_topic("news.money", "n: [amount: long]")
            news = await client.subscribe("news.*", "text != ''")
            assert news.topics == {"news.sport"}
            assert list(news.skipped) == ["news.money"]
            await client.declare_topic("news.art", "n: [text: string]")
            await client.put("news.art", {"text": "a"})
            message = await news.get()
            assert (message.text, news.topic) == ("a", "news.art")
            assert news.topics == {"news.sport", "news.art"}
            await client.declare_topic("news.rain", "n: [millimetres: double]")  # told before its reply
            assert list(news.skipped) == ["news.money", "news.rain"]
            assert "there is no 'text'" in news.skipped["news.rain"]
            await client.delete_topic("news.rain")
            await client.declare_topic("news.rain", "n: [text: string]")
            await client.put("news.rain", {"text": "r"})
            assert (await news.get()).text == "r"
            assert list(news.skipped) == ["news.money"]

    run(test)


def test_a_loop_that_breaks_off_leaves_the_rest(run):
    async def test(broker):
        async with milepost.AsyncClient(broker.uri) as client:
            await client.declare_topic("quotes", QUOTE)
            quotes = await client.subscribe("quotes")
            await client.put_many("quotes", [quote(size=size) for size in range(20)])
            assert [each.size for each in await taken(quotes, 5)] == [0, 1, 2, 3, 4]
            assert (await quotes.get()).size == 5
            assert (await anext(quotes)).size == 6
            assert (await anext(quotes.batches())).column("size").tolist() == list(range(7, 20))
            await client.put("quotes", quote(size=20))
            assert (await quotes.get()).size == 20

    run(test)


def test_unsubscribing_ends_the_loop(run):
    async def test(broker):
        async with milepost.AsyncClient(broker.uri) as client:
            await client.declare_topic("quotes", QUOTE)
            quotes = await client.subscribe("quotes")
            again = await client.subscribe("quotes")
            await client.put_many("quotes", [quote()] * 10)
            seen = 0
            async for _ in quotes:
                seen += 1
                await quotes.unsubscribe()
            assert seen == 1
            await quotes.unsubscribe()
            assert quotes.ended
            await client.unsubscribe("quotes")
            assert await again.get() is None
            with pytest.raises(errors.UnknownSubscription):
                await client.unsubscribe("quotes")
            async with await client.subscribe("quotes") as third:
                assert not third.ended
            assert third.ended
            assert client.statistics().bytes_queued == 0

    run(test)


def test_callbacks_get_messages_or_batches(run):
    async def test(broker):
        async with milepost.AsyncClient(broker.uri) as client:
            await client.declare_topic("quotes", QUOTE)
            plain, awaited, whole = [], [], []
            done = asyncio.Event()

            async def slowly(message):
                await asyncio.sleep(0)
                awaited.append(message.size)
                if len(awaited) == 3:
                    done.set()

            await client.subscribe("quotes", callback=lambda message: plain.append(message.size))
            await client.subscribe("quotes", callback=whole.append, batches=True)
            await client.subscribe("quotes", callback=slowly)
            await client.put_many("quotes", [quote(size=size) for size in range(3)])
            await done.wait()
            await until(lambda: len(plain) == 3 and whole)
            assert plain == awaited == [0, 1, 2]
            assert [len(batch) for batch in whole] == [3]

    run(test)


def test_a_callback_that_fails_ends_its_subscription_only(run, caplog):
    async def test(broker):
        async with milepost.AsyncClient(broker.uri) as client:
            await client.declare_topic("quotes", QUOTE)
            failing = await client.subscribe("quotes", "price > 0", callback=lambda message: message.nothing)
            other = await client.subscribe("quotes")
            with caplog.at_level(logging.ERROR, "milepost.client"):
                await client.put("quotes", quote())
                await until(lambda: failing.ended)
            assert "'quotes' where price > 0" in caplog.text
            assert isinstance(failing.error, AttributeError)
            with pytest.raises(AttributeError):
                await failing.unsubscribe()
            assert (await other.get()).size == 200
            await client.put("quotes", quote(size=1))
            assert (await other.get()).size == 1

    run(test)


def test_cancelling_a_loop_leaves_the_subscription_in_order(run):
    async def test(broker):
        async with milepost.AsyncClient(broker.uri) as client:
            await client.declare_topic("quotes", QUOTE)
            quotes = await client.subscribe("quotes")
            waiting = asyncio.create_task(quotes.get())
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            asking = asyncio.create_task(client.subscribe("quotes", "price > 1"))
            await asyncio.sleep(0)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            assert client.statistics().subscriptions == 1
            await client.put("quotes", quote())
            assert (await quotes.get()).size == 200
            assert (await client.status())["connections"] is not None

    run(test)


# Flow


def test_a_paused_consumer_throttles_the_publisher_and_loses_nothing(run):
    async def test(broker):
        async with (
            milepost.AsyncClient(broker.uri) as feed,
            milepost.AsyncClient(broker.uri, window=8_192) as desk,
        ):
            await feed.declare_topic("quotes", QUOTE)
            quotes = await desk.subscribe("quotes")

            async def publish():
                for size in range(40_000):
                    await feed.put("quotes", quote(size=size))

            publishing = asyncio.create_task(publish())
            await until(lambda: feed.statistics().rows_waiting >= 2_048)
            for _ in range(5):
                await feed.status()
                assert not publishing.done()
            assert feed.statistics().rows_put < 10_000
            assert [each.size for each in await taken(quotes, 40_000)] == list(range(40_000))
            await publishing

    run(test, put_window=16_384, queue_bytes=16_384, delivery_window=8_192)


def test_a_put_that_is_cancelled_has_put_nothing(run):
    async def test(broker):
        async with (
            milepost.AsyncClient(broker.uri) as feed,
            milepost.AsyncClient(broker.uri, window=8_192) as desk,
        ):
            await feed.declare_topic("quotes", QUOTE)
            quotes = await desk.subscribe("quotes")
            put = 0

            async def publish():
                nonlocal put
                while True:
                    await feed.put("quotes", quote(size=put))
                    put += 1

            for _ in range(3):
                publishing = asyncio.create_task(publish())
                await until(lambda: feed.statistics().rows_waiting >= 2_048)
                publishing.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await publishing
                assert [each.size for each in await taken(quotes, put)] == list(range(put))
                put = 0
            assert feed.statistics().rows_waiting == 0

    run(test, put_window=16_384, queue_bytes=16_384, delivery_window=8_192)


def test_a_broker_may_grant_less_than_was_asked_for(run):
    async def test(broker):
        async with milepost.AsyncClient(broker.uri) as client:
            await client.declare_topic("quotes", QUOTE)
            quotes = await client.subscribe("quotes")
            for size in range(300):
                await client.put("quotes", quote(size=size))
                assert (await quotes.get()).size == size

    run(test, delivery_window=1_024)


def test_puts_of_every_kind_let_the_rest_of_the_program_have_its_turns(run):
    async def test(broker):
        async with milepost.AsyncClient(broker.uri) as client:
            await client.declare_topic("flat", "f: [n: int]")
            await client.declare_topic("nested", "n: [n: *(int)*]")
            for topic, row, count in (("flat", {"n": 1}, 20_000), ("nested", {"n": [1]}, 5_000)):
                turns = 0

                async def others():
                    nonlocal turns
                    while True:
                        turns += 1
                        await asyncio.sleep(0)

                busy = asyncio.create_task(others())
                for _ in range(count):
                    await client.put(topic, row)
                busy.cancel()
                assert turns >= 2
            await client.flush()
            assert client.statistics().rows_put == 25_000

    run(test)


def test_a_callback_may_close_the_client(run):
    async def test(broker):
        client = await milepost.AsyncClient(broker.uri).connect()
        await client.declare_topic("quotes", QUOTE)
        closed = asyncio.Event()

        async def close(message):
            try:
                await client.close()
            finally:
                closed.set()

        await client.subscribe("quotes", callback=close)
        await client.put("quotes", quote())
        await closed.wait()
        with pytest.raises(errors.Closed):
            await client.put("quotes", quote())
        await client.close()

    run(test)


def test_rows_dropped_for_a_slow_client_are_counted(run):
    async def test(broker):
        async with (
            milepost.AsyncClient(broker.uri) as feed,
            milepost.AsyncClient(broker.uri, window=4_096, slow="drop") as desk,
        ):
            await feed.declare_topic("quotes", QUOTE)
            quotes = await desk.subscribe("quotes")
            for start in range(0, 20_000, 500):
                await feed.put_many("quotes", [quote(size=start + size) for size in range(500)])
                await feed.flush()
            await feed.put("quotes", quote("LAST", size=-1))
            await feed.flush()
            got = 0
            async for message in quotes:
                if message.symbol == "LAST":
                    break
                got += 1
            await desk.flush()
            assert quotes.dropped > 0
            assert got + quotes.dropped == 20_000
            assert desk.statistics().rows_dropped == quotes.dropped

    run(test, queue_bytes=65_536, delivery_window=4_096)


def test_a_slow_client_is_disconnected_if_the_policy_says_so(run):
    async def test(broker):
        async with milepost.AsyncClient(broker.uri) as feed:
            await feed.declare_topic("quotes", QUOTE, slow="disconnect")
            desk = milepost.AsyncClient(broker.uri, window=4_096, reconnect=False)
            async with desk:
                quotes = await desk.subscribe("quotes")
                for _ in range(40):
                    await feed.put_many("quotes", [quote()] * 500)
                    await feed.flush()
                with pytest.raises(errors.SlowConsumer):
                    async for _ in quotes:
                        pass
                with pytest.raises(errors.SlowConsumer):
                    await desk.status()

    run(test, queue_bytes=65_536, delivery_window=4_096)


# Connections


def test_no_broker_is_told_at_once(run):
    async def test(broker):
        nowhere = "inproc://nobody" if broker.uri.startswith("inproc") else "milepost://127.0.0.1:1"
        with pytest.raises(errors.ConnectionLost, match="no broker at"):
            await milepost.AsyncClient(nowhere).connect()
        with pytest.raises(errors.HandshakeRefused):
            await milepost.AsyncClient(broker.uri, slow="hurry").connect()

    run(test)


def test_what_is_closed_says_so(run):
    async def test(broker):
        client = milepost.AsyncClient(broker.uri)
        with pytest.raises(errors.Closed, match="not connected"):
            await client.put("quotes", quote())
        async with client:
            await client.declare_topic("quotes", QUOTE)
            quotes = await client.subscribe("quotes")
            await client.put("quotes", quote())
            waiting = asyncio.create_task(quotes.get())
            assert (await waiting).size == 200
            waiting = asyncio.create_task(quotes.get())
            await asyncio.sleep(0)
        assert await waiting is None
        for use in (client.put("quotes", quote()), client.status(), client.flush(), client.subscribe("quotes")):
            with pytest.raises(errors.Closed):
                await use
        with pytest.raises(errors.Closed):
            await client.connect()
        await client.close()

    run(test)


def test_closing_sends_what_waits(run):
    async def test(broker):
        async with milepost.AsyncClient(broker.uri) as desk:
            await desk.declare_topic("quotes", QUOTE)
            quotes = await desk.subscribe("quotes")
            async with milepost.AsyncClient(broker.uri) as feed:
                for size in range(1_000):
                    await feed.put("quotes", quote(size=size))
            assert len(await taken(quotes, 1_000)) == 1_000

    run(test)


def test_of_two_clients_with_one_name_the_older_is_closed(run):
    async def test(broker):
        async with milepost.AsyncClient(broker.uri, name="feed") as old:
            await old.declare_topic("quotes", QUOTE)
            await old.put("quotes", quote())
            await old.flush()
            async with milepost.AsyncClient(broker.uri, name="feed") as new:
                await new.put("quotes", quote())
                await new.flush()
                await until(lambda: not old.statistics().connected)
                with pytest.raises(errors.Fenced):
                    await old.put("quotes", quote())

    run(test)


def test_everything_is_there_again_after_a_restart(run):
    async def whole():
        async with asyncio.timeout(SECONDS):
            async with testing.broker(listen=run.address()) as first:
                address = first.uri
                feed, desk = milepost.AsyncClient(address, name="feed"), milepost.AsyncClient(address)
                await feed.connect()
                await desk.connect()
                await feed.declare_topic("other", QUOTE)  # so that numbers of topics change
                await feed.declare_topic("quotes", QUOTE)
                quotes = await desk.subscribe("quotes", "size >= 0")
                every = await desk.subscribe(">")
                await feed.put("quotes", quote(size=1))
                await feed.flush()
                assert (await quotes.get()).size == (await every.get()).size == 1
            await until(lambda: not feed.statistics().connected and not desk.statistics().connected)
            for size in range(2, 12):
                await feed.put("quotes", quote(size=size))  # waits in the outbox
            assert feed.statistics().rows_waiting == 10
            async with testing.broker(listen=address):
                await desk.status()  # waits for a connection
                await feed.flush()
                assert feed.statistics().reconnects == desk.statistics().reconnects == 1
                await feed.put("quotes", quote(size=12))
                # Whoever is back first: rows that leave before the subscriber has come are for nobody.
                found = [(await quotes.get()).size]
                while found[-1] != 12:
                    found.append((await quotes.get()).size)
                assert found == list(range(found[0], 13))
                assert (await every.get()).size >= 2
                await feed.close()
                await desk.close()

    asyncio.run(whole())


def test_broken_connections_repeat_nothing_and_reorder_nothing(run):
    async def test(broker):
        async with milepost.AsyncClient(broker.uri, name="feed") as feed, milepost.AsyncClient(broker.uri) as desk:
            await feed.declare_topic("quotes", QUOTE)
            quotes = await desk.subscribe("quotes")
            seen = []

            async def read():
                async for message in quotes:
                    seen.append((message.size, message.id))
                    if message.symbol == "LAST":
                        return

            reading = asyncio.create_task(read())
            size = 0
            for burst in range(6):
                for _ in range(3_000):
                    await feed.put("quotes", quote(size=size))
                    size += 1
                size += await feed.put_many("quotes", [quote(size=size + more) for more in range(500)])
                before = len(seen)
                await until(lambda before=before: len(seen) > before)
                for connection in list(broker.core.connections.values()):
                    if burst % 3 != 2 or connection.name == "feed":  # both, both, the publisher alone
                        connection.channel.abort()
                await until(lambda: not feed.statistics().connected)
                await feed.put("quotes", quote(size=size))  # waits for the next connection
                size += 1
                await feed.status()
                await desk.status()
            try:
                await feed.flush()
            except errors.ConnectionLost:
                pass
            await feed.put("quotes", quote("LAST", size=size))
            await feed.flush()
            await reading
            sizes, ids = zip(*seen, strict=True)
            assert list(sizes) == sorted(set(sizes))
            assert list(ids) == sorted(set(ids))
            assert feed.statistics().reconnects == 6
            assert desk.statistics().reconnects == 4

    run(test)


def test_without_reconnecting_a_lost_connection_is_an_error(run):
    async def whole():
        async with asyncio.timeout(SECONDS):
            async with testing.broker(listen=run.address()) as broker:
                client = await milepost.AsyncClient(broker.uri, reconnect=False).connect()
                await client.declare_topic("quotes", QUOTE)
                quotes = await client.subscribe("quotes")
                await client.put("quotes", quote())
                await client.flush()
            await until(lambda: not client.statistics().connected)
            assert (await quotes.get()).size == 200  # what is here can still be taken
            with pytest.raises(errors.ConnectionLost):
                await quotes.get()
            for use in (client.put("quotes", quote()), client.status(), client.flush(), client.topics()):
                with pytest.raises(errors.ConnectionLost):
                    await use
            await client.close()

    asyncio.run(whole())


def test_requests_wait_for_a_connection_no_longer_than_told(run):
    async def whole():
        async with asyncio.timeout(SECONDS):
            async with testing.broker(listen=run.address()) as broker:
                client = await milepost.AsyncClient(broker.uri, timeout=SECONDS).connect()
                await client.declare_topic("quotes", QUOTE)
                await client.put("quotes", quote())
            await until(lambda: not client.statistics().connected)
            client._session.timeout = 0.05  # from now on: what came before was to succeed, however busy the cores are
            with pytest.raises(errors.TimedOut):
                await client.status()
            with pytest.raises(errors.TimedOut):
                await client.flush()
            await client.close()

    asyncio.run(whole())


def test_flush_says_that_puts_may_be_lost(run):
    async def whole():
        async with asyncio.timeout(SECONDS):
            address = run.address()
            async with testing.broker(listen=address) as broker:
                address = broker.uri
                client = await milepost.AsyncClient(address).connect()
                await client.declare_topic("quotes", QUOTE)
                await client.put("quotes", quote())
            async with testing.broker(listen=address):
                await until(lambda: client.statistics().reconnects == 1)
                with pytest.raises(errors.ConnectionLost, match=r"may not have arrived|closed the connection"):
                    await client.flush()
                await client.put("quotes", quote())
                await client.flush()
                await client.close()

    asyncio.run(whole())


@pytest.mark.parametrize("durable", [False, True])
def test_a_message_has_to_fit_into_a_frame_and_many_are_split(durable):
    async def test():
        async with testing.broker(frame_bytes=1 << 20) as broker, milepost.AsyncClient(broker.uri) as client:
            await client.declare_topic("files", "file: [content: bytes]", durable=durable)
            files = await client.subscribe("files")
            small, large = {"content": bytes(300_000)}, {"content": bytes(1 << 20)}
            assert await client.put_many("files", [small] * 8) == 8
            with pytest.raises(errors.LimitExceeded, match=r"row 2.*frame_bytes"):
                await client.put_many("files", [small, small, large])
            with pytest.raises(errors.LimitExceeded, match=r"one message.*frame_bytes"):
                await client.put("files", large)
            await client.put("files", {"content": b"last"})
            await client.flush()
            sizes = []
            while sizes[-1:] != [4]:
                sizes.append(len((await files.get()).content))
            assert sizes in ([300_000] * 8 + [4], [300_000] * 10 + [4])  # rows before a large one may have been put

    asyncio.run(test())
