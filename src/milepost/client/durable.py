"""A durable subscription: rows from a topic's log, acknowledged or replayed."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice
from operator import length_hint
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from milepost import limits
from milepost.batch import Batch
from milepost.client.acks import AUTOMATIC_ROWS, Acks, BatchRows, Grant, Word
from milepost.client.connection import BrokerConnection
from milepost.client.logbatch import LogBatch, ranges
from milepost.client.options import DurableOptions
from milepost.client.subscription import Delivered, Subscription
from milepost.client.window import DeliveryCredit
from milepost.errors import AckMismatch, Closed, InvalidValue, MilepostError, NotExpectingAck, StoreError
from milepost.wire import Subscribe

if TYPE_CHECKING:
    from milepost.client.async_client import AsyncClient

GOTTEN_ROWS: Final = 50_000  # most rows of one get_many: one acknowledgement names them all
TOKEN_BYTES: Final = 16


class HandedOut:
    """Rows of a batch that the application has but has not acknowledged, with explicit acknowledgement."""

    __slots__ = ("batch", "open")

    def __init__(self, batch: LogBatch) -> None:
        self.batch: Final = batch
        self.open: Final[npt.NDArray[np.bool_]] = np.zeros(len(batch), np.bool_)


class DurableSubscription(Subscription):
    """Messages from the log of one durable topic. Made by `AsyncClient.subscribe(..., name=...)` or `start=...`.

    ::

        message = await subscription.get(timeout=1.0)       # exactly once: acknowledged before it returns
        messages = await subscription.get_many(500)         # up to 500 messages, with one acknowledgement
        async for message in subscription: ...              # acknowledged when the loop asks for the next
        await subscription.ack(message)                     # with ack="explicit"; a batch, or () for all so far
        await subscription.nack(message)                    # redeliver later: `deliveries` counts

    With a name, its cursor is stored: it resumes where it stopped, and several clients of one name share its messages.
    Without a name it is a replay from `start` on: nothing is acknowledged, and the application keeps `position`.

    After a lost connection, rows handed out but not acknowledged are delivered again; only `get` never returns a
    message twice. With automatic acknowledgement one task reads: asking for more acknowledges all earlier rows.
    """

    def __init__(
        self, client: AsyncClient, number: int, topic: str, where: str | None, options: DurableOptions, token: bytes
    ) -> None:
        super().__init__(client, number, topic, where)
        self._at_once = AUTOMATIC_ROWS
        self.options: Final = options
        self.token: Final = token  # of the request that creates it
        self.removal: Final = os.urandom(TOKEN_BYTES)  # of the request that removes it
        self.removing = False  # the broker was asked to remove it, and may have done so
        self.created = False  # whether this client's request created it
        self._acks = Acks(self)
        self._position: dict[int, int] = {}  # by log: the offset after the last row handed out
        self._received: dict[int, int] = {}  # by log: the offset after the last row that arrived
        self._granted: deque[tuple[Any, BatchRows | None]] = deque()  # acknowledged for a get that was cancelled
        self._orphans: set[Grant] = set()  # of cancelled gets: not yet known whether acknowledged
        self._due: list[BatchRows] = []  # rows handed out by iteration that are done, to be acknowledged
        self._due_rows = 0
        self._outs: dict[int, HandedOut] = {}  # by the ID of the batch object
        self._blocks: dict[int, HandedOut] = {}  # by the ID of a block of its columns, to which a message refers
        self._connections = 0  # lost connections
        self._whole = False  # the batch was handed out whole, not message by message
        self._from = self._stop = 0  # rows of the batch: the first not accounted for, and the end of this turn
        self._told: tuple[LogBatch, int] | None = None  # the row handed out last, if by get

    def __repr__(self) -> str:
        what = f"DurableSubscription {self.options.name!r} to" if self.options.name else "Replay of"
        return f"<{what} {super().name}>"

    @property
    def name(self) -> str:
        """Its name; for a replay, a description of the topic that is replayed."""
        return self.options.name or super().name

    # About the message or batch handed out last

    @property
    def log(self) -> int:
        """The log of the message handed out last."""
        return self._last()[0].log

    @property
    def offset(self) -> int:
        """The offset in its log of the message handed out last; of a batch, of its last row."""
        batch, row = self._last()
        return int(batch.offsets[row])

    @property
    def deliveries(self) -> int:
        """How often the message handed out last was delivered before, to any client."""
        batch, row = self._last()
        return 0 if batch.deliveries is None else int(batch.deliveries[row])

    def _last(self) -> tuple[LogBatch, int]:
        row = self._stop - length_hint(self._indexes) - 1
        if self._told is not None:
            return self._told
        if not isinstance(self._batch, LogBatch) or row < 0:
            raise InvalidValue("nothing was handed out yet")
        return self._batch, row

    @property
    def position(self) -> dict[int, int]:
        """{log: offset} after the messages handed out so far: an application stores it to resume with `start=`."""
        found = dict(self._position)
        batch, row = self._batch, self._stop - length_hint(self._indexes) - 1
        if isinstance(batch, LogBatch) and row >= self._from:
            _advance(found, batch.log, int(batch.offsets[row]) + 1)
        return found

    # Getting

    async def get(self, timeout: float | None = None) -> Any:
        """The next message, acknowledged before this returns: it will not be returned again.

        With ack="explicit" the message waits for your `ack` instead; a replay acknowledges nothing.

        None when none came within `timeout` seconds, or when the subscription has ended. A cancelled get loses nothing:
        a message whose acknowledgement was in flight is returned by the next get.
        """
        found = await self.get_many(1, timeout)
        return found[0] if found else None

    async def get_many(self, count: int, timeout: float | None = None) -> list[Any]:
        """Up to `count` messages that are here, with one acknowledgement; an empty list after `timeout`."""
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise InvalidValue(f"get_many takes the number of messages, from 1 on, not {count!r}")
        count = min(count, GOTTEN_ROWS)
        if timeout is None:
            return await self._get(count)
        try:
            async with asyncio.timeout(timeout) as limit:
                return await self._get(count)
        except TimeoutError:
            if not limit.expired():
                raise
            return []

    async def _get(self, count: int) -> list[Any]:
        await self._let_others_run()
        while True:
            if self._granted:
                pairs = [self._granted.popleft() for _ in range(min(count, len(self._granted)))]
                self._tell(pairs[-1][1])
                return [message for message, _ in pairs]
            # A cancelled get took rows before those that are here: they come first, if they were acknowledged.
            if not self._orphans:
                grant = self._take(count)
                if grant is not None:
                    if not self._acknowledges or await self._acknowledged(grant):
                        self._tell(grant.spans[-1])
                        return grant.messages
                    continue
                if self._ended:
                    if self.error is not None:
                        raise self.error
                    return []
            await self._waiters.wait()

    @property
    def _acknowledges(self) -> bool:
        return bool(self.options.name) and not self.options.explicit

    async def _acknowledged(self, grant: Grant) -> bool:
        due, self._due, self._due_rows = self._due, [], 0
        self._acks.grant(grant, due)
        try:
            return await grant.acked
        except asyncio.CancelledError:
            if grant.acked.cancelled():
                if not grant.settled:
                    self._orphans.add(grant)
            elif grant.acked.exception() is None and grant.acked.result():
                self._keep_granted(grant)  # the reply and the cancellation came in one turn of the event loop
            raise

    def _keep_granted(self, grant: Grant) -> None:
        self._granted.extend((message, None) for message in grant.messages[:-1])
        self._granted.append((grant.messages[-1], grant.spans[-1]))
        self._waiters.wake()

    def abandoned(self, grant: Grant, acked: bool) -> None:
        """Called with the outcome of a grant whose get was cancelled."""
        self._orphans.discard(grant)
        if acked:
            self._keep_granted(grant)
        self._waiters.wake()

    def refused(self, grant: Grant) -> None:
        """The store refused a grant: put its rows, which are still this client's, back in front of all waiting rows."""
        self._orphans.discard(grant)
        self._came_back()
        batch, left = self._batch, length_hint(self._indexes) + len(self._rest)
        if left and isinstance(batch, LogBatch):
            deque(self._indexes, maxlen=0)
            self._rest = ()
            credit, self._credit, self._batch = self._credit or _done(), None, None
            self._queue.appendleft(Delivered(self.topic, batch.some(slice(len(batch) - left, None)), None, credit))
        for span in reversed(grant.spans):
            assert isinstance(span.batch, LogBatch)
            self._queue.appendleft(Delivered(self.topic, span.batch.some(span.rows), None, _done()))
        self._waiters.wake()

    def _take(self, count: int) -> Grant | None:
        """Up to `count` rows that are here, in order; None when there are none."""
        acked: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        spans: list[BatchRows] = []
        messages: list[Any] = []
        while len(messages) < count:
            left = length_hint(self._indexes)
            if not left:
                if not (self._rest or self._queue):
                    break
                self._step()
                continue
            self._came_back()
            batch, start = self._batch, self._stop - left
            assert isinstance(batch, LogBatch)
            messages += islice(self.current, count - len(messages))
            self._from = self._stop - length_hint(self._indexes)
            spans.append(BatchRows(batch, slice(start, self._from)))
            if self.options.name and self.options.explicit:
                self._out(batch).open[start : self._from] = True
            _advance(self._position, batch.log, int(batch.offsets[self._from - 1]) + 1)
        if not messages:
            self._step()  # the rows handed out are done: return their bytes
            return None
        return Grant(spans, messages, acked)

    def _tell(self, span: BatchRows | None) -> None:
        if span is not None and isinstance(span.rows, slice) and isinstance(span.batch, LogBatch):
            self._told = span.batch, span.rows.stop - 1

    # Iteration

    def _step(self) -> bool:
        """Advance to rows that are here. The loop asks for more, so the rows handed out before are done."""
        self._came_back()
        found = super()._step()
        if self._due_rows >= AUTOMATIC_ROWS or (self._due and not found):
            self._acknowledge_due()
        return found

    def _prepare(self, rows: Sequence[int]) -> None:
        super()._prepare(rows)
        self._from, self._stop = rows[0], rows[0] + length_hint(self._indexes)
        self._whole = False
        self._told = None

    def _came_back(self, *, but_last: bool = False) -> None:
        """Account for rows that iteration has handed out since the last call; with `but_last`, all but the last."""
        batch, row = self._batch, self._stop - length_hint(self._indexes)
        if but_last:
            row = self._from if self._whole else row - 1
        if row <= self._from or not isinstance(batch, LogBatch):
            return
        start, self._from = self._from, row
        _advance(self._position, batch.log, int(batch.offsets[row - 1]) + 1)
        if not self.options.name:
            return
        if self.options.explicit:
            self._out(batch).open[start:row] = True
            return
        self._due.append(BatchRows(batch, slice(start, row)))
        self._due_rows += row - start

    def _acknowledge_due(self) -> None:
        due, self._due, self._due_rows = self._due, [], 0
        if due:
            self._acks.automatic(due)

    def _out(self, batch: LogBatch) -> HandedOut:
        out = self._outs.get(id(batch))
        if out is None:
            out = self._outs[id(batch)] = HandedOut(batch)
            for group in batch.groups:
                self._blocks[id(group.block)] = out
        return out

    async def next_batch(self) -> Batch | None:
        """The next batch, a `LogBatch`, or the rest of the one whose messages are being taken; None at the end."""
        while True:
            batch, left = self._batch, length_hint(self._indexes) + len(self._rest)
            if left and isinstance(batch, LogBatch):
                self._came_back()
                deque(self._indexes, maxlen=0)
                self._rest = ()
                if left < len(batch):
                    batch = self._batch = batch.some(slice(len(batch) - left, None))
                    self._from = 0
                self._stop = len(batch)
                self._whole = True
                self._told = None
                return batch
            if not await self.advance():
                return None

    # Acknowledging

    async def ack(self, what: Any = None) -> None:
        """Acknowledge a message, a batch, or everything handed out so far. Returns when that is stored.

        Only with ack="explicit". Raises `AckMismatch` for rows that do not wait for it: they were acknowledged before,
        or the connection broke since, and they are delivered again, here or to another consumer.
        """
        await self._explicit(what, "done")

    async def nack(self, what: Any = None) -> None:
        """Have a message, a batch, or everything handed out so far delivered again, here or to another consumer.

        A message that was delivered `max_deliveries` times goes to the dead-letter topic instead.
        """
        await self._explicit(what, "again")

    def handed_out(self, what: Any) -> bool:
        """Whether this subscription handed out a message or batch that waits for its acknowledgement."""
        if not self.options.name or not self.options.explicit or self._ended:
            return False
        self._came_back()
        return id(what) in self._outs or id(getattr(what, "_block", None)) in self._blocks

    def named(self, what: Any) -> tuple[list[BatchRows], int]:
        """Rows that a transaction acknowledges with its commit, and the connection count for `give_back`."""
        self._require_explicit()
        self._came_back()
        return self._named(what), self._connections

    def give_back(self, spans: list[BatchRows], connections: int) -> None:
        """Reopen rows that were not acknowledged, unless the connection broke since: then they are delivered again."""
        if connections == self._connections and not self._ended:
            for batch, rows in spans:
                if isinstance(batch, LogBatch):
                    self._out(batch).open[rows] = True

    @property
    def acks(self) -> Acks:
        """Its acknowledgements."""
        return self._acks

    def _require_explicit(self) -> None:
        if not self.options.name:
            raise NotExpectingAck("a replay acknowledges nothing: keep `position`, and go on with start=position")
        if not self.options.explicit:
            raise NotExpectingAck('this subscription acknowledges by itself; subscribe with ack="explicit"')
        if self._ended:
            raise self.error or Closed("this subscription is closed")

    async def _explicit(self, what: Any, word: Word) -> None:
        self._require_explicit()
        self._came_back()
        await self._say(self._named(what), word)

    async def _say(self, named: list[BatchRows], word: Word, *, lasting: bool = False) -> None:
        """Send `word` about rows. Returns when that is stored."""
        failed: MilepostError | None = None
        connections = self._connections
        for spans, waiter in self._acks.explicit(named, word, lasting=lasting):
            try:
                await waiter
            except MilepostError as error:
                failed = failed or error
                # Rows that the store refused are still this client's, and can be acknowledged again. Not after the
                # connection broke: then they are delivered again, and an ack would cover messages that the
                # application has not seen.
                if isinstance(error, StoreError):
                    self.give_back(spans, connections)
        if failed is not None:
            raise failed

    def _named(self, what: Any) -> list[BatchRows]:
        """The rows that the application means. They no longer wait for an acknowledgement."""
        if what is None:
            spans = [BatchRows(out.batch, np.flatnonzero(out.open)) for out in self._outs.values() if out.open.any()]
            if not spans:
                raise NotExpectingAck("nothing that was handed out waits for an acknowledgement; get something first")
            self._forget_outs()
            return spans
        if isinstance(what, LogBatch):
            out, rows = self._outs.get(id(what)), np.arange(len(what))
        else:
            block, row = getattr(what, "_block", None), getattr(what, "_row", None)
            if block is None or row is None:
                raise InvalidValue(
                    f"a {type(what).__name__} does not know where it came from; acknowledge everything so far, by ack()"
                )
            out, rows = self._blocks.get(id(block)), np.array([row])
        return self._close(out, rows)

    def _close(self, out: HandedOut | None, rows: npt.NDArray[np.intp]) -> list[BatchRows]:
        if out is None or not out.open[rows].all():
            raise AckMismatch(
                "this message is not waiting for an acknowledgement: it was acknowledged before, or the connection "
                "broke since it was handed out, and it comes again"
            )
        out.open[rows] = False
        if not out.open.any():
            del self._outs[id(out.batch)]
            for group in out.batch.groups:
                del self._blocks[id(group.block)]
        return [BatchRows(out.batch, rows)]

    def _forget_outs(self) -> None:
        self._outs.clear()
        self._blocks.clear()

    # Called by the connection and the client

    def handed(self, topic: str, batch: LogBatch, credit: DeliveryCredit) -> None:
        """Called when rows arrive."""
        _advance(self._received, batch.log, int(batch.offsets[-1]) + 1)
        self.deliver(topic, batch, None, credit)

    def lose(self, log: int, first: int, after: int) -> None:
        super().lose(log, first, after)
        _advance(self._received, log, after)

    def request(self, number: int, *, back: bool = False) -> Subscribe:
        """The request for the broker; `back`: to resume on a new connection what this client had on an old one."""
        options = self.options
        start = options.start
        if back and not options.name:
            start = {"position": dict(self._received)}
        return Subscribe(
            request=number,
            subscription=self.number,
            pattern=self.pattern,
            where=self.where,
            durable=True,
            name=options.name,
            start=start,
            # One removed meanwhile is not created again: it would begin at another position, unnoticed.
            create=options.create and not (back and options.name),
            token=self.token,
            prefetch=options.prefetch,
            max_deliveries=options.max_deliveries,
            dead_letter=options.dead_letter,
            stop=options.stop,
            hands=options.hands,
        )

    def attached(self, connection: BrokerConnection, reply: Mapping[str, Any]) -> None:
        """Called when the broker has it on this connection."""
        if not self.confirmed:
            self.confirmed = True
            self.created = bool(reply.get("created", False))
            for log, offset in dict(reply.get("position") or {}).items():
                self._position.setdefault(log, offset)
                self._received.setdefault(log, offset)
            self.pattern = self.pattern or reply["topics"][0]
        self.topics.add(self.pattern)
        self._acks.attached(connection, int(reply.get("sequence", 0)))

    def detached(self, connection: BrokerConnection | None = None) -> None:
        """The connection is gone. A named subscription drops its rows, which come again; a replay keeps them."""
        if not self.options.name:
            return
        self._connections += 1
        self._drop_waiting()
        self._due, self._due_rows = [], 0
        self._forget_outs()
        self._received.clear()
        self._acks.detached()

    def _drop_waiting(self) -> None:
        self._came_back()
        if isinstance(self._batch, LogBatch) and self._from:
            self._told = self._batch, self._from - 1  # keeps `offset` and `deliveries` of the last row available
        super()._drop_waiting()

    async def settle(self) -> None:
        """Wait for acknowledgements in flight, and for automatic ones that are due.

        Rows that the loop was given last are not acknowledged: it has not asked for more since.
        """
        if self._acknowledges:
            self._came_back(but_last=True)
            self._acknowledge_due()
        await self._acks.settled()

    def seen(self) -> dict[int, list[list[int]]] | None:
        """The rows that the application was given and has not acknowledged, for a broker that counts deliveries.

        None, which means all rows that arrived, when they are too scattered to be named.
        """
        self._came_back()
        spans = self._due
        if self.options.explicit:
            spans = [BatchRows(out.batch, np.flatnonzero(out.open)) for out in self._outs.values()]
        found: dict[int, list[npt.NDArray[np.uint64]]] = {}
        for batch, rows in spans:
            found.setdefault(batch.log, []).append(batch.offsets[rows])
        named = {log: ranges(np.unique(np.concatenate(parts))) for log, parts in found.items()}
        return named if sum(map(len, named.values())) <= limits.ACK_RANGES else None

    # Ending

    async def detach(self) -> None:
        """Leave the subscription. A named one stays at the broker, where its backlog grows until a client returns."""
        await self._client.detach(self)

    close = detach

    async def unsubscribe(self) -> None:
        """Remove the subscription for good, for all clients that share it. A retry counts as the same removal."""
        await self._client.unsubscribe(self)

    async def __aenter__(self) -> DurableSubscription:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            await self.detach()
        except Exception:
            if kind is None:  # otherwise an exception is being raised already
                raise

    def end(self, error: BaseException | None = None, *, keep: bool = False) -> None:
        # Rows of a named subscription that are here and cannot be acknowledged belong to other consumers by now.
        super().end(error, keep=keep and not self.options.name)
        why = error if isinstance(error, MilepostError) else Closed("this subscription is closed")
        self._acks.end(why)
        self._waiters.wake()


def _advance(position: dict[int, int], log: int, offset: int) -> None:
    if offset > position.get(log, 0):
        position[log] = offset


class _NoWindow:
    """Stands in for a window when a delivery's bytes were returned already."""

    def consumed(self, size: int) -> None:
        """Do nothing."""


_NO_WINDOW: Any = _NoWindow()


def _done() -> DeliveryCredit:
    return DeliveryCredit(_NO_WINDOW, 0, 1)
