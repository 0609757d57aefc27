"""Clients that acknowledge over ZeroMQ what nobody handed to them, beside one that works."""

import asyncio
import random

from milepost import testing
from milepost.gateway.zmq import Gateway
from tests.integration.req_socket import connected

MESSAGES = 150
SECONDS = 600  # for what hangs
REFUSED = {"NotExpectingAck", "AckMessageMismatch", "SubscriberNotRegistered", "UnknownMessage"}


def test_acknowledgements_of_what_is_not_handed_out_take_nothing_from_others(tmp_path):
    """Two clients acknowledge messages that come later, of a subscriber that works, of one that never asks, of none."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    dice = random.Random(seed)

    async def whole():
        async with (
            asyncio.timeout(SECONDS),
            testing.broker(store=str(tmp_path / "store.db")) as broker,
            Gateway(broker.uri, "127.0.0.1:0") as gateway,
            connected(gateway.address, 3) as (desk, *others),
        ):
            for sub_id in ("works", "sleeps"):
                await desk.ask("SUB", sub_id=sub_id, topic="t")
            for number in range(1, MESSAGES + 1):
                await desk.put("t", b"%d" % number)
            at = 0
            refused = 0

            async def lie(client):
                nonlocal refused
                while at < MESSAGES:
                    sub_id = dice.choice(("works", "sleeps", "nobody"))
                    number = dice.randint(at + 6, MESSAGES + 9) if sub_id == "works" else dice.randint(0, MESSAGES + 9)
                    assert await client.error("ACK", sub_id=sub_id, message_no=number) in REFUSED
                    refused += 1

            lying = [asyncio.create_task(lie(each)) for each in others]
            while at < MESSAGES:
                found = await desk.get("works")
                if found == "NoPostsInTopic":
                    continue  # a request of the same subscriber ends the wait of a get
                assert found == (at + 1, b"%d" % (at + 1))
                at += 1
                assert (await desk.ask("ACK", sub_id="works", message_no=at))["message_no"] == at
            await asyncio.gather(*lying)
            assert refused
            assert await desk.get("works") == "NoPostsInTopic"
            for number in range(1, 4):
                assert await desk.take("sleeps") == (number, b"%d" % number)

    asyncio.run(whole())
