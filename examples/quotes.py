"""A feed and two subscriptions by content. Needs a broker: start one with `milepost up`."""

import asyncio
import os

import milepost

BROKER = os.environ.get("MILEPOST_BROKER", "milepost://127.0.0.1:7450")


async def main() -> None:
    async with milepost.AsyncClient(BROKER) as feed, milepost.AsyncClient(BROKER) as desk:
        await feed.declare_topic("quotes", "quote: [symbol: string, price: double, size: int]")
        ibm = await desk.subscribe("quotes", where="symbol = 'IBM' and price > 100")
        large = await desk.subscribe("quotes", where="size >= 1000")

        await feed.put("quotes", {"symbol": "IBM", "price": 101.5, "size": 200})  # one message
        columns = {"symbol": ["ACME", "IBM"], "price": [12.0, 99.0], "size": [5000, 1000]}
        await feed.put_many("quotes", columns)  # or rows, Arrow, pandas, Polars

        message = await anext(ibm)
        print(message.symbol, message.price, message.id)  # a view: a field is decoded when it is read
        async for batch in large.batches():
            print(batch.column("size").sum(), batch.to_pylist())
            break


asyncio.run(main())
