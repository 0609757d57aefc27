"""The protocol of transferring, step by step, between two brokers in this process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from milepost import AsyncClient, limits, testing
from milepost.client import TransferInfo
from milepost.errors import (
    ConnectionLost,
    InvalidValue,
    MilepostError,
    StateLost,
    TransactionAborted,
    UnknownQueue,
)
from milepost.queues import transfer
from milepost.queues.transfer import Carrier, Transfer, coordinator_of, number_of

NOTE = "note: [n: int]"
OTHER = "other: [text: string]"
PATIENCE = 120.0  # seconds, for what hangs


class Nodes:
    """Two brokers and their clients."""

    def __init__(self, source: Any, target: Any, writer: AsyncClient, reader: AsyncClient) -> None:
        self.source, self.target = source, target
        self.writer, self.reader = writer, reader
        self.coordinator = coordinator_of(writer.broker_id, "notes")

    @contextlib.asynccontextmanager
    async def carrier(self, name: str | None = None) -> AsyncIterator[Carrier]:
        """A transfer with connections of its own; as one that has connected again it has the same name."""
        async with (
            AsyncClient(self.source.uri, reconnect=False) as source,
            AsyncClient(self.target.uri, name=self.coordinator if name is None else name, reconnect=False) as target,
        ):
            made = Carrier(source, target, "notes", "notes", self.coordinator, self.target.uri, [])
            await made.begin()
            yield made

    async def write(self, *numbers: int, **options: Any) -> None:
        async with self.writer.transaction() as tx:
            await tx.enqueue("notes", [{"n": n} for n in numbers], "note", **options)

    async def there(self) -> list[int]:
        """What has arrived; it stays."""
        return [each.n async for each in self.reader.browse("notes")]

    async def here(self) -> list[int]:
        return [each.n async for each in self.writer.browse("notes")]

    async def doubts(self) -> tuple[int, int]:
        """How many transactions are in doubt, and how many were decided and not forgotten."""
        return len(await self.reader.in_doubt()), len(await self.writer.decisions())


def between(body: Callable[[Nodes], Awaitable[None]], level: str = "none", define: bool = True) -> None:
    async def whole() -> None:
        async with asyncio.timeout(PATIENCE), testing.broker() as source, testing.broker() as target:
            async with AsyncClient(source.uri) as writer, AsyncClient(target.uri) as reader:
                for client in (writer, reader) if define else (writer,):
                    await client.declare_type(NOTE)
                    await client.declare_queue("notes", ["note"], level=level)
                await body(Nodes(source, target, writer, reader))

    asyncio.run(whole())


async def taken(carrier: Carrier) -> transfer.TakenMessages:
    found = await carrier.take(0.0)
    assert found is not None
    return found


async def prepared(nodes: Nodes, carrier: Carrier) -> tuple[transfer.TakenMessages, str]:
    """As far as a transfer is before it commits."""
    found = await taken(carrier)
    over = carrier._target.transaction()
    for part in found.parts:
        await over.enqueue("notes", part.batch, priority=part.priority)
    await over.prepare(found.gid, nodes.coordinator)
    return found, f"{nodes.reader.broker_id} {nodes.target.uri}/notes"


# What arrives


def test_messages_go_over_with_their_priorities_ends_and_types() -> None:
    ends = datetime.now(UTC) + timedelta(hours=1)

    async def body(nodes: Nodes) -> None:
        await nodes.writer.declare_type(OTHER)
        await nodes.writer.declare_queue("mixed", ["note", "other"])
        await nodes.reader.declare_type(NOTE)
        await nodes.reader.declare_type(OTHER)
        await nodes.reader.declare_queue("mixed", ["note", "other"])
        async with nodes.writer.transaction() as tx:
            await tx.enqueue("mixed", [{"n": 1}, {"n": 2}], "note", priority=2.0)
            await tx.enqueue("mixed", [{"text": "a"}], "other", priority=2.0, expires=ends)
            await tx.enqueue("mixed", [{"n": 3}, {"n": 4}], "note", priority=-1.5)
        assert await Transfer(nodes.source.uri, "mixed", nodes.target.uri, "mixed").once() == 5
        async with nodes.reader.transaction() as tx:
            found = await tx.dequeue("mixed", count=10)
            assert [(each.type, each.priority) for each in found] == [
                ("note", 2.0), ("note", 2.0), ("other", 2.0), ("note", -1.5), ("note", -1.5),
            ]  # fmt: skip
            held = await nodes.reader.holding(tx.number)
            assert held.ends == {found[2].number: ends}
        assert await nodes.doubts() == (0, 0)

    between(body, define=False)


def test_types_that_are_missing_are_defined_and_others_are_refused() -> None:
    async def body(nodes: Nodes) -> None:
        await nodes.write(1)
        once = Transfer(nodes.source.uri, "notes", nodes.target.uri, "notes").once
        with pytest.raises(UnknownQueue, match="notes"):
            await once()
        await nodes.reader.declare_type(OTHER)
        await nodes.reader.declare_queue("notes", ["other"])
        with pytest.raises(InvalidValue, match="does not take note"):
            await once()
        assert set(await nodes.reader.types()) == {"note", "other"}
        await nodes.reader.delete_type("note")
        await nodes.reader.declare_type("note: [n: int, more: int]")
        with pytest.raises(InvalidValue, match="another one"):
            await once()
        assert await nodes.here() == [1]
        with pytest.raises(InvalidValue, match="to itself"):
            await Transfer(nodes.source.uri, "notes", nodes.source.uri, "notes").once()

    between(body, define=False)


def test_what_the_target_refuses_counts_no_abort() -> None:
    """A message is not dead because its target was away."""

    async def body(nodes: Nodes) -> None:
        await nodes.writer.declare_queue("few", ["note"], dead_letter="dead", max_deliveries=1)
        async with nodes.writer.transaction() as tx:
            await tx.enqueue("few", {"n": 1})
        async with AsyncClient(nodes.source.uri) as source, AsyncClient(nodes.target.uri, reconnect=False) as target:
            carrier = Carrier(source, target, "few", "notes", "c", "there", [])
            await carrier.begin()
            found = await taken(carrier)
            await nodes.reader.delete_queue("notes")
            with pytest.raises(UnknownQueue):
                await carrier.carry(found)
        (message,) = await nodes.writer.peek("few")
        assert (message.n, message.deliveries) == (1, 0)

    between(body)


def test_large_messages_go_fewer_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(nodes: Nodes) -> None:
        await nodes.write(*range(1000))
        async with nodes.carrier() as carrier:
            counts = []
            while (found := await carrier.take(0.0)) is not None:
                await carrier.carry(found)
                counts.append(found.messages)
        assert counts[0] == 100
        assert 1 < max(counts) < 200
        assert await nodes.there() == list(range(1000))

    monkeypatch.setattr(transfer, "BYTES", 400)
    between(body)


def test_blocks_go_over_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(nodes: Nodes) -> None:
        await nodes.write(1, 2, 3)
        await nodes.write(4, 5)
        async with nodes.carrier() as carrier:
            counts = []
            while (found := await carrier.take(0.0)) is not None:
                await carrier.carry(found)
                counts.append(found.messages)
        assert counts == [3, 2]
        async with nodes.reader.transaction() as tx:
            assert [each.n for each in await tx.dequeue("notes", count=5)] == [1, 2, 3, 4, 5]

    monkeypatch.setattr(transfer, "MESSAGES", 2)
    between(body, "blockwise")


# What is in doubt


def test_what_was_prepared_and_not_decided_is_undone() -> None:
    async def body(nodes: Nodes) -> None:
        await nodes.write(1, 2)
        async with nodes.carrier() as first:
            await prepared(nodes, first)
            assert await nodes.doubts() == (1, 0)
        async with nodes.carrier() as second:
            assert await second.resolve() == 1
            assert await second.resolve() == 0
            assert (await nodes.there(), await nodes.here()) == ([], [1, 2])
            await second.carry(await taken(second))
        assert (await nodes.there(), await nodes.here()) == ([1, 2], [])
        assert await nodes.doubts() == (0, 0)

    between(body)


def test_what_was_decided_is_committed_and_forgotten() -> None:
    async def body(nodes: Nodes) -> None:
        await nodes.write(1, 2)
        async with nodes.carrier() as first:
            found, participant = await prepared(nodes, first)
            await found.transaction.commit(decision=(found.gid, participant))
        assert await nodes.doubts() == (1, 1)
        assert (await nodes.there(), await nodes.here()) == ([], [])
        async with nodes.carrier() as second:
            assert await second.resolve() == 1
        assert await nodes.there() == [1, 2]
        assert await nodes.doubts() == (0, 0)

    between(body)


def test_a_decision_that_the_target_has_heard_is_forgotten() -> None:
    async def body(nodes: Nodes) -> None:
        await nodes.write(1)
        async with nodes.carrier() as first:
            found, participant = await prepared(nodes, first)
            await found.transaction.commit(decision=(found.gid, participant))
            await nodes.reader.decide(found.gid, True)
        assert await nodes.doubts() == (0, 1)
        async with nodes.carrier() as second:
            assert await second.resolve() == 0
        assert await nodes.there() == [1]
        assert await nodes.doubts() == (0, 0)

    between(body)


def test_a_transfer_that_was_given_up_cannot_commit_any_more() -> None:
    """Two of one transfer: the first is slow, and is about to commit when the second resolves."""

    async def body(nodes: Nodes) -> None:
        await nodes.write(1, 2)
        async with nodes.carrier() as slow:
            found, participant = await prepared(nodes, slow)
            async with nodes.carrier() as quick:
                assert await quick.resolve() == 1
                with pytest.raises(TransactionAborted):
                    await found.transaction.commit(decision=(found.gid, participant))
                await quick.carry(await taken(quick))
            with pytest.raises(MilepostError):  # its name is another's now
                await slow.resolve()
        assert (await nodes.there(), await nodes.here()) == ([1, 2], [])
        assert await nodes.doubts() == (0, 0)

    between(body)


@pytest.mark.parametrize("name", [None, "another"], ids=["fenced", "not even fenced"])
def test_two_at_once_bring_every_message_once(name: str | None) -> None:
    """They undo each other's transactions, over and over: what is brought is brought once all the same."""

    async def transferred(carrier: Carrier) -> None:
        while True:
            try:
                await carrier.resolve()
                found = await carrier.take(0.0)
                if found is None:
                    return
                await carrier.carry(found)
            except (TransactionAborted, ConnectionLost):
                pass
            except MilepostError as error:
                if error.code not in ("fenced", "no_transaction"):
                    raise
                if error.code == "fenced":
                    return

    async def body(nodes: Nodes) -> None:
        for start in range(0, 120, 6):
            await nodes.write(*range(start, start + 6))
        async with nodes.carrier() as one, nodes.carrier(name) as other:
            one._count = other._count = 4
            await asyncio.gather(transferred(one), transferred(other))
        await Transfer(nodes.source.uri, "notes", nodes.target.uri, "notes").once()
        assert sorted(await nodes.there()) == list(range(120))
        assert await nodes.here() == []
        assert await nodes.doubts() == (0, 0)

    between(body)


