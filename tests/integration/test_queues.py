"""Queues over sockets: transactions, dequeues that wait, workers, and whatever breaks in between."""

import asyncio
from contextlib import AsyncExitStack
from datetime import UTC, date, datetime, timedelta
from urllib.request import urlopen

import numpy as np
import pytest

from milepost import AsyncClient, Client, testing
from milepost.broker.metrics import start_metrics
from milepost.errors import (
    AckMismatch,
    BlockIncomplete,
    CheckFailed,
    InvalidValue,
    LimitExceeded,
    NotDurable,
    NoTransaction,
    OutcomeUnknown,
    QueryError,
    QueueExists,
    QueueInUse,
    TimedOut,
    TransactionAborted,
    TypeExists,
    TypeInUse,
    UnknownQueue,
    UnknownType,
    WrongType,
)
from milepost.schema import Node, classes, ddl
from milepost.wire import Kind
from tests.integration.proxy import Proxy
from tests.integration.test_failures import PATIENCE, Broker, run
from tests.unit.schema.test_ddl import ORDER

QUOTE = "quote: [symbol: string, price: double, size: int] check (size >= 0)"
ORDER_MESSAGE = ddl.parse(ORDER)


def quote(size, symbol="IBM", price=1.5):
    return {"symbol": symbol, "price": price, "size": size}


def order(number, lines=2):
    item = {"id": 7, "name": "ink", "ean": 4006381333931}
    made = [{"line_no": each, "amout": each, "price": 1.5, "item": [item]} for each in range(lines)]
    return {"id": number, "date": date(2026, 1, number), "lines": made}


def sizes(messages):
    return [message.size for message in messages]


POSTGRESQL = pytest.param("postgresql", marks=pytest.mark.xdist_group("postgresql"))
BROKERLESS = pytest.param("brokerless", marks=pytest.mark.xdist_group("postgresql"))


@pytest.fixture(params=["sqlite", POSTGRESQL])
def brokered(request):
    """Settings of a broker with a store of each kind."""
    return {} if request.param == "sqlite" else {"store": request.getfixturevalue("postgresql")}


@pytest.fixture(params=["sqlite", POSTGRESQL, BROKERLESS])
def store(request):
    """The same, or a database that clients work on without a broker."""
    if request.param == "brokerless":
        return {"brokerless": request.getfixturevalue("postgresql")}
    return {} if request.param == "sqlite" else {"store": request.getfixturevalue("postgresql")}


class Place:
    """A broker at a real port, and clients of it; or clients that have none."""

    def __init__(self, broker, *clients):
        self.broker = broker
        self.clients = clients

    async def until(self, condition):
        """Wait for something that happens by itself, one round trip after the other."""
        async with asyncio.timeout(PATIENCE):
            while not condition():
                await (self.clients[-1].status() if self.broker is not None else self.clients[-1].types())

    def figures(self):
        if self.broker is not None:
            return self.broker.core.queues.figures()
        connections = [client._session.connection for client in self.clients]
        return {
            "transactions": sum(len(each._machine._client.transactions) for each in connections),
            "waiting": sum(len(each._machine.waiting) for each in connections),
            "held_bytes": 0,
        }


def at(body, clients=2, brokerless=None, **settings):
    """Run `body(place, *clients)` with a broker and clients of it, or on a database, and a queue `quotes`."""

    async def whole():
        async with AsyncExitStack() as stack:
            broker = None
            if brokerless is None:
                broker = await stack.enter_async_context(testing.broker(listen="127.0.0.1:0", **settings))
            address = brokerless or str(broker.address)
            made = [AsyncClient(address, timeout=PATIENCE) for _ in range(clients)]
            try:
                for each in made:
                    await each.connect()
                await made[0].declare_type(QUOTE)
                await made[0].declare_queue("quotes", ["quote"])
                await body(Place(broker, *made), *made)
            finally:
                for each in made:
                    await each.close()

    run(whole())


async def fill(client, *numbers, queue="quotes"):
    async with client.transaction() as tx:
        await tx.enqueue(queue, [quote(number) for number in numbers])


async def drain(client, queue="quotes"):
    async with client.transaction() as tx:
        return sizes(await tx.dequeue(queue, count=1000))


# Transactions


def test_what_is_written_is_seen_after_the_commit_and_taken_once(store):
    async def body(place, writer, reader):
        async with writer.transaction() as tx:
            one = await tx.enqueue("quotes", quote(1))
            many = await tx.enqueue("quotes", [quote(2), quote(3)], "quote")
            with pytest.raises(NoTransaction, match="after the commit"):
                one.mids  # noqa: B018
            async with reader.transaction() as other:
                assert await other.dequeue("quotes", count=10) == []
        assert len(one.mids + many.mids) == len(set(one.mids + many.mids)) == 3
        async with reader.transaction() as tx:
            found = await tx.dequeue("quotes", "quote", count=2)
            assert [message.mid for message in found] == [one.mids[0], many.mids[0]]
            assert [(each.symbol, each["size"], each.root.price) for each in found] == [
                ("IBM", 1, 1.5),
                ("IBM", 2, 1.5),
            ]
            assert {(each.type, each.deliveries, each.priority) for each in found} == {("quote", 0, 0.0)}
            assert datetime.now(UTC) - found[0].enqueued_at < timedelta(hours=1)
            async with writer.transaction() as other:
                assert sizes(await other.dequeue("quotes", count=10)) == [3]
                await other.abort()
        assert await drain(writer) == [3]
        if place.broker is not None:
            figures = place.broker.core.totals
            assert (figures["messages_enqueued"], figures["queue_commits"]) == (3, 4)
        assert place.figures() == {"transactions": 0, "waiting": 0, "held_bytes": 0}

    at(body, **store)


def test_an_exception_aborts_and_the_messages_come_back_counted(store):
    async def body(place, client, _):
        await fill(client, 1, 2)
        with pytest.raises(ZeroDivisionError):
            async with client.transaction() as tx:
                await tx.enqueue("quotes", quote(3))
                assert len(await tx.dequeue("quotes", count=2)) == 2
                raise ZeroDivisionError
        async with client.transaction() as tx:
            found = await tx.dequeue("quotes", count=10)
            assert [(message.size, message.deliveries) for message in found] == [(1, 1), (2, 1)]
        with pytest.raises(NoTransaction, match="was committed"):
            await tx.dequeue("quotes")
        with pytest.raises(NoTransaction):
            await tx.enqueue("quotes", quote(1))
        with pytest.raises(NoTransaction):
            await tx.commit()
        await tx.abort()  # as often as one likes
        assert await drain(client) == []

    at(body, **store)


