"""Stores that earlier versions of the tables were filled under open with today's, and everything in them goes on."""

import gzip
import sqlite3

import psycopg
import pytest

from milepost import AsyncClient, testing
from milepost.errors import DuplicateMessage
from milepost.storage import migrations
from tests.integration.test_failures import run
from tests.old_stores import FOLDER, KEY

OLDER = range(1, len(migrations.known()))


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request, tmp_path, version):
    """A store as a broker of that version left it."""
    if request.param == "sqlite":
        path = tmp_path / "store.db"
        path.write_bytes(gzip.decompress((FOLDER / f"version-{version}.db.gz").read_bytes()))
        return str(path)
    url = request.getfixturevalue("postgresql")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(gzip.decompress((FOLDER / f"version-{version}.sql.gz").read_bytes()))
    return url


def asked(store, text):
    if store.startswith("postgresql"):
        with psycopg.connect(store, autocommit=True, options="-c search_path=milepost") as connection:
            return connection.execute(text).fetchall()
    connection = sqlite3.connect(store)
    try:
        return connection.execute(text).fetchall()
    finally:
        connection.close()


@pytest.mark.parametrize("version", OLDER)
def test_a_store_of_an_older_version_goes_on(store, version):
    assert asked(store, "SELECT version FROM meta") == [(version,)]
    (kept,) = asked(store, "SELECT max(last_us) FROM entries")[0]
    run(_goes_on(store, version, testing.FakeClock(kept + 1_000_000)))  # days later, retention would have had its way
    assert asked(store, "SELECT version FROM meta") == [(len(migrations.known()),)]


async def _goes_on(store, version, clock):
    async with (
        testing.broker(listen="milepost://127.0.0.1:0", store=store, name="old", clock=clock) as broker,
        AsyncClient(broker.uri, name="feed") as client,
    ):
        replay = await client.subscribe("orders", start="earliest")
        assert [message.id for message in await replay.get_many(300)] == list(range(300))
        desk = await client.subscribe("orders", name="desk", ack="explicit", create=False)
        assert [message.id for message in await desk.get_many(2)] == [5, 6]  # 2, 3 and 4 were acknowledged
        await desk.ack()
        with pytest.raises(DuplicateMessage):
            await client.put("audit", {"what": "keyed"}, key=KEY)
        await client.put("orders", {"id": 300})
        assert (await replay.get(timeout=60)).id == 300
        published = 1 if version < 2 else 2
        if version >= 2:
            assert await client.published("sink") == 1
            assert (await client.publish("sink", 2, [(0, 1)])).rows == 1
            published += 1
        audit = await client.subscribe("audit", start="earliest")
        expected = ["keyed", "published", "staged"][:published]
        assert [message.what for message in await audit.get_many(published)] == expected
        if version < 3:
            await client.declare_type("note: [n: long, text: string]")
            await client.declare_queue("notes", ["note"], level="ordered")
            async with client.transaction() as transaction:
                for number in range(1, 4):
                    await transaction.enqueue("notes", {"n": number, "text": f"text {number}"})
        else:
            (transfer,) = await client.transfers()
            assert (transfer.queue, transfer.target) == ("dead", "elsewhere")
        async with client.transaction() as transaction:
            found = await transaction.dequeue("notes", "note", count=10)
        assert [(message.n, message.text) for message in found] == [(n, f"text {n}") for n in (1, 2, 3)]
