"""Queues that go on to another broker: whoever is killed at whatever step, every message arrives once."""

import asyncio
import contextlib
import json
import shutil
import signal

import pytest
from typer.testing import CliRunner

from milepost import AsyncClient, testing
from milepost.cli import queue
from milepost.client import backoff
from milepost.errors import MilepostError
from milepost.queues import transfer
from milepost.queues.transfer import Transfer
from milepost.wire import Kind
from tests.integration.proxy import HEADER, Proxy
from tests.integration.test_failures import PATIENCE, Broker, run

NOTE = "note: [n: long]"
# The frames of one round, on the connection to each broker, as they come when a transfer waits for messages. A step is
# one of them: a node is killed when it has not been passed on yet.
SOURCE_STEPS = [
    ("down", Kind.TAKEN),  # the messages
    ("down", Kind.REPLY),
    ("up", Kind.HOLDING),
    ("down", Kind.REPLY),
    ("up", Kind.FINISH),  # commit, with the decision
    ("down", Kind.REPLY),
    ("up", Kind.FORGET_DECISION),
    ("down", Kind.REPLY),
    ("up", Kind.DEQUEUE),
]
TARGET_STEPS = [
    ("up", Kind.ENQUEUE),
    ("up", Kind.FINISH),  # prepare
    ("down", Kind.REPLY),
    ("up", Kind.DECIDE),
    ("down", Kind.REPLY),
]
# The frames by which a transfer that was started anew, or has lost its target, finds out what is in doubt there.
RESOLVING = [("up", Kind.IN_DOUBT), ("down", Kind.REPLY), ("up", Kind.DECIDE), ("down", Kind.REPLY)]


class Trap(Proxy):
    """A proxy that kills a broker when it sees a frame, and does not pass that frame on."""

    def __init__(self, port):
        super().__init__(("127.0.0.1", port))
        self._steps = []
        self._victim = None
        self._sprung = asyncio.Event()

    def arm(self, steps, at, victim=None):
        """Kill `victim`, if any, and cut, at the frame `steps[at]`; frames that are not the next step do not count."""
        self._steps, self._victim = list(steps[: at + 1]), victim
        self._sprung.clear()

    async def sprung(self):
        """Wait until it has killed, and the victim is dead."""
        async with asyncio.timeout(PATIENCE):
            await self._sprung.wait()
        if self._victim is not None:
            await self._victim.wait()

    async def _pass(self, reader, writer, direction, both):
        while True:
            header = await reader.readexactly(HEADER.size)
            length, kind, _, _ = HEADER.unpack(header)
            body = await reader.readexactly(length)
            if self._steps and self._steps[0] == (direction, kind):
                self._steps.pop(0)
                if not self._steps:
                    if self._victim is not None:
                        self._victim.signal(signal.SIGKILL)
                    self._sprung.set()
                    raise ConnectionResetError
            writer.write(header + body)
            await writer.drain()


