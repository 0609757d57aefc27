"""Bytes of a hostile client into a broker: the broker must stay up, and other clients must get their rows.

The bytes take the whole path through frames, control messages, the core, the examination of batches and a real store;
only the sockets and the store's threads are missing. Half of the inputs follow a valid handshake, where there is more
to reach.
"""

from __future__ import annotations

import sys
from collections import deque
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fuzz.target import guided, start

with guided(enable_loader_override=False):
    import milepost
    import milepost.queues.execution
    from milepost.batch import Ids
    from milepost.broker.core.effects import Ask, Effect, Inspect, ReadLog, Write
    from milepost.broker.log_reader import LogReader
    from milepost.broker.peer import Peer
    from milepost.broker.server import Broker
    from milepost.config import settings
    from milepost.errors import MilepostError
    from milepost.operations import DropTopic
    from milepost.storage import open_store
    from milepost.testing import FakeClock
    from milepost.wire import (
        Ack,
        Bye,
        Credit,
        Declare,
        Delete,
        FrameReader,
        Hello,
        Kind,
        ListTopics,
        Look,
        Ping,
        Publish,
        PublishedEpoch,
        Resume,
        RetentionHold,
        Stage,
        StatusRequest,
        Subscribe,
        Trim,
        Unstage,
        Unsubscribe,
        encode_control,
        put_parts,
        stage_parts,
    )
    from milepost.wire.frames import HEADER, MAGIC


SHARED = memoryview(bytearray(1 << 16))
SCHEMA = milepost.parse_schema("q: [a: int, s: string]")
GREETING = encode_control(Hello(window=1 << 20))


class Later:
    """A replacement for the event loop: scheduled calls run when `Keeper.work` has finished everything else."""

    def __init__(self) -> None:
        self._now = 0.0
        self.calls: deque[Any] = deque()

    def call_soon(self, call: Any) -> None:
        self.calls.append(call)

    def time(self) -> float:
        self._now += 1.0
        return self._now


class Wire:
    """A channel that keeps what is written to it, and its peer."""

    peer = "fuzz"
    partial = waiting = 0
    fast_path: Any = None
    growing: Any = None

    @property
    def buffer(self) -> Any:
        return SHARED.obj

    def __init__(self, broker: Broker) -> None:
        self.reader = FrameReader(SHARED)
        self.delivered = 0
        self.end = Peer(broker)
        self.end.connected(self)

    def write(self, *parts: Any) -> bool:
        self.delivered += b"".join(parts)[4] == Kind.DELIVER
        return True

    def send(self, data: bytes) -> None:
        if self.fast_path is not None and self.reader.between and len(data) <= len(SHARED):
            SHARED[: len(data)] = data
            if self.fast_path(len(data)):
                return
        try:
            frames = self.reader.feed(data)
        except MilepostError as error:
            self.end.refused(error)
            return
        self.end.frames(frames)

    def set_limit(self, limit: int) -> None:
        self.reader.limit = limit

    def close(self) -> None:
        self.end.lost(None)

    abort = close

    def pause(self) -> None:
        pass  # what is sent anyway is held

    resume = pause


MEMORY = Path("/dev/shm")  # where a sync costs nothing
FOLDER = TemporaryDirectory(prefix="milepost-fuzz-", dir=MEMORY if MEMORY.is_dir() else None)
STORE = open_store(
    str(Path(FOLDER.name) / "fuzz.db"), broker="fuzz", broker_id=7, time_us=0, lease_s=10.0, remember_s=10.0
)