def test_a_flush_tells_the_ids_and_shows_them_to_nobody():
    async def body(place, client, other):
        async with client.transaction() as tx:
            receipt = await tx.enqueue("quotes", [quote(1), quote(2)])
            await tx.flush()
            assert len(receipt.mids) == 2
            assert await drain(other) == []
            more = await tx.enqueue("quotes", quote(3))
            assert [message.mid for message in await tx.dequeue("quotes", count=9)] == receipt.mids + more.mids
            await tx.enqueue("quotes", quote(4))
        assert await drain(other) == [4]

    at(body)


def test_begin_enqueue_and_commit_are_one_round_trip_and_so_is_a_dequeue():
    async def body(place, client, _):
        await fill(client, 1)  # by now it knows the types
        async with Proxy(("127.0.0.1", place.broker.address.port)) as proxy, AsyncClient(proxy.address) as far:
            await fill(far, 2)
            await drain(far)
            proxy.seen.clear()
            await fill(far, 3)
            assert proxy.seen == [("up", Kind.ENQUEUE), ("up", Kind.FINISH), ("down", Kind.REPLY)]
            proxy.seen.clear()
            async with far.transaction() as tx:
                await tx.dequeue("quotes")
            asked = [kind for direction, kind in proxy.seen if direction == "up"]
            assert asked == [Kind.DEQUEUE, Kind.FINISH]
            proxy.seen.clear()
            async with far.transaction():
                pass
            async with far.transaction() as tx:
                await tx.enqueue("quotes", quote(4))
                await tx.abort()
            assert [kind for direction, kind in proxy.seen if direction == "up"] == [Kind.FINISH], "nothing was sent"

    at(body)


def test_a_large_transaction_flows_through_a_small_window():
    async def body(place, client, _):
        async with client.transaction() as tx:
            for number in range(30):
                await tx.enqueue("quotes", [quote(number, symbol="x" * 1000) for _ in range(50)])
            receipt = await tx.enqueue("quotes", [quote(99, symbol="y" * 1000) for _ in range(2000)])
        assert len(set(receipt.mids)) == 2000
        async with client.transaction() as tx:
            found = await tx.dequeue("quotes", count=10_000)
            assert sizes(found) == [number for number in range(30) for _ in range(50)] + [99] * 2000
            assert [message.mid for message in found[1500:]] == receipt.mids
        assert place.broker.core.queues.figures()["held_bytes"] == 0

    at(body, put_window=65_536, frame_bytes=65_536)


def test_priorities_delays_ends_selections_and_orders(store):
    async def body(place, client, _):
        await client.declare_queue("by size", ["quote"], priorities={"quote": "size * 2"}, direction="asc")
        async with client.transaction() as tx:
            for number in (3, 1, 2):
                await tx.enqueue("by size", quote(number))
            await tx.enqueue("by size", quote(9), priority=-1)
        async with client.transaction() as tx:
            found = await tx.dequeue("by size", count=10)
            assert [(message.size, message.priority) for message in found] == [(9, -1), (1, 2), (2, 4), (3, 6)]
        await fill(client, *range(10))
        async with client.transaction() as tx:
            found = await tx.dequeue("quotes", "quote", count=3, where="size > 4 and symbol = 'IBM'", order="size desc")
            assert sizes(found) == [9, 8, 7]
            assert sizes(await client.peek("quotes", count=2)) == [0, 1]
        async with client.transaction() as tx:
            await tx.enqueue("quotes", quote(50), delay=3600)
            await tx.enqueue("quotes", quote(51), not_before=datetime.now(UTC) + timedelta(hours=1))
            await tx.enqueue("quotes", quote(52), expires=timedelta(hours=1))
            await tx.enqueue("quotes", quote(53), expires=0)
        assert await drain(client) == [0, 1, 2, 3, 4, 5, 6, 52]
        assert (await client.queue("quotes")).figures["delayed"] == 2

    at(body, **store)


def test_messages_are_nodes_or_classes(store):
    async def body(place, client, _):
        await client.declare_type(ORDER_MESSAGE)
        await client.declare_queue("orders", "OrderMessage")
        made = classes(ORDER_MESSAGE)
        typed = made["order"](id=3, date=date(2026, 1, 3), lines=[])
        async with client.transaction() as tx:
            await tx.enqueue("orders", order(1))
            await tx.enqueue("orders", [order(2), typed])
        async with client.transaction() as tx:
            first, second, third = await tx.dequeue("orders", "OrderMessage", count=3)
            assert isinstance(first.root, Node)
            assert first.root is first.root
            assert first.id == first["id"] == 1
            assert first.lines[1].item.name == "ink"
            assert first.lines[0].item.one is first.lines[1].item.one
            assert list(third) == ["id", "date", "lines"]
            assert third.lines == []
            with pytest.raises(AttributeError, match="did you mean 'lines'"):
                second.lins  # noqa: B018
            with pytest.raises(KeyError, match="no member 'x'"):
                second["x"]
            with pytest.raises(InvalidValue, match="classes="):
                first.root_as(made["order"])
            await tx.enqueue("orders", [second, third])  # on to another queue, as they are
        async with client.transaction() as tx:
            by_lines = "count(select l from mt_OrderMessage m, m.root o, o.lines l) desc"
            found = await tx.dequeue("orders", "OrderMessage", count=3, order=by_lines, classes=made)
            assert [message.root_as(made["order"]).id for message in found] == [2, 3]
            assert found[0].plain()["lines"][1]["line_no"] == 1

    at(body, **store)


def test_a_queue_of_several_types(store):
    async def body(place, client, _):
        await client.declare_type("note: [text: string]")
        await client.declare_type(ORDER_MESSAGE)
        await client.declare_queue("mixed", ["quote", "note", "OrderMessage"])
        node = classes(ORDER_MESSAGE)["order"](id=3, date=date(2026, 1, 3))
        async with client.transaction() as tx:
            await tx.enqueue("mixed", quote(1), "quote")
            await tx.enqueue("mixed", {"text": "hello"}, "note")
            await tx.enqueue("mixed", node)
            with pytest.raises(WrongType, match="say which"):
                await tx.enqueue("mixed", {"text": "hello"})
        async with client.transaction() as tx:
            found = await tx.dequeue("mixed", count=10)
            assert [message.type for message in found] == ["quote", "note", "OrderMessage"]
            assert found[1].text == "hello"
            await tx.abort()
        async with client.transaction() as tx:
            assert (await tx.dequeue("mixed", "note"))[0].deliveries == 1
            await tx.enqueue("mixed", await tx.dequeue("mixed", "quote"))

    at(body, **store)


# Bad input


