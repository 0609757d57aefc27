"""Milepost's queues through its own client."""

from __future__ import annotations

import datetime
import time
from itertools import count as counted
from itertools import cycle, islice
from typing import Any

import milepost
from benchmarks.load.payload import rows
from benchmarks.load.worker import Commands

ANSWER_SECONDS = 60.0
FILL = 1_000  # messages of a transaction when a backlog is made, which is not timed
WANTED = "WANTED"  # the venue of the messages that qualify
SELECT, ORDER = f"venue = '{WANTED}'", "size desc"

_TICK = """
DEFINE MESSAGETYPE {name};
NODE tick; symbol: STRING; venue: STRING; price: REAL; size: INTEGER; note: STRING; END;
ROOT tick; {index}
END;
"""
_ORDER = """
DEFINE MESSAGETYPE {name};
NODE order; id: IDENT; date: DATE; name: STRING; lines: REFERENCE TO order_line; END;
NODE order_line; line_no: INTEGER; amount: INTEGER; price: REAL; item: REFERENCE TO item; END;
NODE item; name: STRING; ean: INTEGER; END;
ROOT order;
END;
"""
LINES, ITEMS = 4, 2


def type_of(queue: str) -> str:
    """Each queue has its own type, because queues of one type share its tables, and so their backlogs."""
    return f"{queue}_message"


def tick(queue: str, indexed: bool = False) -> str:
    """The definition of a queue's type, one node of five attributes."""
    return _TICK.format(name=type_of(queue), index="INDEX tick.venue;" if indexed else "")


async def make(client: Any, queue: str, definition: str, level: str = "none") -> None:
    """A queue, and its type."""
    await client.declare_type(definition)
    await client.declare_queue(queue, types=[type_of(queue)], level=level)


class Ticks:
    """A message of one node with five attributes, as the peers have it in their JSON."""

    def __init__(self, url: str, name: str) -> None:
        self._name = name
        self._type = type_of(name)
        self._client: Any = milepost.AsyncClient(url, timeout=ANSWER_SECONDS)

    def messages(self) -> list[dict[str, Any]]:
        return rows()

    def definition(self) -> str:
        return tick(self._name)

    async def open(self) -> None:
        await self._client.connect()
        await make(self._client, self._name, self.definition())

    async def enqueue(self, messages: list[dict[str, Any]]) -> None:
        async with self._client.transaction() as tx:
            await tx.enqueue(self._name, messages)

    async def dequeue(self, count: int) -> int:
        async with self._client.transaction() as tx:
            found = await tx.dequeue(self._name, self._type, count=count)
            self.read(found)
        return len(found)

    def read(self, found: list[Any]) -> None:
        """All five attributes of each, as parsing JSON gives the peers all of them."""
        for message in found:
            assert all((message.symbol, message.venue, message.note, message.size, message.price is not None))

    async def settle(self) -> None:
        """Nothing."""

    async def close(self) -> None:
        await self._client.close()


class Orders(Ticks):
    """An order of three node types: its four lines, and the two items that these share."""

    def messages(self) -> list[dict[str, Any]]:
        return [order(number) for number in range(1_000)]

    def definition(self) -> str:
        return _ORDER.format(name=self._type)

    def read(self, found: list[Any]) -> None:
        for message in found:
            assert message.lines[LINES - 1].item[0].ean  # through both references


def order(number: int) -> dict[str, Any]:
    items = [{"name": f"item {number % 50 + i}", "ean": 4_000_000_000_000 + number + i} for i in range(ITEMS)]
    lines = [
        {"line_no": line, "amount": line + 1, "price": 0.25 * (number + line), "item": [items[line % ITEMS]]}
        for line in range(LINES)
    ]
    return {"id": number, "date": datetime.date(2024, 1, 31), "name": f"customer {number % 100}", "lines": lines}


def ticks(first: int, count: int, wanted: int = 0) -> list[dict[str, Any]]:
    """Messages whose `size` counts on from `first`; every so many of them has the wanted venue, `wanted` in all."""
    every = count // wanted if wanted else 0
    made = []
    for number, row in enumerate(islice(cycle(rows()), count)):
        qualifies = every and number % every == 0 and number // every < wanted
        venue = WANTED if qualifies else f"VENUE-{(first + number) % 10_000:06d}"
        made.append({**row, "size": first + number, "venue": venue})
    return made


async def backlog(commands: Commands, url: str) -> None:
    """Makes queues, fills them and takes from them, one message or several to a transaction.

    ("make", queue, whether the venue is indexed, level); ("fill", queue, messages, how many of them qualify);
    ("take", queue, select, order, messages to a transaction, times): answers, for each time, ns from the start of a
    transaction to having the messages, and from there to its commit. The taken messages are enqueued again each time,
    so that the backlog keeps its length.
    """
    serial = counted(1)
    client: Any
    async with milepost.AsyncClient(url, timeout=ANSWER_SECONDS) as client:
        commands.say("open")
        while (word := await commands.next()) is not None:
            match word:
                case ("make", queue, indexed, level):
                    await make(client, queue, tick(queue, indexed), level)
                    commands.say("made")
                case ("fill", queue, count, wanted):
                    messages = ticks(next(serial), count, wanted)
                    serial = counted(messages[-1]["size"] + 1)
                    for start in range(0, count, FILL):
                        async with client.transaction() as tx:
                            await tx.enqueue(queue, messages[start : start + FILL])
                    commands.say(count)
                case ("take", queue, select, order_, count, times):
                    commands.say(await _take(client, queue, select, order_, count, times))


async def _take(
    client: Any, queue: str, select: str | None, order: str | None, count: int, times: int
) -> list[tuple[int, int]]:
    taken = []
    for _ in range(times):
        began = time.monotonic_ns()
        async with client.transaction() as tx:
            found = await tx.dequeue(queue, type_of(queue), count=count, where=select, order=order)
            sizes = [message.size for message in found]
            had = time.monotonic_ns()
        taken.append((had - began, time.monotonic_ns() - had))
        if len(found) != count:
            raise LookupError(f"{len(found)} messages came, and {count} were expected")
        venue = WANTED if select else "VENUE-000000"
        again = [{**row, "size": size, "venue": venue} for row, size in zip(cycle(rows()), sizes, strict=False)]
        async with client.transaction() as tx:
            await tx.enqueue(queue, again)
    return taken


async def read(commands: Commands, url: str, queue: str) -> None:
    """One of several readers: for each number it takes as many messages in each transaction, until nothing is left.

    Answers with the `size` of each committed message, the start, and the time of the last commit's answer.
    """
    client: Any
    async with milepost.AsyncClient(url, timeout=ANSWER_SECONDS) as client:
        commands.say("open")
        while (count := await commands.next()) is not None:
            sizes: list[int] = []
            began = ended = time.monotonic_ns()
            while True:
                async with client.transaction() as tx:
                    found = await tx.dequeue(queue, type_of(queue), count=count)
                    some = [message.size for message in found]
                if not some:
                    break
                sizes += some
                ended = time.monotonic_ns()
            commands.say((sizes, began, ended))
