"""A subscription hands out what was delivered to it, and says when it is done with it."""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest

from milepost.batch import Batch
from milepost.client.subscription import TURN_ROWS, Subscription
from milepost.client.window import DeliveryCredit
from milepost.errors import ConnectionLost
from milepost.query import parse_schema

SCHEMA = parse_schema("s: [n: int]")


class Ledger:
    """Where the bytes of parcels go."""

    def __init__(self):
        self.consumed_bytes = 0

    def consumed(self, size):
        self.consumed_bytes += size


def batch(start, stop):
    return Batch.encode(SCHEMA, [{"n": number} for number in range(start, stop)])


def made():
    return Subscription(None, 1, "topic", None), Ledger()


def test_bytes_are_given_back_delivery_by_delivery():
    async def test():
        subscription, ledger = made()
        subscription.deliver("topic", batch(0, 3), None, DeliveryCredit(ledger, 100, 1))
        subscription.deliver("topic", batch(3, 5), None, DeliveryCredit(ledger, 10, 1))
        seen = []
        for _ in range(3):
            seen.append((await subscription.get()).n)
        assert ledger.consumed_bytes == 0
        seen.append((await subscription.get()).n)
        assert ledger.consumed_bytes == 100
        seen.append((await subscription.get()).n)
        assert await subscription.get(timeout=0) is None  # asking for more says that the last was taken
        assert (seen, ledger.consumed_bytes) == ([0, 1, 2, 3, 4], 110)

    asyncio.run(test())


def test_a_parcel_for_several_goes_back_when_all_have_taken_it():
    async def test():
        one, ledger = made()
        other, _ = made()
        parcel = DeliveryCredit(ledger, 50, 2)
        one.deliver("topic", batch(0, 4), np.array([1, 3]), parcel)
        other.deliver("topic", batch(0, 4), None, parcel)
        assert [(await one.get()).n, (await one.get()).n] == [1, 3]
        one.end()
        assert ledger.consumed_bytes == 0
        other.end()
        assert ledger.consumed_bytes == 50

    asyncio.run(test())


def test_what_comes_after_the_end_is_given_back():
    subscription, ledger = made()
    subscription.deliver("topic", batch(0, 4), None, DeliveryCredit(ledger, 50, 1))
    subscription.end()
    subscription.deliver("topic", batch(0, 4), None, DeliveryCredit(ledger, 5, 1))
    assert ledger.consumed_bytes == 55


def test_the_rest_of_the_program_gets_its_turns():
    async def test():
        subscription, ledger = made()
        rows = 3 * TURN_ROWS
        subscription.deliver("topic", batch(0, rows), None, DeliveryCredit(ledger, 50, 1))
        for start in range(rows, 2 * rows, 8):
            subscription.deliver("topic", batch(start, start + 8), None, DeliveryCredit(ledger, 1, 1))
        subscription.end(keep=True)
        turns = 0

        async def others():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        busy = asyncio.create_task(others())
        assert [message.n async for message in subscription] == list(range(2 * rows))
        assert turns >= 4
        busy.cancel()

    asyncio.run(test())


def test_an_error_comes_behind_what_is_still_here():
    async def test():
        subscription, ledger = made()
        subscription.deliver("topic", batch(0, 1), None, DeliveryCredit(ledger, 50, 1))
        subscription.end(ConnectionLost("gone"), keep=True)
        assert (await subscription.get()).n == 0
        with pytest.raises(ConnectionLost):
            await subscription.get()

    asyncio.run(test())


def test_two_readers_share():
    async def test():
        subscription, ledger = made()

        async def read():
            return [message.n async for message in subscription]

        readers = [asyncio.create_task(read()) for _ in range(2)]
        await asyncio.sleep(0)
        for start in range(0, 100, 10):
            subscription.deliver("topic", batch(start, start + 10), None, DeliveryCredit(ledger, 1, 1))
            await asyncio.sleep(0)
        subscription.end(keep=True)
        found = [number for reader in readers for number in await reader]
        assert sorted(found) == list(range(100))
        assert ledger.consumed_bytes == 10

    asyncio.run(test())


def test_a_waiting_callback_is_handed_a_message_at_once_and_what_it_raises_ends_its_task():
    async def test():
        subscription, ledger = made()
        seen = []

        def callback(message):
            seen.append(message.n)
            if message.n == 2:
                raise ValueError("two")

        task = asyncio.create_task(subscription.serve(callback))
        await asyncio.sleep(0)  # it waits now
        subscription.take("topic", batch(0, 1), ledger, 10)
        subscription.take("topic", batch(1, 2), ledger, 10)
        assert (seen, ledger.consumed_bytes, subscription.topic) == ([0, 1], 20, "topic")
        subscription.take("topic", batch(2, 3), ledger, 10)
        assert subscription.hand is None
        subscription.deliver("topic", batch(3, 4), None, DeliveryCredit(ledger, 10, 1))
        with pytest.raises(ValueError, match="two"):
            await task
        assert (seen, ledger.consumed_bytes) == ([0, 1, 2], 20)
        subscription.end()
        assert ledger.consumed_bytes == 40

    asyncio.run(test())


def line(**reached):
    """A connection that has delivered rows of the topic `kept` up to an offset of log 1."""
    topic = SimpleNamespace(name="kept", stored=7, reached={1: reached["reached"]})
    return SimpleNamespace(alive=True, resumable=False, topics={3: topic})


@pytest.mark.parametrize("pattern", ["kept", ">"])
def test_it_resumes_behind_what_was_delivered_on_its_own_connections_only(pattern):
    subscription = Subscription(None, 1, pattern, None)
    first, second, third = line(reached=5), line(reached=50), line(reached=60)
    subscription.attached(first, {"topics": ["kept"], "skipped": {}, "positions": {7: {1: 3}}, "behind": {}})
    subscription.detached(first)
    assert subscription.request(1, back=True).resume == {7: {1: 5}}
    subscription.detached(second)  # lost before it was there, while another subscription was
    assert subscription.request(2, back=True).resume == {7: {1: 5}}
    subscription.attached(third, {"topics": ["kept"], "skipped": {}, "positions": {}, "behind": {"kept": 7}})
    subscription.detached(third)  # lost while it caught up, and others had
    assert subscription.request(3, back=True).resume == {7: {1: 5}}
    subscription.attached(third, {"topics": ["kept"], "skipped": {}, "positions": {}, "behind": {"kept": 7}})
    subscription.caught_up(7, {1: 55})
    subscription.detached(third)
    assert subscription.request(4, back=True).resume == {7: {1: 60}}
