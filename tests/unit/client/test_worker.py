"""Workers that fail: what passes is tried again after a pause, and what does not ends them."""

import asyncio
import logging
from contextlib import contextmanager

import pytest

import milepost
from milepost import testing
from milepost.errors import Closed, InvalidValue, QueryTypeError, UnknownQueue, WrongType

LONG_S = 3_600.0  # a pause that no test waits for


def run(body, *, two=False):
    async def whole():
        async with asyncio.timeout(60), testing.broker() as broker, milepost.AsyncClient(broker.uri) as client:
            await client.declare_type("note: [n: int]")
            await client.declare_type("other: [n: int]")
            await client.declare_queue("in", "note", max_deliveries=3, dead_letter="in.dead")
            await client.declare_queue("out", "note")
            if two:
                async with milepost.AsyncClient(broker.uri) as other:
                    await body(client, other)
            else:
                await body(client)

    asyncio.run(whole())


async def fill(client, *numbers):
    async with client.transaction() as tx:
        await tx.enqueue("in", [{"n": n} for n in numbers])


@contextmanager
def records():
    """What clients log, and an event that is set when they do."""

    class Handler(logging.Handler):
        def emit(self, record):
            found.append(record)
            told.set()

    found, told, handler, log = [], asyncio.Event(), Handler(), logging.getLogger("milepost.client")
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    try:
        yield found, told
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        ({"queue": "in", "where": "m = 1"}, QueryTypeError),
        ({"queue": "int"}, UnknownQueue),
        ({"queue": "in", "type": "other"}, WrongType),
    ],
)
def test_what_no_retry_mends_ends_all_workers_and_others_finish_first(wanted, error):
    async def body(client):
        begun, go = asyncio.Event(), asyncio.Event()

        @client.worker("in", concurrency=1)
        async def handle(message, tx):
            begun.set()
            await go.wait()
            await tx.enqueue("out", {"n": message.n})

        await fill(client, 1)
        first = asyncio.create_task(client.run_workers())
        await begun.wait()
        client.stop_workers()
        go.set()
        await first
        begun.clear()
        go.clear()

        @client.worker(**wanted)
        def never(message):
            raise AssertionError(message)

        await fill(client, 2)
        with records() as (found, _):
            working = asyncio.create_task(client.run_workers())
            await begun.wait()
            assert not working.done()
            go.set()
            with pytest.raises(error):
                await working
        (line,) = [record.getMessage() for record in found]
        assert "the workers end: " in line, "said once, for programs that wait for something else"
        assert [message.n async for message in client.browse("out")] == [1, 2]

    run(body)


def test_a_dequeue_that_took_too_long_is_tried_again_and_ends_nobody():
    """Another message is in front by then, or the database has less to do."""

    async def body(client):
        await client.declare_type("page: [text: string]")
        await client.declare_queue("pages", "page")
        async with client.transaction() as tx:
            await tx.enqueue("pages", {"text": "a" * 3_000_000})

        @client.worker("pages", where=f"contains(text || 'x', '{'a' * 5_000}b')", backoff=LONG_S)
        def never(message):
            raise AssertionError(message)

        @client.worker("in")
        async def handle(message, tx):
            await tx.enqueue("out", {"n": message.n})
            client.stop_workers()

        with records() as (found, told):
            working = asyncio.create_task(client.run_workers())
            await told.wait()
            await fill(client, 1)
            await working
        assert "queue pages: a dequeue failed and is tried again in " in found[0].getMessage()
        assert "QueryTooCostly" in found[0].getMessage()
        assert [message.n async for message in client.browse("out")] == [1]

    run(body)


def test_a_message_whose_function_failed_stays_away_during_the_pause():
    async def body(client):
        seen = []

        @client.worker("in", concurrency=3, backoff=LONG_S)
        def handle(message):
            seen.append(message.header.id)
            raise ValueError("not\ntoday")

        await fill(client, 1)
        with records() as (found, told):
            working = asyncio.create_task(client.run_workers())
            await told.wait()
            assert (await client.queue("in")).figures["taken"] == 1
            assert await client.peek("in") == [], "no other worker spends its next delivery now"
            client.stop_workers()
            await working
        error, debug = found
        assert (error.levelno, error.exc_info) == (logging.ERROR, None)
        line = error.getMessage()
        assert line.startswith(f"queue in: message {seen[0]}, delivery 1, failed in test_worker.py:")
        assert line.endswith("ValueError('not\\ntoday')")
        assert debug.levelno == logging.DEBUG
        assert debug.exc_info[0] is ValueError
        (message,) = await client.peek("in")
        assert (len(seen), message.deliveries) == (1, 1)

    run(body)


def test_what_fails_for_a_moment_is_handled_and_counted():
    async def body(client):
        seen = []

        @client.worker("in", concurrency=2, backoff=0.001)
        async def handle(message, tx):
            seen.append(message.deliveries)
            if message.deliveries < 2:
                raise OSError("for a moment")
            await tx.enqueue("out", {"n": message.n})
            client.stop_workers()

        await fill(client, 1)
        await client.run_workers()
        assert seen == [0, 1, 2]
        assert (client._workers.handled, client._workers.failed) == (1, 2)
        assert [message.n async for message in client.browse("out")] == [1]

    run(body)


def test_a_pause_ends_with_its_client():
    async def body(client, other):
        @other.worker("in", backoff=LONG_S)
        def handle(message):
            raise ValueError

        await fill(client, 1)
        with records() as (_, told):
            working = asyncio.create_task(other.run_workers())
            await told.wait()
            await other.close()
            with pytest.raises(Closed):
                await working

    run(body, two=True)


def test_pauses_that_cannot_be():
    async def body(client):
        for wrong in (-1.0, float("nan"), float("inf"), True, "1"):
            with pytest.raises(InvalidValue, match="backoff"):
                client.worker("in", backoff=wrong)

    run(body)