def test_what_is_wrong_is_told_and_nothing_is_stored(store):
    async def body(place, client, _):
        await fill(client, 1)
        async with client.transaction() as tx:
            for wrong, error in (
                ({"symbol": "IBM"}, InvalidValue),
                (quote("many"), InvalidValue),
                (quote(-1), CheckFailed),
                ([], InvalidValue),
                ([quote(1), quote(-1)], CheckFailed),
            ):
                with pytest.raises(error):
                    await tx.enqueue("quotes", wrong)
            for more in (
                {"priority": float("nan")},
                {"priority": "high"},
                {"delay": -1},
                {"delay": 1, "not_before": datetime.now(UTC)},
                {"not_before": datetime(2026, 1, 1)},
            ):
                with pytest.raises(InvalidValue):
                    await tx.enqueue("quotes", quote(2), **more)
            with pytest.raises(UnknownType, match="did you mean 'quote'"):
                await tx.enqueue("quotes", quote(2), "quotee")
            with pytest.raises(UnknownQueue, match="did you mean 'quotes'"):
                await tx.enqueue("quotez", quote(2))
            for fields, error in (
                ({"count": 0}, InvalidValue),
                ({"count": True}, InvalidValue),
                ({"count": 1 << 40}, LimitExceeded),
                ({"timeout": -1}, InvalidValue),
                ({"where": "size >"}, QueryError),
                ({"where": "seize > 1"}, QueryError),
                ({"where": "'; drop table q1 --'"}, QueryError),
                ({"order": "symbol ||"}, QueryError),
                ({"type": "no'te"}, UnknownType),
            ):
                with pytest.raises(error):
                    await tx.dequeue("quotes", **{"type": "quote"} | fields)
            with pytest.raises(UnknownQueue):
                await tx.dequeue("no; drop table queues")
            assert sizes(await tx.dequeue("quotes", count=9)) == [1], "the transaction is what it was"
            await tx.abort()
        assert await drain(client) == [1]

    at(body, **store)


def test_what_the_broker_has_against_an_enqueue_ends_the_transaction(store):
    async def body(place, client, _):
        await client.declare_type("note: [text: string]")
        await fill(client, 1)
        tx = client.transaction()
        assert sizes(await tx.dequeue("quotes")) == [1]
        await tx.enqueue("quotes", quote(2))
        await tx.enqueue("quotes", {"text": "no quote"}, "note")
        with pytest.raises(WrongType, match="does not take"):
            await tx.commit()
        with pytest.raises(TransactionAborted):
            await tx.dequeue("quotes")
        tx = client.transaction()
        await tx.enqueue("quotes", {"text": "no quote"}, "note")
        with pytest.raises(WrongType):
            await tx.dequeue("quotes")
        with pytest.raises(TransactionAborted, match="one of its steps failed"):
            await tx.dequeue("quotes")
        await tx.abort()
        with pytest.raises(UnknownQueue):
            async with client.transaction() as tx:
                await tx.enqueue("nowhere", quote(1), "quote")
        assert await drain(client) == [1]
        assert place.figures()["transactions"] == 0

    at(body, **store)


def test_an_error_of_a_request_leaves_what_was_enqueued_before_it():
    async def body(place, client, _):
        async with client.transaction() as tx:
            first = await tx.enqueue("quotes", quote(1))
            with pytest.raises(QueryError):
                await tx.dequeue("quotes", "quote", where="seize > 1")
            second = await tx.enqueue("quotes", quote(2))
        assert len({*first.mids, *second.mids}) == 2
        async with client.transaction() as tx:
            assert [each.mid for each in await tx.dequeue("quotes", count=9)] == first.mids + second.mids

    at(body)


def test_a_commit_in_the_middle_of_a_block_is_refused_and_can_go_on(store):
    async def body(place, client, _):
        await client.declare_queue("blocks", ["quote"], level="blockwise")
        async with client.transaction() as tx:
            receipt = await tx.enqueue("blocks", [quote(1), quote(2), quote(3)])
        tx = client.transaction()
        await tx.dequeue("blocks", count=2)
        await tx.enqueue("quotes", quote(7))
        with pytest.raises(BlockIncomplete, match=receipt.mids[2]):
            await tx.commit()
        assert sizes(await tx.dequeue("blocks", count=2)) == [3]
        await tx.commit()
        assert await drain(client) == [7]

    at(body, **store)


def test_leaving_a_transaction_in_the_middle_of_a_block_undoes_it_before_the_error_is_heard(store):
    async def body(place, client, other):
        await client.declare_queue("blocks", ["quote"], level="blockwise")
        async with client.transaction() as tx:
            await tx.enqueue("blocks", [quote(1), quote(2)])
        with pytest.raises(BlockIncomplete):
            async with client.transaction() as tx:
                await tx.dequeue("blocks")
        with pytest.raises(NoTransaction, match="aborted"):
            await tx.dequeue("blocks")
        async with other.transaction() as tx:
            assert sizes(await tx.dequeue("blocks", count=2)) == [1, 2]

    at(body, **store)


def test_administration(store):
    async def body(place, client, _):
        with pytest.raises(TypeExists):
            await client.declare_type("quote: [symbol: string]")
        with pytest.raises(TypeInUse, match="quotes"):
            await client.delete_type("quote")
        with pytest.raises(QueueExists):
            await client.declare_queue("quotes", ["quote"], level="ordered")
        with pytest.raises(UnknownType):
            await client.declare_queue("other", ["nothing"])
        with pytest.raises(InvalidValue):
            await client.declare_queue("other", ["quote"], level="chaotic")
        with pytest.raises(UnknownQueue):
            await client.queue("other")
        with pytest.raises(UnknownType):
            await client.delete_type("nothing")
        assert (await client.declare_queue("quotes", ["quote"])).level == "none"
        info = await client.declare_queue(
            "work", "quote", priority=2.5, priorities={"quote": "size"}, dead_letter="dead", max_deliveries=2
        )
        assert (info.types, info.priority, info.priorities) == (("quote",), 2.5, {"quote": "size"})
        assert (info.dead_letter, info.max_deliveries, info.direction) == ("dead", 2, "desc")
        assert list(await client.types()) == ["quote"]
        assert [each.name for each in await client.queues()] == ["quotes", "dead", "work"]
        await fill(client, *range(5), queue="work")
        for _ in range(2):
            async with client.transaction() as tx:
                assert sizes(await tx.dequeue("work", "quote", where="size = 3")) == [3]
                await tx.abort()
        assert (await client.queue("dead")).figures["waiting"] == 1
        assert sizes([message async for message in client.browse("dead")]) == [3]
        assert await client.move("dead", "work", "quote", where="size = 4") == 0
        assert await client.move("dead", "work") == 1
        assert sizes([message async for message in client.browse("work", "quote", where="size > 1", count=2)]) == [
            2,
            3,
        ]
        assert await client.purge("work", "quote", where="size < 2") == 2
        with pytest.raises(QueueInUse):
            await client.delete_queue("work")
        assert await client.purge("work") == 3
        await client.delete_queue("work")
        await client.delete_queue("dead")
        await client.delete_queue("quotes")
        await client.delete_type("quote")
        assert await client.queues() == []

    at(body, **store)


