"""A scene: orders in a queue, taken by content, and processed by two workers while a third reader dies."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from contextlib import ExitStack
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Final

from rich.markup import escape

from milepost.cli import queue_picture
from milepost.cli.demo.durable import broker_process
from milepost.cli.demo.narrator import ClaimFailed, Narrator

if TYPE_CHECKING:
    from milepost.client import AsyncClient

TYPE: Final = """DEFINE MESSAGETYPE OrderMessage;
  NODE order; id: IDENT; name: STRING; date: DATE; lines: REFERENCE TO order_line; END;
  NODE order_line; line_no: INTEGER; amout: INTEGER; price: REAL; item: REFERENCE TO item; END;
  NODE item; id: IDENT; name: STRING; ean: INTEGER; END;
  ROOT order; INDEX order.name;
END;"""
INVOICE: Final = "invoice: [shop: string, order: int, total: double]"
CUSTOMERS: Final = ("Smith", "Jones", "Miller")
SHOPS: Final = ("north", "south", "west")
ORDERS: Final = 60  # of all shops
TAKEN: Final = 5  # by the reader that dies
SELECT: Final = "select om from mt_OrderMessage om, om.root o where o.name = 'Smith'"
ITEMS: Final = "count(select ol.item from mt_OrderMessage om, om.root o, o.lines ol)"
LEASE_S: Final = 2.0  # that a client may be away: longer than a reconnect, and short for a demo
PATIENCE_S: Final = 60.0  # ends a scene that hangs

# A reader in a process of its own: it takes messages, prints how many, and waits.
READER: Final = """
import sys, milepost
with milepost.Client(sys.argv[1]) as client, client.transaction() as tx:
    print(len(tx.dequeue("orders", count=int(sys.argv[2]), timeout=10)), flush=True)
    sys.stdin.read()
