"""The puts of a client: outboxes, and how their rows get into frames."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeAlias

from milepost import limits
from milepost.batch import Batch, Draft, Ids, Stamper
from milepost.batch.collector import REFUSED
from milepost.client.connection import BrokerConnection, as_lost, wall_clock
from milepost.client.durable_puts import DurablePuts
from milepost.client.outbox import PUT_HEADER, Outbox
from milepost.client.session import ClientSession
from milepost.client.staging import StageSender
from milepost.client.topic import KnownTopic, declaration
from milepost.client.unsettled import PendingPut
from milepost.errors import (
    ConnectionLost,
    DuplicateMessage,
    IncompatibleSchema,
    InvalidValue,
    LimitExceeded,
    MilepostError,
    NotDurable,
    TimedOut,
    UnknownTopic,
)
from milepost.query import encode, enforce
from milepost.schema import Schema, Versions, compatible
from milepost.schema.evolution import conflicts
from milepost.wire import Control, Welcome

FRAME_BYTES: Final = 1 << 20  # a large put is split into frames of about this size, so that the broker works meanwhile
CHUNK_ROWS: Final = 8_192  # of a source without a length: encoded and sent together

Ask: TypeAlias = Callable[[Callable[[int], Control]], Awaitable[Any]]  # a request's reply: on one connection, or any
_log = logging.getLogger("milepost.client")

UNSURE: Final = "what was put into live topics and not yet confirmed by flush() may not have arrived"


class Publisher:
    """Outboxes by topic, and the stamps of the rows they send."""

    def __init__(self, session: ClientSession, clock: Callable[[], float] | None) -> None:
        self._session = session
        self._clock = clock
        self._publisher = self._broker = 0
        self.batch_bytes = limits.FRAME_BYTES - PUT_HEADER
        self.stamper = Stamper(lambda: 0)
        self.doubt: MilepostError | None = None  # puts that may be lost: raised by the next flush
        self._unsure = False  # live rows were put since the last flush
        self._flying: list[Outbox] = []  # sent rows in this turn of the event loop
        self._turning = False
        self.durable_puts: Final = DurablePuts(session, self)
        self.staging: Final = StageSender(session, self)
        self.boxes: Final[dict[str, Outbox]] = {}
        self.declared: Final[dict[str, tuple[Schema, str | None]]] = {}  # by this client: schema and policy
        self.schemas: Final[dict[str, tuple[Schema, ...]]] = {}  # of every topic that was ever announced
        self._bases: dict[str, dict[int, Schema]] = {}  # by topic and fingerprint: bases of the declared version
        self.durable: Final[set[str]] = set()  # the topics among them that are kept in a log
        self.rows = self.batches = self.bytes = self.refused = 0

    # Called by the session

    def welcomed(self, welcome: Welcome) -> None:
        """After a handshake: continue stamps above all earlier ones."""
        self.durable_puts.recognised(welcome, self._publisher, self._broker)
        self._publisher, self._broker = welcome.publisher, welcome.broker_id
        self.batch_bytes = welcome.frame_bytes - PUT_HEADER
        for box in self.boxes.values():
            box.batch_bytes = self.batch_bytes
        clock = self._clock
        clock_ms = wall_clock(welcome) if clock is None else lambda: int(clock() * 1_000)
        self.stamper = Stamper(clock_ms, max(welcome.high_water, welcome.last, self.stamper.last))

    def announced(self, topic: KnownTopic) -> None:
        """Handle an announced topic: its number, or a new version."""
        self.schemas[topic.name] = topic.versions
        if topic.name in self.declared:
            topic.read_with(self.declared[topic.name][0])
            self._remember_bases(topic.name)
        (self.durable.add if topic.durable else self.durable.discard)(topic.name)
        box = self.boxes.get(topic.name)
        if box is not None:
            box.number = topic.number
            if box.durable and not topic.durable:
                box.fail_waiters(NotDurable(f"topic {topic.name!r} was made anew, and is live now"))
            box.become(topic.durable)
            if topic.name not in self.declared:
                box.change(topic.versions[-1])

    def _remember_bases(self, name: str) -> None:
        """Keep the versions that the declared one extends, also when the topic is created again without them."""
        declared, bases = self.declared[name][0], self._bases.setdefault(name, {})
        for each in self.schemas.get(name, ()):
            if len(bases) < limits.TOPIC_VERSIONS and each != declared and compatible(each, declared):
                bases[each.fingerprint] = each

    def room(self) -> None:
        """There is room for puts: send waiting rows, and wake waiting puts."""
        for box in self.boxes.values():
            if len(box) and box.number:
                if not self._session.has_room:
                    break
                if not box.durable or self.durable_puts.has_room:
                    self.send(box)
        self._session.wake()  # also without room: an empty outbox can take rows again

    def refuse(self, error: MilepostError, topic: str, put: int) -> None:
        """Handle a batch that the broker refused: its waiters get the error, or else the next flush raises it."""
        if not self.durable_puts.refuse(error, put):
            self.refused += 1
            self.doubted(error)
            _log.error("the broker refused a put%s: %s", f" to topic {topic!r}" if topic else "", error)
        if isinstance(error, UnknownTopic):
            self._renumber()

    def doubted(self, error: MilepostError) -> None:
        """Have the next flush raise this error, unless it already has one of equal or greater weight."""
        if _weight(error) > _weight(self.doubt):
            self.doubt = error

    def _renumber(self) -> None:
        for box in self.boxes.values():  # a topic may have been deleted and created again, under another number
            box.number = 0
            box.gathering = False
        self._session.start(self._look_again(), "topics")

    def lost(self, error: MilepostError, was_used: bool) -> MilepostError:
        """A connection is gone. Returns the error, with a note when the last live puts may be lost."""
        self.durable_puts.lost()
        if not was_used or not self._unsure:
            return error
        known = as_lost(error)
        if isinstance(known, ConnectionLost):
            known = ConnectionLost(f"{known}; {UNSURE}")
            known.__cause__ = error
        self.doubted(known)
        return known

    def stop(self, error: MilepostError) -> None:
        """Nothing will be sent any more: every put takes the normal path, which raises the reason."""
        for box in self.boxes.values():
            box.gathering = False
            box.fail_waiters(error)
        self.durable_puts.stop(error)
        self.staging.stop(error)

    async def restore(self, connection: BrokerConnection) -> None:
        """Find the topics again, or declare them again: a broker that restarted has lost live ones."""
        for name, box in list(self.boxes.items()):
            box.number = await self.redeclare(connection.ask, name)
            if not box.number:
                self._lose(box, None)
        await self.durable_puts.send_again(connection)
        await self.staging.send_again(connection)

    async def redeclare(self, ask: Ask, name: str) -> int:
        """The number of a topic, declared again as this client knows it if it is gone or new; 0 if that fails."""
        try:
            return await self._found(ask, name, make=True)
        except MilepostError as error:
            if error.retriable:
                raise  # retry on the next connection: the topic need not be gone
            _log.error("topic %r did not come back: %s", name, error)
            return 0

    async def _found(self, ask: Ask, name: str, *, make: bool) -> int:
        """The number of a topic, after adding this client's declared version to it; `make`: create it if it is gone.

        Another client may have created it again with only another version, and then puts would be refused.
        """
        declared, slow = self.declared.get(name, (None, None))
        before = self.schemas.get(name, ())
        try:
            number = int((await ask(declaration(name, None)))["number"])
        except UnknownTopic:
            # A broker that restarts keeps durable topics, so a missing one was deleted.
            if not make or name in self.durable or not (before or declared):
                raise
            return await self._declare_all(ask, name, before)
        if declared is not None and declared not in self.schemas.get(name, ()):
            try:
                try:
                    await ask(declaration(name, declared, slow))
                except IncompatibleSchema:  # it may have another extension of the same base, and not the base
                    await self._declare_all(ask, name, ())
            except (IncompatibleSchema, LimitExceeded) as error:
                _log.error("topic %r was made anew, and does not take the version declared here: %s", name, error)
        return number

    async def _declare_all(self, ask: Ask, name: str, others: Sequence[Schema]) -> int:
        """Declare a topic with its declared version, the versions this one extends, and others as far as they fit."""
        declared, slow = self.declared.get(name, (None, None))
        versions = {each.fingerprint: each for each in others if declared is None or not conflicts(each, declared)}
        if declared is not None:
            versions |= self._bases.get(name, {}) | {declared.fingerprint: declared}
        number = 0
        for schema in _oldest_first(list(versions.values())):
            try:
                number = int((await ask(declaration(name, schema, slow)))["number"])
            except (IncompatibleSchema, LimitExceeded):
                if schema == declared or not number:
                    raise
        return number

    async def _look_again(self) -> None:
        """Find the numbers of topics again; rows of a topic that is gone are lost."""
        for box in list(self.boxes.values()):
            try:
                await self.box(box.name)
            except MilepostError as error:
                self._lose(box, error)
        self.room()

    def _lose(self, box: Outbox, error: MilepostError | None) -> None:
        box.gathering = False
        error = error or UnknownTopic(f"topic {box.name!r} is gone; declare it, and put again")
        if len(box):
            self.doubted(error)
            _log.error("%d rows for topic %r are lost: %s", len(box), box.name, error)
        box.fail_waiters(error)
        box.clear()

    # Outboxes

    def declare(self, name: str, number: int, schema: Schema, slow: str | None) -> None:
        """Record a declaration: from now on this client puts and reads that version."""
        self.declared[name] = schema, slow
        self._bases.pop(name, None)
        self._remember_bases(name)
        connection = self._session.connection
        known = None if connection is None else connection.by_name.get(name)
        if known is not None:
            known.read_with(schema)
        box = self.boxes.get(name)
        if box is None:
            box = self.boxes[name] = Outbox(name, number, schema, self.batch_bytes)
            box.become(name in self.durable)
        else:
            box.number = number
            box.change(schema)

    def forget(self, name: str) -> None:
        """Forget a deleted topic."""
        self.declared.pop(name, None)
        self.schemas.pop(name, None)
        self._bases.pop(name, None)
        self.durable.discard(name)
        box = self.boxes.pop(name, None)
        if box is not None:
            box.gathering = False
            box.number = 0
            if box.durable:
                self._lose(box, UnknownTopic(f"topic {name!r} was deleted"))

    async def box(self, name: str) -> Outbox:
        """The outbox of a topic; asks the broker about a topic that is new to this client."""
        box = self.boxes.get(name)
        if box is not None and box.number:
            return box
        number = await self._found(self._session.ask, name, make=False)
        box = self.boxes.get(name)  # another put may have asked as well
        if box is None:
            box = self.boxes[name] = Outbox(name, number, self.schemas[name][-1], self.batch_bytes)
            box.become(name in self.durable)
        box.number = number
        return box

    async def versions(self, name: str, again: bool) -> tuple[Schema, ...]:
        """The versions of a topic's schema, as announced; `again`: ask the broker for the current ones."""
        box = self.boxes.get(name)
        if again or box is None or not box.number:
            await self._found(self._session.ask, name, make=False)
        return self.schemas[name]

    @property
    def waiting(self) -> int:
        """Rows in outboxes."""
        return sum(len(box) for box in list(self.boxes.values()))  # a copy: another thread may ask

    def _room_for(self, box: Outbox) -> bool:
        return self.durable_puts.has_room if box.durable else self._session.has_room

    # Putting

    async def put(self, topic: str, row: Any, key: bytes | uuid.UUID | None = None, wait: bool = True) -> None:
        """The normal path of a put: to a durable topic, or with nothing in flight, or without room."""
        if key is not None:
            await self.durable_puts.put_keyed(topic, row, key, wait)
            return
        while True:
            self._session.require_open()
            box = self.boxes.get(topic)
            if box is None or not box.number:
                box = await self.box(topic)
            if not box.full:
                break
            if self._room_for(box):
                self.send(box)
                await asyncio.sleep(0)  # a loop of puts lets other tasks run
            else:
                await self._session.wait()
        if box.durable:
            stored = self.durable_puts.put(box, row, wait)
            if stored is not None:
                await stored
            return
        if not len(box) and self._session.has_room:
            self._send_alone(box, row)
            return
        try:
            box.add(row)
        except REFUSED:
            box.take(row)
        box.gathering = not box.full

    def put_alone(self, box: Outbox, row: Any) -> bool:
        """The fast path of a put with nothing in flight and nothing waiting. Returns False for the normal path.

        An occasional message finds its code outside the processor's caches, where every call costs several times what
        it does in a loop: so this makes as few calls as possible.
        """
        session = self._session
        connection = session.connection
        if connection is None or session.failure is not None or box.alone is None:
            return False
        if box.kept or box.collected or not box.number:
            return False
        try:
            data = box.alone(row, self._publisher, self._broker, self.stamper.next())
        except REFUSED:
            return False
        if len(data) > box.batch_bytes:
            return False
        size = connection.offer(box.number, data)
        if not size:
            return False
        self.bytes += size
        self.rows += 1
        self.batches += 1
        self._unsure = True
        self._fly(box)
        return True

    async def let_others_run(self, box: Outbox) -> None:
        """An outbox is full: send it and let other tasks run; without room, make the next put wait."""
        if self._room_for(box):
            self.send(box)
            await asyncio.sleep(0)
        else:
            box.gathering = False

    async def put_many(self, topic: str, source: Any) -> int:
        """Put all of a source; see `AsyncClient.put_many`."""
        box = await self.box(topic)
        if isinstance(source, Batch):
            await self.require_version(topic, source)
            enforce(source)
            return await self._put_batch(topic, source)
        if not isinstance(source, Iterator):
            return await self._put_batch(topic, box.draft(source))
        rows = 0
        stored: list[asyncio.Future[None]] = []
        while chunk := list(islice(source, CHUNK_ROWS)):
            rows += await self._send_batch(topic, box.draft(chunk), stored)
            if stored and stored[0].done():
                await stored.pop(0)  # an endless source fails early
        await _all(stored)
        return rows

    async def require_version(self, topic: str, batch: Batch) -> None:
        """Raise `InvalidValue` for a batch whose schema its topic does not have."""
        if batch.schema not in self.schemas.get(topic, ()):
            await self._session.ask(declaration(topic, None))  # the reply announces the topic, if it was created again
        if batch.schema not in self.schemas.get(topic, ()):
            raise InvalidValue(
                f"the batch is of schema {batch.schema.name} ({batch.schema.fingerprint:016x}), which topic {topic!r} "
                "does not have; declare it as a new version, or read_as() a version of the topic first"
            )

    async def _put_batch(self, topic: str, batch: Batch | Draft) -> int:
        stored: list[asyncio.Future[None]] = []
        rows = await self._send_batch(topic, batch, stored)
        await _all(stored)
        return rows

    async def _send_batch(self, topic: str, batch: Batch | Draft, stored: list[asyncio.Future[None]]) -> int:
        """Send a batch in frames; for a durable topic, `stored` gets a future for each frame."""
        size = max(1, len(batch) * FRAME_BYTES // max(1, Draft.bytes_of(batch)))  # rows of a frame
        start = 0
        while start < len(batch):
            self._session.require_open()
            box = await self.box(topic)
            if not self._room_for(box):
                await self._session.wait()
                continue
            if len(box):
                self.send(box)  # earlier puts are sent first
                continue
            stop = min(len(batch), start + size)
            if len(batch) - stop < size // 2:
                stop = len(batch)  # no small frame at the end
            made, start = self.piece(box.batch_bytes, batch, start, stop)
            if box.durable:
                stored.append(self.durable_puts.send(box, made))
            else:
                self._write(box, made)
            if start < len(batch):
                await asyncio.sleep(0)
        return len(batch)

    async def flush(self, timeout: float | None) -> None:
        """Wait until the broker has processed all puts; see `AsyncClient.flush`."""
        limit = self._session.timeout if timeout is None else timeout
        self._session.require_open()
        try:
            async with asyncio.timeout(limit):
                await self._processed()
                await self.durable_puts.settled()
        except TimeoutError:
            raise TimedOut(f"the broker has not processed everything within {limit:g} s; it may still do so") from None
        doubt, self.doubt = self.doubt, None
        if doubt is not None:
            raise doubt

    async def _processed(self) -> None:
        """Wait until the broker has processed all rows that are in outboxes or were sent."""
        while True:
            connection = await self.emptied()
            if self.durable_puts.unsettled and not self._unsure:
                return  # only durable puts are left, and the broker answers those later
            unsure, self._unsure = self._unsure, False
            try:
                await connection.ping()
                return
            except ConnectionLost:
                if unsure or self._session.failure is not None:
                    raise  # the error says that live puts may be lost
            except BaseException:
                self._unsure = self._unsure or unsure
                raise

    async def drained(self) -> None:
        """Wait until all outboxes are empty and all durable puts stored: before a client closes."""
        await self.emptied()
        await self.durable_puts.settled()

    async def emptied(self) -> BrokerConnection:
        """Wait until all outboxes are empty. Returns the connection that took the rows."""
        while True:
            self._session.require_open()
            for box in list(self.boxes.values()):
                if len(box) and not box.number:
                    await self.box(box.name)
                if len(box) and box.number and self._room_for(box):
                    self.send(box)
            connection = self._session.connection
            if connection is not None and not self.waiting:
                return connection
            await self._session.wait()

    # Sending

    def _send_alone(self, box: Outbox, row: Any) -> None:
        batch = encode(box.schema, [row], Ids.one(self._publisher, self._broker, self.stamper.next()))
        if len(batch.data) > box.batch_bytes:
            raise LimitExceeded("frame_bytes", len(batch.data), box.batch_bytes, "the bytes of one message")
        self._write(box, batch)
        self._fly(box)

    def send(self, box: Outbox) -> None:
        """Send the rows that wait for a topic, as far as there is room: `room` sends the rest."""
        if box.durable:
            self.durable_puts.send_box(box)
            return
        self._fly(box)
        collector = box.collector()
        if collector is not None:
            made = collector.batch(self.ids(len(collector)))
            if len(made.data) <= box.batch_bytes:
                self._write(box, made)
                return
            box.keep(PendingPut([(box, made)], []))
        while len(box) and self._session.has_room:
            try:
                self._write(box, self.fitting(box, box.next())[0])
            except LimitExceeded as error:  # a message that leaves no room for its ID in a frame of this connection
                self.doubted(error)
        box.gathering = not box.full

    def fitting(self, box: Outbox, put: PendingPut) -> tuple[Batch, bool]:
        """Rows of a put from an outbox, with IDs, and whether these are all: the rest is back in the outbox.

        Raises `LimitExceeded` when the first row alone exceeds a frame; that row is lost, and the rest is back too.
        """
        stop, rows = 1, len(put.batch)
        try:
            made, stop = self.piece(box.batch_bytes, put.batch, 0, rows)
        finally:
            if stop < rows:
                box.give_back(PendingPut([(box, put.batch.slice(stop))], put.waiters, put.key))
        return made, stop == rows

    def piece(self, most: int, batch: Batch | Draft, start: int, stop: int) -> tuple[Batch, int]:
        """Rows of a batch with IDs, fewer if they take more than `most` bytes, and the row after the last of them."""
        while True:
            made = batch.stamped(self.ids(stop - start), start, stop)
            if len(made.data) <= most:
                return made, stop
            if stop - start == 1:
                raise LimitExceeded("frame_bytes", len(made.data), most, f"the bytes of row {start}")
            stop = start + (stop - start) // 2

    def ids(self, rows: int) -> Ids:
        """IDs of this client for `rows` rows, from now on."""
        if rows == 1:
            return Ids.one(self._publisher, self._broker, self.stamper.next())
        return Ids.single(self._publisher, self._broker, self.stamper.take(rows))

    def addressed(self, batch: Batch) -> Batch:
        """Rows that were stamped for an earlier connection, under this client's current numbers."""
        assert batch.ids is not None
        if batch.ids.runs[0][1:] == (self._publisher, self._broker):
            return batch
        return batch.stamped(Ids.single(self._publisher, self._broker, batch.ids.stamps))

    def _write(self, box: Outbox, batch: Batch) -> None:
        connection = self._session.connection
        assert connection is not None
        self.bytes += connection.put(box.number, batch.data)
        self.rows += len(batch)
        self.batches += 1
        self._unsure = True

    def _fly(self, box: Outbox) -> None:
        """Mark a topic as in flight until the next turn of the event loop."""
        box.gathering = True
        self.soon(box)

    def soon(self, box: Outbox) -> None:
        """Check an outbox again in the next turn of the event loop."""
        if not box.flying:
            box.flying = True
            self._flying.append(box)
        if not self._turning:
            self._turning = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._turning = False
        flying, self._flying = self._flying, []
        for box in flying:
            box.flying = False
            if not len(box):
                box.gathering = False  # the next message is sent at once
            elif box.number and self._room_for(box):
                self.send(box)
            # Otherwise it waits for `room`.


def _weight(error: MilepostError | None) -> int:
    """A flush raises the heaviest of several errors, and of equal ones the first.

    A refused put is certainly not stored; live puts of a lost connection may be lost; a duplicate is already stored.
    """
    if error is None or isinstance(error, DuplicateMessage):
        return int(error is not None)
    return 2 if isinstance(error, ConnectionLost) else 3


def _oldest_first(versions: list[Schema]) -> Sequence[Schema]:
    """Order versions so that each follows those that it extends: a topic takes only extensions of its versions."""
    try:
        return Versions.of(versions).schemas if versions else ()
    except MilepostError:
        return versions  # of topics that had only their name in common


async def _all(stored: list[asyncio.Future[None]]) -> None:
    """Wait for all frames of a put, then raise the error of the first that failed."""
    if stored:
        await asyncio.wait(stored)
    for future in stored:
        future.result()