class Nodes:
    """Two brokers in processes of their own, clients of both, and traps on the ways to them."""

    def __init__(self, folder, level="none", target_level="none", stores=(None, None)):
        for name in ("source", "target"):
            (folder / name).mkdir()
        self.source = Broker(folder / "source", stores[0] or folder / "source" / "log.db", "source")
        self.target = Broker(folder / "target", stores[1] or folder / "target" / "log.db", "target")
        self.source.settings += (
            "queue_lease_s = 1.0\n"  # of a transfer that has lost its source before it knew what it took
        )
        self._levels = level, target_level
        self._stack = contextlib.AsyncExitStack()
        self.sent = []

    async def __aenter__(self):
        enter = self._stack.enter_async_context
        for broker in (self.source, self.target):
            await enter(broker)
        self.to_source, self.to_target = await enter(Trap(self.source.port)), await enter(Trap(self.target.port))
        self.writer = await enter(AsyncClient(self.source.address, timeout=PATIENCE))
        self.reader = await enter(AsyncClient(self.target.address, timeout=PATIENCE))
        for client, level in zip((self.writer, self.reader), self._levels, strict=True):
            await client.declare_type(NOTE)
            await client.declare_queue("notes", ["note"], level=level)
        return self

    async def __aexit__(self, *what):
        return await self._stack.__aexit__(*what)

    async def write(self, *sizes):
        """Write blocks of so many messages, each in a transaction, and wait until all are stored."""
        for size in sizes:
            block = [len(self.sent) + each for each in range(size)]
            async with self.writer.transaction() as tx:
                await tx.enqueue("notes", [{"n": n} for n in block])
            self.sent += block

    async def read(self):
        """Everything that was sent and not read yet, as it comes; then nothing is left anywhere."""
        found = []
        async with self.reader.transaction() as tx:
            while len(found) < len(self.sent):
                some = await tx.dequeue("notes", count=1000, timeout=PATIENCE)
                assert some, f"{len(found)} of {len(self.sent)} came"
                found += some
        await self.settled()
        assert sorted(each.n for each in found) == self.sent, "each once"
        self.sent = []
        return found

    async def settled(self):
        """Wait until nobody is in doubt about anything, and see that both queues are empty."""
        async with asyncio.timeout(PATIENCE):
            while await self.reader.in_doubt() or await self.writer.decisions():
                pass
        for client in (self.writer, self.reader):
            figures = (await client.queue("notes")).figures
            assert not any(figures.values()), figures

    async def transferred(self, count):
        """Wait until the source's broker has told that so many messages went over."""
        async with asyncio.timeout(PATIENCE):
            while (await self.writer.transfers())[0].messages < count:
                pass


@contextlib.asynccontextmanager
async def transferring(nodes):
    """A transfer in this process, over both traps."""
    stop = asyncio.Event()
    transfer = Transfer(nodes.to_source.address, "notes", nodes.to_target.address, "notes")
    task = asyncio.create_task(transfer.run(stop))
    try:
        yield transfer
    finally:
        stop.set()
        await task


