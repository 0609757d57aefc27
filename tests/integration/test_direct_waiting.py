"""Dequeues that wait in a client without a broker: who is served when others are cancelled, late, or over."""

import asyncio
from collections import Counter

import pytest

from milepost.direct.clock import Clock
from milepost.direct.waiting import Waiting
from milepost.errors import ConnectionLost, TransactionAborted
from milepost.operations.steps import Got, Group
from milepost.query import parse_schema
from tests.integration.test_failures import PATIENCE, run

NOTE = parse_schema("note: [text: string]")
ONE = Counter({"notes": 1})


class Deal:
    """A transaction, as those who wait know it."""

    def __init__(self):
        self.over = None


class Hall:
    """People who wait for messages of one queue, all for the same."""

    def __init__(self):
        async def news():
            return False

        self.waiting = Waiting(lambda: 0, news)
        self.messages = 0

    async def look(self, _unsure):
        if not self.messages:
            return Got([])
        self.messages -= 1
        return Got([Group("note", NOTE, lambda: None, [1], [1], [1], [0.0], [0])])

    async def enter(self, deal=None, until=float("inf"), look=None):
        """A task that waits, and has begun to."""
        until = min(until, asyncio.get_running_loop().time() + 10 * PATIENCE)
        took = self.waiting.take("notes", deal or Deal(), "wish", until, Got([]), look or self.look)
        task = asyncio.ensure_future(took)
        await asyncio.sleep(0)
        return task

    def come(self):
        self.messages += 1
        self.waiting.stir(["notes"], ONE)


def in_hall(body):
    async def whole():
        hall = Hall()
        async with asyncio.timeout(PATIENCE):
            await body(hall)
        assert len(hall.waiting) == 0
        assert not hall.waiting._lines, "a line that nobody stands in is gone"
        hall.waiting.end(ConnectionLost("the end"))

    run(whole())


async def served(task):
    return (await task).count == 1


@pytest.mark.parametrize("first", ["cancelled", "given its turn"])
def test_one_who_is_cancelled_when_a_message_comes_leaves_it_to_the_next(first):
    async def body(hall):
        gone, stays = await hall.enter(), await hall.enter()
        for step in (gone.cancel, hall.come) if first == "cancelled" else (hall.come, gone.cancel):
            step()
        assert await served(stays)
        assert gone.cancelled()

    in_hall(body)


def test_one_whose_time_is_over_when_a_message_comes_leaves_it_to_the_next():
    async def body(hall):
        loop = asyncio.get_running_loop()
        end = loop.time()
        late, stays = await hall.enter(until=end), await hall.enter()
        loop.call_at(end + 1e-9, hall.come)
        assert await late is None
        assert await served(stays)

    in_hall(body)


def test_one_who_is_cancelled_while_he_looks_leaves_it_to_the_next():
    async def body(hall):
        looks = asyncio.Event()

        async def long_look(_):
            looks.set()
            await asyncio.Event().wait()

        gone, stays = await hall.enter(look=long_look), await hall.enter()
        hall.come()
        await looks.wait()
        gone.cancel()
        assert await served(stays)

    in_hall(body)


@pytest.mark.parametrize("whose", ["all", "his own"])
def test_one_who_looks_when_it_is_over_does_not_wait_again(whose):
    async def body(hall):
        looks, found = asyncio.Event(), asyncio.Event()

        async def look(_):
            looks.set()
            await found.wait()
            return Got([])

        deal = Deal()
        task = await hall.enter(deal, look=look)
        hall.come()
        await looks.wait()
        error = TransactionAborted("it is over")
        if whose == "all":
            hall.waiting.end(error)
        else:
            deal.over = error
            hall.waiting.dismiss(deal)
        found.set()
        with pytest.raises(TransactionAborted, match="it is over"):
            await task

    in_hall(body)


def test_a_clock_is_set_by_what_the_database_says():
    clock = Clock()
    clock._ahead_us += 3_600_000_000  # this machine's own clock is an hour wrong
    clock.set(0, 1_000_000, 100)
    ahead = clock._ahead_us
    assert 999_900 <= ahead <= 1_000_000
    clock.set(1_000, 1_001_000, 1_400)  # it is within what is known
    assert clock._ahead_us == max(ahead, 999_600)
    clock.set(0, 5_000_000, 10)
    assert clock._ahead_us == 4_999_990
