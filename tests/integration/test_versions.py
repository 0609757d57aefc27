"""Programs of several versions of a schema share a topic: in any order, through restarts, whichever way they read."""

import asyncio
from itertools import count

import numpy as np
import pytest

import milepost
from milepost import AsyncClient, Client, errors, testing
from milepost.wire import Kind
from tests.integration.proxy import Proxy
from tests.integration.test_failures import PATIENCE, Broker, run

OLD = "quote: [n: long, symbol: string]"
NEW = "quote: [n: long, symbol: string, venue: string]"
LOT = "quote: [n: long, lot: int, symbol: string]"
NOWHERE = ("127.0.0.1", 1)  # where nobody listens
_names = count(1)


def old_row(n):
    return {"n": n, "symbol": f"s{n}"}


def new_row(n):
    return {**old_row(n), "venue": f"v{n}"}


def addresses(number):
    name = next(_names)
    return [f"inproc://versions-{name}-{each}" for each in range(number)]


def beside(body, **settings):
    async def whole():
        async with testing.broker(**settings) as broker:
            await body(broker)

    run(whole())


async def rows_of(subscription, number):
    """So many messages, as (n, venue)."""
    return [(message.n, message.venue) for message in [await subscription.get() for _ in range(number)]]


async def until(condition):
    """Let the event loop go round until something is so; the test's own limit ends what never is."""
    while not condition():
        await asyncio.sleep(0)


# Absence, in every way to look at a message


def seen_in_batches(batches):
    """(n, venue) of all rows, after all ways to look into a batch have agreed."""
    found = []
    for batch in batches:
        table = batch.to_arrow()
        plain = batch.to_pylist()
        venues = batch.column("venue")
        rows = [(row["n"], row["venue"]) for row in plain]
        assert rows == [(row.n, row.venue) for row in batch] == [(row["n"], row["venue"]) for row in batch]
        assert rows == list(zip(table.column("n").to_pylist(), table.column("venue").to_pylist(), strict=True))
        assert [
            None if absent else venue for venue, absent in zip(venues, np.ma.getmaskarray(venues), strict=True)
        ] == [venue for _, venue in rows]
        assert batch.arrow("venue").to_pylist() == [venue for _, venue in rows]
        found += rows
    return found


EXPECTED = [(0, None), (1, None), (2, "v2"), (3, None)]


async def filled(client_old, client_new):
    """Rows of both versions, one by one and together."""
    await client_old.put_many("quotes", [old_row(0), old_row(1)])
    await client_old.flush()
    await client_new.put("quotes", new_row(2))
    await client_new.flush()
    await client_old.put("quotes", old_row(3))
    await client_old.flush()


@pytest.mark.parametrize("durable", [False, True], ids=["live", "durable"])
@pytest.mark.parametrize("first", ["old", "new"])
@pytest.mark.parametrize("declares", [True, False], ids=["declared", "undeclared"])
def test_what_the_writers_version_lacks_is_absent_however_it_is_read(durable, first, declares):
    async def body(broker):
        async with AsyncClient(broker.uri) as old, AsyncClient(broker.uri) as new, AsyncClient(broker.uri) as reader:
            for client, schema in ((old, OLD), (new, NEW)) if first == "old" else ((new, NEW), (old, OLD)):
                info = await client.declare_topic("quotes", schema, durable=durable)
            assert [str(each) for each in info.versions] == [OLD, NEW]
            if declares:
                await reader.declare_topic("quotes", NEW)
            each, several, columns = [await reader.subscribe("quotes") for _ in range(3)]
            called, batched = [], []
            await reader.subscribe("quotes", callback=lambda message: called.append((message.n, message["venue"])))
            await reader.subscribe("quotes", callback=batched.append, batches=True)
            lacking = await reader.subscribe("quotes", "venue is null")
            having = await reader.subscribe("quotes", "venue > 'v'")
            await filled(old, new)
            found = []
            async for message in each:
                found.append((message.n, message.venue))
                if len(found) == len(EXPECTED):
                    break
            assert found == await rows_of(several, len(EXPECTED)) == EXPECTED
            found = []
            async for batch in columns.batches():
                found.append(batch)
                if sum(map(len, found)) == len(EXPECTED):
                    break
            assert seen_in_batches(found) == EXPECTED
            await until(lambda: len(called) == sum(map(len, batched)) == len(EXPECTED))
            assert called == seen_in_batches(batched) == EXPECTED
            assert await rows_of(lacking, 3) == [row for row in EXPECTED if row[1] is None]
            assert await rows_of(having, 1) == [(2, "v2")]

    beside(body)


