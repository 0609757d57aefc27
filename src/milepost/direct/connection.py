"""What a client without a broker takes for its connection: its requests are answered here, in its own process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from milepost import limits
from milepost.batch import Batch
from milepost.batch.loose import Loose
from milepost.client.connection import BrokerConnection, ConnectionOwner, Heard, Inbox, as_lost
from milepost.client.taken import TakenBatch
from milepost.client.window import DeliveryWindow
from milepost.direct.dealing import Dealing
from milepost.direct.keeper import Keeper
from milepost.errors import (
    ConfigError,
    ConnectionLost,
    Fenced,
    InDoubt,
    MilepostError,
    StoreError,
    TimedOut,
    TransactionAborted,
)
from milepost.queues import operations, steps
from milepost.queues.requests import (
    ADMINISTRATION,
    answer_to,
    decision_of,
    dequeue_of,
    operation_of,
    require_right,
    undone_by,
)
from milepost.queues.steps import Got, Group, Performed, Step
from milepost.storage.operations import Enrol
from milepost.transport import Address
from milepost.wire import Control, Dequeue, Enqueue, Finish, Hello, Welcome

NOTHING_BOUND: Final = 1 << 62  # bytes: what is enqueued goes nowhere before it is stored
HEARTBEAT_S: Final = 3_600.0  # there is nobody to be heard


class DirectConnection(BrokerConnection):
    """Made by `open`. It lasts until the client leaves, or until another process takes its log away."""

    takes_loose = True

    def __init__(
        self, owner: ConnectionOwner, inboxes: Mapping[int, Inbox], hello: Hello, window: DeliveryWindow
    ) -> None:
        super().__init__(owner, inboxes, window)
        self._instance = hello.instance
        self._keeper: Keeper
        self._writer = 0  # S of what this client writes
        self._came = True  # it may have written through another log before
        self._dealings: dict[int, Dealing] = {}  # by the client's number
        self._leaving: asyncio.Task[None] | None = None
        self.put_window = NOTHING_BOUND

    @classmethod
    async def open(
        cls,
        address: Address,
        owner: ConnectionOwner,
        inboxes: Mapping[int, Inbox],
        hello: Hello,
        timeout: float,
        window: DeliveryWindow,
    ) -> tuple[BrokerConnection, Welcome]:
        """Open the database; raises what it has against it, and `TimedOut` after so many seconds."""
        self = cls(owner, inboxes, hello, window)
        opening = asyncio.ensure_future(Keeper.opened(address.host, self._overtaken))
        try:
            async with asyncio.timeout(timeout):
                self._keeper = await asyncio.shield(opening)
                await self._enrol(hello.name)
        except BaseException as error:
            opening.add_done_callback(self._too_late)
            if isinstance(error, TimeoutError):
                raise TimedOut(f"the database at {address} did not answer within {timeout:g} s") from None
            raise
        self._keeper.numbers = self._numbers
        self.alive = True
        store = self._keeper.store
        return self, Welcome(
            broker="", broker_id=store.broker_id, publisher=self._writer, time_us=self._keeper.time_us(),
            window=self.put_window, heartbeat_s=HEARTBEAT_S, store_id=store.id,
        )  # fmt: skip

    def _too_late(self, opened: asyncio.Future[Keeper]) -> None:
        """Nobody waits for the store any more."""
        if not opened.cancelled() and opened.exception() is None:
            self._keeper = opened.result()
            self.abort()

    async def _enrol(self, name: str) -> None:
        """A client with a name has one number for ever, others a new one each time, as at a broker."""
        self._writer = int.from_bytes(os.urandom(4), "little") or 1
        if name:
            self._writer = (await self._keeper.do(Enrol(name, self._writer))).number

    def _numbers(self) -> list[int]:
        return [each.number for each in self._dealings.values() if each.number and each.over is None]

    # As the client sees it

    def enqueue(self, enqueue: Enqueue, batch: Batch | Loose) -> Any:
        return ((enqueue, batch),)

    def send(self, *parts: Any) -> None:
        for frame, batch in parts:
            self._dealing(frame.transaction, frame.step).held.append((frame, batch))

    def say(self, message: Control) -> None:
        pass  # nobody is there to hear it: a goodbye, a heartbeat

    def request(self, make: Callable[[int], Control], before: Sequence[Any] = ()) -> asyncio.Future[Any]:
        raise self._no_broker()

    async def ping(self) -> None:
        raise self._no_broker()

    async def ask(self, make: Callable[[int], Control], before: Sequence[Any] = (), heard: Heard | None = None) -> Any:
        if self._leaving is not None:
            await asyncio.shield(self.done)  # whoever asks again at once would keep it from coming to its end
        if not self.alive:
            raise as_lost(self._fatal or ConnectionLost("the connection to the database is closed"))
        said = make(0)
        if isinstance(said, Finish) or (isinstance(said, Dequeue) and not said.peek):
            require_right(said)
            dealing = self._dealing(said.transaction, before[0][0].step if before else said.step)
            if before:
                dealing.held += before
            if dealing.resumed and said.number and not dealing.number:
                return await self._claim(dealing, said)
            return await (self._dequeue(dealing, said) if isinstance(said, Dequeue) else self._finish(dealing, said))
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
        looks = isinstance(operation, operations.Look)
        outcome = await (self._keeper.look(operation) if looks else self._keeper.do(operation))
        value, stirred = answer_to(said, outcome)
        self._keeper.waiting.stir(stirred.queues, stirred.counted)
        if isinstance(outcome, Got):
            value["groups"] = _shown(outcome.groups)
        return value

    # Transactions

    def _dealing(self, client: int, step: int) -> Dealing:
        dealing = self._dealings.get(client)
        if dealing is None:
            limits.require("TRANSACTIONS", len(self._dealings) + 1, "the transactions of one client at once")
            dealing = self._dealings[client] = Dealing(client, self._writer, step > 1)
        return dealing

    async def _dequeue(self, dealing: Dealing, said: Dequeue) -> Any:
        waiting, step = self._keeper.waiting, dequeue_of(said, plain=True)
        found: Got | None = None
        if not said.wait_s or dealing.held or not waiting.known(said.queue, dealing.wish(said)):
            found = await self._carry_out(dealing, step)
        if said.wait_s and (found is None or not found.count):
            until = self._loop.time() + said.wait_s
            look = partial(self._look_again, dealing, step)
            found = await waiting.take(said.queue, dealing, dealing.wish(said), until, found, look)
        groups = [] if found is None else found.groups
        rows = sum(len(group.mids) for group in groups)
        dealing.taken[said.queue] += rows
        self.rows += rows
        return dealing.receipt() | {"messages": rows, "groups": _shown(groups)}

    async def _look_again(self, dealing: Dealing, step: steps.Dequeue, unsure: bool) -> Any:
        """Take what has come. Unless something has for sure, it is looked first: see `Line.unsure`."""
        if unsure:
            try:
                found = await self._keeper.look(
                    operations.Peek(step.queue, step.type, where=step.where, order=step.order, owner=dealing.number)
                )
            except MilepostError:
                found = None  # the store is away: who wants to write waits until it is back
            if found is not None and not found.count:
                return found
        return await self._carry_out(dealing, step)

    async def _finish(self, dealing: Dealing, said: Finish) -> Any:
        if said.how == "abort":
            return await self._abort(dealing)
        if said.how == "flush":
            if dealing.held:
                await self._carry_out(dealing, None, said)
            return dealing.receipt()
        last: Step
        if said.how == "prepare":
            last = steps.Prepare(said.gid, said.coordinator)
        else:
            last = steps.Commit(decision_of(said))
            nothing = not (dealing.number or dealing.held or dealing.resumed or last.decision)
            if nothing and dealing.over is None:
                del self._dealings[dealing.client]  # nothing was done in it
                return dealing.receipt()
        done = await self._carry_out(dealing, last, said)
        self._dealings.pop(dealing.client, None)
        self._keeper.waiting.stir(done.touched, dealing.enqueued, dealing.taken)
        return dealing.receipt()

    async def _claim(self, dealing: Dealing, said: Dequeue | Finish) -> Any:
        """A transaction that was begun on a connection that is gone: it has ended as is asked, or it is undone now.

        Its number is not given to the store, which finds it by its client.
        """
        dealing.held = []
        if dealing.over is not None:
            raise undone_by(dealing.over)
        how = said.how if isinstance(said, Finish) else ""
        last: Step = steps.Abort()
        if isinstance(said, Finish) and how == "commit":
            last = steps.Commit()
        elif isinstance(said, Finish) and how == "prepare":
            last = steps.Prepare(said.gid, said.coordinator)
        try:
            done = await self._carry_out(dealing, last, said if isinstance(said, Finish) else None)
        except TransactionAborted:
            if how != "abort":
                raise
        else:
            self._keeper.waiting.stir(done.touched)
        if how not in ("commit", "prepare", "abort"):
            dealing.number = 0
            dealing.over = TransactionAborted("this transaction was undone with the connection that it was begun on")
            raise dealing.over
        self._dealings.pop(dealing.client, None)
        return dealing.receipt()

    async def _abort(self, dealing: Dealing) -> Any:
        """Whatever is under way in it comes first: the request that asked for it may have been given up."""
        dealing.held = []
        await self._idle(dealing)
        try:
            undone, dealing.over = dealing.over is not None, TransactionAborted("this transaction was aborted")
            self._keeper.waiting.dismiss(dealing)
            if dealing.number and not undone:
                done = await self._perform(dealing, (steps.Abort(),))
                self._keeper.waiting.stir(done.outcomes[-1].touched, dealing.taken)
        finally:
            self._dealings.pop(dealing.client, None)  # when the store has not undone it, its lease ends
        return {}

    async def _idle(self, dealing: Dealing) -> None:
        while dealing.busy:
            if dealing.idle is None:
                dealing.idle = self._loop.create_future()
            await asyncio.shield(dealing.idle)

    # Steps

    async def _carry_out(self, dealing: Dealing, last: Step | None, said: Finish | None = None) -> Any:
        """Have the store do what is held, and a step behind it, in one go; what came of the last one."""
        if dealing.over is not None:
            raise undone_by(dealing.over)
        held = dealing.steps()
        try:
            if held:
                dealing.messages += sum(len(step.batch) for step in held)
                limits.require("TRANSACTION_MESSAGES", dealing.messages, "the messages that one transaction enqueues")
            todo: tuple[Step, ...] = (*held, last) if last is not None else tuple(held)
            done = await self._perform(dealing, todo)
        except MilepostError as error:
            dealing.messages -= sum(len(step.batch) for step in held)
            if isinstance(error, Fenced) or (isinstance(error, InDoubt) and said is not None):
                # Neither done nor not; or another process has the log, and the client comes again with a new one. It
                # asks again, and the store knows then.
                raise ConnectionLost(str(error)) from error
            if isinstance(error, StoreError | TransactionAborted):
                raise self._spoiled(dealing, error) from None
            if not held:
                raise
            if last is None:
                raise self._spoiled(dealing, error) from None
            # Whose fault it is will be seen: first what was held, alone, then the step.
            await self._carry_out(dealing, None)
            return await self._carry_out(dealing, last, said)
        if held:
            dealing.stored(done.outcomes)
        return done.outcomes[-1]

    def _spoiled(self, dealing: Dealing, error: MilepostError) -> MilepostError:
        """A transaction cannot go on: it is undone, and its client told why."""
        dealing.over, dealing.held = error, []
        if dealing.number:
            self._keeper.undo(dealing.number)
        return error

    async def _perform(self, dealing: Dealing, todo: tuple[Step, ...]) -> Performed:
        whose = steps.Transaction(
            dealing.number, dealing.writer, self._instance, dealing.client, self._keeper.lease_us, self._came
        )
        future: asyncio.Future[Performed] = self._loop.create_future()
        dealing.busy = True
        self._keeper.give(operations.Perform(whose, todo), partial(self._performed, dealing, future))
        return await future

    def _performed(self, dealing: Dealing, future: asyncio.Future[Performed], outcome: Any) -> None:
        """Told by the store, also when nobody waits for it any more."""
        dealing.busy = False
        if isinstance(outcome, Performed):
            dealing.number = outcome.number
            self._came = False
            if not future.done():
                future.set_result(outcome)
        elif not future.done():
            future.set_exception(outcome)
        if dealing.idle is not None:
            dealing.idle.set_result(None)
            dealing.idle = None

    # The end

    def _overtaken(self, error: MilepostError) -> None:
        """Another process has the log, and has undone what was under way here. The client may come again."""
        self._fatal = ConnectionLost(f"the log of this client in its database was taken over: {error}")
        self.abort()

    def goodbye(self) -> None:
        """What is not committed is undone."""
        self.close()

    def close(self) -> None:
        if self._leaving is None:
            self._leaving = self._loop.create_task(self._leave(), name="milepost leaving")

    def abort(self) -> None:
        self.close()

    async def _leave(self) -> None:
        if hasattr(self, "_keeper"):
            keeper = self._keeper
            keeper.hurry()
            keeper.waiting.end(as_lost(self._fatal or ConnectionLost("the connection to the database is closed")))
            for dealing in list(self._dealings.values()):
                await self._idle(dealing)
                if dealing.number and dealing.over is None:
                    dealing.over = TransactionAborted("its client has left")
                    keeper.undo(dealing.number)
            await keeper.end()
        self.lost(None)


def _shown(groups: list[Group]) -> list[TakenBatch]:
    return [
        TakenBatch(
            each.type, each.schema, each.content, (each.mids, each.s, each.t, each.priorities, each.aborts), each.plain
        )
        for each in groups
    ]  # fmt: skip
