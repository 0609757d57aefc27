"""One process of the soak: a publisher or a consumer that records everything before and after it does it.

It imports what it needs, prints "ready", and waits for its orders on standard input, so that a spare process is there
at once when another was killed. SIGTERM ends it in order, SIGKILL does not.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from milepost import AsyncClient
from milepost.client.durable import DurableSubscription
from milepost.errors import (
    ConnectionLost,
    DuplicateMessage,
    MilepostError,
    NotExpectingAck,
    ServedElsewhere,
    StoreError,
    StoreUnavailable,
    TimedOut,
)
from milepost.testing.ledger import Recorder
from soak.roles import FEW_FILTER, FILTER, FIRST, SECOND, Role, row

TAIL_BYTES = 4096  # of a file of records: its last lines
RETRY_S = 0.05  # between attempts to reach a broker that is being started
PATIENCE_S = 30.0  # of a client, for one request: longer than a broker takes to restart
WAIT_S = 0.5  # for a message, before a consumer checks whether to end
ANSWER_S = 2.0  # for an answer over ZeroMQ, before the request is repeated; a GET waits for `WAIT_S` of it
POST_RESTS = 3  # of a publisher over ZeroMQ: its consumer has two commits for each message, GET and ACK

Ask = Callable[
    [str, dict[str, Any]], Awaitable[dict[str, Any]]
]  # a request over ZeroMQ: its payload, and the payload of the answer


class Orders(msgspec.Struct):
    """The orders of a worker."""

    role: Role
    broker: str
    records: str
    seed: str  # of its random choices
    pause_s: float  # longest time between two puts


class Worker:
    """The state of one process."""

    def __init__(self, orders: Orders) -> None:
        self.role = orders.role
        self.orders = orders
        self.dice = random.Random(orders.seed)
        self.ending = asyncio.Event()
        self.sequence = last_sequence(Path(orders.records)) + 1
        self._settled = True  # the last message with a key is stored
        if self.role.kind in ("put_keyed", "post") and self.sequence:
            self.sequence -= 1  # an earlier process may have put it, and it may be stored: the key decides
            self._settled = False
        self.book = Recorder(orders.records, orders.role.name)

    async def run(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.ending.set)
        if self.role.kind in ("post", "fetch"):
            async with requests(self.orders.broker) as ask:
                await getattr(self, self.role.kind)(ask)
        else:
            await self._run_client()
        self.book.close()

    async def _run_client(self) -> None:
        act: Callable[[AsyncClient], Awaitable[None]] = getattr(self, self.role.kind)
        while not self.ending.is_set():
            name = self.role.name if self.role.kind.startswith("put_") else ""
            client = AsyncClient(self.orders.broker, name=name, timeout=PATIENCE_S)
            try:
                await client.connect()
            except (ConnectionLost, TimedOut):
                await asyncio.sleep(RETRY_S)
                continue
            try:
                await act(client)
            except (ConnectionLost, TimedOut, StoreError, ServedElsewhere) as error:
                print(f"{self.role.name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
                await asyncio.sleep(RETRY_S)
            finally:
                await client.close(drain=False)

    # Publishers

    async def put_single(self, client: AsyncClient) -> None:
        """One message at a time."""
        while not self.ending.is_set():
            await self._put(client, 1)

    async def put_mixed(self, client: AsyncClient) -> None:
        """One message, or many in a batch."""
        while not self.ending.is_set():
            await self._put(client, self.dice.choice((1, 1, 2, 10, 50)))

    async def put_pair(self, client: AsyncClient) -> None:
        """One message into two topics, or into none."""
        name = self.role.name
        while not self.ending.is_set():
            number = self.sequence
            self.sequence += 1
            for topic in (FIRST, SECOND):
                self.book.put(name, topic, number)
            try:
                async with client.atomic() as together:
                    for topic in (FIRST, SECOND):
                        together.put(topic, row(name, number))
            except MilepostError as error:
                for topic in (FIRST, SECOND):
                    self._failed(error, topic, number, 1)
            else:
                for topic in (FIRST, SECOND):
                    self.book.stored(name, topic, number)
            await self._rest()

    async def put_keyed(self, client: AsyncClient) -> None:
        """One message at a time under a key, repeated until it is stored, also after its own death."""
        name = self.role.name
        while not self.ending.is_set():
            number = self.sequence
            if self._settled:
                self.book.put(name, FIRST, number)
                self._settled = False
            try:
                await client.put(FIRST, row(name, number), key=uuid.uuid5(uuid.NAMESPACE_OID, f"{name} {number}"))
            except DuplicateMessage:
                pass
            except StoreError as error:
                print(f"{name}: put {number}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
                await self._rest()
                continue
            self.book.stored(name, FIRST, number)
            self.sequence += 1
            self._settled = True
            await self._rest()

    async def post(self, ask: Ask) -> None:
        """The same over ZeroMQ."""
        name, topic = self.role.name, self.role.topic
        while not self.ending.is_set():
            number = self.sequence
            if self._settled:
                self.book.put(name, topic, number)
                self._settled = False
            key = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{name} {number}"))
            said = await ask("PUT", {"pub_id": name, "topic": topic, "message_uuid": key, "payload": row(name, number)})
            if said.get("error_type") in (None, "DuplicateMessage"):
                self.book.stored(name, topic, number)
                self.sequence += 1
                self._settled = True
            else:
                print(f"{name}: PUT {number}: {said}", file=sys.stderr, flush=True)
            for _ in range(POST_RESTS):
                await self._rest()

    async def _put(self, client: AsyncClient, count: int) -> None:
        name, first = self.role.name, self.sequence
        self.sequence += count
        self.book.put(name, FIRST, first, count)
        try:
            if count == 1:
                await client.put(FIRST, row(name, first))
            else:
                await client.put_many(FIRST, [row(name, number) for number in range(first, first + count)])
        except MilepostError as error:
            self._failed(error, FIRST, first, count)
        else:
            self.book.stored(name, FIRST, first, count)
        await self._rest()

    def _failed(self, error: MilepostError, topic: str, first: int, count: int) -> None:
        """Record a failed put. A put that the store refused was not stored; a put without an answer is unknown."""
        print(f"{self.role.name}: put {first}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        if isinstance(error, StoreError) and not isinstance(error, StoreUnavailable):
            self.book.refused(self.role.name, topic, first, count)
        elif not isinstance(error, ConnectionLost | TimedOut | StoreUnavailable):
            raise error

    async def _rest(self) -> None:
        try:
            await asyncio.wait_for(self.ending.wait(), self.dice.uniform(0.0, self.orders.pause_s))
        except TimeoutError:
            pass

    # Consumers

    async def get(self, client: AsyncClient) -> None:
        """Exactly once: one message, or some with one acknowledgement. Recorded afterwards, so announced before."""
        subscription, member, topic = self.role.subscription, self.role.name, self.role.topic
        handed = await client.subscribe(topic, name=subscription, start="earliest")
        empty = 0
        while empty < 2:  # messages of a get that timed out come with the next one, once its acknowledgement is settled
            if self.ending.is_set():
                await handed.settle()
            count = self.dice.choice((1, 5, 20))
            self.book.reach(subscription, member, count)
            if count == 1:
                message = await client.get(topic, timeout=WAIT_S)
                messages = [] if message is None else [message]
            else:
                messages = list(await client.get_many(topic, count, timeout=WAIT_S))
            self.book.got(subscription, *columns(messages), member=member)
            empty = empty + 1 if self.ending.is_set() and not messages else 0
        self.book.ended(member)

    async def follow(self, client: AsyncClient) -> None:
        """All messages, by a plain subscription: messages missed while its broker was away come when it is back."""
        following = await client.subscribe(self.role.topic)
        while True:
            message = await following.get(timeout=WAIT_S)
            if message is not None:
                self.book.got(self.role.subscription, *columns([message]), member=self.role.name)
            elif self.ending.is_set():
                return

    async def share(self, client: AsyncClient) -> None:
        """The same with a filter, beside a ZeroMQ client: one message at a time, so that both get some."""
        await self.acknowledge(client, FEW_FILTER, prefetch=1)

    async def acknowledge(self, client: AsyncClient, where: str | None = None, prefetch: int = 200) -> None:
        """At least once, in a group: messages are recorded before they are acknowledged, and again afterwards."""
        subscription, member = self.role.subscription, self.role.name
        handed = await client.subscribe(
            self.role.topic, where, name=subscription, start="earliest", ack="explicit", prefetch=prefetch
        )
        while not self.ending.is_set():
            messages: list[Any] = []
            again: list[bool] = []
            most = self.dice.choice((1, 5, 20))
            while len(messages) < most:
                message = await handed.get(0.0 if messages else WAIT_S)
                if message is None:
                    break
                messages.append(message)
                again.append(handed.deliveries > 0)
            if messages:
                names, numbers = columns(messages)
                self.book.got(subscription, names, numbers, member=member, again=again)
                try:
                    await handed.ack()
                except NotExpectingAck:
                    continue  # the connection broke meanwhile: they are delivered again, here or to the other member
                self.book.done(subscription, names, numbers, member=member)

    async def request(self, client: AsyncClient) -> None:
        """At least once, over ZeroMQ, through a gateway in this process that dies with it."""
        from milepost.gateway.zmq import Gateway

        async with Gateway(self.orders.broker, "127.0.0.1:0") as gateway, requests(gateway.address) as ask:
            await self._fetch(ask)

    async def fetch(self, ask: Ask) -> None:
        """The same through the broker's own port, which is killed with it."""
        await ask("SUB", {"sub_id": self.role.subscription, "topic": self.role.topic})
        await self._fetch(ask)

    async def _fetch(self, ask: Ask) -> None:
        subscription, member = self.role.subscription, self.role.name
        asked: dict[str, Any] = {"sub_id": subscription, "topic": self.role.topic, "timeout_ms": int(WAIT_S * 1000)}
        last = 0
        while not self.ending.is_set():
            got = await ask("GET", asked)
            if "error_type" in got:
                await self._rest()
                continue
            named = [got["payload"]["publisher"]], [got["payload"]["sequence"]]
            if got["message_no"] != last:  # the same message comes until it is acknowledged
                self.book.got(subscription, *named, member=member)
                last = got["message_no"]
            done = await ask("ACK", {"sub_id": subscription, "message_no": last})
            if "error_type" not in done:
                self.book.done(subscription, *named, member=member)

    async def iterate(self, client: AsyncClient) -> None:
        """At least once, filtered: asking for the next message acknowledges the previous ones."""
        subscription, member = self.role.subscription, self.role.name
        handed = await client.subscribe(
            self.role.topic, FILTER, name=subscription, start="earliest", ack="auto", prefetch=200
        )
        leaving = asyncio.create_task(self._leave(handed))
        try:
            async for message in handed:
                self.book.got(subscription, *columns([message]), member=member, again=handed.deliveries > 0)
        finally:
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)

    async def _leave(self, handed: DurableSubscription) -> None:
        """End the iteration when it is time."""
        await self.ending.wait()
        await handed.detach()


