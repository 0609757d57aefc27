"""One connection to a broker, from its handshake to its end: requests and replies, puts and credit, deliveries.

The transport calls it, and it calls its owner; only the handshake and requests wait. A client that reconnects
makes a new one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from milepost import limits, transport
from milepost.batch import Batch
from milepost.batch.header import Buffer, fingerprint_of
from milepost.batch.plain_rows import PlainRows
from milepost.client.dispatch import shares
from milepost.client.taken import TakenBatch
from milepost.client.topic import KnownTopic, advance, parsed
from milepost.client.waiters import WaitingTasks, fail
from milepost.client.window import DeliveryCredit, DeliveryWindow
from milepost.errors import (
    ConnectionLost,
    InDoubt,
    MilepostError,
    ProtocolError,
    TimedOut,
    from_code,
)
from milepost.schema import Schema
from milepost.transport import Address, Channel
from milepost.wire import (
    HEADER,
    Bye,
    CaughtUp,
    Control,
    Credit,
    Dropped,
    Ended,
    Enqueue,
    Failure,
    Frame,
    Hello,
    Kind,
    Ping,
    Pong,
    Positions,
    Reply,
    Stage,
    Stored,
    Tags,
    TopicAnnounced,
    TypeAnnounced,
    Unsubscribe,
    Welcome,
    decode_control,
    encode_control,
    enqueue_parts,
    put_parts,
    read_deliver,
    read_hand,
    read_taken,
    stage_parts,
)

if TYPE_CHECKING:
    from milepost.client.session import ClientSession
    from milepost.client.subscription import Subscription

SILENT_HEARTBEATS: Final = 3  # heartbeats without a frame before the broker counts as gone
HEARTBEAT_PING: Final = 0  # no caller waits for its PONG
POSITIONS_BEATS: Final = 4  # beats, of half a heartbeat each, between requests for the positions of durable topics

_DELIVER: Final = int(Kind.DELIVER)
_HAND: Final = int(Kind.HAND)
_TAKEN: Final = int(Kind.TAKEN)
_HEADER: Final = HEADER.size


Heard: TypeAlias = Callable[["BrokerConnection", Any], None]


class BrokerConnection:
    """A `transport.Receiver`. Made by `open`."""

    takes_plain_rows = False  # messages for queues one by one, not in batches

    def __init__(self, owner: ClientSession, inboxes: Mapping[int, Subscription], window: DeliveryWindow) -> None:
        self._owner = owner
        self._inboxes = inboxes
        self._window = window
        self._channel: Channel | None = None
        self._loop = asyncio.get_running_loop()
        self._welcomed: asyncio.Future[Welcome] = self._loop.create_future()
        self._requests: dict[int, asyncio.Future[Any]] = {}
        self._heard_by: dict[int, Heard] = {}  # by request: called with its reply before any later frame is handled
        self._pings: dict[int, asyncio.Future[None]] = {}
        self._roomless = WaitingTasks()  # wait for room before the connection is in use
        self._number = 0  # of requests and pings
        self._fatal: MilepostError | None = None
        self._kept = False  # the channel buffers bytes: write no more
        self._said = False  # a frame was written since the last beat
        self._heard = False
        self._silent = self._beats = 0
        self._partial = 0  # bytes of an unfinished frame at the last beat
        self._timer: asyncio.TimerHandle | None = None
        self.alive = False
        self.resumable = False  # a plain subscription to a durable topic is on it
        self.done: Final[asyncio.Future[None]] = self._loop.create_future()  # done when the channel is gone
        self.topics: Final[dict[int, KnownTopic]] = {}
        self.by_name: Final[dict[str, KnownTopic]] = {}
        self._types: dict[int, Schema] = {}  # types of queue messages, by fingerprint
        self._taken: dict[int, list[TakenBatch]] = {}  # by request: the batches that arrived before its reply
        self.outstanding = 0  # bytes of puts without credit yet
        self.put_window = 0
        self.puts = 0
        self.rows = self.batches = self.bytes = 0  # delivered

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
        """Connect and complete the handshake within `timeout` seconds. Raises the broker's error when it refuses."""
        self = cls(owner, inboxes, window)
        try:
            async with asyncio.timeout(timeout):
                channel = await transport.connect(address, self)
                channel.write(encode_control(msgspec.structs.replace(hello, held=window.begin(self), places=True)))
                welcome = await self._welcomed
        except BaseException as error:
            self.abort()
            if isinstance(error, TimeoutError):
                raise TimedOut(f"the broker at {address} did not answer within {timeout:g} s") from None
            raise
        return self, welcome

    # Called by the transport

    def connected(self, channel: Channel) -> None:
        self._channel = channel

    def frames(self, frames: list[Frame]) -> None:
        self._heard = True
        try:
            for kind, flags, body in frames:
                if kind == _DELIVER:
                    self._deliver(flags, body)
                elif kind == _HAND:
                    self._hand(flags, body)
                elif kind == _TAKEN:
                    self._take(body)
                else:
                    self._hear(decode_control(kind, body))
        except MilepostError as error:
            self.refused(error)

    def drained(self) -> None:
        self._kept = False
        self._roomy()

    def _roomy(self) -> None:
        if self.has_room:
            if self._roomless:
                self._roomless.wake()
            self._owner.room()

    def refused(self, error: Exception) -> None:
        """Close a connection whose broker sent something invalid."""
        self._fatal = self._fatal or (error if isinstance(error, MilepostError) else ProtocolError(str(error)))
        self.abort()

    def lost(self, reason: Exception | None) -> None:
        was_alive, self.alive = self.alive, False
        if self._timer is not None:
            self._timer.cancel()
        why = self._fatal or ConnectionLost(f"the connection to the broker was lost{f': {reason}' if reason else ''}")
        self._fatal = why
        waiting: list[asyncio.Future[Any]] = [*self._requests.values(), *self._pings.values(), *self._roomless]
        for future, error in [(self._welcomed, why), *((each, as_lost(why)) for each in waiting)]:
            fail(future, error)
        if not self.done.done():
            self.done.set_result(None)
        if was_alive:
            self._owner.ended(self, why)

    # Frames from the broker

    def _hear(self, said: Control) -> None:
        match said:
            case Credit():
                self.outstanding = max(0, self.outstanding - said.bytes)
                self._roomy()
            case Stored():
                self._owner.stored(said.put)
            case Reply():
                self._answer(said.request, said.value)
            case Failure():
                self._fail(said)
            case TopicAnnounced():
                topic = KnownTopic(said, self.topics.get(said.number))
                self.topics[topic.number] = self.by_name[topic.name] = topic
                self._owner.announced(topic)
            case Dropped():
                for number, rows in said.rows.items():
                    if (inbox := self._inboxes.get(number)) is not None:
                        inbox.drop(rows)
                for lost in said.lost:
                    if len(lost) != 4:
                        raise ProtocolError(f"a DROPPED names rows by {len(lost)} numbers; it takes 4")
                    if (inbox := self._inboxes.get(lost[0])) is not None:
                        inbox.lose(*lost[1:])
                for number, topics in said.skipped.items():
                    if (inbox := self._inboxes.get(number)) is not None:
                        inbox.skip(topics)
            case CaughtUp():
                inbox = self._inboxes.get(said.subscription)
                if inbox is not None:
                    inbox.caught_up(said.topic, said.position)
            case TypeAnnounced():
                schema = parsed(said.text)
                self._types[schema.fingerprint] = schema
            case Ended():
                self._owner.subscription_ended(said.subscription, None)
            case Ping():
                self.say(Pong(said.number))
            case Pong():
                waiting = self._pings.pop(said.number, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(None)
            case Bye():
                why = f": {said.reason}" if said.reason else ""
                self._fatal = self._fatal or ConnectionLost(f"the broker closed the connection{why}")
                self.close()
            case Welcome():
                self._welcome(said)
            case _:
                raise ProtocolError(f"a broker does not send {type(said).__name__.upper()}")

    def _welcome(self, said: Welcome) -> None:
        if self._welcomed.done() or self._channel is None:
            raise ProtocolError("a second WELCOME")
        if said.heartbeat_s <= 0:
            raise ProtocolError(f"a heartbeat of {said.heartbeat_s} s cannot be kept")
        self._channel.set_limit(limits.FRAME_BYTES)
        self.put_window = said.window
        self._window.allowed = min(self._window.size, said.delivery_window or self._window.size)
        self.alive = True
        self._window.give_back()  # bytes consumed since the HELLO
        self._timer = self._loop.call_later(said.heartbeat_s / 2, self._beat, said.heartbeat_s / 2)
        self._welcomed.set_result(said)

    def _answer(self, request: int, value: Any) -> None:
        future = self._requests.pop(request, None)
        heard = self._heard_by.pop(request, None)
        if heard is not None:
            heard(self, value)
        taken = self._taken.pop(request, None)
        if taken is not None and isinstance(value, dict):
            value["groups"] = taken
        if future is not None and not future.done():
            future.set_result(value)

    def _fail(self, said: Failure) -> None:
        error = from_code(said.code, said.message)
        if said.fatal:
            self._fatal = error
        elif said.put and isinstance(error, InDoubt):
            self.refused(error)  # neither stored nor refused: only the high water of another connection can tell
        elif said.put:
            self._owner.put_refused(error, said.topic, said.put)
        elif said.subscription:
            self._owner.subscription_ended(said.subscription, error)
        else:
            future = self._requests.pop(said.request, None)
            if future is not None and not future.done():
                future.set_exception(error)

    def _deliver(self, flags: int, body: bytes | bytearray | memoryview) -> None:
        topic_number, tags, data, place = read_deliver(flags, body)
        topic = self.topics.get(topic_number)
        if topic is None:
            raise ProtocolError(f"a delivery from topic number {topic_number}, which was not announced")
        batch = topic.decode(data)
        size = len(body) + _HEADER
        self.rows += len(batch)
        self.batches += 1
        self.bytes += size
        window = self._window
        window.held += size
        if place is not None:
            topic.reached[place[0]] = place[1]
        inboxes = self._inboxes
        if len(tags) == 1 and not isinstance(tags, Tags):
            only = inboxes.get(tags[0])
            if only is not None:
                if len(batch) == 1 and only.hand is not None:
                    only.take(topic.name, batch, window, size)
                    return
                only.deliver(topic.name, batch, None, DeliveryCredit(window, size, 1))
                return
        found = [
            (inbox, rows)
            for number, rows in shares(tags, len(batch))
            if (inbox := inboxes.get(number)) is not None  # its subscription may have ended while this was in flight
        ]
        if not found:
            window.consumed(size)
            return
        credit = DeliveryCredit(window, size, len(found))
        for inbox, rows in found:
            inbox.deliver(topic.name, batch, rows, credit)

    def _hand(self, flags: int, body: bytes | bytearray | memoryview) -> None:
        hand = read_hand(flags, body)
        topic = self.topics.get(hand.topic)
        if topic is None:
            raise ProtocolError(f"rows of topic number {hand.topic}, which was not announced")
        batch = topic.decode_hand(hand)
        size = len(body) + _HEADER
        self.rows += len(batch)
        self.batches += 1
        self.bytes += size
        self._window.held += size
        inbox = self._inboxes.get(hand.subscription)
        if inbox is None:  # its subscription may have ended while this was in flight
            self._window.consumed(size)
        else:
            inbox.handed(topic.name, batch, DeliveryCredit(self._window, size, 1))

    def _take(self, body: bytes | bytearray | memoryview) -> None:
        taken = read_taken(body)
        schema = self._types.get(fingerprint_of(taken.data))
        if schema is None:
            raise ProtocolError(f"messages of type {taken.type!r}, which was not announced")
        found = TakenBatch.read(taken, schema)
        self.rows += len(found)
        self.batches += 1
        self.bytes += len(body) + _HEADER
        if taken.request in self._requests:  # its caller may have been cancelled
            self._taken.setdefault(taken.request, []).append(found)

    # Frames to the broker

    @property
    def has_room(self) -> bool:
        """Whether a put may be sent now. One put may exceed the window, so that a large one can pass at all."""
        return self.alive and not self._kept and self.outstanding < self.put_window

    async def room(self, before: int = 0) -> None:
        """Wait until a put may be sent after `before` bytes of others. Raises `ConnectionLost` if it never may."""
        while not self.has_room or self.outstanding + min(before, self.put_window - 1) >= self.put_window:
            if not self.alive:
                raise as_lost(self._fatal or ConnectionLost("the connection to the broker is gone"))
            await self._roomless.wait()

    def put(self, topic: int, data: bytes | bytearray | memoryview, key: bytes = b"", more: bool = False) -> int:
        """Send a batch. Returns the size of its frame in bytes."""
        head, body = put_parts(topic, data, key, more)
        size = len(head) + len(body)
        self.outstanding += size
        self.puts += 1
        self._said = True
        assert self._channel is not None
        if not self._channel.write(head, body):
            self._kept = True
        return size

    def offer(self, topic: int, data: bytes) -> int:
        """`put` for a small batch, if there is room for it now. Returns 0 if there is not."""
        if not self.alive or self._kept or self.outstanding >= self.put_window or self._channel is None:
            return 0
        head, _ = put_parts(topic, data)
        frame = head + data
        size = len(frame)
        self.outstanding += size
        self.puts += 1
        self._said = True
        if not self._channel.write(frame):
            self._kept = True
        return size

    def stage(self, stage: Stage) -> asyncio.Future[Any]:
        """Send a batch to be staged, under a new request. Returns a future of its reply or error."""
        self._number += 1
        future: asyncio.Future[Any] = self._loop.create_future()
        head, body = stage_parts(stage._replace(request=self._number))
        self._requests[self._number] = future
        self.outstanding += len(head) + len(body)
        self._said = True
        assert self._channel is not None
        if not self._channel.write(head, body):
            self._kept = True
        return future

    def enqueue(self, enqueue: Enqueue, batch: Batch | PlainRows) -> tuple[Buffer, ...]:
        """The frame that enqueues `batch`, in parts for `send` or `ask`. Its bytes count as sent from here on."""
        parts = enqueue_parts(enqueue)
        self.outstanding += len(parts[0]) + len(parts[1])
        return parts

    def send(self, *parts: Buffer) -> None:
        """Write frames."""
        if self._channel is not None:
            self._said = True
            if not self._channel.write(*parts):
                self._kept = True

    def say(self, message: Control) -> None:
        """Send a control frame. Control frames do not wait for room: they are few and small."""
        self.send(encode_control(message))

    async def ask(
        self, make: Callable[[int], Control], before: Sequence[Buffer] = (), heard: Heard | None = None
    ) -> Any:
        """Send a request and wait for the value of its reply. Raises the error of an error reply.

        `before` are parts of frames that are sent before the request, in one write. `heard` is called with the reply
        when it arrives, before any later frame is handled.
        """
        future = self.request(make, before)
        number = self._number
        if heard is not None:
            self._heard_by[number] = heard
        try:
            return await future
        finally:
            self._requests.pop(number, None)
            self._heard_by.pop(number, None)

    def request(self, make: Callable[[int], Control], before: Sequence[Buffer] = ()) -> asyncio.Future[Any]:
        """Send a request. Returns a future of its reply's value or error."""
        if not self.alive:
            raise as_lost(self._fatal or ConnectionLost("the connection to the broker is gone"))
        self._number += 1
        number, future = self._number, self._loop.create_future()
        message = encode_control(make(number))
        self._requests[number] = future
        self.send(*before, message)
        return future

    async def ping(self) -> None:
        """Wait until the broker has processed all frames sent before."""
        if not self.alive:
            raise as_lost(self._fatal or ConnectionLost("the connection to the broker is gone"))
        self._number += 1
        number, future = self._number, self._loop.create_future()
        self._pings[number] = future
        self.say(Ping(number))
        try:
            await future
        finally:
            self._pings.pop(number, None)

    def unsubscribe(self, subscription: int, seen: dict[int, list[list[int]]] | None = None) -> None:
        """End a subscription without waiting for the answer."""
        if self.alive:
            self._number += 1
            self.say(Unsubscribe(request=self._number, subscription=subscription, seen=seen))

    def _beat(self, seconds: float) -> None:
        """Runs twice a heartbeat. A connection has only this timer: messages merely set a flag."""
        here = self._channel.partial if self._channel is not None else 0
        if self._heard or here > self._partial:  # part of a long frame on a slow line also counts
            self._silent = 0
        else:
            self._silent += 1
        if self._silent >= 2 * SILENT_HEARTBEATS:
            silence = f"nothing was heard from the broker for {self._silent * seconds:g} s"
            self.refused(ConnectionLost(f"the connection to the broker was lost: {silence}"))
            return
        self._beats += 1
        if self.resumable and self._beats % POSITIONS_BEATS == 0:
            self.request(lambda number: Positions(request=number)).add_done_callback(self._moved)
        elif not self._said or not self._heard:
            self.say(Ping(HEARTBEAT_PING))
        self._said = self._heard = False
        self._partial = here
        self._timer = self._loop.call_later(seconds, self._beat, seconds)

    def _moved(self, answer: asyncio.Future[Any]) -> None:
        """Note how far the broker has delivered durable topics, including rows that no subscription here wants."""
        if not answer.cancelled() and answer.exception() is None:
            for topic in self.topics.values():
                advance(topic.reached, answer.result().get(topic.stored, {}))

    def goodbye(self) -> None:
        """Disconnect on purpose, after everything that was sent."""
        if self.alive:
            self.say(Bye())
        self.close()

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()

    def abort(self) -> None:
        if self._channel is not None:
            self._channel.abort()


def as_lost(error: MilepostError) -> MilepostError:
    """The error that ended a connection, as callers that waited for a reply on it see it: as `ConnectionLost`.

    That holds for every reason for which the broker closed it, as long as a retry on the next connection can help.
    """
    if isinstance(error, ConnectionLost) or not error.retriable:
        return error
    lost = ConnectionLost(f"the broker closed the connection: {error}")
    lost.__cause__ = error
    return lost


def wall_clock(welcome: Welcome) -> Callable[[], int]:
    """Milliseconds since 1970 by the broker's clock: its time at the handshake plus the time elapsed here since.

    So the stamps of all clients of a broker agree within a round trip, whatever their own clocks say.
    """
    start = welcome.time_us / 1_000_000 - time.monotonic()
    monotonic = time.monotonic
    return lambda: int((start + monotonic()) * 1_000)


@cache
def software() -> str:
    """The name and version that this client sends to brokers."""
    return f"milepost-python {version('milepost')}"