async def struck(nodes, trap, steps, at, victim, sizes=(3,)):
    """Write, have a node killed at a step, start it again, and see that every message came once."""
    trap.arm(steps, at, victim)
    writing = asyncio.create_task(nodes.write(*sizes))
    await trap.sprung()
    await victim.start()
    await writing
    return await nodes.read()


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Clients come back soon: what is waited for here are starts of brokers."""
    monkeypatch.setattr(backoff, "LONGEST_SECONDS", 0.2)


# A connection breaks at each step, and both brokers live.


@pytest.mark.slow
def test_a_connection_breaks_at_each_step():
    async def body():
        at = "127.0.0.1:0"
        async with contextlib.AsyncExitStack() as stack:
            enter = stack.enter_async_context
            brokers = [await enter(testing.broker(listen=at, queue_lease_s=0.2)) for _ in range(2)]
            writer, reader = [await enter(AsyncClient(str(each.address), timeout=PATIENCE)) for each in brokers]
            traps = [await enter(Trap(each.address.port)) for each in brokers]
            for client in (writer, reader):
                await client.declare_type(NOTE)
                await client.declare_queue("notes", ["note"])
            stop = asyncio.Event()
            transfer = Transfer(traps[0].address, "notes", traps[1].address, "notes")
            task = asyncio.create_task(transfer.run(stop))
            found, sent = [], 0
            for trap, steps in zip(traps, (SOURCE_STEPS, TARGET_STEPS), strict=True):
                for step in range(len(steps)):
                    trap.arm(steps, step)
                    async with writer.transaction() as tx:
                        await tx.enqueue("notes", [{"n": sent}, {"n": sent + 1}])
                    sent += 2
                    await trap.sprung()
                    while len(found) < sent:
                        async with reader.transaction() as tx:
                            some = await tx.dequeue("notes", count=10, timeout=PATIENCE)
                            assert some
                            found += [each.n for each in some]
            stop.set()
            await task
            assert await Transfer(str(brokers[0].address), "notes", str(brokers[1].address), "notes").once() == 0
            assert found == list(range(sent))
            assert (await reader.in_doubt(), await writer.decisions()) == ([], [])
            assert not any((await reader.queue("notes")).figures.values())

    run(body())


# Each node dies at each step. The transfer is a third process here, and lives.


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["source", "target"])
def test_a_node_dies_at_each_step(tmp_path, victim):
    async def body():
        async with Nodes(tmp_path) as nodes, transferring(nodes) as transfer:
            await nodes.write(2)
            await nodes.read()
            for at in range(len(TARGET_STEPS)):
                await struck(nodes, nodes.to_target, TARGET_STEPS, at, getattr(nodes, victim))
            for at in (0, 4, 5, 6, 7):  # at the others nothing of the protocol happens
                await struck(nodes, nodes.to_source, SOURCE_STEPS, at, getattr(nodes, victim))
            assert transfer.progress.messages > 0

    run(body())


def blocks_of(found):
    """Messages by the transaction that brought them."""
    made = {}
    for each in found:
        made.setdefault(each.mid.split("/")[1], []).append(each.n)
    return list(made.values())


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["source", "target"])
def test_blocks_arrive_whole_and_in_order_whoever_dies(tmp_path, victim, monkeypatch):
    """Two messages at a time would be taken, and so every block of three is begun before it is whole."""
    monkeypatch.setattr(transfer, "MESSAGES", 2)
    steps = [*SOURCE_STEPS[:4], ("down", Kind.TAKEN), *SOURCE_STEPS[1:]]

    async def body():
        async with Nodes(tmp_path, "ordered blockwise", "ordered blockwise") as nodes, transferring(nodes):
            for at in (4, 8, 9):
                found = await struck(nodes, nodes.to_source, steps, at, getattr(nodes, victim), (3, 1, 3))
                assert [each.n for each in found] == list(range(7)), "the writer's order"
                for block in ([0, 1, 2], [4, 5, 6]):
                    assert any(set(block) <= set(each) for each in blocks_of(found)), "whole, in one transaction"
                assert len({each.mid.split("/")[0] for each in found}) == 1, "one writer, whatever broke"

    run(body())


# The source's broker transfers by itself: with it dies the transfer, and what it knew.


@pytest.mark.slow
@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgresql", marks=pytest.mark.xdist_group("postgresql"))])
def test_a_broker_that_transfers_dies_at_each_step(tmp_path, request, store):
    server = None if store == "sqlite" else request.getfixturevalue("postgresql_server")
    stores = (None, None) if server is None else (server.database(), server.database())

    async def body():
        async with Nodes(tmp_path, stores=stores) as nodes:
            await nodes.writer.transfer("notes", nodes.to_target.address, "notes")
            await nodes.write(2)
            await nodes.read()
            for at in range(len(TARGET_STEPS)):
                await struck(nodes, nodes.to_target, TARGET_STEPS, at, nodes.source)
            await nodes.write(1, 1)
            await nodes.read()

    try:
        run(body())
    finally:
        for each in stores:
            if each is not None:
                server.drop(each)


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["source", "target"])
@pytest.mark.parametrize("decided", [False, True], ids=["undecided", "decided"])
def test_what_dies_while_it_resolves_resolves_later(tmp_path, victim, decided):
    """One death leaves a transaction in doubt, with or without a decision; the next comes while that is resolved."""

    async def body():
        async with Nodes(tmp_path) as nodes:
            await nodes.writer.transfer("notes", nodes.to_target.address, "notes")
            await nodes.write(1)
            await nodes.read()
            for at in (1, 3):
                # The target's answer to PREPARE is lost with the source; or the DECIDE behind it.
                nodes.to_target.arm(TARGET_STEPS, 3 if decided else 2, nodes.source)
                writing = asyncio.create_task(nodes.write(2))
                await nodes.to_target.sprung()
                assert len(await nodes.reader.in_doubt()) == 1
                again = nodes.source if victim == "source" else nodes.target
                nodes.to_target.arm(RESOLVING, at, again)
                await nodes.source.start()
                await nodes.to_target.sprung()
                await again.start()
                await writing
                await nodes.read()

    run(body())


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace, which kills a process at a system call, is missing")
@pytest.mark.parametrize("victim", ["source", "target"])
def test_a_node_dies_while_it_saves(tmp_path, victim):
    """At the first, second, … time that something is brought to disk: in the middle of each commit of the protocol."""

    async def body():
        async with Nodes(tmp_path) as nodes:
            await nodes.writer.transfer("notes", nodes.to_target.address, "notes")
            await nodes.write(1)
            await nodes.read()
            broker = getattr(nodes, victim)
            for when in (1, 2, 3, 4):
                strace = await asyncio.create_subprocess_exec(
                    "strace", "-f", "-p", str(broker.process.pid), "-e", "trace=fdatasync",
                    "-e", f"inject=fdatasync:signal=KILL:when={when}",
                    stderr=asyncio.subprocess.PIPE,
                )  # fmt: skip
                assert b"attached" in await strace.stderr.readline()
                dead = asyncio.create_task(broker.wait())
                writing = None
                while not dead.done():
                    writing = asyncio.create_task(nodes.write(2))
                    await asyncio.wait([dead, writing], return_when=asyncio.FIRST_COMPLETED)
                await strace.communicate()
                await broker.start()
                await writing
                await nodes.read()

    run(body())


# The command line


@pytest.mark.slow
def test_the_command_line_transfers_tells_and_resolves(tmp_path):
    async def milepost(broker, *words):
        """What a command prints, and its exit code."""
        result = await asyncio.to_thread(CliRunner().invoke, queue.app, [*words, "--broker", broker.address])
        if isinstance(result.exception, MilepostError):
            return str(result.exception)
        assert result.exit_code in (0, 2), result.output
        return result.output

    async def body():
        async with Nodes(tmp_path) as nodes:
            there = f"{nodes.target.address}/notes"
            await nodes.write(2)
            assert "2 messages of notes went" in await milepost(nodes.source, "transfer", "notes", there, "--once")
            await nodes.read()
            assert "No queue" in await milepost(nodes.source, "transfer", "--status")
            assert "is transferred" in await milepost(nodes.source, "transfer", "notes", there)
            await nodes.write(3)
            await nodes.read()
            await nodes.transferred(3)
            said = json.loads(await milepost(nodes.source, "transfer", "notes", "--status", "--json"))
            assert (said["queue"], said["target"], said["messages"], said["in_doubt"]) == ("notes", "notes", 3, 0)
            assert "3 transferred, 0 in doubt" in await milepost(nodes.source, "transfer", "--status")
            assert "no longer" in await milepost(nodes.source, "transfer", "notes", "--stop")
            assert "not transferred" in await milepost(nodes.source, "transfer", "notes", "--stop")
            assert "names no queue" in await milepost(nodes.source, "transfer", "notes", nodes.target.address)
            for wrong in (["notes"], ["notes", there, "--stop"], ["notes", there, "--once", "--status"]):
                assert "Usage" in await milepost(nodes.source, "transfer", *wrong)
            for gid, how in (("g/1", "commit"), ("g/2", "abort")):
                async with nodes.reader.transaction() as tx:
                    await tx.enqueue("notes", {"n": 1})
                    await tx.prepare(gid, "gone")
                assert f"{gid}  waits for the decision of gone" in await milepost(nodes.target, "resolve")
                assert f"{gid} is" in await milepost(nodes.target, "resolve", gid, how)
                assert f"{gid} was" in await milepost(nodes.target, "resolve", gid, how)
            assert "Nothing is in doubt" in await milepost(nodes.target, "resolve")
            assert (await nodes.reader.queue("notes")).figures["waiting"] == 1
            async with nodes.writer.transaction() as tx:
                await tx.enqueue("notes", {"n": 1})
                await tx.commit(decision=("g/3", "elsewhere"))
            assert "waits for elsewhere" in await milepost(nodes.source, "resolve")
            assert "is forgotten" in await milepost(nodes.source, "resolve", "g/3", "forget")
            assert "no decision" in await milepost(nodes.source, "resolve", "g/3", "forget")

    run(body())