"""


def play(narrator: Narrator) -> None:
    narrator.scene("A queue gives each message to one reader, in a transaction")
    if not narrator.has_broker():
        return
    with broker_process(narrator, queue_lease_s=LEASE_S) as broker, ExitStack() as ends:
        asyncio.run(_scene(narrator, broker.address, ends))


def _order(number: int) -> dict[str, Any]:
    item = {"id": 7, "name": "ink", "ean": 4_006_381_333_931}
    lines = [
        {"line_no": at, "amout": 1 + at, "price": 1.5, "item": [item]} for at in range(1 + number * 7 % 5)
    ]  # a random number of lines
    return {"id": number, "name": CUSTOMERS[number % 3], "date": date(2026, 3, 1 + number % 28), "lines": lines}


async def _scene(narrator: Narrator, address: str, ends: ExitStack) -> None:
    from milepost.client import AsyncClient

    async with (
        asyncio.timeout(PATIENCE_S),
        AsyncClient(address, timeout=PATIENCE_S) as desk,
        AsyncClient(address, timeout=PATIENCE_S) as other,
    ):
        await desk.declare_type(TYPE)
        await desk.declare_type(INVOICE)
        await _by_content(narrator, desk, other)
        await _by_workers(narrator, address, desk, other, ends)


async def _by_content(narrator: Narrator, desk: AsyncClient, other: AsyncClient) -> None:
    await desk.declare_queue("outstanding", "OrderMessage", priorities={"OrderMessage": ITEMS})
    orders = [_order(number) for number in range(12)]
    narrator.say(
        "A message is a graph of nodes: an order with its lines and their items. Twelve of them, one transaction:"
    )
    async with desk.transaction() as tx:
        await tx.enqueue("outstanding", orders)
        await tx.flush()
        before = [message async for message in other.browse("outstanding")]
    after = [message.plain() async for message in other.browse("outstanding")]
    narrator.claim("no client saw any of them before the commit, and every client all of them after it",
                not before and after == orders)  # fmt: skip

    narrator.say(f"\nTaken where [cyan]{escape(SELECT)}[/]\nin the order of [cyan]{escape(ITEMS)} desc[/]:")
    expected = sorted((order for order in orders if order["name"] == "Smith"), key=lambda order: -len(order["lines"]))
    async with desk.transaction() as tx:
        found = await tx.dequeue("outstanding", "OrderMessage", count=100, where=SELECT, order=f"{ITEMS} desc")
        narrator.show(queue_picture.of_messages(found, narrator.console.width))
        narrator.claim("these are the orders that plain Python finds, in its order",
                    [message.plain() for message in found] == expected)  # fmt: skip
        first = found[0]
        narrator.claim(f"`order.lines[0].item.name` is read as one would say it: {first.lines[0].item.name!r}",
                    first.lines[0].item.name == "ink")  # fmt: skip
        narrator.show(_drawn(await other.queue("outstanding")))
        await tx.abort()
    again = [message.plain() async for message in other.browse("outstanding")]
    narrator.claim("after an abort all twelve are there again, each in its place", again == orders)


async def _by_workers(narrator: Narrator, address: str, desk: AsyncClient, other: AsyncClient, ends: ExitStack) -> None:
    from milepost.client import AsyncClient

    await desk.declare_queue("orders", "OrderMessage", level="ordered")
    await desk.declare_queue("invoices", "invoice")
    shop_of: dict[int, str] = {}
    for at, name in enumerate(SHOPS):
        async with AsyncClient(address, name=name) as shop, shop.transaction() as tx:
            receipt = await tx.enqueue("orders", [_order(number) for number in range(at, ORDERS, len(SHOPS))])
        shop_of[_writer(receipt.mids[0])] = name
    narrator.say(
        f"\nThree shops write {ORDERS} orders into a queue of level [cyan]ordered[/]. A reader in a process of its own "
        f"takes {TAKEN}."
    )
    reader = _Reader(address)
    ends.callback(reader.kill)
    taken = await asyncio.to_thread(reader.took)
    narrator.show(_drawn(await desk.queue("orders")))
    free = await desk.peek("orders", count=ORDERS)
    narrator.claim(
        f"it has {taken} orders of one shop, and no other reader gets orders of that shop",
        taken == TAKEN and len({_writer(order.header.id) for order in free}) == len(SHOPS) - 1,
    )

    work = _Work(shop_of)
    for client, who in ((desk, "desk"), (other, "other")):
        work.register(client, who)
    working = asyncio.gather(desk.run_workers(), other.run_workers())
    try:
        async with asyncio.timeout(PATIENCE_S):
            await work.reached(ORDERS * (len(SHOPS) - 1) // len(SHOPS))
            narrator.say("Two workers have written the invoices of the other shops. [red]SIGKILL[/] to the reader:")
            waiting = [message async for message in desk.browse("invoices")]
            reader.kill()
            started = time.monotonic()
            await work.reached(ORDERS)
    finally:
        desk.stop_workers()
        other.stop_workers()
        await working
    narrator.claim(
        "while it held one shop's orders, the orders of the other shops were processed without waiting",
        len({message.shop for message in waiting}) == len(SHOPS) - 1 and len(waiting) == ORDERS * 2 // 3,
    )
    narrator.claim(f"its {TAKEN} orders were back {time.monotonic() - started:.1f} s later, when its lease had ended",
                work.returned == TAKEN)  # fmt: skip
    async with desk.transaction() as tx:
        invoices = await tx.dequeue("invoices", count=10 * ORDERS)
    narrator.claim(f"each of the {ORDERS} orders has one invoice, written in the transaction that took the order",
                sorted(invoice.order for invoice in invoices) == list(range(ORDERS)))  # fmt: skip
    by_shop = {name: [invoice.order for invoice in invoices if invoice.shop == name] for name in SHOPS}
    in_order = all(numbers == sorted(numbers) for numbers in by_shop.values())
    narrator.claim("and each shop's orders were processed in the order of their writing, by two workers",
                in_order and len(work.by_worker) == 2)  # fmt: skip


class _Work:
    """The work of both workers, and how much of it is done."""

    def __init__(self, shop_of: dict[int, str]) -> None:
        self._shop_of = shop_of
        self._changed = asyncio.Condition()
        self._committed: set[int] = set()
        self._together = asyncio.Barrier(2)
        self.by_worker: dict[str, int] = {}
        self.returned = 0  # orders that an undone transaction had taken before

    def register(self, client: AsyncClient, worker: str) -> None:
        """Register a handler that takes orders, one at a time."""

        @client.worker("orders", "OrderMessage", concurrency=1)
        async def handle(order: Any, tx: Any) -> None:
            first = worker not in self.by_worker
            self.by_worker[worker] = self.by_worker.get(worker, 0) + 1
            if first:
                await self._together.wait()  # so that both workers take part
            total = sum(line.amout * line.price for line in order.lines)
            shop = self._shop_of[_writer(order.header.id)]
            await tx.enqueue("invoices", {"shop": shop, "order": order.id, "total": total})
            await tx.commit()
            self.returned += order.header.deliveries > 0
            async with self._changed:
                self._committed.add(order.id)
                self._changed.notify_all()

    async def reached(self, count: int) -> None:
        """Wait until so many orders are committed."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self._committed) >= count)


class _Reader:
    """A process that takes messages and then waits."""

    def __init__(self, address: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", READER, address, str(TAKEN)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def took(self) -> int:
        """The number of messages that it took, once it has them."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ClaimFailed(f"a reader can be started, and it says: {self._process.communicate()[1][-1000:]}")
        return int(line)

    def kill(self) -> None:
        """Kill it with SIGKILL. No effect when it is dead."""
        if self._process.returncode is None:
            self._process.kill()
            self._process.communicate()


def _writer(mid: str) -> int:
    return int(mid.split("/")[0])


def _drawn(queue: Any) -> Any:
    return queue_picture.bars(queue.figures, datetime.now(UTC))