def test_browse_goes_on_over_many_pieces():
    async def body(place, client, _):
        await fill(client, *range(1234))
        assert sizes([message async for message in client.browse("quotes")]) == list(range(1234))
        assert sizes([message async for message in client.browse("quotes", count=700)]) == list(range(700))

    at(body)


def test_a_broker_that_keeps_nothing_has_no_queues():
    async def body():
        async with testing.broker(store="") as broker, AsyncClient(broker.uri) as client:
            with pytest.raises(NotDurable, match="no queues"):
                await client.queues()
            async with client.transaction() as tx:
                with pytest.raises(NotDurable):
                    await tx.dequeue("quotes")
                await tx.abort()

    run(body())


# Waiting


def test_a_dequeue_waits_until_a_commit_an_abort_or_a_move(store):
    async def body(place, writer, reader):
        async def next_one():
            async with reader.transaction() as tx:
                return sizes(await tx.dequeue("quotes", timeout=PATIENCE))

        async def waiting():
            task = asyncio.create_task(next_one())
            await place.until(lambda: place.figures()["waiting"] == 1)
            return task

        task = await waiting()
        await fill(writer, 1)
        assert await task == [1]
        await fill(writer, 2)
        taken = writer.transaction()
        await taken.dequeue("quotes")
        task = await waiting()
        await taken.abort()
        assert await task == [2]
        await writer.declare_queue("other", ["quote"])
        await fill(writer, 3, queue="other")
        task = await waiting()
        assert await writer.move("other", "quotes") == 1
        assert await task == [3]
        task = await waiting()
        async with writer.transaction() as tx:
            await tx.enqueue("quotes", quote(4), delay=0.3)
        assert await task == [4]
        assert not place.figures()["waiting"]

    at(body, **store)


def test_a_dequeue_ends_at_its_timeout():
    async def body(place, client, _):
        async with client.transaction() as tx:
            assert await tx.dequeue("quotes", timeout=0.1) == []
            assert await tx.dequeue("quotes", "quote", where="size > 5", timeout=0.01) == []
        assert not place.broker.core.queues.waiting.some

    at(body)


def test_those_who_wait_get_each_one_message_and_look_no_more_often_than_needed():
    async def body(place, writer, reader):
        looks = []
        store = place.broker._store.store
        plain = store.write

        def counted(operations, time_us):
            looks.extend(each for each in operations if type(each).__name__ == "Perform")
            return plain(operations, time_us)

        async def one():
            async with reader.transaction() as tx:
                return sizes(await tx.dequeue("quotes", timeout=PATIENCE))

        tasks = [asyncio.create_task(one()) for _ in range(200)]
        await place.until(lambda: place.figures()["waiting"] == 200)
        store.write = counted
        await fill(writer, *range(5))
        while sum(task.done() for task in tasks) < 5:
            await writer.status()
        assert sorted(size for task in tasks if task.done() for size in task.result()) == [0, 1, 2, 3, 4]
        assert tasks[0].done(), "first come, first served"
        assert len(looks) == 11, "the commit, and five that take and commit"
        await fill(writer, *range(5, 200))
        found = [size for task in tasks for size in await task]
        assert sorted(found) == list(range(200))

    at(body, clock=testing.FakeClock(), heartbeat_s=86_400)  # nobody looks by himself after a while


def test_what_others_write_into_the_same_database_wakes_those_who_wait(postgresql):
    async def body(place, client, reader):
        async with testing.broker(store=postgresql, name="second") as second, AsyncClient(second.uri) as far:

            async def one():
                async with reader.transaction() as tx:
                    return sizes(await tx.dequeue("quotes", timeout=PATIENCE))

            task = asyncio.create_task(one())
            await place.until(lambda: place.figures()["waiting"] == 1)
            await fill(far, 7)
            assert await task == [7]
            await far.declare_type("note: [text: string]")
            await far.declare_queue("notes", "note")
            async with client.transaction() as tx:  # a type that this broker has not heard of
                await tx.enqueue("notes", {"text": "x"})
            async with far.transaction() as tx:
                assert (await tx.dequeue("notes"))[0].text == "x"

    at(body, store=postgresql)


test_what_others_write_into_the_same_database_wakes_those_who_wait = pytest.mark.xdist_group("postgresql")(
    test_what_others_write_into_the_same_database_wakes_those_who_wait
)


