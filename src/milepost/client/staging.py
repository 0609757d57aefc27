"""Staging: rows that are stored now, and become visible when their epoch is published."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from milepost import limits
from milepost.batch import Batch, Draft
from milepost.client.connection import BrokerConnection
from milepost.client.outbox import Outbox
from milepost.client.session import ClientSession
from milepost.client.topic import require_text
from milepost.client.waiters import fail
from milepost.errors import ConnectionLost, InvalidValue, MilepostError, NotDurable, UnknownTopic
from milepost.query import encode, enforce
from milepost.wire import Control, Stage, Unstage
from milepost.wire import Publish as PublishRequest
from milepost.wire import PublishedEpoch as PublishedRequest
from milepost.wire.stage import NUMBER_MOST, STAGE_HEADER

if TYPE_CHECKING:
    from milepost.client.publisher import Publisher

PIECE_BYTES: Final = 1 << 20  # a large source is staged in pieces of about this size: each becomes an entry of the log
PIECE_ROWS: Final = 8_192  # of a source without a length: encoded and staged together
UNDER_WAY: Final = 8  # pieces sent and not stored; more would only wait in the broker
UNDER_WAY_BYTES: Final = 8 << 20  # the same in bytes: pieces are kept here, to be sent again
ATTEMPTS_KNOWN: Final = 16_384  # attempts whose sequences are kept; the least recently used is dropped
EXTRA_PART: Final = NUMBER_MOST  # the part of rows published along with an epoch; callers cannot use it
_ATTEMPT_BITS: Final = 62


class Published(NamedTuple):
    """The result of `publish`."""

    repeated: bool  # the epoch was published before, and nothing has changed
    rows: int  # now visible, those of `extra` included


class _PendingStage:
    """A piece between its frame and the broker's answer that it is stored."""

    __slots__ = ("batch", "box", "connection", "done", "stage")

    def __init__(self, stage: Stage, box: Outbox, batch: Batch) -> None:
        self.stage: Final = stage
        self.box: Final = box
        self.batch = batch
        self.done: Final[asyncio.Future[None]] = asyncio.get_running_loop().create_future()
        self.connection: BrokerConnection | None = None  # the one it was last sent on


