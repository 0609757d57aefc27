"""Orders in a queue. One transaction takes all orders of one customer, those with the most items first.

Needs a broker: start one with `milepost up`.
"""

import asyncio
import os
from datetime import date

import milepost

BROKER = os.environ.get("MILEPOST_BROKER", "milepost://127.0.0.1:7450")
TYPE = """DEFINE MESSAGETYPE OrderMessage;
  NODE order; id: IDENT; name: STRING; date: DATE; lines: REFERENCE TO order_line; END;
  NODE order_line; line_no: INTEGER; amount: INTEGER; price: REAL; item: REFERENCE TO item; END;
  NODE item; id: IDENT; name: STRING; ean: INTEGER; END;
  ROOT order; INDEX order.name;
END;"""
ITEMS = "count(select ol.item from mt_OrderMessage om, om.root o, o.lines ol)"
WORTH = "sum(select ol.amount * ol.price from mt_OrderMessage om, om.root o, o.lines ol)"
STOCK = [{"id": at, "name": name, "ean": 4_006_381_333_931 + at} for at, name in enumerate(("ink", "pen", "paper"))]


def order(number: int, customer: str, *items: int) -> dict:
    lines = [{"line_no": at, "amount": 2, "price": 1.5, "item": [STOCK[item]]} for at, item in enumerate(items)]
    return {"id": number, "name": customer, "date": date(2026, 3, number), "lines": lines}


async def main() -> None:
    async with milepost.AsyncClient(BROKER) as shop, milepost.AsyncClient(BROKER) as desk:
        await shop.declare_type(TYPE)
        await shop.declare_queue("outstanding", "OrderMessage", priorities={"OrderMessage": WORTH})

        async with shop.transaction() as tx:  # stores all of them, or none
            await tx.enqueue("outstanding", order(1, "Smith", 0))
            await tx.enqueue("outstanding", [order(2, "Jones", 0, 1, 2), order(3, "Smith", 2, 1, 0)])
            await tx.enqueue("outstanding", order(4, "Smith", 1, 2), priority=100)

        async with desk.transaction() as tx:
            (urgent,) = await tx.dequeue("outstanding", "OrderMessage")  # by priority
            print("first of all", urgent.id, "with priority", urgent.priority)
            await tx.abort()  # the order is back in its place in the queue

        async with desk.transaction() as tx:
            orders = await tx.dequeue(
                "outstanding", "OrderMessage", count=10, order=f"{ITEMS} desc",
                where="select om from mt_OrderMessage om, om.root o where o.name = 'Smith'",
            )  # fmt: skip
            for each in orders:
                print(each.name, each.id, len(each.lines), "items, the first is", each.lines[0].item.name)
        # The commit has removed them. Jones's order waits for another reader.
        print("left:", [message.name async for message in desk.browse("outstanding")])
        print(await desk.purge("outstanding", where="name = 'Jones'"), "purged")


asyncio.run(main())