def test_a_dequeue_that_is_cancelled_loses_nothing(store):
    async def body(place, client, other):
        tx = client.transaction()
        task = asyncio.create_task(tx.dequeue("quotes", timeout=PATIENCE))
        await place.until(lambda: place.figures()["waiting"] == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(TransactionAborted, match="cancelled"):
            await tx.dequeue("quotes")
        await tx.abort()
        await place.until(lambda: place.figures()["transactions"] == 0)
        await fill(other, 1)
        tx = client.transaction()
        task = asyncio.create_task(tx.dequeue("quotes"))
        await asyncio.sleep(0)  # it is sent, and its answer is under way
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await tx.abort()  # until the broker has heard: it may not even have heard of the dequeue
        await place.until(lambda: place.figures()["transactions"] == 0)
        assert await drain(other) == [1]

    at(body, **store)


def test_of_a_commit_that_is_cancelled_nobody_says_that_it_was_undone():
    async def body(place, client, other):
        tx = client.transaction()
        await tx.enqueue("quotes", quote(1))
        task = asyncio.create_task(tx.commit())
        await asyncio.sleep(0)  # it is sent, and its answer is under way
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(OutcomeUnknown, match="look whether its messages are there"):
            await tx.commit()
        await tx.abort()
        await place.until(lambda: place.figures()["transactions"] == 0)
        assert await drain(other) in ([], [1])
        with pytest.raises(OutcomeUnknown):
            async with client.transaction() as tx:
                await tx.enqueue("quotes", quote(2))
                task = asyncio.create_task(tx.commit())
                await asyncio.sleep(0)
                await client.close()
                with pytest.raises(OutcomeUnknown):
                    await task

    at(body)


def test_a_commit_is_not_asked_for_again_when_the_store_may_have_forgotten_it(brokered, monkeypatch):
    monkeypatch.setattr("milepost.client.transaction.REPEATED_S", 0.0)

    async def body(place, other):
        async with Proxy(("127.0.0.1", place.broker.address.port)) as proxy:
            async with AsyncClient(proxy.address, timeout=PATIENCE) as client:
                tx = client.transaction()
                await tx.enqueue("quotes", quote(1), "quote")
                proxy.lose("down", Kind.REPLY)
                with pytest.raises(OutcomeUnknown):
                    await tx.commit()
        assert await drain(other) == [1]

    at(body, clients=1, **brokered)


def test_a_broker_that_does_not_answer_in_time_undoes_the_transaction():
    async def body(place, other):
        await fill(other, 1)
        client = AsyncClient(str(place.broker.address), timeout=PATIENCE)
        await client.connect()
        tx = client.transaction()
        assert sizes(await tx.dequeue("quotes")) == [1]
        client._session.timeout = 0.1
        with pytest.raises(TimedOut):
            await tx.dequeue("quotes", timeout=0.1)  # by the broker's clock, which stands still, it is not over yet
        client._session.timeout = PATIENCE
        with pytest.raises(TransactionAborted, match="did not answer"):
            await tx.commit()
        await place.until(lambda: place.figures()["transactions"] == 0)
        assert await drain(other) == [1]
        await client.close()

    at(body, clients=1, clock=testing.FakeClock())


# Lost connections


FRAMES = [
    pytest.param("up", Kind.ENQUEUE, id="messages are lost"),
    pytest.param("up", Kind.DEQUEUE, id="a dequeue is lost"),
    pytest.param("up", Kind.FINISH, id="a commit is lost"),
    pytest.param("down", Kind.REPLY, id="an answer is lost"),
    pytest.param("down", Kind.TAKEN, id="what was taken is lost"),
]


@pytest.mark.parametrize(("direction", "kind"), FRAMES)
@pytest.mark.parametrize("name", ["desk", ""], ids=["named", "anonymous"])
def test_whatever_frame_is_lost_a_transaction_is_carried_out_once(direction, kind, name):
    async def body(place, other):
        async with Proxy(("127.0.0.1", place.broker.address.port)) as proxy:
            async with AsyncClient(proxy.address, name=name, timeout=PATIENCE) as client:
                expected = []
                for number in range(0, 40, 10):  # the answer that is lost is another one each time
                    await fill(other, *range(number, number + 3))
                    async with client.transaction() as tx:
                        await tx.flush() if number == 30 else None
                        proxy.lose(direction, kind)
                        first = await tx.enqueue("quotes", quote(number + 7, symbol="new"))
                        if number:
                            found = await tx.dequeue(
                                "quotes", "quote", count=2, where="symbol = 'IBM'", timeout=PATIENCE
                            )
                            assert sizes(found) == [number, number + 1]
                        second = await tx.enqueue("quotes", quote(number + 8))
                        await tx.flush() if number == 20 else None
                    assert proxy.cut.is_set() or kind in (Kind.DEQUEUE, Kind.TAKEN)
                    proxy.cuts.clear()
                    expected += first.mids + second.mids
                    async with other.transaction() as tx:
                        left = await tx.dequeue("quotes", count=100)
                        kept = [number + 2] if number else [0, 1, 2]
                        assert sizes(left) == [*kept, number + 7, number + 8]
                        assert [message.mid for message in left[len(kept) :]] == first.mids + second.mids
                assert len(set(expected)) == 8
                assert place.figures()["transactions"] == 0

    at(body, clients=1)


def test_a_wait_goes_on_over_a_lost_connection():
    async def body(place, other):
        async with Proxy(("127.0.0.1", place.broker.address.port)) as proxy:
            async with AsyncClient(proxy.address, timeout=PATIENCE) as client:
                tx = client.transaction()
                task = asyncio.create_task(tx.dequeue("quotes", timeout=PATIENCE))
                await place.until(lambda: place.figures()["waiting"] == 1)
                proxy.sever()
                # That nobody waits may be over before one looks; that it has come back stays so.
                await place.until(lambda: client.statistics().reconnects == 1)
                await place.until(lambda: place.figures()["waiting"] == 1)
                await fill(other, 1)
                assert sizes(await task) == [1]
                await tx.commit()

    at(body, clients=1)


def test_an_abort_reaches_the_broker_over_a_lost_connection():
    async def body(place, other):
        async with Proxy(("127.0.0.1", place.broker.address.port)) as proxy:
            async with AsyncClient(proxy.address, timeout=PATIENCE) as client:
                await fill(other, 1)
                async with client.transaction() as tx:
                    await tx.dequeue("quotes")
                    proxy.lose("up", Kind.FINISH)
                    await tx.abort()
                assert await drain(other) == [1]

    at(body, clients=1)


def test_a_client_that_leaves_is_undone_at_once_and_one_that_is_away_when_its_lease_ends():
    async def body(place, other):
        await fill(other, 1, 2)
        async with AsyncClient(str(place.broker.address)) as client:
            assert len(await client.transaction().dequeue("quotes")) == 1
        await place.until(lambda: len(place.broker.core.connections) == 1)
        assert await drain(other) == [1, 2]
        await fill(other, 3)
        gone = AsyncClient(str(place.broker.address), reconnect=False)
        await gone.connect()
        await gone.transaction().dequeue("quotes")
        await gone.transaction().dequeue("quotes")
        gone._session.connection.abort()
        await place.until(lambda: len(place.broker.core.connections) == 1)
        place.broker.clock.advance(2)
        assert await drain(other) == []
        place.broker.clock.advance(31)
        async with other.transaction() as tx:
            found = await tx.dequeue("quotes", timeout=PATIENCE)
            assert [(message.size, message.deliveries) for message in found] == [(3, 1)]
        await gone.close()

    at(body, clients=1, clock=testing.FakeClock(), heartbeat_s=86_400)


def test_a_client_that_comes_back_too_late_hears_that_its_transaction_was_undone():
    async def body(place, other):
        clock = place.broker.clock
        async with Proxy(("127.0.0.1", place.broker.address.port)) as proxy:
            async with AsyncClient(proxy.address, timeout=PATIENCE) as client:
                await fill(other, 1)
                tx = client.transaction()
                await tx.dequeue("quotes")
                clock.advance(100)  # while it is here, its lease is renewed
                await other.status()
                await tx.enqueue("quotes", quote(5))
                await tx.flush()
                target, proxy.target = proxy.target, ("127.0.0.1", 1)
                proxy.sever()
                await place.until(lambda: len(place.broker.core.connections) == 1)
                clock.advance(2)
                clock.advance(40)
                proxy.target = target
                with pytest.raises(TransactionAborted, match="undone"):
                    await tx.commit()
                assert await drain(other) == [1]

    at(body, clients=1, clock=testing.FakeClock(), heartbeat_s=86_400)


def test_a_broker_that_is_killed_undoes_what_was_under_way_and_knows_what_was_committed(tmp_path):
    async def body():
        async with Broker(tmp_path, tmp_path / "store.db") as broker, Proxy(("127.0.0.1", broker.port)) as proxy:
            async with AsyncClient(proxy.address, timeout=PATIENCE) as client:
                await client.declare_type(QUOTE)
                await client.declare_queue("quotes", ["quote"])
                await fill(client, 1, 2)
                tx = client.transaction()
                assert sizes(await tx.dequeue("quotes")) == [1]
                idle = client.transaction()
                assert await idle.dequeue("quotes", "quote", where="size = 9") == []
                # The reply to a commit is lost with the broker: it was done, and is not done again.
                proxy.lose("down", Kind.REPLY)
                at_once = client.transaction()
                receipt = await at_once.enqueue("quotes", quote(3))
                commit = asyncio.create_task(at_once.commit())
                target, proxy.target = proxy.target, ("127.0.0.1", 1)
                await proxy.cut.wait()
                await broker.kill()
                await broker.start()
                proxy.target = "127.0.0.1", broker.port
                await commit
                with pytest.raises(TransactionAborted):
                    await tx.commit()
                await idle.enqueue("quotes", quote(4))
                await idle.commit()
                async with client.transaction() as again:
                    found = await again.dequeue("quotes", count=9)
                    assert sorted(sizes(found)) == [1, 2, 3, 4]
                    assert receipt.mids[0] in {message.mid for message in found}
                    taken = await again.dequeue("quotes")
                    assert taken == []
                assert target

    run(body())


@pytest.mark.xdist_group("postgresql")
def test_another_broker_of_the_cell_knows_what_was_committed_and_undoes_the_rest(postgresql):
    async def body(place, other):
        async with (
            testing.broker(store=postgresql, name="second", listen="127.0.0.1:0") as second,
            Proxy(("127.0.0.1", place.broker.address.port)) as proxy,
            AsyncClient(proxy.address, timeout=PATIENCE, name="desk") as client,
        ):
            await fill(other, 1, 2)
            under_way = client.transaction()
            assert sizes(await under_way.dequeue("quotes")) == [1]
            begun = client.transaction()
            receipt = await begun.enqueue("quotes", quote(3))
            await begun.flush()
            at_once = client.transaction()
            more = await at_once.enqueue("quotes", quote(4))
            proxy.target = "127.0.0.1", second.address.port
            proxy.lose("down", Kind.REPLY)
            await asyncio.gather(begun.commit(), at_once.commit(), return_exceptions=False)
            assert proxy.cut.is_set()
            with pytest.raises(TransactionAborted):
                await under_way.commit()
            async with other.transaction() as tx:
                found = await tx.dequeue("quotes", count=9)
                assert sorted(sizes(found)) == [1, 2, 3, 4]
                assert {*receipt.mids, *more.mids} <= {message.mid for message in found}

    at(body, clients=1, store=postgresql)


@pytest.mark.parametrize("kills", [False, True], ids=["connections break", "the broker is killed"])
def test_nothing_is_lost_and_nothing_doubled_whatever_breaks(tmp_path, kills):
    async def body():
        written, taken, total = [], [], 60
        progress = asyncio.Queue()  # one entry for each message, and None at the end
        async with Broker(tmp_path, tmp_path / "store.db") as broker, Proxy(("127.0.0.1", broker.port)) as proxy:
            clients = [AsyncClient(proxy.address, timeout=PATIENCE, name=name) for name in ("a", "", "c", "")]
            for each in clients:
                await each.connect()
            await clients[0].declare_type(QUOTE)
            await clients[0].declare_queue("quotes", ["quote"])
            await clients[0].declare_queue("done", ["quote"])

            async def write(client, numbers):
                for number in numbers:
                    while True:
                        try:
                            async with client.transaction() as tx:
                                await tx.enqueue("quotes", quote(number))
                                if number % 3 == 0:
                                    await tx.flush()
                        except TransactionAborted:
                            continue
                        written.append(number)
                        progress.put_nowait(number)
                        break

            async def take(client):
                while len(taken) < total:
                    try:
                        async with client.transaction() as tx:
                            found = await tx.dequeue("quotes", count=2, timeout=0.2)
                            if found:
                                await tx.enqueue("done", found)
                    except TransactionAborted:
                        continue
                    taken.extend(sizes(found))
                    for number in found:
                        progress.put_nowait(number)

            async def breaking():
                number = 0
                while await progress.get() is not None:
                    number += 1
                    if number % 7:
                        continue
                    if kills and number % 28 == 0:
                        await broker.kill()
                        await broker.start()
                        proxy.target = "127.0.0.1", broker.port
                    else:
                        kinds = [
                            ("down", Kind.REPLY),
                            ("up", Kind.FINISH),
                            ("up", Kind.DEQUEUE),
                            ("down", Kind.TAKEN),
                        ]
                        proxy.lose(*kinds[number // 7 % len(kinds)])

            chaos = asyncio.create_task(breaking())
            half = total // 2
            await asyncio.gather(
                write(clients[0], range(half)),
                write(clients[1], range(half, total)),
                take(clients[2]),
                take(clients[3]),
            )
            progress.put_nowait(None)
            await chaos
            proxy.cuts.clear()
            assert sorted(written) == sorted(taken) == list(range(total))
            assert sorted(await drain(clients[0], "done")) == list(range(total))
            assert await drain(clients[0]) == []
            for each in clients:
                await each.close()

    run(body())


# Workers


@pytest.mark.parametrize("queues", [0, 2])
def test_messages_and_requests_stay_in_order_with_puts_between_them(queues):
    async def body(place, client, other):
        await client.declare_topic("feed", QUOTE)

        async def one(number):
            async with client.transaction() as tx:
                await client.put("feed", quote(number))
                await tx.enqueue("quotes", [quote(number), quote(number + 100)])
                await client.put("feed", quote(number))
                assert len(await tx.dequeue("quotes", "quote", where=f"size = {number}")) == 1
                await tx.enqueue("quotes", quote(number + 200))

        await asyncio.gather(*(one(number) for number in range(50)))
        assert sorted(await drain(other)) == [*range(100, 150), *range(200, 250)]

    at(body, input_queues=queues)


def test_workers(store):
    async def body(place, client, other):
        seen, busy, most = [], 0, 0

        @client.worker("quotes", "quote", where="size < 100", concurrency=3, count=2, backoff=0.001)
        async def handle(message, tx):
            nonlocal busy, most
            busy += 1
            most = max(most, busy)
            await client.types()
            busy -= 1
            if message.size == 5 and not message.deliveries:
                raise ValueError("not today")
            await tx.enqueue("quotes", quote(message.size + 100))
            seen.append(message.size)
            if len(seen) >= 20 and set(seen) == set(range(20)):
                client.stop_workers()

        task = asyncio.create_task(client.run_workers())
        await place.until(lambda: place.figures()["waiting"] == 3)
        await fill(other, *range(20))
        await task
        assert set(seen) == set(range(20))
        assert most > 1
        assert sorted(await drain(other)) == [number + 100 for number in range(20)]
        assert client._workers.failed == 1
        assert place.figures() == {"transactions": 0, "waiting": 0, "held_bytes": 0}

    at(body, **store)


def test_numbers_and_names_that_cannot_travel():
    async def body(place, client, _):
        async with client.transaction() as tx:
            with pytest.raises(InvalidValue, match="finite"):
                await tx.enqueue("quotes", quote(1), priority=10**400)
            with pytest.raises(InvalidValue, match="surrogate"):
                await tx.dequeue("quotes\ud800")
        for wrong in ({"priority": 10**400}, {"priority": 1 << 70}):
            with pytest.raises(InvalidValue, match="63 bits"):
                await client.declare_queue("more", "quote", **wrong)
        assert await client.status()

    at(body)


def test_a_worker_outlives_the_cancellation_of_what_its_function_waits_for():
    async def body(place, client, other):
        seen = []

        @client.worker("quotes", concurrency=1, backoff=0.001)
        async def handle(message):
            seen.append(message.size)
            if len(seen) == 1:
                inner = asyncio.create_task(other.status())
                inner.cancel()
                await inner
            client.stop_workers()

        await fill(other, 1)
        await asyncio.wait_for(client.run_workers(), PATIENCE)
        assert seen == [1, 1]
        assert (client._workers.handled, client._workers.failed) == (1, 1)
        working = asyncio.create_task(client.run_workers())
        await place.until(lambda: place.figures()["waiting"] == 1)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working

    at(body)


def test_workers_that_are_stopped_finish_what_they_have():
    async def body(place, client, other):
        begun, go = asyncio.Event(), asyncio.Event()

        @client.worker("quotes", concurrency=2)
        async def handle(message):
            begun.set()
            await go.wait()

        task = asyncio.create_task(client.run_workers())
        await fill(other, 1)
        await begun.wait()
        await place.until(lambda: place.figures()["waiting"] == 1)
        client.stop_workers()
        await place.until(lambda: place.figures()["waiting"] == 0)
        assert not task.done()
        go.set()
        await task
        assert await drain(other) == []
        with pytest.raises(InvalidValue, match="no workers"):
            await other.run_workers()
        for wrong in (lambda: 1, lambda a, b, c: 1, None):
            with pytest.raises(InvalidValue, match="worker"):
                client.worker("quotes")(wrong)

    at(body)


# The synchronous face


def test_the_same_verbs_without_an_event_loop(tmp_path):
    async def serve(started, ended):
        async with testing.broker(listen="127.0.0.1:0") as broker:
            started.set_result(str(broker.address))
            await ended.wait()

    def use(address):
        with Client(address) as client:
            client.declare_type(QUOTE)
            client.declare_queue("quotes", ["quote"])
            with client.transaction() as tx:
                receipt = tx.enqueue("quotes", [quote(number) for number in range(600)])
                tx.flush()
                assert len(receipt.mids) == 600
            assert sizes(client.peek("quotes", count=2)) == [0, 1]
            assert len(list(client.browse("quotes"))) == 600
            assert client.purge("quotes", "quote", where="size >= 3") == 597
            with pytest.raises(ZeroDivisionError), client.transaction() as tx:
                assert len(tx.dequeue("quotes", count=3)) == 3
                raise ZeroDivisionError
            seen = []

            @client.worker("quotes", concurrency=2)
            def handle(message, tx):
                tx.enqueue("quotes", quote(7)) if message.size == 2 else None
                seen.append(message.size)
                if sorted(seen) == [0, 1, 2, 7]:
                    client.stop_workers()

            @client.worker("quotes", "quote", where="size < 0")
            def never(message):
                raise AssertionError(message)

            client.run_workers()
            assert sorted(seen) == [0, 1, 2, 7]
            assert client.queue("quotes").figures["waiting"] == 0
            assert client.in_doubt() == []
            client.delete_queue("quotes")
            with pytest.raises(UnknownQueue):
                client.run_workers()
            client.delete_type("quote")
            assert client.queues() == []
            assert client.types() == {}

    async def body():
        started, ended = asyncio.get_running_loop().create_future(), asyncio.Event()
        serving = asyncio.create_task(serve(started, ended))
        await asyncio.to_thread(use, await started)
        ended.set()
        await serving

    run(body())


# Subscriptions that feed queues


async def feed(client, subscription, numbers):
    """Move messages of a subscription into the queue until all of `numbers` are there."""
    left = set(numbers)
    while left:
        try:
            async with client.transaction() as tx:
                messages = await subscription.get_many(3, PATIENCE)
                await tx.enqueue("quotes", [dict(message) for message in messages])
                for message in messages:
                    tx.ack(message)
        except AckMismatch:
            continue  # they come again
        left -= {message.size for message in messages}


def test_a_subscription_feeds_a_queue_in_one_transaction_with_its_cursor(brokered):
    async def body(place, client, other):
        await other.declare_topic("feed", QUOTE, durable=True)
        subscription = await client.subscribe("feed", name="desk", ack="explicit")
        await other.put_many("feed", [quote(number) for number in range(10)])
        await feed(client, subscription, range(10))
        assert await drain(other) == list(range(10))
        (told,) = (await other.look("feed"))["subscriptions"]
        assert told["behind"] == 0
        await other.put_many("feed", [quote(number) for number in range(10, 14)])
        with pytest.raises(ZeroDivisionError):
            async with client.transaction() as tx:
                messages = await subscription.get_many(2, PATIENCE)
                await tx.enqueue("quotes", [dict(message) for message in messages])
                tx.ack(subscription)
                with pytest.raises(AckMismatch):
                    tx.ack(messages[0])
                raise ZeroDivisionError
        (told,) = (await other.look("feed"))["subscriptions"]
        assert told["behind"] == 4, "nothing was acknowledged"
        async with client.transaction() as tx:  # and it can be, still
            tx.ack(messages[0])
        await subscription.ack(messages[1])
        with pytest.raises(AckMismatch):
            client.transaction().ack(quote(1))
        batch = await subscription.next_batch()
        async with client.transaction() as tx:
            await tx.enqueue("quotes", batch.to_pylist())
            tx.ack(batch)
        assert await drain(other) == [12, 13]
        (told,) = (await other.look("feed"))["subscriptions"]
        assert told["behind"] == 0

    at(body, **brokered)


def test_a_commit_that_fails_acknowledges_nothing_and_can_be_tried_again():
    async def body(place, client, other):
        await other.declare_topic("feed", QUOTE, durable=True)
        await client.declare_queue("blocks", ["quote"], level="blockwise")
        await fill(client, 1, 2, queue="blocks")
        subscription = await client.subscribe("feed", name="desk", ack="explicit")
        await other.put_many("feed", [quote(number) for number in range(3)])
        messages = await subscription.get_many(2, PATIENCE)
        tx = client.transaction()
        await tx.dequeue("blocks")
        tx.ack(messages[0])
        await tx.enqueue("quotes", quote(7))
        with pytest.raises(BlockIncomplete):
            await tx.commit()
        assert (await other.look("feed"))["subscriptions"][0]["behind"] == 3
        await subscription.ack(messages[1])
        await tx.dequeue("blocks")
        await tx.commit()
        (third,) = await subscription.get_many(3, PATIENCE)
        assert third.size == 2
        with pytest.raises(UnknownQueue):
            async with client.transaction() as tx:
                tx.ack(third)
                await tx.enqueue("nowhere", quote(1), "quote")
        await subscription.ack(third)
        assert (await other.look("feed"))["subscriptions"][0]["behind"] == 0
        assert await drain(other) == [7]

    at(body)


@pytest.mark.parametrize(
    ("direction", "kind"),
    [
        pytest.param("up", Kind.FINISH, id="the commit is lost"),
        pytest.param("down", Kind.REPLY, id="its answer is lost"),
        pytest.param("up", Kind.ENQUEUE, id="the messages are lost"),
    ],
)
def test_whatever_is_lost_a_fed_queue_has_each_message_once(direction, kind):
    async def body(place, other):
        await other.declare_topic("feed", QUOTE, durable=True)
        async with Proxy(("127.0.0.1", place.broker.address.port)) as proxy:
            async with AsyncClient(proxy.address, timeout=PATIENCE) as client:
                subscription = await client.subscribe("feed", name="desk", ack="explicit", prefetch=5)
                await fill(client, -0)
                await drain(other)
                for start in range(0, 30, 10):
                    proxy.lose(direction, kind)
                    await other.put_many("feed", [quote(number) for number in range(start, start + 10)])
                    await feed(client, subscription, range(start, start + 10))
                    assert proxy.cut.is_set()
                    assert await drain(other) == list(range(start, start + 10))
                assert (await other.look("feed"))["subscriptions"][0]["behind"] == 0

    at(body, clients=1)


def test_two_who_share_a_subscription_feed_a_queue_and_acknowledge_beside_it():
    async def body(place, first, second):
        await first.declare_topic("feed", QUOTE, durable=True)
        shared = [await each.subscribe("feed", name="desk", ack="explicit", prefetch=4) for each in (first, second)]
        publishers = [AsyncClient(str(place.broker.address), name=f"p{number}") for number in range(4)]
        for each in publishers:
            await each.connect()
            await each.put_many("feed", [quote(number) for number in range(50)])
        left = 200

        async def eat(client, subscription):
            nonlocal left
            while left:
                messages = await subscription.get_many(3, 0.2)
                if not messages:
                    continue
                if messages[0].size % 5 == 0:  # these are only looked at
                    await subscription.ack()
                else:
                    async with client.transaction() as tx:
                        await tx.enqueue("quotes", [dict(message) for message in messages])
                        tx.ack(subscription)
                    counted.extend(message.size for message in messages)
                left -= len(messages)

        counted = []
        await asyncio.gather(*(eat(*each) for each in zip((first, second), shared, strict=True)))
        assert left == 0
        assert sorted(await drain(first)) == sorted(counted)
        assert (await first.look("feed"))["subscriptions"][0]["behind"] == 0
        for each in publishers:
            await each.close()

    at(body)


# Two-phase commit, as far as the wire is concerned


def test_a_prepared_transaction_waits_for_its_decision(store):
    async def body(place, client, other):
        await fill(client, 1, 2)
        for commit in (False, True):
            tx = client.transaction()
            assert sizes(await tx.dequeue("quotes")) == [1]
            await tx.enqueue("quotes", quote(9))
            await tx.prepare(f"g{commit}", "here")
            with pytest.raises(NoTransaction, match="prepared"):
                await tx.commit()
            assert await other.in_doubt() == [(f"g{commit}", "here")]
            assert await other.in_doubt("elsewhere") == []
            assert await other.decide(f"g{commit}", commit) is False
            assert await other.decide(f"g{commit}", commit) is True
        assert await drain(other) == [2, 9]

    at(body, **store)


def test_batches_and_arrays_are_enqueued_as_they_are():
    async def body(place, client, _):
        import pyarrow as pa

        table = pa.table({"symbol": ["a", "b"], "price": [1.0, 2.0], "size": pa.array(np.arange(2), pa.int32())})
        async with client.transaction() as tx:
            assert (await tx.enqueue("quotes", table)).rows == 2
            (only,) = await tx.dequeue("quotes", "quote", where="symbol = 'b'")
            assert (await tx.enqueue("quotes", only.batch)).rows == 1
            with pytest.raises(InvalidValue, match="a batch of quote"):
                await client.declare_type("note: [text: string]")
                await tx.enqueue("quotes", only.batch, "note")

    at(body)


# Figures


def test_what_waits_is_in_the_status_and_in_the_metrics(brokered):
    """Queues with their dead letters, and subscriptions that nobody is attached to."""

    async def body(place, client, _):
        await client.declare_queue("work", "quote", dead_letter="quotes", max_deliveries=1)
        await fill(client, 1, 2, 3, queue="work")
        async with client.transaction() as tx:
            await tx.enqueue("work", quote(4), delay=600)
            await tx.enqueue("quotes", quote(5))
        await client.declare_topic("ticks", QUOTE, durable=True)
        named = await client.subscribe("ticks", name="desk", start="earliest")
        await client.put_many("ticks", [quote(number) for number in range(7)])
        await named.close()
        async with client.transaction() as tx:
            assert sizes(await tx.dequeue("work")) == [1]
            told = await client.status()
            await tx.abort()
        (work,) = (each for each in told["queues"] if each["name"] == "work")
        assert 0 <= work.pop("oldest_s") < PATIENCE
        assert work == {
            "name": "work", "waiting": 2, "delayed": 1, "taken": 1, "dead": "quotes", "dead_letters": 1
        }  # fmt: skip
        assert told["queues_total"] == 2
        assert told["lags"] == [{"topic": "ticks", "name": "desk", "rows": 7}]
        assert told["totals"]["messages_dequeued"] == 0
        assert (await client.status())["totals"]["messages_dequeued"] == 0, "it was undone"
        served = start_metrics(place.broker, asyncio.get_running_loop(), "127.0.0.1:0")
        try:
            text = await asyncio.to_thread(lambda: urlopen(served.url, timeout=PATIENCE).read().decode())
        finally:
            served.stop()
        for line in (
            'milepost_queue_messages{queue="work",state="waiting"} 2.0',
            'milepost_queue_dead_letters{queue="work"} 1.0',
            'milepost_subscription_lag_rows{subscription="desk",topic="ticks"} 7.0',
            "milepost_queue_messages_enqueued_total 5.0",
            "milepost_queue_messages_dequeued_total 0.0",
        ):
            assert line in text.splitlines()

    at(body, clock=testing.FakeClock(), heartbeat_s=86_400, **brokered)  # counted once
