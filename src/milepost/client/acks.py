"""The acknowledgements that one durable subscription sends to the broker.

An acknowledgement with a waiting caller is in flight alone; later ones gather into the next frame. When a connection
breaks before the answer, the broker reports the number of the last acknowledgement that it carried out as soon as the
subscription is back, and that number settles the one in flight. With two in flight, the first could have failed and
the second succeeded, which one number cannot express. Automatic acknowledgements have no waiting caller, and several
may be in flight: rows whose acknowledgement failed are delivered again, whatever the number says.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from functools import partial
from itertools import starmap
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from milepost import limits
from milepost.client.connection import BrokerConnection
from milepost.client.logbatch import ranges
from milepost.client.waiters import WaitingTasks, fail
from milepost.errors import AckMismatch, InDoubt, MilepostError, StoreError
from milepost.wire import Ack

if TYPE_CHECKING:
    from milepost.client.durable import DurableSubscription

Word: TypeAlias = Literal["done", "again", "handed"]  # the verdict on rows, as in `wire.Ack`
_WORDS: Final = get_args(Word)
AUTOMATIC_ROWS: Final = 500  # of one automatic acknowledgement: the sooner it is stored, the less is redelivered
AUTOMATIC_FRAMES: Final = 8  # automatic acknowledgements in flight
RETAINED_S: Final = 1.0  # until acks that the store refused are sent again: a full disk stays full for a while


class Located(Protocol):
    """Rows that have places in a log."""

    log: int
    offsets: npt.NDArray[np.uint64]

    def __len__(self) -> int: ...


class Places:
    """Rows of which only the places are known."""

    def __init__(self, log: int, offsets: list[int]) -> None:
        self.log = log
        self.offsets: npt.NDArray[np.uint64] = np.array(offsets, np.uint64)

    def __len__(self) -> int:
        return len(self.offsets)


class BatchRows(NamedTuple):
    """Some rows of a batch: a slice of neighbours, or indexes."""

    batch: Located
    rows: slice | npt.NDArray[np.intp]


class Grant:
    """Messages that are returned to the application once they are acknowledged.

    `acked` becomes true then, or false when the messages will be delivered again, here or elsewhere, and must be
    dropped. `settled` says that the outcome is known. A cancelled get may learn of its cancellation one turn of the
    event loop after that.
    """

    __slots__ = ("acked", "messages", "settled", "spans")

    def __init__(self, spans: list[BatchRows], messages: list[Any], acked: asyncio.Future[bool]) -> None:
        self.spans: Final = spans
        self.messages: Final = messages
        self.acked: Final = acked
        self.settled = False


class PendingAck:
    """Rows that are acknowledged together, and the get or the call that waits; neither when automatic."""

    __slots__ = ("grant", "lasting", "ranges", "spans", "waiter", "word")

    def __init__(
        self,
        spans: list[BatchRows],
        ranges: int,
        *,
        word: Word = "done",
        lasting: bool = False,
        grant: Grant | None = None,
        waiter: asyncio.Future[None] | None = None,
    ) -> None:
        self.spans: Final = spans
        self.ranges: Final = ranges  # number of ranges that name its rows in a frame
        self.word: Final = word
        self.lasting: Final = lasting  # the rows stay this client's on the next connection, where it repeats the ack
        self.grant: Final = grant
        self.waiter: Final = waiter

    @property
    def automatic(self) -> bool:
        return self.grant is None and self.waiter is None

    @property
    def rows(self) -> int:
        return sum(len(span.batch.offsets[span.rows]) for span in self.spans)


class AckFrame:
    """An ACK frame in flight."""

    __slots__ = ("acks", "reply", "sequence")

    def __init__(self, sequence: int, acks: list[PendingAck]) -> None:
        self.sequence: Final = sequence
        self.acks: Final = acks
        self.reply: asyncio.Future[Any] | None = None


class Acks:
    """Sends the acknowledgements of one subscription, in order, and settles their waiters.

    A range names this client's rows and no others: the broker may hand out a row between two of them while the
    acknowledgement is in flight, and a wider range would acknowledge it before the application has seen it.
    """

    def __init__(self, subscription: DurableSubscription) -> None:
        self._subscription = subscription
        self._connection: BrokerConnection | None = None
        self._flying: deque[AckFrame] = deque()
        self._next: deque[PendingAck] = deque()
        self._idle = WaitingTasks()  # wait until nothing is in flight
        self._reserved = False  # a transaction's commit carries the next ack: nothing else is sent until it is over
        self._retained: list[PendingAck] = []  # automatic ones that the store refused: sent with the next frame,
        self._later: asyncio.TimerHandle | None = None  # or when this timer fires
        self.sequence = 0  # of the last acknowledgement sent

    # Acknowledging

    def automatic(self, spans: list[BatchRows]) -> None:
        """Acknowledge rows that iteration has handed out. No caller waits for the outcome."""
        self._next.extend(starmap(PendingAck, _framed(spans)))
        self._send()

    def grant(self, grant: Grant, due: list[BatchRows]) -> None:
        """Acknowledge rows for a get, which returns them once this is committed. `due` are automatic ones."""
        self._next.extend(starmap(PendingAck, _framed(due)))
        ((spans, count),) = _framed(grant.spans)  # no get takes more rows than one frame can name
        self._next.append(PendingAck(spans, count, grant=grant))
        self._send()

    def explicit(
        self, spans: list[BatchRows], word: Word, *, lasting: bool = False
    ) -> list[tuple[list[BatchRows], asyncio.Future[None]]]:
        """Acknowledge rows that the application names. Returns a future for each part that fits one frame."""
        loop = asyncio.get_running_loop()
        made: list[tuple[list[BatchRows], asyncio.Future[None]]] = []
        for named, count in _framed(spans):
            made.append((named, loop.create_future()))
            self._next.append(PendingAck(named, count, word=word, lasting=lasting, waiter=made[-1][1]))
        self._send()
        return made

    @property
    def busy(self) -> bool:
        """Whether an acknowledgement is in flight or waits to be sent."""
        return bool(self._flying or self._next)

    async def settled(self) -> None:
        """Wait until nothing is in flight."""
        self._send()
        while self.busy:
            await self._idle.wait()

    async def reserve(self, spans: list[BatchRows]) -> Ack:
        """The acknowledgement that a transaction's commit carries, once nothing else is in flight.

        Nothing else is sent until `released`: with two in flight, the last number could belong to either.
        """
        while self.busy or self._reserved:
            await self._idle.wait()
        done = _ranges(spans)
        limits.require("ACK_RANGES", sum(map(len, done.values())), "the ranges of one acknowledgement")
        self._reserved = True
        self.sequence += 1
        return Ack(request=0, subscription=self._subscription.number, sequence=self.sequence, done=done)

    def released(self) -> None:
        """Called when the commit is over."""
        self._reserved = False
        self._send()
        self._idle.wake()

    # On the wire

    def _send(self) -> None:
        connection = self._connection
        while connection is not None and connection.alive and self._next and self._may_go():
            self._next.extendleft(reversed(self._retained))
            self._retained = []
            self._send_one(connection, self._fitting())

    def _may_go(self) -> bool:
        if self._reserved:
            return False
        if not self._flying:
            return True
        alone = not self._next[0].automatic or not all(ack.automatic for ack in self._flying[-1].acks)
        return not alone and len(self._flying) < AUTOMATIC_FRAMES

    def _send_one(self, connection: BrokerConnection, acks: list[PendingAck]) -> None:
        done, again, handed = (
            _ranges(span for ack in acks if ack.word == word for span in ack.spans) for word in _WORDS
        )
        self.sequence += 1
        frame = AckFrame(self.sequence, acks)
        self._flying.append(frame)
        number = self._subscription.number
        reply = connection.request(
            lambda request: Ack(
                request=request, subscription=number, sequence=frame.sequence, done=done, again=again, handed=handed
            )
        )
        frame.reply = reply
        reply.add_done_callback(partial(self._answered, frame, connection))

    def _fitting(self) -> list[PendingAck]:
        """As many waiting acknowledgements as one frame may name; the others go with the next frame."""
        acks = [self._next.popleft()]
        left = limits.ACK_RANGES - acks[0].ranges
        rows = acks[0].rows
        while self._next and self._next[0].ranges <= left:
            rows += self._next[0].rows
            if self._next[0].automatic and rows > AUTOMATIC_ROWS and all(ack.automatic for ack in acks):
                break
            if self._flying and not self._next[0].automatic:
                break
            acks.append(self._next.popleft())
            left -= acks[-1].ranges
        return acks

    def _answered(self, frame: AckFrame, connection: BrokerConnection, reply: asyncio.Future[Any]) -> None:
        if frame not in self._flying or reply.cancelled():
            return
        error = reply.exception()
        if error is not None and not connection.alive:
            return  # the outcome is unknown until `attached`
        if isinstance(error, InDoubt):
            connection.refused(error)  # also unknown: only the sequence reported on another connection can tell
            return
        self._flying.remove(frame)
        if error is None:
            self._succeed(frame.acks)
        elif isinstance(error, StoreError):
            self._retain([ack for ack in frame.acks if ack.automatic])
            for ack in reversed(frame.acks):  # each grant is put back in front of all waiting rows
                if ack.grant is not None:
                    ack.grant.settled = True
                    self._subscription.refused(ack.grant)
                    fail(ack.grant.acked, error)
                if ack.waiter is not None:
                    fail(ack.waiter, error)
        elif isinstance(error, AckMismatch):
            self._drop(frame.acks, error)
        else:
            self._fail(frame.acks, error)
        self._send()
        self._tell()

    def _retain(self, acks: list[PendingAck]) -> None:
        self._retained += acks
        if self._retained and self._later is None:
            self._later = asyncio.get_running_loop().call_later(RETAINED_S, self._again)

    def _again(self) -> None:
        """Send retained acknowledgements again: no new one may come for a long time."""
        self._later = None
        self._next.extendleft(reversed(self._retained))
        self._retained = []
        self._send()

    def _succeed(self, acks: Iterable[PendingAck]) -> None:
        for ack in acks:
            if ack.grant is not None:
                self._settle(ack.grant, True)
            if ack.waiter is not None and not ack.waiter.done():
                ack.waiter.set_result(None)

    def _drop(self, acks: Iterable[PendingAck], error: BaseException) -> None:
        """Handle rows that another consumer may have by now: a get waits for other rows, an ack raises `error`."""
        for ack in acks:
            if ack.grant is not None:
                self._settle(ack.grant, False)
            if ack.waiter is not None:
                fail(ack.waiter, error)

    def _fail(self, acks: Iterable[PendingAck], error: BaseException) -> None:
        for ack in acks:
            if ack.grant is not None:
                fail(ack.grant.acked, error)
                self._settle(ack.grant, False)
            if ack.waiter is not None:
                fail(ack.waiter, error)

    def _settle(self, grant: Grant, acked: bool) -> None:
        grant.settled = True
        if not grant.acked.done():
            grant.acked.set_result(acked)
        elif grant.acked.cancelled():
            self._subscription.abandoned(grant, acked)

    def _tell(self) -> None:
        if not self.busy:
            self._idle.wake()

    # Connecting and disconnecting

    def attached(self, connection: BrokerConnection, carried_out: int) -> None:
        """The subscription is on a connection, whose broker reports the last acknowledgement that it carried out."""
        self._connection = connection
        self.sequence = max(self.sequence, carried_out)
        flying, self._flying = self._flying, deque()
        for frame in flying:
            if frame.sequence <= carried_out:
                self._succeed(frame.acks)
            else:
                self._next.extendleft(ack for ack in reversed(frame.acks) if ack.lasting)
                self._drop([ack for ack in frame.acks if not ack.lasting], _lost())
        self._send()
        self._tell()

    def detached(self) -> None:
        """The connection is gone. Rows that were handed out on it will be delivered again."""
        self._connection = None
        self._retained = []
        gathered, self._next = self._next, deque(ack for ack in self._next if ack.lasting)
        self._drop([ack for ack in gathered if not ack.lasting], _lost())
        self._tell()

    def end(self, error: MilepostError) -> None:
        """End: nothing more will be acknowledged."""
        self._connection = None
        self._retained = []
        if self._later is not None:
            self._later.cancel()
        flying, self._flying = self._flying, deque()
        gathered, self._next = self._next, deque()
        for frame in flying:
            if frame.reply is not None and _carried_out(frame.reply):
                self._succeed(frame.acks)  # the reply arrived just before the end
            else:
                self._fail(frame.acks, error)
        self._fail(gathered, error)
        self._tell()


def _framed(spans: list[BatchRows]) -> list[tuple[list[BatchRows], int]]:
    """Spans in parts that each fit into one frame, each part with its number of ranges."""
    most = limits.ACK_RANGES
    found: list[tuple[list[BatchRows], int]] = []
    for span in spans:
        for part, count in _counted(span, most):
            if found and found[-1][1] + count <= most:
                named, before = found[-1]
                named.append(part)
                found[-1] = named, before + count
            else:
                found.append(([part], count))
    return found


def _counted(span: BatchRows, most: int) -> list[tuple[BatchRows, int]]:
    """A span and its number of ranges, or parts of the span when it has more than `most` ranges."""
    offsets = span.batch.offsets[span.rows]
    size = len(offsets)
    if not size:
        return []
    if int(offsets[-1] - offsets[0]) == size - 1:
        return [(span, 1)]
    count = 1 + int(np.count_nonzero(np.diff(offsets) != 1))
    if count <= most:
        return [(span, count)]
    rows = np.arange(len(span.batch))[span.rows]
    return [(BatchRows(span.batch, rows[at : at + most]), len(rows[at : at + most])) for at in range(0, size, most)]


def _ranges(spans: Iterable[BatchRows]) -> dict[int, list[list[int]]]:
    """Exactly the rows of the spans: by log, ascending, without duplicates."""
    found: dict[int, list[npt.NDArray[np.uint64]]] = {}
    for batch, rows in spans:
        found.setdefault(batch.log, []).append(batch.offsets[rows])
    return {log: ranges(_ascending(each)) for log, each in found.items()}


def _ascending(parts: list[npt.NDArray[np.uint64]]) -> npt.NDArray[np.uint64]:
    if len(parts) == 1:
        return parts[0]
    joined = np.concatenate(parts)
    return joined if (joined[1:] > joined[:-1]).all() else np.unique(joined)


def _carried_out(reply: asyncio.Future[Any]) -> bool:
    return reply.done() and not reply.cancelled() and reply.exception() is None


def _lost() -> AckMismatch:
    return AckMismatch(
        "the connection broke before this was acknowledged; the messages come again, here or to another consumer"
    )
