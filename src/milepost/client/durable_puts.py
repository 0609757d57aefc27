"""The durable puts of a publisher: kept until they are stored."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from milepost import limits
from milepost.batch import Batch
from milepost.batch.collector import REFUSED
from milepost.client.connection import BrokerConnection
from milepost.client.outbox import IDS_BYTES, Outbox
from milepost.client.session import ClientSession
from milepost.client.unsettled import PendingPut, Unsettled
from milepost.client.waiters import WaitingTasks
from milepost.errors import (
    DuplicateMessage,
    InvalidValue,
    LimitExceeded,
    MilepostError,
    NotDurable,
    ProtocolError,
    StoreError,
    UnknownTopic,
)
from milepost.query import enforce
from milepost.wire import Resume, Welcome

if TYPE_CHECKING:
    from milepost.client.publisher import Publisher

KEY_BYTES: Final = 16  # of an idempotency key
TOO_LARGE_TOGETHER: Final = (
    "the broker holds an atomic put as a whole: raise the limit in its settings, or use stage() and publish(), which "
    "store in pieces what is then seen all at once"
)

_log = logging.getLogger("milepost.client")


class DurablePuts:
    """Sends durable puts, keeps them until the broker answers, and sends them again when the answer was lost.

    Stamps are given when a frame is sent, so that frames, puts and stamps have one order.
    """

    def __init__(self, session: ClientSession, publisher: Publisher) -> None:
        self._session = session
        self._publisher = publisher
        self._restored: BrokerConnection | None = None  # on which puts were sent again; perhaps not yet in use
        self._resumed = 0  # puts on this connection up to which failures of the store are known
        self._settling = WaitingTasks()  # wait for durable puts to be settled
        self.unsettled: Final = Unsettled()

    @property
    def has_room(self) -> bool:
        """Whether a durable put may be sent now: unsettled puts are kept, and the put window bounds them too."""
        connection = self._session.connection
        return connection is not None and connection.has_room and self.unsettled.bytes < connection.put_window

    # Called by the publisher

    def recognised(self, welcome: Welcome, publisher: int, broker: int) -> None:
        """Settle stored puts by the high water of a new connection. `send_again` sends the rest, under the same stamps.

        `publisher` and `broker` are the numbers that batches were stamped with.
        """
        if not self.unsettled:
            return
        if welcome.publisher != publisher and welcome.high_water:
            # With a high water of 0 nothing of this publisher was ever stored, so nothing can be stored twice.
            raise ProtocolError(
                f"the broker knows this client as publisher {welcome.publisher}, and {len(self.unsettled)} batches "
                f"that may be stored are of publisher {publisher}; whether they are cannot be told any more"
            )
        self.unsettled.reached(welcome.high_water)
        if (welcome.publisher, welcome.broker_id) != (publisher, broker):
            self.unsettled.readdress(welcome.publisher, welcome.broker_id)
        self._settling.wake()

    async def send_again(self, connection: BrokerConnection) -> None:
        """Send unsettled puts on a new connection, before any new put; topics already have their numbers on it."""
        self._restored = connection
        for put in list(self.unsettled.puts):
            if not all(box.number for box, _ in put.parts):
                names = ", ".join(repr(box.name) for box, _ in put.parts if not box.number)
                self._fail([put], UnknownTopic(f"topic {names} is gone; declare it, and put again"))
                continue
            await connection.room(sum(len(batch.data) + IDS_BYTES for _, batch in put.parts[:-1]))
            self._write(connection, put)
        self._settling.wake()

    def stored(self, put: int) -> None:
        """Settle durable puts up to this number: they are stored."""
        self.unsettled.stored(put)
        self._settling.wake()
        if self._session.connection is not None:
            self._publisher.room()

    def refuse(self, error: MilepostError, number: int) -> bool:
        """Handle a PUT frame that the broker refused. Returns False when it was not for a durable topic."""
        put = self.unsettled.numbered(number)
        if isinstance(error, StoreError):
            self._store_failed(error, number, put)
        elif put is None:
            return False
        elif put.doubtful and isinstance(error, DuplicateMessage):
            self.unsettled.remove(put).stored()
        else:
            if put.unwatched and isinstance(error, DuplicateMessage):
                error = DuplicateMessage(f"{error} (key {uuid.UUID(bytes=put.key)})")  # a flush is for many keys
            self._fail([put], error)
        self._settling.wake()
        if self._session.connection is not None:
            self._publisher.room()  # a failed put frees its room
        return True

    def _store_failed(self, error: StoreError, number: int, put: PendingPut | None) -> None:
        """Resume after the store failed: the broker refuses this put and all later ones until this client sends RESUME.

        Otherwise a later put could be stored before an earlier one, whose stamps would then look like a repetition.
        """
        connection = self._session.connection or self._restored
        if number <= self._resumed or connection is None:
            self._fail([] if put is None else [put], error)
            return
        self._resumed = connection.puts
        connection.say(Resume(connection.puts))
        failed = self.unsettled.sent_from(number)
        self._fail(failed, error)
        _log.error("the broker could not store %d batches: %s", len(failed), error)

    def _fail(self, puts: list[PendingPut], error: MilepostError) -> None:
        publisher = self._publisher
        for put in puts:
            self.unsettled.remove(put).failed(error)
            publisher.refused += len(put.parts)
            if put.unwatched:
                publisher.doubted(error)

    def lost(self) -> None:
        """The connection is gone, and its put numbers with it."""
        self._restored = None
        self._resumed = 0
        self.unsettled.unsent()

    def stop(self, error: MilepostError) -> None:
        """Fail all puts: nothing will be sent any more."""
        self.unsettled.fail_all(error)
        self._settling.wake()

    # Waiting

    async def settled(self) -> None:
        """Wait until everything sent so far is stored or was refused."""
        last = self._publisher.stamper.last
        while self.unsettled and self.unsettled.puts[0].stamp <= last:
            self._session.require_open()
            await self._settling.wait()
        self._session.require_open()

    # Putting

    def ready(self, box: Outbox) -> bool:
        """Whether `put` may be called now; otherwise the publisher must ask, send or wait first."""
        return bool(box.number) and not box.kept and len(box.collected) < box.most and self._session.failure is None

    def put(self, box: Outbox, row: Any, wait: bool) -> asyncio.Future[None] | None:
        """Put a row into an outbox that has room. Returns a future of its storage, or None without `wait`.

        Rows of one turn of the event loop are sent together, including the first: a turn is short next to a sync to
        disk. Each put has its own future, because a shared one would be cancelled with its first waiter.
        """
        waiters = box.waiters
        try:
            box.add(row)
        except REFUSED:
            waiters = box.take(row)
        if not box.flying:
            self._publisher.soon(box)
        if not wait:
            box.unwatched = True
            box.gathering = not box.kept  # until the box is sent, further such rows need only be added
            return None
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters.append(stored)
        return stored

    async def put_keyed(self, topic: str, row: Any, key: bytes | uuid.UUID, wait: bool) -> None:
        """Put a row under a key, in its own frame. Returns when it is stored, or, without `wait`, in the outbox.

        A batch of one row may be of any version of the topic's schema.
        """
        named = _key_bytes(key)
        alone = isinstance(row, Batch) and len(row) == 1
        if alone:
            await self._publisher.require_version(topic, row)
            enforce(row)
        while True:
            self._session.require_open()
            box = await self._durable_box(topic, "a key is remembered for durable topics only")
            if not wait and not box.full:
                break
            if not self.has_room:
                await self._session.wait()
                continue
            if wait and not len(box):
                break
            self.send_box(box)  # earlier puts are sent first
            if not wait:
                await asyncio.sleep(0)  # a loop of puts lets other tasks run
        draft = row if alone else box.encoded(row)
        most = box.batch_bytes - KEY_BYTES - IDS_BYTES
        if len(draft.data) > most:
            raise LimitExceeded("frame_bytes", len(draft.data), most, "the bytes of one message")
        if wait:
            await self.send(box, draft.stamped(self._publisher.ids(1)), named)
            return
        box.keep(PendingPut([(box, draft)], [], named))
        box.unwatched, box.gathering = True, False
        self._publisher.soon(box)

    async def put_together(self, sources: Mapping[str, Sequence[Any]]) -> int:
        """Store sources of rows in several durable topics, all or none. Returns the number of rows. See `Atomic`."""
        drafts: list[tuple[str, Batch]] = []
        for topic, pieces in sources.items():
            box = await self._durable_box(topic, "only durable topics store all of an atomic put, or nothing")
            for piece in pieces:
                if isinstance(piece, Batch):
                    await self._publisher.require_version(topic, piece)
                batch = piece if isinstance(piece, Batch) else Batch.encode(box.schema, piece)
                enforce(batch)
                if len(batch):
                    drafts.append((topic, batch))
        if not drafts:
            return 0
        limits.require("PUT_PARTS", len(drafts), "the batches of an atomic put")
        boxes = await self._room_together(drafts)
        batches = [batch.stamped(self._publisher.ids(len(batch))) for _, batch in drafts]
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._post(PendingPut(list(zip(boxes, batches, strict=True)), [stored], stamp=self._publisher.stamper.last))
        await stored
        return sum(map(len, batches))

    async def _durable_box(self, topic: str, why: str) -> Outbox:
        box = await self._publisher.box(topic)
        if not box.durable:
            raise NotDurable(f"topic {topic!r} is live, and {why}; declare one with durable=True")
        return box

    async def _room_together(self, drafts: list[tuple[str, Batch]]) -> list[Outbox]:
        """Wait until all frames of an atomic put may be sent one after the other."""
        sizes = [len(batch.data) + 8 * len(batch) + IDS_BYTES for _, batch in drafts]
        before = sum(sizes[:-1])
        while True:
            self._session.require_open()
            boxes = [await self._publisher.box(topic) for topic, _ in drafts]
            connection = self._session.connection
            if connection is not None:
                most = self._publisher.batch_bytes
                if max(sizes) > most:
                    what = "the bytes of a batch of an atomic put"
                    raise LimitExceeded("frame_bytes", max(sizes), most, what, TOO_LARGE_TOGETHER)
                if before >= connection.put_window:
                    what = "the bytes of an atomic put, without its last batch"
                    raise LimitExceeded("put_window", before, connection.put_window, what, TOO_LARGE_TOGETHER)
            if connection is not None and self.has_room and all(box.number for box in boxes):
                waiting = [box for box in dict.fromkeys(boxes) if len(box)]
                for box in waiting:
                    self.send_box(box)  # earlier puts are sent first
                if waiting:
                    continue
                if connection.outstanding + before < connection.put_window:
                    return boxes
            await self._session.wait()

    # Sending

    def send_box(self, box: Outbox) -> None:
        """Send the rows that wait in an outbox, as far as there is room: `room` sends the rest.

        They go in one frame, unless they have several versions, keys, or very many bytes.
        """
        if not self.has_room:
            return
        publisher, unwatched = self._publisher, box.unwatched
        box.gathering = False
        collector = box.collector()
        if collector is not None:
            batch, waiters = collector.batch(publisher.ids(len(collector))), box.waiters
            box.waiters = []
            if len(batch.data) <= box.batch_bytes:
                box.unwatched = False
                put = PendingPut([(box, batch)], waiters, stamp=publisher.stamper.last)
                put.unwatched = unwatched
                self._post(put)
                return
            box.keep(PendingPut([(box, batch)], waiters))
        while len(box) and self.has_room:
            put = box.next()
            try:
                batch, put.final = publisher.fitting(box, put)
            except LimitExceeded as error:  # a message that leaves no room for its ID in a frame of this connection
                put.failed(error)
                publisher.doubted(error)
                continue
            put.parts, put.stamp, put.unwatched = [(box, batch)], publisher.stamper.last, unwatched
            self._post(put)
        box.unwatched = unwatched and len(box) > 0

    def send(self, box: Outbox, batch: Batch, key: bytes = b"") -> asyncio.Future[None]:
        """Send a batch that was stamped just now. Returns a future that is done when it is stored."""
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._post(PendingPut([(box, batch)], [stored], key, self._publisher.stamper.last))
        return stored

    def _post(self, put: PendingPut) -> None:
        connection = self._session.connection
        assert connection is not None
        self._session.remember()
        self.unsettled.add(put)
        self._publisher.rows += sum(len(batch) for _, batch in put.parts)
        self._publisher.batches += len(put.parts)
        self._write(connection, put)

    def _write(self, connection: BrokerConnection, put: PendingPut) -> None:
        put.first = connection.puts + 1
        put.last = connection.puts + len(put.parts)
        for count, (box, batch) in enumerate(put.parts, 1):
            more = count < len(put.parts)
            self._publisher.bytes += connection.put(box.number, batch.data, put.key, more)


def _key_bytes(key: Any) -> bytes:
    if isinstance(key, uuid.UUID):
        return key.bytes
    if isinstance(key, bytes) and len(key) == KEY_BYTES:
        return key
    told = f"{len(key)} bytes" if isinstance(key, bytes) else f"a {type(key).__name__}"
    raise InvalidValue(f"the key of a put is a uuid.UUID or {KEY_BYTES} bytes, not {told}")
