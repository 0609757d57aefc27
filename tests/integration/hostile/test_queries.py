"""Queries that would never end: they are refused or ended, and everybody else is served meanwhile."""

import asyncio
import signal
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from milepost import AsyncClient, limits, testing
from milepost.errors import QueryTooCostly
from tests.integration.test_failures import PATIENCE, Broker, run

LISTED = "listed: [n: int, xs: *([x: int])*, ys: *([y: int])*, zs: *([z: int])*]"
PLAIN = "plain: [n: int]"
# Lists of 400: 25 billion combinations. The sums depend on each other, or PostgreSQL would calculate each of them once.
TOTAL = "sum(xs, sum(ys, sum(zs, sum(xs, x + y + z))))"
ENDLESS = f"{TOTAL} = -77"
OTHERS = 50  # durable puts of another client, one after the other

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


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Less time for a statement, so that tests are quick; the broker is in this process."""
    monkeypatch.setattr(limits, "QUERY_MS", 100)


@asynccontextmanager
async def clients(count=2, brokerless=None, **settings):
    """Clients of a broker at a real port, or of a database."""
    async with AsyncExitStack() as stack:
        address = brokerless
        if brokerless is None:
            broker = await stack.enter_async_context(testing.broker(listen="127.0.0.1:0", **settings))
            address = str(broker.address)
        yield [await stack.enter_async_context(AsyncClient(address, timeout=PATIENCE)) for _ in range(count)]


def listed(n, size=400):
    return {"n": n, **{f"{name}s": [{name: each} for each in range(size)] for name in "xyz"}}


async def queue_of_lists(client, messages=3, **options):
    await client.declare_type(LISTED)
    await client.declare_queue("lists", ["listed"], **options)
    async with client.transaction() as tx:
        await tx.enqueue("lists", [listed(n) for n in range(messages)], type="listed")


async def again_and_again(ask, errors):
    """Ask for the same until cancelled; what comes of it."""
    while True:
        try:
            await ask()
        except QueryTooCostly as error:
            errors.append(error)


@asynccontextmanager
async def meanwhile(*asks):
    """Hostile requests that run all the time; the errors that they got."""
    errors = []
    tasks = [asyncio.create_task(again_and_again(ask, errors)) for ask in asks]
    try:
        yield errors
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def asks_of(client):
    """Every request about a queue that takes an expression."""

    async def dequeue(**wish):
        async with client.transaction() as tx:
            await tx.dequeue("lists", "listed", **wish)

    async def browse():
        return [each async for each in client.browse("lists", "listed", where=ENDLESS)]

    return {
        "dequeue by selection": lambda: dequeue(where=ENDLESS),
        "dequeue in order": lambda: dequeue(order=TOTAL),
        "a dequeue that waits": lambda: dequeue(where=ENDLESS, timeout=60.0),
        "peek": lambda: client.peek("lists", "listed", where=ENDLESS),
        "browse": browse,
        "move": lambda: client.move("lists", "others", "listed", where=ENDLESS),
        "purge": lambda: client.purge("lists", "listed", where=ENDLESS),
    }


@pytest.mark.parametrize("what", asks_of(None))
def test_a_request_about_a_queue_ends_with_the_budget_that_it_went_over(store, what):
    async def whole():
        async with clients(1, **store) as (client,):
            await queue_of_lists(client)
            await client.declare_queue("others", ["listed"])
            with pytest.raises(QueryTooCostly, match="QUERY_MS = 100") as raised:
                await asks_of(client)[what]()
            assert raised.value.code == "query_too_costly"
            # Nothing was taken, moved or lost, and the next request is served.
            async with client.transaction() as tx:
                assert [each.n for each in await tx.dequeue("lists", count=10)] == [0, 1, 2]

    run(whole())


def _joined(times):
    text = "b"
    for _ in range(times):
        text = f"({text} || {text})"
    return text


@pytest.mark.parametrize(
    "select",
    [
        f"length({_joined(9)}) = 1",  # 1.5 GB
        "b like '%" + "a_%" * 300 + "c'",
        " or ".join(["length(lower(b)) = 3"] * 40),
        "contains(b, c)",  # what is looked for nearly occurs at each place
        f"contains(b || 'x', '{'a' * 5_000}b')",
    ],
)
def test_long_texts_are_refused_where_an_expression_goes_over_them_many_times(store, select):
    """Within one row no database looks at its timeout. Selections that go over texts a few times take any text."""

    async def whole():
        async with clients(1, **store) as (client,):
            await client.declare_type("texts: [n: int, b: string, c: string]")
            await client.declare_queue("texts", ["texts"])
            long = {"n": 1, "b": "a" * 3_000_000, "c": "a" * 1_000_000 + "b"}
            async with client.transaction() as tx:
                await tx.enqueue("texts", [long, {"n": 2, "b": "a", "c": "b"}], type="texts")
            with pytest.raises(QueryTooCostly, match=r"QUERY_VALUE_BYTES|QUERY_MS"):
                async with client.transaction() as tx:
                    await tx.dequeue("texts", "texts", where=select)
            async with client.transaction() as tx:
                few = "contains(b, 'aaa') and lower(c) like 'a%b' and length(b) > 5"
                assert [each.n for each in await tx.dequeue("texts", "texts", where=few, count=2)] == [1]
            async with client.transaction() as tx:  # and the one that is left is short
                assert await tx.dequeue("texts", "texts", where=select) == []

    run(whole())


@pytest.mark.parametrize("level", ["none", "ordered", "blockwise"])
def test_a_selection_without_an_end_on_a_queue_of_each_level(store, level):
    async def whole():
        async with clients(1, **store) as (client,):
            await queue_of_lists(client, level=level)
            with pytest.raises(QueryTooCostly, match="QUERY_MS"):
                await asks_of(client)["dequeue by selection"]()
            async with client.transaction() as tx:
                assert len(await tx.dequeue("lists", count=10)) == 3

    run(whole())


def test_a_priority_function_without_an_end_refuses_the_enqueue(store):
    async def whole():
        async with clients(**store) as (hostile, other):
            await hostile.declare_type(LISTED)
            await hostile.declare_queue("lists", ["listed"], priorities={"listed": TOTAL})
            with pytest.raises(QueryTooCostly, match="QUERY_MS"):
                async with hostile.transaction() as tx:
                    await tx.enqueue("lists", listed(1), type="listed")
            async with other.transaction() as tx:
                await tx.enqueue("lists", listed(2, 1), type="listed")
            async with other.transaction() as tx:
                assert [each.n for each in await tx.dequeue("lists", count=10)] == [2]

    run(whole())


def test_the_statements_of_one_operation_share_their_time(store, monkeypatch):
    """A transaction that enqueues often has no more time for its priority functions than one that enqueues once."""

    async def whole():
        async with clients(1, **store) as (client,):
            await client.declare_type(LISTED)
            await client.declare_queue(
                "lists", ["listed"], priorities={"listed": "sum(xs, sum(ys, sum(zs, x + y + z)))"}
            )
            with pytest.raises(QueryTooCostly, match="QUERY_MS"):
                async with client.transaction() as tx:  # some ten milliseconds each
                    for n in range(100):
                        await tx.enqueue("lists", listed(n, 30), type="listed")
            async with client.transaction() as tx:
                assert await tx.dequeue("lists", count=100) == []

    run(whole())


@pytest.mark.parametrize("what", ["dequeue by selection", "browse", "a priority function"])
def test_durable_puts_of_others_go_on_while_a_query_is_asked_all_the_time(brokered, what):
    async def whole():
        async with clients(**brokered) as (hostile, other):
            function = {"listed": TOTAL}
            await queue_of_lists(hostile)
            await hostile.declare_queue("ranked", ["listed"], priorities=function)
            await other.declare_topic("plain", PLAIN, durable=True)

            async def enqueue():
                async with hostile.transaction() as tx:
                    await tx.enqueue("ranked", listed(1), type="listed")

            ask = enqueue if what == "a priority function" else asks_of(hostile)[what]
            async with meanwhile(*[ask] * 5) as errors:
                async with asyncio.timeout(PATIENCE):
                    while not errors:
                        await other.put("plain", {"n": -1})
                    for n in range(OTHERS):
                        await other.put("plain", {"n": n})
            assert {type(each) for each in errors} == {QueryTooCostly}

    run(whole())


def test_a_batch_of_operations_loses_only_the_one_that_went_over(brokered):
    async def whole():
        async with clients(3, **brokered) as (hostile, other, third):
            await queue_of_lists(hostile)
            await other.declare_topic("plain", PLAIN, durable=True)
            await other.declare_queue("good", ["listed"])

            async def good(n):
                async with third.transaction() as tx:
                    await tx.enqueue("good", listed(n, 1), type="listed")

            dequeue = asks_of(hostile)["dequeue by selection"]
            outcomes = await asyncio.gather(
                dequeue(), *(good(n) for n in range(10)), *(other.put("plain", {"n": n}) for n in range(10)),
                dequeue(), return_exceptions=True,
            )  # fmt: skip
            assert [type(each) for each in (outcomes[0], outcomes[-1])] == [QueryTooCostly] * 2
            assert not [each for each in outcomes[1:-1] if isinstance(each, BaseException)]
            async with third.transaction() as tx:
                assert sorted(each.n for each in await tx.dequeue("good", count=20)) == list(range(10))

    run(whole())


@pytest.mark.parametrize("input_queues", [0, 2])
@pytest.mark.parametrize("durable", [False, True])
def test_a_filter_over_its_budget_ends_its_subscription_and_nothing_else(durable, input_queues):
    async def whole():
        async with clients(3, input_queues=input_queues) as (hostile, other, publisher):
            await publisher.declare_topic("lists", LISTED, durable=durable)
            costly = await hostile.subscribe("lists", where=ENDLESS)
            cheap = await hostile.subscribe("lists", where="any(xs, x = 399)")
            every = await other.subscribe("lists")
            for n in range(20):
                await publisher.put("lists", listed(n))
            await publisher.flush()
            assert [(await cheap.get(timeout=PATIENCE)).n for _ in range(20)] == list(range(20))
            assert [(await every.get(timeout=PATIENCE)).n for _ in range(20)] == list(range(20))
            with pytest.raises(QueryTooCostly, match=r"QUERY_\w*STEPS|QUERY_BINDINGS"):
                await costly.get(timeout=PATIENCE)

    run(whole())


def test_many_rows_that_are_each_within_the_budget_are_too_much_together():
    async def whole():
        async with clients(2) as (hostile, publisher):
            await publisher.declare_topic("lists", LISTED)
            costly = await hostile.subscribe("lists", where="sum(xs, sum(ys, sum(zs, x + y + z))) = -77")
            await publisher.put("lists", listed(0, 60))  # 216,000 combinations
            await publisher.put_many("lists", [listed(n, 60) for n in range(1500)])
            with pytest.raises(QueryTooCostly, match="QUERY_BATCH_STEPS"):
                await costly.get(timeout=PATIENCE)
            await publisher.put("lists", listed(1, 0))

    run(whole())


@pytest.mark.parametrize("late", [False, True])
def test_a_durable_subscription_stops_before_the_row_and_loses_nothing(brokered, late):
    """Whether it is at the end of the log or reads what is there, its cursor does not move past what it cannot test."""

    async def whole():
        async with clients(2, **brokered) as (hostile, publisher):
            await publisher.declare_topic("lists", LISTED, durable=True)
            subscribe = {
                "where": "n >= 0 and " + ENDLESS.replace("=", "<>"),
                "name": "s",
                "start": "earliest",
                "ack": "explicit",
            }
            found = None if late else await hostile.subscribe("lists", **subscribe)
            await publisher.put("lists", listed(1, 1))
            await publisher.put("lists", listed(2))
            found = found or await hostile.subscribe("lists", **subscribe)
            first = await found.get(timeout=PATIENCE)
            assert first.n == 1
            await found.ack(first)
            with pytest.raises(QueryTooCostly):
                await found.get(timeout=PATIENCE)
            # Whoever attaches again is at the same row.
            again = await hostile.subscribe("lists", **subscribe)
            with pytest.raises(QueryTooCostly):
                await again.get(timeout=PATIENCE)
            # Given up and begun anew, without the filter, both rows are there.
            await hostile.unsubscribe("lists", name="s")
            plain = await hostile.subscribe("lists", name="s", start="earliest")
            assert [(await plain.get(timeout=PATIENCE)).n for _ in range(2)] == [1, 2]

    run(whole())


def test_a_rule_of_a_schema_over_its_budget_refuses_the_put_and_nothing_else():
    async def whole():
        async with clients(2) as (hostile, other):
            await hostile.declare_topic("ruled", f"{LISTED} check ({ENDLESS.replace('=', '<>')})", durable=True)
            await other.declare_topic("plain", PLAIN, durable=True)
            with pytest.raises(QueryTooCostly, match=r"QUERY_STEPS|QUERY_BINDINGS"):
                await hostile.put("ruled", listed(1))
            await hostile.put("ruled", listed(2, 2))
            await other.put("plain", {"n": 1})

    run(whole())


@pytest.mark.parametrize("what", ["dequeue by selection", "browse"])
@pytest.mark.parametrize("kind", ["sqlite", POSTGRESQL])
@pytest.mark.slow
def test_a_sigterm_ends_the_broker_while_queries_run(tmp_path, request, kind, what):
    """With the limits of everybody: a hundred of them, a second each, are not waited for."""
    url = str(tmp_path / "milepost.db") if kind == "sqlite" else request.getfixturevalue("postgresql")

    async def whole():
        async with (
            Broker(tmp_path, url) as broker,
            AsyncClient(broker.address, timeout=PATIENCE, reconnect=False) as client,
        ):
            await queue_of_lists(client)
            tasks = [asyncio.create_task(asks_of(client)[what]()) for _ in range(100)]
            await client.status()  # they are there
            broker.process.send_signal(signal.SIGTERM)
            code = await asyncio.to_thread(broker.process.wait, PATIENCE)
            assert code == 0, broker.process.stderr.read()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    run(whole())
