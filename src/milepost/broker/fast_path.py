"""The fast path of a put: a message that came alone, for a topic whose subscribers all want every row.

At one message per millisecond, neither code nor data are in the processor's caches, so the cost of a message is the
amount of Python that it runs. The general code for reading, checking, matching and delivering takes about 50 µs. The
fast path takes one frame of one row, checks it in the receive buffer with a builtin, and replaces its head: 15 µs.

A message for a durable topic has a fast path up to the store; the rows of one round of the event loop are stored
together. A hundred publishers that wait for each of their messages cost a broker two thirds of before, or less.

The fast path is tried first. If a frame does not qualify, nothing has changed, and it takes the normal path.
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

ENOUGH: Final = 16  # consecutive puts, each alone and for one topic, after which a client gets a fast path
NEVER: Final = -(1 << 62)  # as `Peer.lone` of a client whose topic has no fast path
_HEAD: Final = len(put_head(0, 0))
_new: Final = tuple.__new__  # same as RowPut(...), without a function call in between

Judge = Callable[[int, int, int], int]
"""Takes the start and end of a batch in the buffer, and the publisher's last stamp; returns its stamp, 0 if invalid."""


class FastPath:
    """Gives fast paths to clients. The builtin is loaded for the first of them, in a thread, as Numba loads slowly."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._native: ModuleType | None = None
        self._loading: asyncio.Future[None] | None = None

    def went(self, peer: Peer, connection: Connection, topic: Topic, data: Buffer) -> None:
        """Count a put that came alone and took the normal path; after `ENOUGH`, the client gets a fast path."""
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
        """Allow another attempt to load the builtin: the kernels are loaded now."""
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
    """The fast path of one client to one live topic."""

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
        """Handle the first `count` bytes of the buffer, if they are one frame that qualifies; else return False."""
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
            return False  # the normal path tells the client why
        connection.heard = broker.clock.monotonic()
        broker.run(effects)
        return True

    def _prepare(self, count: int, tags: tuple[int, ...]) -> None:
        size = max(0, count - _HEAD)
        self._head = put_head(self._topic.number, size)
        self._new_head = deliver_head(self._topic.number, tags, size)
        self._count, self._tags = count, tags


class StoredFast:
    """The fast path of one client to one durable topic, up to where the rows of a round are stored together."""

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
        """As `Short.__call__`, but any stamp is accepted: the store finds out whether the row was stored before."""
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
            or core.memory.scarce  # the normal path decides which connections to pause
        ):
            return False
        try:
            core.admission.admit(connection, topic, stamp, stamp, None)
        except MilepostError:
            return False  # the normal path tells the client why
        core.admission.accept(connection, count)
        connection.puts += 1
        connection.heard = broker.clock.monotonic()
        data = bytes(self._shared[_HEAD:count])
        broker.later(_new(RowPut, (connection, count, topic, self._schema, stamp, data, connection.puts)))
        return True