@pytest.mark.parametrize("first", ["old", "new"])
@pytest.mark.parametrize("declares", [True, False], ids=["declared", "undeclared"])
def test_what_the_writers_version_lacks_is_absent_in_a_log(first, declares):
    async def body(broker):
        async with AsyncClient(broker.uri) as old, AsyncClient(broker.uri) as new, AsyncClient(broker.uri) as reader:
            for client, schema in ((old, OLD), (new, NEW)) if first == "old" else ((new, NEW), (old, OLD)):
                await client.declare_topic("quotes", schema, durable=True)
            if declares:
                await reader.declare_topic("quotes", NEW)
            await filled(old, new)
            desk = await reader.subscribe("quotes", name="desk", start="earliest", ack="explicit")
            found = [await desk.get() for _ in EXPECTED]
            assert [(message.n, message.venue) for message in found] == EXPECTED
            assert [message.id is not None for message in found] == [True] * 4
            await desk.ack(found[0])
            await desk.nack(found[1])
            assert [(await desk.get()).n, desk.offset, desk.deliveries] == [1, 1, 1]
            await desk.ack()
            named = await reader.subscribe("quotes", name="many", start="earliest")
            taken = []
            while len(taken) < len(EXPECTED):
                taken += [(message.n, message["venue"]) for message in await named.get_many(10)]
            assert taken == EXPECTED
            replay = await reader.subscribe("quotes", start="earliest")
            assert await rows_of(replay, 4) == EXPECTED
            lacking = await reader.subscribe("quotes", "venue is null", start="earliest")
            assert await rows_of(lacking, 3) == [row for row in EXPECTED if row[1] is None]
            having = await reader.subscribe("quotes", "venue > 'v'", start="earliest")
            assert await rows_of(having, 1) == [(2, "v2")]
            (log,) = (await reader.look("quotes"))["logs"]
            end = {log["log"]: log["next"]}
            batches = [batch async for batch in reader.read("quotes", {}, end)]
            assert seen_in_batches(batches) == EXPECTED
            assert [offset for batch in batches for offset in batch.offsets] == [0, 1, 2, 3]
            some = [batch async for batch in reader.read("quotes", {}, end, where="venue is null or n = 2")]
            assert seen_in_batches(some) == EXPECTED

            def synchronous():
                with Client(broker.uri) as client:
                    if declares:
                        client.declare_topic("quotes", NEW)
                    return seen_in_batches(client.read("quotes", {}, end))

            assert await asyncio.to_thread(synchronous) == EXPECTED

    beside(body, listen="127.0.0.1:0")


def test_a_reader_of_an_old_version_gets_what_it_declared_and_no_more():
    async def body(broker):
        async with AsyncClient(broker.uri) as old, AsyncClient(broker.uri) as new:
            await old.declare_topic("quotes", OLD)
            await new.declare_topic("quotes", NEW)
            quotes = await old.subscribe("quotes")
            await new.put("quotes", new_row(1))
            message = await quotes.get()
            assert (message.n, "venue" in message) == (1, False)
            await old.put("quotes", message)
            await new.put("quotes", new_row(2))
            async for batch in quotes.batches():
                assert str(batch.schema) == OLD
                assert batch.to_arrow().schema.names == ["n", "symbol"]
                if batch.column("n")[-1] == 2:
                    break

    beside(body)


