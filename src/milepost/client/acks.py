"""Acknowledgements of one durable subscription, on their way to the broker.

One is under way at a time; what comes meanwhile gathers into the next. So an answer that was lost with its
connection is never in doubt for long: the number of the last acknowledgement that the broker carried out, which it
tells when the subscription is back, says whether the one under way was. With two of them under way, the first could
have failed and the second not, and that one number could not say so.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from milepost import limits
from milepost.client.connection import Connection
from milepost.client.logbatch import LogBatch, ranges
from milepost.errors import AckMismatch, MilepostError, StoreError
from milepost.wire import Ack


class Span(NamedTuple):
    """Rows of a batch: neighbours, or some."""

    batch: LogBatch
    rows: slice | npt.NDArray[np.intp]


class Grant:
    """Messages that are returned to the application once they are acknowledged.

    `acked` is true then; false when they will come again, here or elsewhere, and are to be forgotten. Whoever waits
    for it may be cancelled, and learn that a turn of the event loop later than it is clear what became of the grant:
    `settled` says that it is.
    """

    __slots__ = ("acked", "messages", "settled", "spans")

    def __init__(self, spans: list[Span], messages: list[Any], acked: asyncio.Future[bool]) -> None:
        self.spans: Final = spans
        self.messages: Final = messages
        self.acked: Final = acked
        self.settled = False


class Pending:
    """One acknowledgement: under way, or still gathering."""

    __slots__ = ("again", "auto", "done", "grants", "reply", "sequence", "waiters")

    def __init__(self) -> None:
        self.sequence = 0  # when it is sent
        self.reply: asyncio.Future[Any] | None = None  # from then on
        self.done: Final[list[Span]] = []
        self.again: Final[list[Span]] = []
        self.auto: Final[list[Span]] = []  # of those done, what nobody waits for
        self.grants: Final[list[Grant]] = []
        self.waiters: Final[list[asyncio.Future[None]]] = []


class Granting(Protocol):
    """The subscription, as its acknowledgements know it."""

    @property
    def number(self) -> int: ...

    def abandoned(self, grant: Grant, acked: bool) -> None:
        """Nobody waits for a grant any more, and now it is clear what became of it."""

    def refused(self, grant: Grant) -> None:
        """The store did not take it: its rows are still this client's, and are to be acknowledged again."""