@asynccontextmanager
async def requests(address: str) -> AsyncIterator[Ask]:
    """Requests of a REQ socket to a gateway, in JSON. A request without an answer is repeated unchanged."""
    import zmq.asyncio

    context = zmq.asyncio.Context()
    socket = context.socket(zmq.REQ)
    socket.req_relaxed = socket.req_correlate = True
    socket.connect(address)

    async def ask(name: str, fields: dict[str, Any]) -> dict[str, Any]:
        body = msgspec.json.encode({"msg_type": name, "payload": fields})
        await socket.send(body)
        while True:
            if not await socket.poll(int(ANSWER_S * 1000)):
                await socket.send(body)
                continue
            try:
                answer: dict[str, Any] = msgspec.json.decode(await socket.recv(zmq.NOBLOCK))["payload"]
            except zmq.Again:
                continue  # the answer to an earlier request, which ZeroMQ drops
            return answer

    try:
        yield ask
    finally:
        context.destroy(linger=0)


def columns(messages: list[Any]) -> tuple[list[str], list[int]]:
    """Publishers and sequences."""
    return [message.publisher for message in messages], [message.sequence for message in messages]


def last_sequence(path: Path) -> int:
    """The highest sequence that an earlier process may have put; -1: none. Sequences rise, so the last line has it."""
    if not path.exists():
        return -1
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - TAIL_BYTES))
        lines = file.read().split(b"\n")
    for line in reversed(lines):
        try:
            event = msgspec.json.decode(line)
        except msgspec.DecodeError:
            continue  # cut off at either end
        if event[0] == "put":
            return int(event[4]) + int(event[5]) - 1
    return -1


def main() -> None:
    """Get ready, read the orders, and carry them out."""
    print("ready", flush=True)
    orders = msgspec.json.decode(sys.stdin.readline(), type=Orders)
    asyncio.run(Worker(orders).run())


if __name__ == "__main__":
    main()
