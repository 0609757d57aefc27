"""The rights that docs/operations.md names are those that a program needs to enqueue in its own transaction."""

import asyncio
import re

import psycopg
import pytest

import milepost.queues
from milepost import testing
from milepost.client import AsyncClient
from milepost.errors import StoreError

from .conftest import ROOT


def granted():
    (block,) = re.findall(
        r"^```sql\n(GRANT.*?)^```", (ROOT / "docs/operations.md").read_text(), re.MULTILINE | re.DOTALL
    )
    return [line for line in block.splitlines() if line]


@pytest.fixture
def shop(postgresql):
    """A role that has no right but those that the page gives it; removed with them."""
    with psycopg.connect(postgresql, autocommit=True) as admin:
        admin.execute("CREATE ROLE shop LOGIN")
        yield
        admin.execute("DROP OWNED BY shop")
        admin.execute("DROP ROLE shop")


@pytest.mark.xdist_group("postgresql")
def test_the_rights_of_the_page_are_enough_and_needed(postgresql, shop):
    async def whole():
        async with testing.broker(store=postgresql) as broker, AsyncClient(broker.uri) as client:
            await client.declare_type("note: [text: string, lines: *(string)*]")
            await client.declare_queue("before", "note", priorities={"note": "length(text)"})
            await asyncio.to_thread(_refused, postgresql)
            await asyncio.to_thread(_grant, postgresql)
            await client.declare_type("late: [text: string]")
            for level in ("ordered", "blockwise"):  # with tables that were not there when the rights were given
                await client.declare_queue(level, "late", level=level)
            await asyncio.to_thread(_enqueue, postgresql)
            async with client.transaction() as tx:
                (first,) = await tx.dequeue("before", count=5)
                assert (first.text, first.priority, list(first.lines)) == ("hello", 5.0, ["a", "b"])
                assert [(each.text, each.priority) for each in await tx.dequeue("ordered", count=5)] == [("x", 3.0)]
                assert [each.text for each in await tx.dequeue("blockwise", count=5)] == ["y"]

    asyncio.run(whole())


def _as_shop(url):
    return psycopg.connect(url, user="shop")


def _refused(url):
    with pytest.raises(StoreError, match="grant the role"), _as_shop(url) as connection:
        milepost.queues.enqueue(connection, "before", {"text": "no", "lines": []})


def _grant(url):
    with psycopg.connect(url, autocommit=True) as admin:
        for statement in granted():
            admin.execute(statement)


def _enqueue(url):
    with _as_shop(url) as connection:
        milepost.queues.enqueue(connection, "before", {"text": "hello", "lines": ["a", "b"]})
        milepost.queues.enqueue(connection, "ordered", {"text": "x"}, priority=3)
        milepost.queues.enqueue(connection, "blockwise", {"text": "y"})