@pytest.mark.parametrize("durable", [False, True], ids=["live", "durable"])
def test_extensions_of_one_base_read_each_other(durable):
    async def body(broker):
        async with AsyncClient(broker.uri) as one, AsyncClient(broker.uri) as other, AsyncClient(broker.uri) as neither:
            await one.declare_topic("quotes", OLD, durable=durable)
            await one.declare_topic("quotes", NEW)
            await other.declare_topic("quotes", LOT)
            subscriptions = [await client.subscribe("quotes") for client in (one, other, neither)]
            both = await neither.subscribe("quotes", "lot > 1 or venue is not null")
            await one.put("quotes", new_row(1))
            await one.flush()
            await other.put("quotes", {**old_row(2), "lot": 5})
            await other.flush()
            assert await rows_of(subscriptions[0], 2) == [(1, "v1"), (2, None)]
            found = [await subscriptions[1].get() for _ in range(2)]
            assert [(message.n, message.lot) for message in found] == [(1, None), (2, 5)]
            for subscription in (subscriptions[2], both):
                found = [await subscription.get() for _ in range(2)]
                assert [(message.n, message.lot, message.venue) for message in found] == [(1, None, "v1"), (2, 5, None)]

    beside(body)


def test_a_field_that_was_renamed_is_still_refused():
    async def body(broker):
        async with AsyncClient(broker.uri) as client:
            await client.declare_topic("quotes", NEW)
            with pytest.raises(errors.IncompatibleSchema, match="venue: the field was removed or renamed"):
                await client.declare_topic("quotes", NEW.replace("venue", "avenue"))
            await client.declare_topic("quotes", OLD)  # which says that both extend this one
            await client.declare_topic("quotes", NEW.replace("venue", "avenue"))

    beside(body)


# Topics that were made anew while a program was away


@pytest.mark.parametrize("away", [OLD, NEW, LOT], ids=["old", "new", "extension"])
def test_a_program_that_comes_back_to_a_topic_made_anew_goes_on(away):
    """A broker that restarted has lost its live topics, and another program was first to declare one again."""

    async def body():
        before, after = addresses(2)
        async with testing.broker(listen=after), AsyncClient(after) as other:
            async with testing.broker(listen=before):
                client = await AsyncClient(f"{before},{after}").connect()
                await client.declare_topic("quotes", OLD)
                await client.declare_topic("quotes", away)
                quotes = await client.subscribe("quotes")
                await other.declare_topic("quotes", OLD if away == NEW else NEW)
                theirs = await other.subscribe("quotes")
            await client.status()  # waits for the other broker
            row = {NEW: new_row(1), LOT: {**old_row(1), "lot": 3}}.get(away, old_row(1))
            await client.put("quotes", row)
            await client.put_many("quotes", [row])
            await client.flush()
            assert [(await quotes.get()).n, (await quotes.get()).n] == [1, 1]
            message = await theirs.get()
            assert (message.n, message.venue if away != NEW else None) == (1, None)
            await client.close()

    run(body())


@pytest.mark.parametrize("durable", [False, True], ids=["live", "durable"])
def test_a_program_that_was_there_all_the_time_goes_on_with_a_topic_made_anew(durable):
    async def body(broker):
        async with AsyncClient(broker.uri) as old, AsyncClient(broker.uri) as new:
            await old.declare_topic("quotes", OLD, durable=durable)
            await old.put("quotes", old_row(0))
            await old.flush()
            await new.delete_topic("quotes")
            await new.declare_topic("quotes", NEW, durable=durable)
            quotes = await new.subscribe("quotes")
            with pytest.raises(errors.UnknownTopic):  # what met the topic that was deleted
                await old.put("quotes", old_row(1))
                await old.flush()
            await old.put("quotes", old_row(2))
            await old.flush()
            assert await rows_of(quotes, 1) == [(2, None)]

    beside(body)


def test_a_live_topic_that_somebody_deletes_is_not_made_again_by_a_put():
    async def body(broker):
        async with AsyncClient(broker.uri) as client, AsyncClient(broker.uri) as other:
            await client.declare_topic("quotes", OLD)
            await client.put("quotes", old_row(0))
            await client.flush()
            await other.delete_topic("quotes")
            for _ in range(2):
                with pytest.raises(errors.UnknownTopic):
                    await client.put("quotes", old_row(1))
                    await client.flush()
            assert await other.topics() == []

    beside(body)


