"""The shell's end of a connection: it passes incoming frames to the broker, and encodes control messages."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from milepost.broker.core.memory import PASSED, PASSES
from milepost.broker.pings import PingPath
from milepost.errors import BrokerError, LimitExceeded, MilepostError, ProtocolError
from milepost.transport import Channel
from milepost.wire import (
    MORE,
    Frame,
    Kind,
    Ping,
    Reply,
    decode_control,
    encode_control,
    read_enqueue,
    read_key,
    read_put,
    read_stage,
)
from milepost.wire.control import failure

if TYPE_CHECKING:
    from milepost.broker.core import Connection, Topic
    from milepost.broker.server import Broker
    from milepost.wire import Control, Enqueue

_PUT: Final = int(Kind.PUT)
_STAGE: Final = int(Kind.STAGE)
_ENQUEUE: Final = int(Kind.ENQUEUE)
_CREDIT: Final = int(Kind.CREDIT)
MOST_ASKED: Final = 64  # requests of one connection in a round of the event loop; other connections are next
_BATCHES: Final = (_PUT, _STAGE, _ENQUEUE)
LIGHT_BYTES: Final = 4_096  # of a request that is decoded even when memory is short
ENQUEUE_BYTES: Final = 100  # counted for an ENQUEUE that gets a reply, beside its messages, which take credit
MOST_JOBS: Final = 10_000  # of one connection in a worker's queue: credit limits its batches, this its requests


class Peer:
    """A `Receiver` for one connection."""

    __slots__ = ("_back", "_broker", "_held", "connection", "given", "jobs", "lone", "lone_topic")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.connection: Connection | None = None
        self.jobs = 0  # puts and requests that this connection's worker has not finished
        self.given: deque[Any] = deque()  # those of them that the matching thread has not begun
        self.lone = 0  # consecutive puts that came alone for one topic; `FastPath` counts them
        self.lone_topic: Topic | None = None
        self._held: list[Frame] = []  # received, and not to be handled yet; `_hold` adds them
        self._back: list[Control | Enqueue] = []  # requests that a worker gave back, and that must wait too

    def connected(self, channel: Channel) -> None:
        connection = self._broker.core.connected(channel.peer, self._broker.clock.monotonic())
        connection.channel, connection.receiver = channel, self
        self.connection = connection
        channel.growing = self._growing

    def frames(self, frames: list[Frame]) -> None:
        connection = self.connection
        broker = self._broker
        if connection is None:
            return
        connection.heard = broker.clock.monotonic()
        asked = 0
        memory = broker.core.memory
        if connection.coming:
            memory.partial(connection, 0)
        if memory.held > memory.enough and memory.over(connection):
            self._hold(connection, frames)
            return
        try:
            for place, frame in enumerate(frames):
                if not connection.open:
                    return
                full = connection.asking and memory.full(connection)
                if connection.paused or self.jobs >= MOST_JOBS or connection.busy or full:
                    connection.passes = connection.passes and PASSED
                    self._hold(connection, frames[place:])
                    return
                if asked == MOST_ASKED:
                    self._hold(connection, frames[place:])
                    broker.loop.call_soon(self.go_on)
                    return
                if frame.kind == _PUT:
                    if not connection.greeted:
                        raise ProtocolError("a connection begins with a HELLO, not with PUT")
                    size = len(frame.body) + 8
                    if not frame.flags:
                        number, data = read_put(frame.body)
                        broker.put(self, connection, number, data, size, len(frames) == 1)
                    else:
                        key, body = read_key(frame.flags, frame.body)
                        number, data = read_put(body)
                        broker.put(self, connection, number, data, size, False, key, bool(frame.flags & MORE))
                elif frame.kind == _STAGE:
                    if not connection.greeted:
                        raise ProtocolError("a connection begins with a HELLO, not with STAGE")
                    broker.stage(self, connection, read_stage(frame.body), len(frame.body) + 8)
                elif frame.kind == _ENQUEUE:
                    asked += 1
                    enqueue = read_enqueue(frame.body)
                    if enqueue.request:
                        memory.asked(connection, enqueue, ENQUEUE_BYTES)
                    broker.asked(self, connection, enqueue)
                else:
                    if len(frame.body) > LIGHT_BYTES and memory.heavy(connection, len(frame.body)):
                        self._hold(connection, frames[place:], halt=True)
                        return
                    message = decode_control(frame.kind, frame.body)
                    if frame.kind == _CREDIT:  # it concerns deliveries, and need not wait for puts
                        broker.said(connection, message)
                    else:
                        asked += 1
                        memory.asked(connection, message, len(frame.body))
                        broker.asked(self, connection, message)
                    if type(message) is Ping and connection.open and connection.channel.fast_path is None:
                        connection.channel.fast_path = PingPath(
                            broker, self, message, memoryview(connection.channel.buffer)
                        )
            if connection.passes == PASSES:
                connection.passes = PASSED
                self._hold(connection, [], halt=True)
        except MilepostError as error:
            broker.refuse(connection, error)

    def _growing(self, size: int) -> None:
        """Called when more bytes of an unfinished frame have arrived."""
        connection, memory = self.connection, self._broker.core.memory
        if connection is not None and connection.open:
            memory.partial(connection, size)
            if memory.held > memory.enough and memory.over(connection):
                self._hold(connection, [])

    def _hold(self, connection: Connection, frames: list[Frame], *, halt: bool = False) -> None:
        """Stop reading from this client, and keep these frames for later; `halt`: because memory is short."""
        broker = self._broker
        connection.paused = True
        connection.channel.pause()
        self._held += frames
        if connection.busy:
            broker.holding[connection] = self
        size = connection.channel.partial + sum([len(frame.body) for frame in self._held])
        broker.core.memory.partial(connection, size)
        if connection.halted is None and (halt or broker.core.memory.over(connection)):
            connection.halted = broker.clock.monotonic()
            broker.halted[self] = None
            broker.loop.call_soon(broker.relieve)

    def answered(self, message: Control | Enqueue) -> None:
        """Handle a request whose earlier puts a worker has finished, unless an earlier request is not done yet."""
        connection = self.connection
        if connection is None:
            return
        if connection.busy or self._back:
            self._back.append(message)
            self._hold(connection, [])
        else:
            self._broker.said(connection, message)

    def drained(self) -> None:
        if self.connection is not None:
            self._broker.drained(self.connection)
            self.go_on()

    def go_on(self) -> None:
        """Handle the held frames, if no reason to hold them is left, and read from the client again."""
        connection, broker = self.connection, self._broker
        if connection is None or not connection.paused or connection.busy or connection.blocked:
            return
        memory = broker.core.memory
        short = memory.full(connection) or memory.over(connection) or self._heavy(connection)
        if self.jobs < MOST_JOBS and not short:
            connection.paused, connection.halted = False, None
            broker.halted.pop(self, None)
            if connection.passes == PASSED:
                broker.core.memory.passed(connection)
                broker.loop.call_soon(broker.relieve)
            held, self._held = self._held, []
            while self._back and connection.open and not connection.busy:
                broker.said(connection, self._back.pop(0))
            if self._back:
                self._hold(connection, held)
            elif held:
                self.frames(held)
            if not connection.paused:
                connection.channel.resume()

    def _heavy(self, connection: Connection) -> bool:
        """Whether the first held frame is a request for which there is no memory."""
        if not self._held:
            return False
        frame = self._held[0]
        size = len(frame.body)
        return size > LIGHT_BYTES and frame.kind not in _BATCHES and self._broker.core.memory.heavy(connection, size)

    def refused(self, error: Exception) -> None:
        if self.connection is not None:
            self._broker.refuse(self.connection, error if isinstance(error, MilepostError) else BrokerError(str(error)))

    def lost(self, error: Exception | None) -> None:
        if self.connection is not None:
            connection, self.connection = self.connection, None
            self._held = []
            self._broker.halted.pop(self, None)
            self._broker.gone(connection)


def frame_of(message: Control) -> bytes:
    """The frame of a control message. A reply that is too long becomes the failure of its request."""
    try:
        return encode_control(message)
    except LimitExceeded as error:
        if not isinstance(message, Reply):
            raise
        return encode_control(failure(error, request=message.request))
