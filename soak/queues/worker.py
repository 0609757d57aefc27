"""One client of queues: writes, moves or drains in one transaction after the other, and records what it does."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

import msgspec

from milepost import AsyncClient
from milepost.client import QueueMessage, Transaction
from milepost.errors import BlockIncomplete, ConnectionLost, StoreError, TimedOut, TransactionAborted
from soak.queues.records import Book
from soak.queues.roles import LEVELS, TYPE, marks, message, source, target
from soak.worker import PATIENCE_S, RETRY_S, Orders

LIFE: Final = 1_000_000  # transactions, and messages, of one process of a member
WAIT_S: Final = 0.3  # for a message, before a reader checks whether to end
ABORTED: Final = 0.12  # share of transactions that are aborted on purpose
FLUSHED: Final = 0.3  # … of writing transactions that are flushed to the store before they commit
LONG: Final = 0.04  # … that take long, so that clients die in the middle of them
LONG_S: Final = 0.6  # longest duration of these
COUNTS: Final = (1, 5, 20)  # messages of one dequeue
# The errors that a transaction may get while others are killed; any other error ends the worker, and is reported.
LOST: Final = (TransactionAborted, StoreError, TimedOut, ConnectionLost)

Act = Callable[[Transaction, int], Awaitable[None]]


class Damaged(Exception):
    """A message is not as it was written, or the rest of a block cannot be taken."""


class Worker:
    """The state of one process."""

    def __init__(self, orders: Orders) -> None:
        self.role = orders.role
        self.orders = orders
        self.dice = random.Random(orders.seed)
        self.ending = asyncio.Event()
        self.book = Book(Path(orders.records), orders.role.name)
        self._numbers = count(self.book.life * LIFE)
        self._sequence = self.book.life * LIFE

    async def run(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.ending.set)
        addresses = self.orders.broker.split(",")
        self.dice.shuffle(addresses)
        while not self.ending.is_set():
            client = AsyncClient(",".join(addresses), name=self.role.name, timeout=PATIENCE_S)
            try:
                await client.connect()
            except (ConnectionLost, TimedOut, StoreError):  # a broker without its database accepts no named client
                await asyncio.sleep(RETRY_S)
                continue
            try:
                async with asyncio.TaskGroup() as tasks:
                    for act in self._acts():
                        tasks.create_task(self._repeat(client, act))
            finally:
                await client.close(drain=False)
        self.book.close()

    def _acts(self) -> list[Act]:
        """The concurrent activities. Each writes to its own queues, so that a queue has one order of writing."""
        if self.role.kind == "write":
            return [partial(self.write, LEVELS[:2]), partial(self.write, LEVELS[2:])]
        act = self.move if self.role.kind == "move" else self.drain
        return [partial(act, level) for level in LEVELS]

    async def _repeat(self, client: AsyncClient, act: Act) -> None:
        while not self.ending.is_set():
            number = next(self._numbers)
            try:
                async with client.transaction() as tx:
                    await act(tx, number)
            except LOST as error:
                self.book.undone(number)
                print(f"{self.role.name} {number}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
                await asyncio.sleep(RETRY_S)

    # Activities

    async def write(self, levels: tuple[str, ...], tx: Transaction, number: int) -> None:
        """One to five messages, into one queue or two."""
        left = self.dice.randint(1, 5)
        some = self.dice.randint(1, left) if self.dice.random() < 0.3 else left
        for level, rows in zip(self.dice.sample(levels, len(levels)), (some, left - some), strict=False):
            if rows:
                await self._enqueue(tx, number, source(level), [""] * rows)
                if self.dice.random() < FLUSHED:
                    await tx.flush()
                    await self._rest()
        await self._end(tx, number)
        await self._rest()

    async def move(self, level: str, tx: Transaction, number: int) -> None:
        """Move messages from one queue to another, atomically."""
        taken = await self._take(tx, number, source(level), self.dice.choice(COUNTS))
        while taken:
            await self._enqueue(tx, number, target(level), [f"{each.member}/{each.sequence}" for each in taken])
            await self._rest()
            if await self._end(tx, number):
                return
            taken = await self._rest_of_block(tx, number, source(level))

    async def drain(self, level: str, tx: Transaction, number: int) -> None:
        """Take messages for good."""
        taken = await self._take(tx, number, target(level), self.dice.choice(COUNTS))
        while taken:
            await self._rest()
            if await self._end(tx, number):
                return
            taken = await self._rest_of_block(tx, number, target(level))

    # Steps

    async def _enqueue(self, tx: Transaction, number: int, queue: str, origins: list[str]) -> None:
        name, first = self.role.name, self._sequence
        self._sequence += len(origins)
        self.book.write(number, queue, first, len(origins))
        messages = [message(name, number, first + row, origin) for row, origin in enumerate(origins)]
        await tx.enqueue(queue, messages, TYPE)

    async def _take(self, tx: Transaction, number: int, queue: str, most: int) -> list[QueueMessage]:
        self.book.reach(number, queue)
        taken = await tx.dequeue(queue, count=most, timeout=WAIT_S)
        if taken:
            self.book.took(
                number,
                queue,
                [each.member for each in taken],
                [each["number"] for each in taken],  # a message from a queue has a `number` attribute of its own
                [each.sequence for each in taken],
                [each.origin for each in taken],
            )
        for each in taken:
            if each.plain()["marks"] != marks(each.sequence):
                raise Damaged(f"{each.member}/{each.sequence} in {queue!r} has other marks than it was written with")
        return taken

    async def _rest_of_block(self, tx: Transaction, number: int, queue: str) -> list[QueueMessage]:
        taken = await self._take(tx, number, queue, 1)
        if not taken:
            raise Damaged(f"{queue!r} wants a block to be completed, and does not give what is missing")
        return taken

    async def _end(self, tx: Transaction, number: int) -> bool:
        """Commit, or abort on purpose. Returns False when more must be taken before."""
        if self.dice.random() < ABORTED:
            await tx.abort()
            self.book.undone(number)
            return True
        self.book.commits(number)
        try:
            await tx.commit()
        except BlockIncomplete:
            self.book.refused(number)
            return False
        self.book.committed(number)
        return True

    async def _rest(self) -> None:
        seconds = self.dice.uniform(0.0, LONG_S if self.dice.random() < LONG else self.orders.pause_s)
        try:
            await asyncio.wait_for(self.ending.wait(), seconds)
        except TimeoutError:
            pass


def main() -> None:
    """Get ready, read the orders, and carry them out."""
    print("ready", flush=True)
    orders = msgspec.json.decode(sys.stdin.readline(), type=Orders)
    asyncio.run(Worker(orders).run())


if __name__ == "__main__":
    main()
