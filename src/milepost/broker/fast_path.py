"""The short way of a put: a message that came alone, for a topic whose subscribers all want everything of it.

A message a millisecond finds neither code nor data in the processor's caches, so what it costs is how much Python there
is on its way: some 50 µs through reading, checking, matching and delivering, which take anything. The short way takes
one frame of one row, has it judged by a builtin where it lies, and puts another head before it. It is 15 µs long.

A message for a durable topic has a short way too, up to the store, where those of one round of the event loop go
together: a hundred publishers that wait for each of their messages cost a broker two thirds of what they did, or less.

It is tried first and gives up on whatever is not so; then the bytes are read as if nobody had looked at them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Final

from milepost import kernels, limits
from milepost.batch.format import format_of
from milepost.batch.header import HEADER, fingerprint_of
from milepost.broker.core.put import RowPut
from milepost.errors import MilepostError
from milepost.kernels.compiler import loading
from milepost.wire.payload import Buffer, deliver_head, put_head

if TYPE_CHECKING:
    from milepost.broker.core import Connection, Topic
    from milepost.broker.core.sessions.connection import PublisherIdentity
    from milepost.broker.peer import Peer
    from milepost.broker.server import Broker
    from milepost.schema import Schema

ENOUGH: Final = 16  # puts in a row, each alone and for one topic: such a client will go on like this
NEVER: Final = -(1 << 62)  # as the number of puts of a client whose topic has no short way
_HEAD: Final = len(put_head(0, 0))
_new: Final = tuple.__new__  # what RowPut(...) comes to, without a function in between

Judge = Callable[[int, int, int], int]
"""Of a batch from here to there, and the publisher's last stamp: its own stamp, if it is right, or 0."""


class FastPath:
    """Who gets one. The builtin is loaded when the first client has earned it, in a thread: Numba takes its time."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._native: ModuleType | None = None
        self._loading: asyncio.Future[None] | None = None

    def went(self, peer: Peer, connection: Connection, topic: Topic, data: Buffer) -> None:
        """A put that came alone went the long way."""
        if HEADER.unpack_from(data)[1] & limits.BATCH_ROWS != 1:
            peer.lone = 0
            return
        if peer.lone_topic is not topic:
            peer.lone_topic, peer.lone = topic, 0
        peer.lone += 1
        if peer.lone < ENOUGH:
            return
        if self._native is not None:
            way = self._way(connection, topic, data, self._native)
            connection.channel.fast_path = way
            peer.lone = 0 if way is not None else NEVER
        elif self._loading is None:
            self._loading = asyncio.ensure_future(self._load())

    def load_again(self) -> None:
        """There are kernels now, if there were none."""
        self._loading = None

    async def _load(self) -> None:
        self._native = await asyncio.to_thread(_loaded)

    def _way(self, connection: Connection, topic: Topic, data: Buffer, native: ModuleType) -> Short | StoredFast | None:
        core, channel = self._broker.core, connection.channel
        version = topic.versions.get(fingerprint_of(data))
        if version is None or version.schema.checks or not (core.settings.cut_through or topic.stored):
            return None
        single = format_of(version.schema).row_codec
        plan = None if single is None else single.judging(connection.publisher.number, core.broker_id)
        if plan is None:
            return None
        judge = native.judge((plan, channel.buffer))
        if topic.stored:
            return StoredFast(self._broker, connection, topic, version.schema, memoryview(channel.buffer), judge)
        return Short(self._broker, connection, topic, memoryview(channel.buffer), judge)


def _loaded() -> ModuleType | None:
    with loading():
        return kernels.at_hand("batch", "native")


class Short:
    """The short way of one client to one topic."""

    __slots__ = (
        "_broker", "_connection", "_count", "_head", "_judge", "_new_head", "_publisher", "_shared", "_tags", "_topic",
    )  # fmt: skip

    def __init__(self, broker: Broker, connection: Connection, topic: Topic, shared: memoryview, judge: Judge) -> None:
        self._broker = broker
        self._connection = connection
        self._publisher: PublisherIdentity = connection.publisher
        self._topic = topic
        self._shared = shared
        self._judge = judge
        self._count = 0  # bytes of the last frame, which the heads are for
        self._tags: tuple[int, ...] = ()
        self._head = self._new_head = b""

    def __call__(self, count: int) -> bool:
        """Deal with the first `count` bytes of the buffer, if they are one frame that may go this way."""
        connection, topic, broker, publisher = self._connection, self._topic, self._broker, self._publisher
        core = broker.core
        audience = topic.audience()
        if len(audience) != 1 or topic.subscriptions or topic.stored:
            return False
        tags, members = audience[0]
        if count != self._count or tags is not self._tags:
            self._prepare(count, tags)
        if self._shared[:_HEAD] != self._head:
            return False
        stamp = self._judge(_HEAD, count, publisher.last_stamp)
        if (
            not stamp
            or core.numbered.get(topic.number) is not topic
            or connection.outstanding >= core.settings.put_window
            or not connection.open
            or connection.paused
        ):
            return False
        for member in members:
            if not member.ready:
                return False
        if not broker.free():
            return False
        frame = b"".join((self._new_head, self._shared[_HEAD:count]))
        try:
            effects = core.passed(connection, topic, count, stamp, frame, members)
        except MilepostError:
            return False  # the other way tells its client why
        connection.heard = broker.clock.monotonic()
        broker.run(effects)
        return True

    def _prepare(self, count: int, tags: tuple[int, ...]) -> None:
        size = max(0, count - _HEAD)
        self._head = put_head(self._topic.number, size)
        self._new_head = deliver_head(self._topic.number, tags, size)
        self._count, self._tags = count, tags


class StoredFast:
    """The short way of one client to one durable topic: up to where the rows of a round go to the store together."""

    __slots__ = ("_broker", "_connection", "_count", "_head", "_judge", "_schema", "_shared", "_topic")

    def __init__(
        self, broker: Broker, connection: Connection, topic: Topic, schema: Schema, shared: memoryview, judge: Judge
    ) -> None:
        self._broker = broker
        self._connection = connection
        self._topic = topic
        self._schema = schema
        self._shared = shared
        self._judge = judge
        self._count = 0  # bytes of the last frame, which the head is for
        self._head = b""

    def __call__(self, count: int) -> bool:
        """As that of `Short`. Whether the row was stored before is for the store to say, so any stamp will do."""
        broker, connection, topic = self._broker, self._connection, self._topic
        if count != self._count:
            self._count, self._head = count, put_head(topic.number, max(0, count - _HEAD))
        if self._shared[:_HEAD] != self._head:
            return False
        stamp = self._judge(_HEAD, count, 0)
        core = broker.core
        if (
            not stamp
            or core.numbered.get(topic.number) is not topic
            or not connection.open
            or connection.paused
            or connection.atomic is not None
            or not connection.publisher.enrolled
            or connection.outstanding >= core.settings.put_window
            or core.memory.scarce  # the other way asks whose fault that is
        ):
            return False
        try:
            core.admission.admit(connection, topic, stamp, stamp, None)
        except MilepostError:
            return False  # the other way tells its client why
        core.admission.accept(connection, count)
        connection.puts += 1
        connection.heard = broker.clock.monotonic()
        data = bytes(self._shared[_HEAD:count])
        broker.row(_new(RowPut, (connection, count, topic, self._schema, stamp, data, connection.puts)))
        return True