def test_transfers_of_others_are_left_alone() -> None:
    async def body(nodes: Nodes) -> None:
        async with nodes.reader.transaction() as tx:
            await tx.enqueue("notes", {"n": 7})
            await tx.prepare(f"{nodes.coordinator}/deeper/12", f"{nodes.coordinator}/deeper")
        async with nodes.writer.transaction() as tx:
            await tx.enqueue("notes", {"n": 1})
            await tx.commit(decision=(f"{nodes.coordinator}/deeper/13", "elsewhere"))
        async with nodes.carrier() as carrier:
            assert await carrier.resolve() == 0
        assert await nodes.doubts() == (1, 1)

    between(body)


def test_a_target_that_has_lost_its_store_is_reported() -> None:
    async def body(nodes: Nodes) -> None:
        await nodes.write(1)
        async with nodes.carrier() as first:
            found, _ = await prepared(nodes, first)
            await found.transaction.commit(decision=(found.gid, "0123 milepost://there:7450/notes"))
        transfer = Transfer(nodes.source.uri, "notes", nodes.target.uri, "notes")
        ((gid, _),) = await nodes.writer.decisions()
        await nodes.reader.decide(gid, True)
        with pytest.raises(StateLost, match="there:7450"):
            await transfer.once()
        assert await nodes.doubts() == (0, 1), "nothing is forgotten by itself"
        await nodes.writer.forget_decision(gid)
        assert await transfer.once() == 0

    between(body)


