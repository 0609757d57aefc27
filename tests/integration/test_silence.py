"""Three silent heartbeats: a client that hangs is noticed by the broker, and a broker that hangs by its clients.

`frame_s` is an hour here: how long a frame may take has nothing to do with it.
"""

import asyncio
import os
import signal
import sys

import pytest

from milepost import AsyncClient
from milepost.errors import ConnectionLost
from tests.integration.hostile.process import PATIENCE, Process, run

pytestmark = pytest.mark.slow  # three heartbeats each

EVENT = "event: [n: long]"
SETTINGS = {"heartbeat_s": 1.0, "frame_s": 3600.0, "lease_s": 3.0, "queue_lease_s": 1.0}

HANGING = """
import asyncio, sys
import milepost

async def main():
    async with milepost.AsyncClient(sys.argv[1], name="hanging") as client:
        sub = await client.subscribe("live")
        async with client.transaction() as tx:
            print(len(await tx.dequeue("work", count=1)), flush=True)
            async for message in sub:
                print(message.n, flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("sent_to", [False, True], ids=["idle", "sent to all the time"])
def test_a_client_that_is_stopped_is_gone_and_its_messages_go_to_others(tmp_path, sent_to):
    async def body():
        async with Process(tmp_path, **SETTINGS) as broker, AsyncClient(broker.address, timeout=PATIENCE) as client:
            await client.declare_topic("live", EVENT, slow="drop")
            await client.declare_type("work: [n: long]")
            await client.declare_queue("work", ["work"])
            async with client.transaction() as tx:
                await tx.enqueue("work", {"n": 7}, type="work")
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-c", HANGING, broker.address, stdout=asyncio.subprocess.PIPE
            )
            try:
                assert (await child.stdout.readline()).strip() == b"1"
                await client.put("live", {"n": 1})
                assert (await child.stdout.readline()).strip() == b"1"
                os.kill(child.pid, signal.SIGSTOP)

                async def feed():
                    while True:
                        await client.put("live", {"n": 2})
                        await client.flush()

                feeding = asyncio.create_task(feed()) if sent_to else None
                async with client.transaction() as tx:
                    found = await tx.dequeue("work", count=1, timeout=PATIENCE)
                    assert [message.n for message in found] == [7]
                figures = await client.status()
                assert [each["name"] for each in figures["clients"]] == [""]
                assert figures["errors"]["timed_out"] == 1
                if feeding is not None:
                    feeding.cancel()
                    await asyncio.gather(feeding, return_exceptions=True)
            finally:
                os.kill(child.pid, signal.SIGKILL)
                await child.communicate()

    run(body())


def test_a_broker_that_is_stopped_is_noticed_by_its_client(tmp_path):
    async def body():
        async with Process(tmp_path, **SETTINGS) as broker:
            async with AsyncClient(broker.address, timeout=PATIENCE, reconnect=False) as client:
                await client.flush()
                os.kill(broker.process.pid, signal.SIGSTOP)
                with pytest.raises(ConnectionLost, match="nothing was heard"):
                    await client.flush()

    run(body())