def test_a_topic_made_anew_as_something_else_costs_a_client_no_more_than_that_topic():
    async def body():
        before, after = addresses(2)
        async with testing.broker(listen=after), AsyncClient(after) as other:
            async with testing.broker(listen=before):
                client = await AsyncClient(f"{before},{after}").connect()
                await client.declare_topic("quotes", OLD)
                await client.declare_topic("fine", OLD)
                quotes, fine = await client.subscribe("quotes"), await client.subscribe("fine")
                await other.declare_topic("quotes", "quote: [n: string]")
            await client.status()
            await other.put("quotes", {"n": "five"})
            assert (await quotes.get()).n == "five"
            await client.put("fine", old_row(1))
            assert (await fine.get()).n == 1
            await client.put("quotes", old_row(2))
            with pytest.raises(errors.UnknownSchema):
                await client.flush()
            with pytest.raises(errors.IncompatibleSchema):
                await client.declare_topic("quotes", OLD)
            await client.close()

    run(body())


def test_what_a_topic_was_meanwhile_does_not_stand_in_the_way_of_what_was_declared():
    async def body():
        names = addresses(3)
        async with testing.broker(listen=names[2]) as last:
            async with testing.broker(listen=names[1]), AsyncClient(names[1]) as other:
                async with testing.broker(listen=names[0]):
                    client = await AsyncClient(",".join(names)).connect()
                    await client.declare_topic("quotes", OLD)
                    await client.declare_topic("quotes", LOT)
                    await other.declare_topic("quotes", "quote: [n: string]")
                await client.status()
                assert [str(each.schema) for each in await client.topics()] == ["quote: [n: string]"]
            await client.status()
            assert [str(each) for each in last.core.topics["quotes"].schemas] == [OLD, LOT]
            quotes = await client.subscribe("quotes")
            await client.put("quotes", {**old_row(1), "lot": 2})
            await client.flush()
            assert (await quotes.get()).lot == 2
            await client.close()

    run(body())


@pytest.mark.parametrize("kind", [Kind.TOPIC, Kind.REPLY], ids=["announcement", "reply"])
@pytest.mark.parametrize("lost", [1, 2, 3])
def test_connections_that_break_while_topics_are_declared_again(kind, lost):
    """What a client knows of a topic survives the announcement of what the topic is now."""

    async def body():
        async with (
            testing.broker(listen="127.0.0.1:0") as before,
            testing.broker(listen="127.0.0.1:0") as after,
            Proxy(("127.0.0.1", before.address.port)) as proxy,
            AsyncClient(proxy.address, timeout=PATIENCE) as client,
            AsyncClient(after.uri) as other,
        ):
            await client.declare_topic("quotes", OLD)
            await client.declare_topic("quotes", LOT)
            await other.declare_topic("quotes", NEW)
            quotes = await other.subscribe("quotes")
            for _ in range(lost):
                proxy.lose("down", kind)
            proxy.target = ("127.0.0.1", after.address.port)
            proxy.sever()
            await proxy.cut.wait()
            await client.status()
            await client.put("quotes", {**old_row(1), "lot": 3})
            await client.flush()
            assert await rows_of(quotes, 1) == [(1, None)]
            assert not proxy.cuts

    run(body())


def test_a_dead_letter_topic_takes_versions_that_came_after_it():
    async def body(broker):
        async with AsyncClient(broker.uri) as old, AsyncClient(broker.uri) as new:
            await old.declare_topic("quotes", OLD, durable=True)
            options = {
                "name": "desk",
                "ack": "explicit",
                "max_deliveries": 1,
                "dead_letter": "dead",
                "start": "earliest",
            }
            desk = await old.subscribe("quotes", **options)
            await desk.detach()
            await new.declare_topic("quotes", NEW)
            await new.put("quotes", new_row(1))
            desk = await new.subscribe("quotes", **options)
            message = await desk.get()
            await desk.nack(message)
            dead = await new.subscribe("dead", start="earliest")
            assert await rows_of(dead, 1) == [(1, "v1")]

    beside(body)


# A rolling upgrade, with brokers that are killed


class Program:
    """A program of one version: it puts into a durable and a live topic, and consumes both."""

    def __init__(self, name, schema, row):
        self.name, self.schema, self.row = name, schema, row
        self.proxy = self.client = self.log = self.live = None

    async def start(self, broker):
        self.proxy = await Proxy(("127.0.0.1", broker.port)).__aenter__()
        self.client = await AsyncClient(self.proxy.address, name=self.name, timeout=PATIENCE).connect()
        await self.client.declare_topic("orders", self.schema, durable=True)
        await self.client.declare_topic("ticks", self.schema)
        self.log = await self.client.subscribe("orders", name=f"{self.name}-desk", start="earliest")
        self.live = await self.client.subscribe("ticks")

    def hold(self):
        """Be away."""
        self.proxy.target = NOWHERE
        self.proxy.sever()

    def release(self, broker):
        self.proxy.target = ("127.0.0.1", broker.port)

    async def put(self, n):
        await self.client.put("orders", self.row(n))

    async def tick(self, n):
        await self.client.put("ticks", self.row(n))
        await self.client.flush()

    async def stop(self):
        if self.client is not None:
            await self.client.close(drain=False)
        if self.proxy is not None:
            await self.proxy.__aexit__()


