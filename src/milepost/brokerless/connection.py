"""The connection of a client without a broker: it answers requests in the client's own process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from milepost.batch import Batch
from milepost.batch.plain_rows import PlainRows
from milepost.brokerless.store import MemberStore
from milepost.brokerless.transactions import BrokerlessTransactions, tell
from milepost.client.connection import BrokerConnection, Heard, as_lost
from milepost.client.session import ClientSession
from milepost.client.subscription import Subscription
from milepost.client.taken import TakenBatch
from milepost.client.window import DeliveryWindow
from milepost.errors import ConfigError, ConnectionLost, MilepostError, TimedOut, TransactionAborted
from milepost.operations import Enrol, Look
from milepost.operations.steps import Got, Group
from milepost.queues.machine import Effects
from milepost.queues.open_transaction import HeldEnqueue, KeptReply
from milepost.queues.requests import ADMINISTRATION, answer_to, operation_of, require_right
from milepost.transport import Address
from milepost.wire import Control, Dequeue, Enqueue, Finish, Hello, Welcome

NOTHING_BOUND: Final = 1 << 62  # bytes, no limit: enqueued messages are not sent to a broker
HEARTBEAT_S: Final = 3_600.0  # there is no peer to hear from


class BrokerlessConnection(BrokerConnection):
    """Made by `open`. It lasts until the client closes it, or until another process takes over its log."""

    takes_plain_rows = True

    def __init__(
        self, owner: ClientSession, inboxes: Mapping[int, Subscription], hello: Hello, window: DeliveryWindow
    ) -> None:
        super().__init__(owner, inboxes, window)
        self._store: MemberStore
        self._machine: BrokerlessTransactions
        self._leaving: asyncio.Task[None] | None = None
        self.put_window = NOTHING_BOUND

    @classmethod
    async def open(
        cls,
        address: Address,
        owner: ClientSession,
        inboxes: Mapping[int, Subscription],
        hello: Hello,
        timeout: float,
        window: DeliveryWindow,
    ) -> tuple[BrokerConnection, Welcome]:
        """Open the database. Raises its errors, and `TimedOut` after `timeout` seconds."""
        self = cls(owner, inboxes, hello, window)
        opening = asyncio.ensure_future(MemberStore.opened(address.host, self._overtaken))
        try:
            async with asyncio.timeout(timeout):
                self._store = await asyncio.shield(opening)
                writer = await self._enrol(hello.name)
        except BaseException as error:
            opening.add_done_callback(self._too_late)
            if isinstance(error, TimeoutError):
                raise TimedOut(f"the database at {address} did not answer within {timeout:g} s") from None
            raise
        self._machine = self._store.machine
        self._machine.begin(hello.instance, writer)
        self.alive = True
        store = self._store.store
        return self, Welcome(
            broker="", broker_id=store.broker_id, publisher=writer, time_us=self._store.time_us(),
            window=self.put_window, heartbeat_s=HEARTBEAT_S, store_id=store.id,
        )  # fmt: skip

    def _too_late(self, opened: asyncio.Future[MemberStore]) -> None:
        """Close a store that was opened after `open` had failed."""
        if not opened.cancelled() and opened.exception() is None:
            self._store = opened.result()
            self.abort()

    async def _enrol(self, name: str) -> int:
        """S of this client's messages. A client with a name keeps its number, others get a new one each time."""
        writer = int.from_bytes(os.urandom(4), "little") or 1
        return (await self._store.do(Enrol(name, writer))).number if name else writer

    # Called by the client

    def enqueue(self, enqueue: Enqueue, batch: Batch | PlainRows) -> Any:
        return (HeldEnqueue(enqueue, batch),)

    def send(self, *parts: Any) -> None:
        for held in parts:
            self._machine.hold(self._machine.transaction(held.said.transaction, held.said.step), held)

    def say(self, message: Control) -> None:
        pass  # a goodbye or a heartbeat, without a peer to send it to

    def request(self, make: Callable[[int], Control], before: Sequence[Any] = ()) -> asyncio.Future[Any]:
        raise self._no_broker()

    async def ping(self) -> None:
        raise self._no_broker()

    async def ask(self, make: Callable[[int], Control], before: Sequence[Any] = (), heard: Heard | None = None) -> Any:
        if self._leaving is not None:
            await asyncio.shield(self.done)  # a client that repeats at once would keep it from ending
        if not self.alive:
            raise as_lost(self._fatal or ConnectionLost("the connection to the database is closed"))
        said = make(0)
        if isinstance(said, Finish) or (isinstance(said, Dequeue) and not said.peek):
            return await self._transact(said, before)
        if isinstance(said, (Dequeue, *ADMINISTRATION)):
            return await self._administer(said)
        raise self._no_broker()

    def _no_broker(self) -> ConfigError:
        return ConfigError(
            "this client works on the queues of a database, without a broker; topics, subscriptions and a "
            "broker's statistics need one: connect to milepost://host:port"
        )

    # Outside of transactions

    async def _administer(self, said: Any) -> Any:
        operation = operation_of(said)
        looks = isinstance(operation, Look)
        outcome = await (self._store.look(operation) if looks else self._store.do(operation))
        value, visible = answer_to(said, outcome)
        effects: Effects = []
        self._machine.waiting.notify(visible.queues, effects, visible.counted)
        self._store.run(effects)
        if isinstance(outcome, Got):
            value["groups"] = _shown(outcome.groups)
        return value

    # Transactions

    async def _transact(self, said: Dequeue | Finish, before: Sequence[HeldEnqueue]) -> Any:
        """Make the machine carry out a request of a transaction, with the preceding enqueues."""
        require_right(said)
        machine = self._machine
        transaction = machine.transaction(said.transaction, before[0].said.step if before else said.step)
        for held in before:
            machine.hold(transaction, held)
        if transaction.resumed and not transaction.number:
            transaction.claimed = said.number
        if isinstance(said, Finish):
            until = 0.0
            if said.how == "abort":
                tell(transaction, TransactionAborted("this transaction was aborted"))
        else:
            until = self._loop.time() + said.wait_s if said.wait_s else 0.0
        future: asyncio.Future[Any] = self._loop.create_future()
        request = machine.request(transaction, said, future, until)
        self._store.run(machine.ask(request))
        try:
            reply: KeptReply = await future
        except asyncio.CancelledError:
            if request.waiting:
                self._store.run(machine.waiting.come_away(request))
            raise
        if not isinstance(said, Dequeue):
            return reply.value
        self.rows += reply.value["messages"]
        return reply.value | {"groups": _shown(reply.groups)}

    # The end

    def _overtaken(self, error: MilepostError) -> None:
        """Called when another process has the log and has undone the open transactions. The client may reconnect."""
        self._fatal = ConnectionLost(f"the log of this client in its database was taken over: {error}")
        self.abort()

    def goodbye(self) -> None:
        """Close the connection; transactions that are not committed are undone."""
        self.close()

    def close(self) -> None:
        if self._leaving is None:
            self._leaving = self._loop.create_task(self._leave(), name="milepost leaving")

    def abort(self) -> None:
        self.close()

    async def _leave(self) -> None:
        if hasattr(self, "_store"):
            await self._store.end(as_lost(self._fatal or ConnectionLost("the connection to the database is closed")))
        self.lost(None)


def _shown(groups: list[Group]) -> list[TakenBatch]:
    return [
        TakenBatch(
            each.type, each.schema, each.content, (each.mids, each.s, each.t, each.priorities, each.aborts), each.plain
        )
        for each in groups
    ]  # fmt: skip