class StageSender:
    """Sends pieces, keeps them until they are stored, and sends them again when the answer was lost."""

    def __init__(self, session: ClientSession, publisher: Publisher) -> None:
        self._session = session
        self._publisher = publisher
        self._pending: dict[_PendingStage, None] = {}  # in the order in which they were sent
        self._bytes = 0
        self._sequences: dict[tuple[str, int, int, int], int] = {}  # by attempt: the sequence of its next piece

    # Called by the publisher

    async def send_again(self, connection: BrokerConnection) -> None:
        """Send unanswered pieces on a new connection, in the same order; the store recognises those it has."""
        for ticket in list(self._pending):
            if not ticket.box.number:
                self._settle(ticket, UnknownTopic(f"topic {ticket.box.name!r} is gone; declare it, and stage again"))
                continue
            await connection.room()
            ticket.batch = self._publisher.addressed(ticket.batch)
            self._write(connection, ticket)

    def stop(self, error: MilepostError) -> None:
        """Fail all pieces: nothing will be sent any more."""
        for ticket in list(self._pending):
            self._settle(ticket, error)

    # The verbs

    async def stage(self, sink: str, epoch: int, part: int, attempt: int, topic: str, source: Any) -> int:
        """See `AsyncClient.stage`."""
        _require_sink(sink)
        for what, number in (("an epoch", epoch), ("a part", part), ("an attempt", attempt)):
            _require_number(what, number)
        if part == EXTRA_PART:
            raise InvalidValue(f"part {part} is kept for what is published along with an epoch")
        return await self._stage((sink, epoch, part, attempt), topic, source)

    async def publish(
        self, sink: str, epoch: int, parts: Sequence[tuple[int, int]], extra: Mapping[str, Any] | None
    ) -> Published:
        """See `AsyncClient.publish`."""
        _require_sink(sink)
        _require_number("an epoch", epoch)
        pairs = _checked_parts(parts)
        # `extra` is staged first, as a part of its own: checked, given IDs and bounded like the others.
        attempt = secrets.randbits(_ATTEMPT_BITS)
        rows = 0
        for topic, source in (extra or {}).items():
            rows += await self._stage((sink, epoch, EXTRA_PART, attempt), topic, source)
        if rows:
            pairs.append((EXTRA_PART, attempt))
        reply = await self._ask(lambda request: PublishRequest(request=request, sink=sink, epoch=epoch, parts=pairs))
        return Published(bool(reply["repeated"]), int(reply["rows"]))

    async def published(self, sink: str) -> int | None:
        """See `AsyncClient.published`."""
        _require_sink(sink)
        epoch = (await self._ask(lambda request: PublishedRequest(request=request, sink=sink)))["epoch"]
        return None if epoch is None else int(epoch)

    async def unstage(self, sink: str, epoch: int) -> None:
        """See `AsyncClient.unstage`."""
        _require_sink(sink)
        _require_number("an epoch", epoch)
        await self._ask(lambda request: Unstage(request=request, sink=sink, epoch=epoch))

    async def _ask(self, make: Callable[[int], Control]) -> Any:
        self._session.remember()
        return await self._session.ask(make)

    # Staging

    async def _stage(self, key: tuple[str, int, int, int], topic: str, source: Any) -> int:
        require_text("the name of a topic", topic)
        box = await self._box(topic)
        if isinstance(source, Batch):
            await self._publisher.require_version(topic, source)
        rows = 0
        stored: list[asyncio.Future[None]] = []
        for batch in self._batches(box, source):
            rows += await self._send(key, topic, batch, stored)
            while stored and stored[0].done():
                stored.pop(0).result()  # an endless source fails early
        if stored:
            await asyncio.wait(stored)
        for future in stored:
            future.result()
        return rows

    async def _box(self, topic: str) -> Outbox:
        box = await self._publisher.box(topic)
        if not box.durable:
            raise NotDurable(f"topic {topic!r} is live, and nothing is staged for one; declare it with durable=True")
        return box

    def _batches(self, box: Outbox, source: Any) -> Iterator[Batch | Draft]:
        """The rows to stage, checked; an iterator piece by piece, any other source whole."""
        if isinstance(source, Batch):
            enforce(source)
            yield source
        elif not isinstance(source, Iterator):
            yield box.draft(source)
        else:
            while chunk := list(islice(source, PIECE_ROWS)):
                yield encode(box.schema, chunk)

    async def _send(
        self, key: tuple[str, int, int, int], topic: str, batch: Batch | Draft, stored: list[asyncio.Future[None]]
    ) -> int:
        """Send a batch in pieces; `stored` gets a future for each of them."""
        size = max(1, len(batch) * PIECE_BYTES // max(1, Draft.bytes_of(batch)))  # rows of a piece
        start = 0
        while start < len(batch):
            self._session.require_open()
            box = await self._box(topic)
            connection = self._session.connection
            if connection is None or not connection.has_room or not self._has_room:
                await self._session.wait()
                continue
            stop = min(len(batch), start + size)
            if len(batch) - stop < size // 2:
                stop = len(batch)  # no small piece at the end
            made, start = self._publisher.piece(self._publisher.batch_bytes - STAGE_HEADER, batch, start, stop)
            stored.append(self._post(connection, key, box, made))
            if start < len(batch):
                await asyncio.sleep(0)
        return len(batch)

    @property
    def _has_room(self) -> bool:
        return len(self._pending) < UNDER_WAY and self._bytes < UNDER_WAY_BYTES

    def _post(
        self, connection: BrokerConnection, key: tuple[str, int, int, int], box: Outbox, batch: Batch
    ) -> asyncio.Future[None]:
        self._session.remember()
        sequence = self._sequences.pop(key, 0)
        self._sequences[key] = sequence + 1  # moved to the end: the first entries are the least recently used
        while len(self._sequences) > ATTEMPTS_KNOWN:
            del self._sequences[next(iter(self._sequences))]
        ticket = _PendingStage(Stage(0, *key, sequence, 0, b""), box, batch)
        self._pending[ticket] = None
        self._bytes += len(batch.data)
        self._publisher.rows += len(batch)
        self._publisher.batches += 1
        self._write(connection, ticket)
        return ticket.done

    def _write(self, connection: BrokerConnection, ticket: _PendingStage) -> None:
        ticket.connection = connection
        answer = connection.stage(ticket.stage._replace(topic=ticket.box.number, data=ticket.batch.data))
        answer.add_done_callback(lambda future: self._answered(ticket, connection, future))

    def _answered(self, ticket: _PendingStage, connection: BrokerConnection, answer: asyncio.Future[Any]) -> None:
        if ticket.connection is not connection or ticket not in self._pending or answer.cancelled():
            return  # it was sent again since, or has failed
        error = answer.exception()
        if isinstance(error, ConnectionLost) and self._session.failure is None:
            return  # it will be sent again
        if isinstance(error, UnknownTopic):
            ticket.box.number = 0  # it may have been deleted and created again, under another number: ask again
        self._settle(ticket, error)

    def _settle(self, ticket: _PendingStage, error: BaseException | None) -> None:
        del self._pending[ticket]
        self._bytes -= len(ticket.batch.data)
        if error is not None:
            self._publisher.refused += 1
            fail(ticket.done, error)
        elif not ticket.done.done():
            ticket.done.set_result(None)
        self._session.wake()


def _require_sink(sink: Any) -> None:
    require_text("the name of a sink", sink)
    limits.require("NAME_CHARS", len(sink), "the characters of a sink's name")


def _require_number(what: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= NUMBER_MOST:
        raise InvalidValue(f"{what} is a whole number from 0 to {NUMBER_MOST}, not {value!r:.60}")


def _checked_parts(parts: Any) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    for each in parts:
        if not isinstance(each, tuple | list) or len(each) != 2:
            raise InvalidValue(f"parts are pairs of a part and its attempt, not {each!r:.60}")
        _require_number("a part", each[0])
        _require_number("an attempt", each[1])
        pairs.append((each[0], each[1]))
    limits.require("STAGED_PARTS", len(pairs), "the parts of an epoch")
    if len({part for part, _ in pairs}) < len(pairs):
        raise InvalidValue("a part is published once: name one attempt for each")
    return pairs
