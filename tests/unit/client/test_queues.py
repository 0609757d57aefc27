"""The verbs about queues say what those about topics say, and mean the same."""

import asyncio

import pytest

import milepost
from milepost import testing
from milepost.client.queues import RENAMED
from milepost.errors import InvalidValue, LimitExceeded

NOTE = "note: [n: int]"


def run(body):
    async def whole():
        async with asyncio.timeout(60), testing.broker() as broker, milepost.AsyncClient(broker.uri) as client:
            await client.declare_type(NOTE)
            await body(client)

    asyncio.run(whole())


async def from_a_topic(client, most):
    """How often a message of a topic comes that is never acknowledged, and whether it is a dead letter then."""
    await client.declare_topic("notes", NOTE, durable=True)
    await client.put("notes", {"n": 1})
    work = await client.subscribe(
        "notes", name="work", start="earliest", ack="explicit", max_deliveries=most, dead_letter="notes.dead"
    )
    dead = asyncio.create_task(_first_dead(client))
    times = 0
    while not dead.done():
        coming = asyncio.ensure_future(work.get())
        await asyncio.wait((coming, dead), return_when=asyncio.FIRST_COMPLETED)
        if coming.done():
            times += 1
            await work.nack(coming.result())
        else:
            coming.cancel()
    return times, dead.result()


async def _first_dead(client):
    return (await (await client.subscribe("notes.dead", start="earliest")).get()).n


async def from_a_queue(client, most):
    """The same of a message of a queue whose transactions are undone."""
    await client.declare_queue("notes", "note", max_deliveries=most, dead_letter="notes.dead")
    async with client.transaction() as tx:
        await tx.enqueue("notes", {"n": 1})
    times = 0
    while not (dead := await client.peek("notes.dead")):
        async with client.transaction() as tx:
            times += len(await tx.dequeue("notes"))
            await tx.abort()
    return times, dead[0].n


@pytest.mark.parametrize("most", [1, 3])
def test_a_message_is_delivered_max_deliveries_times_by_topics_and_queues(most):
    async def body(client):
        assert await from_a_topic(client, most) == await from_a_queue(client, most) == (most, 1)

    run(body)


def test_a_bound_of_deliveries_and_its_dead_letters_are_checked_alike():
    async def body(client):
        await client.declare_topic("notes", NOTE, durable=True)
        for wrong, error in (
            ({"max_deliveries": 0, "dead_letter": "d"}, InvalidValue), ({"max_deliveries": 2}, InvalidValue),
            ({"dead_letter": "d"}, InvalidValue), ({"max_deliveries": True, "dead_letter": "d"}, InvalidValue),
            ({"max_deliveries": 1 << 70, "dead_letter": "d"}, LimitExceeded),
            ({"max_deliveries": 2, "dead_letter": 7}, InvalidValue),
        ):  # fmt: skip
            with pytest.raises(error) as topic:
                await client.subscribe("notes", name="desk", **wrong)
            with pytest.raises(error) as queue:
                await client.declare_queue("notes", "note", **wrong)
            assert str(topic.value).replace("topic", "queue") == str(queue.value)
        made = await client.declare_queue("notes", "note")
        assert (made.max_deliveries, made.dead_letter) == (None, None)

    run(body)


def test_dequeue_alone_takes_the_old_name_of_where():
    async def body(client):
        await client.declare_queue("notes", "note")
        async with client.transaction() as tx:
            await tx.enqueue("notes", [{"n": n} for n in (1, 2, 3)])
        async with client.transaction() as tx:
            assert [each.n for each in await tx.dequeue("notes", where="n = 3")] == [3]
            assert [each.n for each in await tx.dequeue("notes", select="n = 2")] == [2]
            with pytest.raises(InvalidValue, match="give where= alone"):
                await tx.dequeue("notes", where="n = 1", select="n = 1")
        assert [each.n for each in await client.peek("notes", where="n < 2", count=9)] == [1]
        with pytest.raises(TypeError):
            await client.peek("notes", select="n = 1")

    run(body)


def test_old_names_of_verbs_are_told_the_new_ones():
    async def body(client):
        for old, new in RENAMED.items():
            for each in (client, milepost.Client):
                assert hasattr(each, new)
            with pytest.raises(AttributeError, match=f"it is called {new} now"):
                getattr(client, old)
        with pytest.raises(AttributeError, match=r"no attribute 'declare_cue'$"):
            client.declare_cue  # noqa: B018

    run(body)