def seen_by(program, message):
    return (message.n, message.venue) if program.schema == NEW else (message.n, "venue" in message)


def expected(reader, writer, n):
    """What a program sees of a message of another."""
    return (n, (f"v{n}" if writer.schema == NEW else None) if reader.schema == NEW else False)


@pytest.mark.slow
@pytest.mark.parametrize("first", ["old", "new"])
@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_a_rolling_upgrade_in_both_orders_across_kills(tmp_path, first, store, request):
    url = request.getfixturevalue("postgresql") if store == "postgresql" else str(tmp_path / "broker.db")

    async def body():
        one, two = Program("old", OLD, old_row), Program("new", NEW, new_row)
        if first == "new":
            one, two = two, one
        numbers, stored = count(), {}  # by number: the program that put it
        async with Broker(tmp_path, url) as broker:

            async def put(program):
                stored[number := next(numbers)] = program
                await program.put(number)

            try:
                await one.start(broker)
                await put(one)
                await broker.kill()
                await broker.start()
                await two.start(broker)  # while the other one comes back
                for early, late in ((one, two), (two, one)):
                    late.hold()
                    await broker.kill()
                    await broker.start()
                    await early.client.status()  # it has declared its version, and the broker knows no other live one
                    await put(early)
                    late.release(broker)
                    await late.client.status()
                    await put(late)
                    for writer in (early, late):
                        await writer.tick(number := next(numbers))
                        for reader in (early, late):
                            message = await reader.live.get(timeout=PATIENCE)
                            assert seen_by(reader, message) == expected(reader, writer, number)
                for reader in (one, two):
                    found = [await reader.log.get(timeout=PATIENCE) for _ in stored]
                    assert sorted(message.n for message in found) == sorted(stored)
                    for message in found:
                        assert seen_by(reader, message) == expected(reader, stored[message.n], message.n)
                    assert await reader.log.get(timeout=0) is None
            finally:
                for program in (one, two):
                    await program.stop()

    run(body())


def test_versions_meet_at_two_brokers_of_a_cell(postgresql):
    """Each broker hears of the other's versions, and a program that moves brings its own along."""

    async def body():
        names = addresses(2)
        async with testing.broker(name="b", listen=names[1], store=postgresql):
            async with testing.broker(name="a", listen=names[0], store=postgresql):
                old = await AsyncClient(",".join(names), timeout=PATIENCE).connect()
                new = await AsyncClient(names[1], timeout=PATIENCE).connect()
                await new.declare_topic("quotes", NEW, durable=True)
                await old.declare_topic("quotes", OLD, durable=True)
                await new.declare_topic("quotes", NEW, durable=True)
                await old.put("quotes", old_row(0))
                await new.put("quotes", new_row(1))
            await old.put("quotes", old_row(2))
            everything = await new.subscribe("quotes", start="earliest")
            assert sorted(await rows_of(everything, 3)) == [(0, None), (1, "v1"), (2, None)]
            await old.close()
            await new.close()

    run(body())


def test_rows_that_were_read_as_another_version_are_put_as_they_are():
    async def body(broker):
        async with AsyncClient(broker.uri) as client:
            await client.declare_topic("quotes", OLD)
            await client.declare_topic("copies", OLD)
            await client.declare_topic("copies", OLD.replace("]", ", note: string?]"))
            await client.declare_topic("quotes", OLD.replace("]", ", note: string?]"))
            quotes, copies = await client.subscribe("quotes"), await client.subscribe("copies")
            await client.put_many("quotes", milepost.encode(milepost.parse_schema(OLD), [old_row(1)]))
            await client.put_many("copies", await quotes.next_batch())
            assert (await copies.get()).note is None

    beside(body)
