"""A client must not make a broker open what it names, or tell it what others have named."""

import asyncio
import sqlite3
from contextlib import asynccontextmanager

import pytest

from milepost import AsyncClient, testing
from milepost.errors import ConfigError
from milepost.wire import SetTransfer
from tests.integration.test_failures import run

NOTE = "note: [n: long]"
SECRET = "s3cret"


@asynccontextmanager
async def listening():
    """A port, and how many have connected to it: as a database it never answers."""
    seen = []

    def connected(reader, writer):
        seen.append(writer)
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], seen


def addresses(port):
    yield f"postgresql://me:{SECRET}@127.0.0.1:{port}/db"
    yield f"postgres://127.0.0.1:{port}/db?password={SECRET}"
    yield f"milepost://127.0.0.1:1,postgresql://me:{SECRET}@127.0.0.1:{port}/db"
    yield f"postgresql:/me:{SECRET}@127.0.0.1:{port}/db"
    yield "sqlite:///other.db"
    yield f"milepost://me:{SECRET}@127.0.0.1:{port}"


async def transferred(broker, address):
    """A transfer asked for without the client's own checks, as another client could."""
    async with AsyncClient(broker.uri) as client:
        await client._session.ask(lambda number: SetTransfer(request=number, queue="q", address=address, target="q"))


def test_a_transfer_goes_to_brokers_only():
    run(_refused())


async def _refused():
    async with (
        listening() as (port, seen),
        testing.broker(listen="milepost://127.0.0.1:0") as broker,
        AsyncClient(broker.uri) as client,
    ):
        await client.declare_type(NOTE)
        await client.declare_queue("q", ["note"])
        for address in addresses(port):
            with pytest.raises(ConfigError) as caught:
                await transferred(broker, address)
            assert SECRET not in str(caught.value)
        assert await client.transfers() == []
        assert SECRET not in str(await client.status())
        assert not seen


def test_what_an_older_version_has_stored_is_not_opened_and_not_told(tmp_path, caplog):
    run(_left(str(tmp_path / "store.db")))
    assert SECRET not in caplog.text


async def _left(path):
    async with listening() as (port, seen):
        async with (
            testing.broker(listen="milepost://127.0.0.1:0", store=path) as broker,
            AsyncClient(broker.uri) as client,
        ):
            await client.declare_type(NOTE)
            await client.declare_queue("q", ["note"])
            await client.transfer("q", "127.0.0.1:1", "q")
        behind = sqlite3.connect(path)
        with behind:
            behind.execute("UPDATE queue_transfers SET address = ?", (f"postgresql://me:{SECRET}@127.0.0.1:{port}/db",))
        behind.close()
        async with (
            testing.broker(listen="milepost://127.0.0.1:0", store=path) as broker,
            AsyncClient(broker.uri) as client,
        ):
            async with asyncio.timeout(60):
                while "not the address of a broker" not in (found := (await client.transfers())[0]).error:
                    await client.status()
            assert found.address == f"postgresql://me:***@127.0.0.1:{port}/db"
            with pytest.raises(Exception, match="stop that first") as caught:
                await transferred(broker, "127.0.0.1:1")
            assert SECRET not in str(caught.value)
            assert not seen