# Names


def test_names_fit_and_tell_whose_they_are() -> None:
    assert coordinator_of("abc", "orders") == "transfer/abc/orders"
    long = [coordinator_of("0" * 32, "q" * limits.NAME_CHARS), coordinator_of("0" * 32, "q" * 254)]
    assert len(set(long)) == 2
    assert max(map(len, long)) <= limits.NAME_CHARS
    assert number_of("transfer/abc/orders/17") == 17
    with pytest.raises(InvalidValue, match="was not made by one"):
        number_of("transfer/abc/orders/x")


# The broker does it


async def told(nodes: Nodes, condition: Callable[[TransferInfo], bool]) -> TransferInfo:
    """Have the broker tell how its transfer is, more often than it would by itself, until that is so."""
    while True:
        nodes.source._transfers._look()
        (found,) = await nodes.writer.transfers()
        if condition(found):
            return found


def test_a_broker_transfers_from_the_request_to_the_drop() -> None:
    async def body(nodes: Nodes) -> None:
        await nodes.writer.transfer("notes", nodes.target.uri, "notes")
        await nodes.writer.transfer("notes", nodes.target.uri, "notes")
        await nodes.write(1, 2)
        async with nodes.reader.transaction() as tx:
            assert [each.n for each in await tx.dequeue("notes", count=2, timeout=PATIENCE)] == [1, 2]
        found = await told(nodes, lambda found: found.messages == 2)
        assert (found.queue, found.address, found.target, found.error) == ("notes", nodes.target.uri, "notes", "")
        with pytest.raises(MilepostError, match="no transport"):
            await nodes.writer.transfer("notes", "gopher://there", "notes")
        await nodes.writer.delete_transfer("notes")
        assert await nodes.writer.transfers() == []
        while nodes.source._transfers._running:
            await nodes.writer.status()
        await nodes.write(3)
        assert (await nodes.here(), await nodes.there()) == ([3], [])

    between(body)


