"""Transfers: messages move from a queue of one broker to a queue of another, atomically and exactly once.

::

    transfer                 source broker: coordinator           target broker: participant
    ─ dequeue n ────────────▶ taken, by transaction T
    ─ enqueue, prepare ─────────────────────────────────────────▶ gid = coordinator/T is in doubt, and on disk
    ─ commit, decision ─────▶ messages are gone and gid is
                              in the log, in one database
                              transaction: the commit point
    ─ decide commit ────────────────────────────────────────────▶ messages are there for everybody
    ─ forget ───────────────▶ gid is out of the log

A transaction that is in doubt and not in the log is undone: presumed abort. After any failure, and at the beginning,
`resolve` asks the target for its transactions in doubt, and the source about each, by SETTLE: that undoes T if it is
still open, so that no transfer, however slow, can commit T after the target was told to undo its half. Two concurrent
transfers of one queue are therefore wasteful but safe; a client name that is unique at the target, and the broker's
lease, make them rare.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Final, NamedTuple, TypeVar

import numpy as np

from milepost import limits
from milepost.address import masked, parse_broker
from milepost.batch import Batch
from milepost.client import AsyncClient, Transaction
from milepost.client.backoff import Backoff
from milepost.client.taken import TakenBatch
from milepost.errors import Fenced, InvalidValue, MilepostError, StateLost, TimedOut

MESSAGES: Final = 1_000  # most in one transaction: two syncs and four round trips are then little for each
FIRST: Final = 100  # in the first transaction, which shows how large messages are
BYTES: Final = 4 << 20  # in one transaction, about: they are in memory here and in both brokers
WAIT_S: Final = 60.0  # for a message; then transactions in doubt are resolved again
ANSWER_S: Final = 10.0  # for the end of a transaction; then both connections are renewed, and it is resolved
GIVE_BACK_S: Final = 2.0  # for the return of messages, when a broker stops and may no longer answer
FENCED_S: Final = 5.0  # pause of a transfer that another has replaced, so that it does not replace that one at once

T = TypeVar("T")
log = logging.getLogger("milepost.transfer")


@dataclass
class Progress:
    """The progress of a transfer."""

    messages: int = 0  # transferred so far
    error: str = ""  # the current error; empty: none


class MessageRun(NamedTuple):
    """Messages that are enqueued together: consecutive ones of one type, priority and expiry."""

    batch: Batch
    priority: float
    ends: datetime | None


def coordinator_of(store: str, queue: str) -> str:
    """The coordinator of a queue's transactions over two stores; also the name of the transfer's client at the target.

    So the writer at the target is the same on all connections, and an ordered target queue keeps the order.
    """
    name = f"transfer/{store}/{queue}"
    if len(name) > limits.NAME_CHARS:
        name = f"transfer/{store}/{hashlib.sha256(queue.encode()).hexdigest()}"
    return name


def parts(taken: Sequence[TakenBatch], ends: dict[int, datetime]) -> Iterator[MessageRun]:
    """The taken messages in order, in as few runs as possible."""
    for each in taken:
        priorities = np.asarray(each.priorities, np.float64)
        cuts = set((np.flatnonzero(priorities[1:] != priorities[:-1]) + 1).tolist())
        times = [ends.get(int(number)) for number in each.numbers] if ends else [None] * len(each)
        cuts |= {row for row in range(1, len(times)) if times[row] != times[row - 1]} if ends else set()
        bounds = [0, *sorted(cuts), len(each)]
        for start, stop in pairwise(bounds):
            batch = each.batch if len(bounds) == 2 else each.batch.slice(start, stop)
            yield MessageRun(batch, float(priorities[start]), times[start])


class Transfer:
    """The transfer of one queue: `run` transfers until it is stopped, `once` until the queue is empty."""

    def __init__(self, source: str, queue: str, address: str, target: str) -> None:
        """`source` and `address` are brokers, `queue` and `target` their queues."""
        self._source = source
        self._queue = queue
        self._address = address
        self._target = target
        self._unsettled: list[tuple[str, int]] = []  # transactions of the source that a failure left open
        self.progress: Final = Progress()

    async def run(self, stop: asyncio.Event) -> None:
        """Transfer until `stop`. A failure is logged once, and retried."""
        backoff = Backoff()
        while not stop.is_set():
            before = self.progress.messages
            try:
                await self._session(stop)
                continue
            except (MilepostError, OSError) as error:
                self._failed(str(error), backoff)
                pause = FENCED_S if isinstance(error, Fenced) else 0.0
            except Exception as error:  # a bug: it must only affect this queue
                log.exception("transferring queue %s failed", self._queue)
                self._failed(f"{type(error).__name__}: {error}", backoff)
                pause = FENCED_S
            if self.progress.messages > before:
                backoff = Backoff()
            await _until(stop, asyncio.sleep(max(pause, backoff.next())))

    def _failed(self, error: str, backoff: Backoff) -> None:
        if error != self.progress.error or not backoff.attempts:
            where = masked(self._address)
            log.warning("queue %s is not transferred to %s/%s: %s", self._queue, where, self._target, error)
        self.progress.error = error

    async def once(self) -> int:
        """Transfer until the queue is empty. Returns the number of messages; raises the first error."""
        await self._session(None)
        return self.progress.messages

    async def _session(self, stop: asyncio.Event | None) -> None:
        """Transfer with one connection to each broker; after any failure, both are renewed."""
        for each in self._address.split(","):
            parse_broker(each.strip())  # again: a store may hold an address from before it was checked
        async with AsyncClient(self._source, reconnect=False, timeout=ANSWER_S) as source:
            name = coordinator_of(source.broker_id, self._queue)
            async with AsyncClient(self._address, name=name, reconnect=False, timeout=ANSWER_S) as target:
                carrier = Carrier(source, target, self._queue, self._target, name, self._address, self._unsettled)
                await carrier.resolve()
                await carrier.begin()
                self.progress.error = ""
                while stop is None or not stop.is_set():
                    taken = await (carrier.take(0.0) if stop is None else _until(stop, carrier.take(WAIT_S)))
                    if taken is not None:
                        await carrier.carry(taken)
                        self.progress.messages += taken.messages
                    elif stop is None:
                        return
                    else:
                        await carrier.resolve()


async def _until(stop: asyncio.Event, work: Awaitable[T]) -> T | None:
    """The result of `work`; None if `stop` came first, and the work was cancelled."""
    task = asyncio.ensure_future(work)
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([task, stopped], return_when=asyncio.FIRST_COMPLETED)
        return await task if task.done() else None
    finally:
        for each in (task, stopped):
            each.cancel()
        await asyncio.gather(task, stopped, return_exceptions=True)


class TakenMessages(NamedTuple):
    """Messages in transfer, and the transaction of the source that has taken them."""

    transaction: Transaction
    gid: str
    parts: list[MessageRun]
    messages: int


class Carrier:
    """The protocol itself, between two clients."""

    def __init__(
        self,
        source: AsyncClient,
        target: AsyncClient,
        queue: str,
        target_queue: str,
        coordinator: str,
        address: str,
        unsettled: list[tuple[str, int]],
    ) -> None:
        """`unsettled` are open transactions of earlier carriers; this one adds its own."""
        self._source = source
        self._target = target
        self._queue = queue
        self._target_queue = target_queue
        self._coordinator = coordinator
        # The store's ID first: a decision about another store at the same address must not be applied to this one.
        self._participant = f"{target.broker_id} {address}/{target_queue}"
        self._unsettled = unsettled
        self._count = min(FIRST, MESSAGES)

    async def begin(self) -> None:
        """Check both queues, and declare the types that are missing at the target."""
        if self._source.broker_id == self._target.broker_id and self._queue == self._target_queue:
            raise InvalidValue(f"queue {self._queue!r} cannot be transferred to itself")
        queue = await self._source.queue(self._queue)
        there = await self._target.queue(self._target_queue)
        ours, theirs = await self._source.types(), await self._target.types()
        for name in queue.types:
            if name not in theirs:
                await self._target.declare_type(ours[name])
            elif theirs[name].fingerprint != ours[name].fingerprint:
                raise InvalidValue(
                    f"message type {name} is another one on the target of queue {self._queue!r}: its messages are none "
                    "of that"
                )
        missing = sorted(set(queue.types) - set(there.types))
        if missing:
            raise InvalidValue(f"the target queue {self._target_queue!r} does not take {', '.join(missing)}")

    # After a failure

    async def resolve(self) -> int:
        """End the transactions that failures have left. Returns how many were in doubt. Needs: none of ours is open."""
        while self._unsettled:
            await self._source.settle(*self._unsettled[-1])
            self._unsettled.pop()
        # A transaction decided before this query of the target was prepared before it: if not in doubt, it has ended.
        decided = [each for each in await self._source.decisions() if each[0].rpartition("/")[0] == self._coordinator]
        doubtful = [gid for gid, _ in await self._target.in_doubt(self._coordinator)]
        for gid in doubtful:
            commit = await self._source.settle(gid, number_of(gid))
            await self._target.decide(gid, commit)
            log.info("transaction %s was in doubt, and is %s", gid, "committed" if commit else "undone")
            if commit:
                await self._source.forget_decision(gid)
        lost = []
        for gid, participant in decided:
            if participant.split(" ")[0] != self._target.broker_id:
                lost.append(f"{gid} ({participant})")
            elif gid not in doubtful:
                await self._source.forget_decision(gid)
        if lost:
            raise StateLost(
                f"{len(lost)} transactions were to commit on another store than the target has now, the first is "
                f"{lost[0]}: bring that store back; or, if it is gone for ever, so are their messages: "
                "forget_decision(gid) forgets them"
            )
        return len(doubtful)

    # Transactions, one at a time

    async def take(self, wait_s: float) -> TakenMessages | None:
        """Take messages of the source, whole blocks if it has blocks; None when there are none for `wait_s`."""
        transaction = self._source.transaction()
        try:
            found = await transaction.dequeue_batches(self._queue, count=self._count, timeout=wait_s)
            if not found:
                await transaction.abort()
                return None
            gid = f"{self._coordinator}/{transaction.number}"
            self._unsettled.append((gid, transaction.number))
            held = await self._source.holding(transaction.number)
            while held.remaining:
                # A dequeue takes the rest of begun blocks first, so this begins no other block.
                most = min(held.remaining, limits.DEQUEUE_MESSAGES)
                found += await transaction.dequeue_batches(self._queue, count=most, timeout=WAIT_S)
                held = await self._source.holding(transaction.number)
        except BaseException:
            await self._give_back(transaction)
            raise
        messages = sum(len(each) for each in found)
        self._adapt(messages, sum(len(each.batch.data) for each in found))
        return TakenMessages(transaction, gid, list(parts(found, dict(held.ends))), messages)

    def _adapt(self, messages: int, size: int) -> None:
        """Take fewer large messages at a time."""
        self._count = min(MESSAGES, self._count * 2, max(1, messages * BYTES // max(1, size)))

    async def carry(self, taken: TakenMessages) -> None:
        """Transfer taken messages. After a failure, `resolve` of this or another carrier ends both halves."""
        gid = taken.gid
        there = self._target.transaction()
        try:
            for part in taken.parts:
                await there.enqueue(self._target_queue, part.batch, priority=part.priority, expires=part.ends)
            await _answered(there.prepare(gid, self._coordinator))
            await _answered(taken.transaction.commit(decision=(gid, self._participant)))
        except BaseException:
            await self._give_back(taken.transaction)
            raise
        self._unsettled.pop()
        await self._target.decide(gid, True)
        await self._source.forget_decision(gid)

    async def _give_back(self, transaction: Transaction) -> None:
        """Return messages to the source, without counting an abort: they did not cause the failure."""
        try:
            async with asyncio.timeout(GIVE_BACK_S):
                if self._unsettled:
                    await self._source.settle(*self._unsettled[-1])
                    self._unsettled.pop()
                await transaction.abort()
        except (MilepostError, TimeoutError):
            pass  # the next carrier does it, or the source when the lease of its client has ended


def number_of(gid: str) -> int:
    """The number of the source's transaction, from the gid of a transaction over two brokers."""
    number = gid.rpartition("/")[2]
    if not number.isdigit():
        raise InvalidValue(f"transaction {gid!r} has the name of a transfer, and was not made by one")
    return int(number)


async def _answered(end: Awaitable[None]) -> None:
    try:
        async with asyncio.timeout(ANSWER_S):
            await end
    except TimeoutError:
        raise TimedOut(f"a broker did not answer within {ANSWER_S:g} s") from None