class Acks:
    """See above. `merged` says that a range may span rows that were not handed to this client."""

    def __init__(self, subscription: Granting) -> None:
        self._subscription = subscription
        self._connection: Connection | None = None
        self._flying: Pending | None = None
        self._next = Pending()
        self._idle: list[asyncio.Future[None]] = []  # wait until nothing is under way
        self._retained: list[Span] = []  # automatic ones that the store did not take: they go with the next
        self.sequence = 0  # of the last that was sent
        self.merged = True

    # What is acknowledged

    def automatic(self, spans: list[Span]) -> None:
        """Rows that the application is done with; nobody waits for it."""
        self._next.done.extend(spans)
        self._next.auto.extend(spans)
        self._send()

    def grant(self, grant: Grant, due: list[Span]) -> None:
        """Rows to be returned by get: their messages are granted when this is committed. `due` are automatic ones."""
        self._next.done.extend(due)
        self._next.auto.extend(due)
        self._next.done.extend(grant.spans)
        self._next.grants.append(grant)
        self._send()

    def explicit(self, done: list[Span], again: list[Span]) -> asyncio.Future[None]:
        """Rows that the application names: a future for its waiting."""
        self._next.done.extend(done)
        self._next.again.extend(again)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._next.waiters.append(waiter)
        self._send()
        return waiter

    @property
    def busy(self) -> bool:
        """Whether something is under way or waits to be."""
        return self._flying is not None or bool(self._next.done or self._next.again)

    async def settled(self) -> None:
        """Wait until nothing is under way."""
        self._send()
        while self.busy:
            waiter = asyncio.get_running_loop().create_future()
            self._idle.append(waiter)
            try:
                await waiter
            finally:
                self._idle.remove(waiter)

    # On the wire

    def _send(self) -> None:
        connection = self._connection
        if self._flying is not None or connection is None or not connection.alive:
            return
        if not self._next.done and not self._next.again:
            return
        pending, self._next = self._next, Pending()
        if self._retained:
            pending.done.extend(self._retained)
            pending.auto.extend(self._retained)
            self._retained = []
        try:
            done, again = self._ranges(pending.done), self._ranges(pending.again)
            told = sum(map(len, done.values())) + sum(map(len, again.values()))
            limits.require("ACK_RANGES", told, "the ranges of an acknowledgement")
        except MilepostError as error:
            self._fail(pending, error)
            return
        self.sequence += 1
        pending.sequence, self._flying = self.sequence, pending
        number = self._subscription.number
        reply = connection.request(
            lambda request: Ack(request=request, subscription=number, sequence=pending.sequence, done=done, again=again)
        )
        pending.reply = reply
        reply.add_done_callback(partial(self._answered, pending, connection))

    def _ranges(self, spans: list[Span]) -> dict[int, list[list[int]]]:
        """Spans as ranges of offsets by log. As few as are right: see `DurableSubscription.handed` for `merged`."""
        found: dict[int, list[list[int]]] = {}
        for batch, rows in spans:
            offsets = batch.offsets[rows]
            if not len(offsets):
                continue
            into = found.setdefault(batch.log, [])
            if not self.merged or not isinstance(rows, slice):
                into += ranges(offsets)
            elif into and into[-1][1] + 1 == int(offsets[0]):
                into[-1][1] = int(offsets[-1])
            else:
                into.append([int(offsets[0]), int(offsets[-1])])
        return found

    def _answered(self, pending: Pending, connection: Connection, reply: asyncio.Future[Any]) -> None:
        if self._flying is not pending or reply.cancelled():
            return
        error = reply.exception()
        if error is not None and not connection.alive:
            return  # in doubt, until `attached`
        self._flying = None
        if error is None:
            self._succeed(pending)
        elif isinstance(error, StoreError):
            self._retained += pending.auto
            for grant in reversed(pending.grants):  # each goes before everything that waits
                grant.settled = True
                self._subscription.refused(grant)
                _raise(grant.acked, error)
            for waiter in pending.waiters:
                _raise(waiter, error)
        elif isinstance(error, AckMismatch):
            self._drop(pending, error)
        else:
            self._fail(pending, error)
        self._send()
        self._tell()

    def _succeed(self, pending: Pending) -> None:
        for grant in pending.grants:
            grant.settled = True
            if grant.acked.done():
                self._subscription.abandoned(grant, True)
            else:
                grant.acked.set_result(True)
        for waiter in pending.waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _drop(self, pending: Pending, error: BaseException) -> None:
        """Rows that are not this client's any more: whoever gets waits for others, whoever acknowledges is told."""
        for grant in pending.grants:
            grant.settled = True
            if grant.acked.done():
                self._subscription.abandoned(grant, False)
            else:
                grant.acked.set_result(False)
        for waiter in pending.waiters:
            _raise(waiter, error)

    def _fail(self, pending: Pending, error: BaseException) -> None:
        for grant in pending.grants:
            grant.settled = True
            if grant.acked.done():
                self._subscription.abandoned(grant, False)
            else:
                _raise(grant.acked, error)
        for waiter in pending.waiters:
            _raise(waiter, error)

    def _tell(self) -> None:
        if not self.busy:
            for waiter in self._idle:
                if not waiter.done():
                    waiter.set_result(None)

    # Connections that come and go

    def attached(self, connection: Connection, carried_out: int) -> None:
        """The subscription is on a connection, and the broker says which acknowledgement was its last."""
        self._connection = connection
        self.sequence = max(self.sequence, carried_out)
        pending, self._flying = self._flying, None
        if pending is not None:
            if pending.sequence <= carried_out:
                self._succeed(pending)
            else:
                self._drop(pending, _lost())
        self._send()
        self._tell()

    def detached(self) -> None:
        """The connection is gone, and rows that were handed out on it will come again."""
        self._connection = None
        self._retained = []
        pending, self._next = self._next, Pending()
        self._drop(pending, _lost())
        self._tell()

    def end(self, error: MilepostError) -> None:
        """Nothing more will be acknowledged."""
        self._connection = None
        flying, self._flying = self._flying, None
        gathered, self._next = self._next, Pending()
        if flying is not None and flying.reply is not None and _carried_out(flying.reply):
            self._succeed(flying)  # the answer came just before the end, and nobody has looked at it yet
            flying = None
        for pending in (flying, gathered):
            if pending is not None:
                self._fail(pending, error)
        self._tell()


def _carried_out(reply: asyncio.Future[Any]) -> bool:
    return reply.done() and not reply.cancelled() and reply.exception() is None


def _raise(waiter: asyncio.Future[Any], error: BaseException) -> None:
    if not waiter.done():
        waiter.set_exception(error)
        waiter.exception()  # seen: whoever waits gets it all the same, and may have been cancelled


def _lost() -> AckMismatch:
    return AckMismatch(
        "the connection broke before this was acknowledged; the messages come again, here or to another consumer"
    )