def test_what_is_in_the_way_is_told_and_tried_again() -> None:
    async def body(nodes: Nodes) -> None:
        await nodes.write(1)
        await nodes.writer.transfer("notes", nodes.target.uri, "later")
        found = await told(nodes, lambda found: bool(found.error))
        assert "later" in found.error
        await nodes.reader.declare_queue("later", ["note"])
        async with nodes.reader.transaction() as tx:
            assert [each.n for each in await tx.dequeue("later", timeout=PATIENCE)] == [1]
        await told(nodes, lambda found: not found.error)

    between(body)


def test_a_broker_that_stops_finishes_what_it_has_begun(tmp_path: Path) -> None:
    async def whole() -> None:
        store = str(tmp_path / "source.db")
        async with asyncio.timeout(PATIENCE), testing.broker() as target, AsyncClient(target.uri) as reader:
            for begin in range(0, 900, 300):
                async with testing.broker(store=store) as source, AsyncClient(source.uri) as writer:
                    await writer.declare_type(NOTE)
                    await writer.declare_queue("notes", ["note"])
                    await reader.declare_type(NOTE)
                    await reader.declare_queue("notes", ["note"])
                    await writer.transfer("notes", target.uri, "notes")
                    for start in range(begin, begin + 300, 20):
                        async with writer.transaction() as tx:
                            await tx.enqueue("notes", [{"n": n} for n in range(start, start + 20)])
                assert await reader.in_doubt() == []
            async with testing.broker(store=store), reader.transaction() as tx:
                found: list[int] = []
                while len(found) < 900:
                    found += [each.n for each in await tx.dequeue("notes", count=900, timeout=PATIENCE)]
            assert found == list(range(900))
            assert await reader.in_doubt() == []

    asyncio.run(whole())


@pytest.mark.xdist_group("postgresql")
def test_brokers_of_a_cell_take_over_from_each_other(postgresql: str) -> None:
    async def whole() -> None:
        async with asyncio.timeout(PATIENCE), testing.broker() as target, AsyncClient(target.uri) as reader:
            await reader.declare_type(NOTE)
            await reader.declare_queue("notes", ["note"])
            async with testing.broker(store=postgresql, name="two") as two, AsyncClient(two.uri) as writer:
                async with testing.broker(store=postgresql, name="one") as one, AsyncClient(one.uri) as client:
                    await client.declare_type(NOTE)
                    await client.declare_queue("notes", ["note"])
                    await client.transfer("notes", target.uri, "notes")
                    async with client.transaction() as tx:
                        await tx.enqueue("notes", [{"n": n} for n in range(50)])
                    async with reader.transaction() as tx:
                        found = await tx.dequeue("notes", count=50, timeout=PATIENCE)
                    two._transfers._changed.set()
                    await writer.status()
                    assert (len(one._transfers._running), len(two._transfers._running)) == (1, 0)
                while not two._transfers._running:
                    two._transfers._changed.set()
                    await writer.status()
                async with writer.transaction() as tx:
                    await tx.enqueue("notes", [{"n": n} for n in range(50, 60)])
                async with reader.transaction() as tx:
                    found += await tx.dequeue("notes", count=50, timeout=PATIENCE)
                assert [each.n for each in found] == list(range(60))
                assert len({each.mid.split("/")[0] for each in found}) == 1, "one writer, whichever broker"

    asyncio.run(whole())