class Keeper:
    """The store without its threads: every operation runs at once, in order."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._waiting: deque[Effect] = deque()
        broker.core.durable.on = True
        broker.core.store_id, broker.core.broker_id = STORE.id, STORE.broker_id
        broker._store = self
        broker.run(broker.core.durable.restore(STORE.topics()) + broker.core.queues.begin())

    def run(self, effect: Effect) -> None:
        self._waiting.append(effect)

    def left(self, connection: Any) -> None:
        pass  # everything is answered at once

    def look_on(self, connection: Any) -> None:
        pass

    def work(self) -> None:
        calls = self._broker.loop.calls
        self._work()
        while calls:
            calls.popleft()()
            self._work()

    def _work(self) -> None:
        core = self._broker.core
        while self._waiting:
            effect = self._waiting.popleft()
            if isinstance(effect, Write):
                committed = STORE.write([effect.operation], 1)
                self._broker.run(core.durable.stored([(effect.then, committed.outcomes[0])], committed.entries))
            elif isinstance(effect, ReadLog):
                topic, where = effect.topic, effect.where
                versions = {
                    number: (version, None if where is None else topic.predicate(where, version))
                    for number, version in topic.versions.items()
                }
                reader = LogReader(STORE, topic.stored, topic.name, effect.log, versions, where is not None)
                found = (
                    reader.read(effect.offset, effect.stop) if effect.only is None else reader.read_only(effect.only)
                )
                self._broker.run(effect.then(found))
            elif isinstance(effect, Inspect):
                try:
                    answer = STORE.inspect(effect.operation, 1)
                except MilepostError as error:
                    answer = error
                self._broker.run(effect.then(answer))
            elif isinstance(effect, Ask):
                start = "new" if effect.start is None else effect.start
                number = effect.topic.stored
                extents = STORE.extents(number).get(number, {})
                logs = [{"log": log, **extent._asdict()} for log, extent in extents.items()]
                answer = {"position": STORE.resolve(number, start), "logs": logs, "subscriptions": []}
                self._broker.run(effect.then(answer))


SMALL = settings(queue_bytes=4096, put_window=4096, http="", zmq="", store="")


def one_input(data: bytes) -> None:
    broker = Broker(SMALL, clock=FakeClock())
    broker.loop = Later()
    durable = Keeper(broker)
    other = Wire(broker)
    other.send(GREETING + encode_control(Declare(request=1, name="q", schema=str(SCHEMA))))
    other.send(encode_control(Subscribe(request=2, subscription=1, pattern="q")))
    other.send(encode_control(Declare(request=3, name="d", schema=str(SCHEMA), durable=True)))
    durable.work()
    stranger = Wire(broker)
    if data[:1] < b"\x80":
        stranger.send(GREETING)
    for part in _framed(data[1:]):
        stranger.send(part)
        broker._process()
        durable.work()
    broker.run(broker.core.delivery.turn())
    broker.run(broker.core.tick(broker.clock.monotonic()))
    durable.work()
    assert other.end.connection is not None, "another client was disconnected"
    me = other.end.connection
    before = other.delivered
    ids = Ids.single(me.publisher.number, broker.core.broker_id, [1 << 60])
    if "q" in broker.core.topics and me.subscriptions and me.credit > 0:
        number = broker.core.topics["q"].number
        other.send(b"".join(put_parts(number, milepost.encode(SCHEMA, [{"a": 1, "s": "x"}], ids).data)))
        broker._process()
        assert other.delivered == before + 1, "a row was lost"
    for wire in (stranger, other):
        wire.close()
    durable.work()
    for topic in list(broker.core.topics.values()):
        assert not topic.log_subscriptions, "a subscription outlived its members"
        assert not topic.examining, "a batch is examined for ever"
        if topic.stored and topic.name != "d":
            STORE.write([DropTopic(topic.stored)], 1)


def _framed(data: bytes) -> list[bytes]:
    """Split the input into frames: a valid length and the magic number would hardly ever be guessed."""
    out = []
    while len(data) > 2:
        kind, size, data = data[0], data[1], data[2:]
        if kind == 255:
            out.append(data[:size])  # raw
        else:
            out.append(HEADER.pack(min(size, len(data)), kind & 0x3F, kind >> 6, MAGIC) + data[:size])
        data = data[size:]
    return out


def _seed(*frames: bytes, greeted: bool = True) -> bytes:
    body = b"".join(bytes([frame[4] | frame[5] << 6, min(255, len(frame) - 8)]) + frame[8:263] for frame in frames)
    return (b"\x00" if greeted else b"\xff") + body


SEEDS = [
    _seed(GREETING, greeted=False),
    _seed(encode_control(Declare(request=1, name="q", schema="q: [a: int, s: string, t: int?]"))),
    _seed(encode_control(Subscribe(request=1, subscription=1, pattern="q.>", where="a > 1"))),
    _seed(
        encode_control(Subscribe(request=1, subscription=7, pattern="q", where="a > 1 and s like 'x%'")),
        encode_control(Unsubscribe(request=2, subscription=7)),
    ),
    _seed(b"".join(put_parts(1, milepost.encode(SCHEMA, [{"a": 1, "s": "x"}]).data))),
    _seed(encode_control(Ping(1)), encode_control(Credit(5)), encode_control(StatusRequest(request=3))),
    _seed(encode_control(ListTopics(request=1, pattern="*")), encode_control(Bye())),
    _seed(encode_control(Delete(request=1, name="r"))),
    _seed(encode_control(Subscribe(request=1, subscription=3, pattern="d", name="desk", start="earliest"))),
    _seed(
        encode_control(
            Subscribe(
                request=1, subscription=3, pattern="d", name="e", where="a > 0", max_deliveries=1, dead_letter="dead"
            )
        ),
        encode_control(Ack(request=2, subscription=3, sequence=1, done={1: [[0, 0]]}, again={1: [[1, 9]]})),
        encode_control(Unsubscribe(request=3, name="e")),
    ),
    _seed(encode_control(Subscribe(request=1, subscription=3, pattern="d", durable=True, start={"position": {1: 0}}))),
    _seed(
        encode_control(
            Subscribe(
                request=1,
                subscription=3,
                pattern="d",
                durable=True,
                where="a > 1",
                start={"position": {1: 0}},
                stop={1: 2},
            )
        ),
    ),
    _seed(
        encode_control(RetentionHold(request=1, topic="d", name="lane")),
        encode_control(RetentionHold(request=2, topic="d", name="lane", position={1: 1})),
        encode_control(Unsubscribe(request=3, name="lane")),
    ),
    _seed(encode_control(Look(request=1, topic="d")), encode_control(Trim(request=2, topic="d", before={1: 1}))),
    _seed(encode_control(Declare(request=1, name="e", schema="e: [n: int]", durable=True, retain={"age_s": 1}))),
    _seed(
        *(
            b"".join(put_parts(2, milepost.encode(SCHEMA, [{"a": 1, "s": "x"}]).data, key, more))
            for key, more in ((b"", True), (b"k" * 16, False))
        ),
        encode_control(Resume(2)),
    ),
    _seed(
        *(
            b"".join(
                stage_parts(Stage(1, "s", 1, 0, 0, sequence, 2, milepost.encode(SCHEMA, [{"a": 1, "s": "x"}]).data))
            )
            for sequence in (0, 1)
        ),
        encode_control(Publish(request=2, sink="s", epoch=1, parts=[(0, 0)])),
        encode_control(PublishedEpoch(request=3, sink="s")),
        encode_control(Unstage(request=4, sink="s", epoch=2)),
    ),
]

if __name__ == "__main__":
    start(one_input, iter(SEEDS))
    sys.exit(0)
