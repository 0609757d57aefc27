"""Bytes of a hostile client about queues: ENQUEUE and TAKEN frames, and all requests to a broker with a store.

An input is ``mode u8 · bytes``. Modes below 32 read the bytes as an ENQUEUE, modes below 64 as a TAKEN: accepted bytes
must be written back unchanged. All others are frames after a handshake, ``kind u8 · size u16 · body``; in every batch
of an ENQUEUE the fingerprint and the checksum are corrected, so that mutations reach the code behind these checks. The
broker must stay up, the message of another client must get through, and nothing of the hostile client's transactions
may be left.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterable
from itertools import count
from typing import Any

import numpy as np

from fuzz.broker import SMALL, STORE, Keeper, Later, Wire
from fuzz.target import guided, start

with guided(enable_loader_override=False):
    import milepost
    from milepost.batch.header import HEADER as BATCH_HEADER
    from milepost.batch.header import VERSION
    from milepost.broker.server import Broker
    from milepost.client.taken import TakenBatch
    from milepost.errors import LimitExceeded, MalformedBatch, MilepostError, ProtocolError
    from milepost.operations import queues as operations
    from milepost.testing import FakeClock
    from milepost.wire import (
        Browse,
        Bye,
        Decide,
        Decisions,
        DeclareQueue,
        DeclareType,
        DeleteQueue,
        DeleteTransfer,
        DeleteType,
        Dequeue,
        Enqueue,
        Finish,
        ForgetDecision,
        Hello,
        HoldingRequest,
        Kind,
        ListInDoubt,
        MoveMessages,
        Purge,
        Queues,
        Settle,
        SetTransfer,
        Taken,
        Transfers,
        Types,
        encode_control,
        enqueue_parts,
        read_enqueue,
        read_taken,
        taken_parts,
    )
    from milepost.wire.frames import HEADER, MAGIC

FLAT = milepost.parse_schema("note: [a: int, s: string, d: double?, l: *(int8)*] check (a >= 0)")
NESTED = milepost.parse_schema(
    "DEFINE MESSAGETYPE Order; NODE order; id: IDENT; name: STRING; lines: REFERENCE TO line; END; "
    "NODE line; no: INTEGER; back: REFERENCE TO order; END; ROOT order; END;"
)
TYPES = (FLAT, NESTED)
NAMES = tuple(str(schema.name) for schema in TYPES)
LEVELS = ("none", "ordered", "blockwise", "ordered blockwise")
NOTES = [{"a": 1, "s": "x", "d": None, "l": [1, 2]}, {"a": 2, "s": "", "d": 0.5, "l": []}]
ORDERS = [{"id": 1, "name": "n", "lines": [{"no": 1, "back": []}]}]
BATCHES = [bytes(milepost.encode(FLAT, NOTES).data), bytes(milepost.encode(NESTED, ORDERS).data)]
INSTANCES = count(1)  # no client is mistaken for one of an earlier input
KEPT = {"mine", *LEVELS}  # queues that exist for each input
ENQUEUED = 64  # bytes of an ENQUEUE before its queue's name


def store(*todo: Any) -> list[Any]:
    """Outcomes of operations of the target itself, in one group."""
    return STORE.write(todo, 1).outcomes if todo else []


def tidy() -> None:
    """Reset the store, as far as the next input can notice."""
    _, gids, decisions, queues, types = store(
        operations.Recover(), operations.Prepared(None), operations.Decisions(), operations.Queues(None),
        operations.Types(),
    )  # fmt: skip
    todo: list[Any] = [operations.Decide(gid, False) for gid, *_ in gids]
    todo += [operations.ForgetDecision(gid) for gid, *_ in decisions]
    todo += [operations.Purge(queue.name, None, None, None) for queue in queues]
    todo += [
        operations.DeleteQueue(queue.name) for queue in queues if queue.name not in KEPT
    ] * 2  # dead-letter queues come last
    todo += [operations.DeleteType(each.name) for each in types if each.name not in NAMES]
    todo += [operations.DeclareType(str(schema)) for schema in TYPES if schema.name not in _names(types)]
    todo += [
        operations.DeclareQueue(name, NAMES, "none" if name == "mine" else name, "desc", 0.0, (), None, 0)
        for name in KEPT - _names(queues)
    ]
    for operation, outcome in zip(todo, store(*todo), strict=True):
        if isinstance(operation, operations.Purge | operations.DeclareType | operations.DeclareQueue):
            assert not isinstance(outcome, MilepostError), f"{operation} fails: {outcome!r}"


def _names(found: Iterable[Any]) -> set[str]:
    return {each.name for each in found}


tidy()


def one_input(data: bytes) -> None:
    if not data:
        return
    if data[0] < 32:
        _enqueue(data[1:])
    elif data[0] < 64:
        _taken(data[1:])
    else:
        _frames(data[1:])


def _enqueue(body: bytes) -> None:
    try:
        said = read_enqueue(body)
    except ProtocolError:
        return
    head, batch = enqueue_parts(said)
    assert head[HEADER.size :] + bytes(batch) == body or np.isnan(said.priority)


def _taken(body: bytes) -> None:
    try:
        taken = read_taken(body)
    except ProtocolError:
        return
    head, batch = taken_parts(taken)
    again = read_taken((head + bytes(batch))[HEADER.size :])
    assert (again.request, again.type, bytes(again.data)) == (taken.request, taken.type, bytes(taken.data))
    assert again.mids.tobytes() == taken.mids.tobytes()
    for schema in TYPES:
        try:
            found = TakenBatch.read(taken._replace(data=_mended(bytes(taken.data), schema.fingerprint)), schema)
        except (MalformedBatch, LimitExceeded, ProtocolError):
            continue
        for message in found.messages():
            assert message.mid
            assert message.plain() is not None
            assert repr(message)


def _frames(data: bytes) -> None:
    clock = FakeClock()
    broker = Broker(SMALL, clock=clock)
    broker.loop = Later()
    durable = Keeper(broker)
    other, stranger = Wire(broker), Wire(broker)
    durable.work()
    for wire in (other, stranger):
        wire.send(encode_control(Hello(window=1 << 20, instance=next(INSTANCES).to_bytes(16, "little"))))
    for frame in _framed(data):
        stranger.send(frame)
        broker._process()
        durable.work()
    for _ in range(3):
        broker.run(broker.core.delivery.turn())
        clock.advance(1.0)
        broker.run(broker.core.tick(clock.monotonic()))
        durable.work()
    assert other.end.connection is not None, "another client was disconnected"
    queues, types = store(operations.Queues(None), operations.Types())
    if any(each.name == "mine" for each in queues) and any(each.fingerprint == FLAT.fingerprint for each in _of(types)):
        said = Enqueue(0, 1, 1, "mine", 1.0, 0, 0, True, BATCHES[0])
        other.send(b"".join(enqueue_parts(said)))
        other.send(encode_control(Finish(request=2, transaction=1, step=2, how="commit")))
        durable.work()
        (page,) = store(operations.Browse("mine", FLAT.name, "a >= 0", 0, 1000))
        assert not isinstance(page, MilepostError), f"another client cannot browse its queue: {page}"
        assert page.count >= len(NOTES), "messages of another client were lost"
    for wire in (stranger, other):
        if wire.end.connection is not None:
            wire.send(encode_control(Bye()))
        wire.close()
    for _ in range(3):  # a client that did not say goodbye may come back until its lease is over
        durable.work()
        broker.run(broker.core.tick(clock.monotonic()))
        clock.advance(SMALL.queue_lease_s)
    durable.work()
    assert not any(broker.core.queues.figures().values()), f"something is left: {broker.core.queues.figures()}"
    assert not broker.core.memory.held, f"{broker.core.memory.held} bytes are held without a connection"
    tidy()


def _of(types: Iterable[Any]) -> list[Any]:
    return [each.schema for each in types]


def _framed(data: bytes) -> list[bytes]:
    """Frames of the input, with valid lengths."""
    out = []
    while len(data) > 3:
        kind, size, data = data[0], data[1] | data[2] << 8, data[3:]
        body, data = data[:size], data[size:]
        if kind == Kind.ENQUEUE and len(body) > ENQUEUED:
            named = int.from_bytes(body[ENQUEUED - 8 : ENQUEUED - 4], "little")
            at = ENQUEUED + min(named, len(body)) + -min(named, len(body)) % 8
            schema = TYPES[body[0] % len(TYPES)]
            body = body[:at] + _mended(body[at:], schema.fingerprint)
        out.append(HEADER.pack(len(body), kind, 0, MAGIC) + body)
    return out


def _mended(batch: bytes, fingerprint: int) -> bytes:
    """A batch with the right version, fingerprint and checksum."""
    if len(batch) < BATCH_HEADER.size:
        return batch
    word = int.from_bytes(batch[4:8], "little") & ~(0xFF << 24) | VERSION << 24
    behind = word.to_bytes(4, "little") + fingerprint.to_bytes(8, "little") + batch[16:]
    return zlib.crc32(behind).to_bytes(4, "little") + behind


def _seed(*frames: bytes) -> bytes:
    bodies = [(frame[4], frame[HEADER.size :]) for frame in frames]
    return b"\xff" + b"".join(bytes([kind]) + len(body).to_bytes(2, "little") + body for kind, body in bodies)


def _put(queue: str, transaction: int = 1, step: int = 1, which: int = 0, **more: Any) -> bytes:
    made = Enqueue(which, transaction, step, queue, 1.0, 0, 0, True, BATCHES[which])._replace(**more)
    return b"".join(enqueue_parts(made))


def _ends(how: str, step: int, transaction: int = 1, **more: Any) -> bytes:
    return encode_control(Finish(request=9, transaction=transaction, step=step, how=how, **more))


def _takes(queue: str, step: int, transaction: int = 1, **more: Any) -> bytes:
    return encode_control(Dequeue(request=8, transaction=transaction, step=step, queue=queue, **more))


def seeds() -> list[bytes]:
    numbers = np.arange(1, 3)
    taken = Taken(7, "note", numbers, numbers, numbers, numbers / 2, numbers.astype("<i4"), BATCHES[0])
    made = [
        b"\x00" + _put("q")[HEADER.size :],
        b"\x00" + _put("orders", which=1, priority=float("nan"), due_us=5, ends_us=9, held=False)[HEADER.size :],
        b"\x20" + b"".join(bytes(part) for part in taken_parts(taken))[HEADER.size :],
    ]
    for level in LEVELS:
        made.append(
            _seed(
                _put(level),
                _put(level, step=2, which=1),
                _ends("commit", 3),
                _takes(level, 1, 2, count=2),
                _ends("commit", 2, 2),
                _takes(level, 3, 2, type="note", where="a > 1 and s like 'x%'", order="a desc"),
                _ends("abort", 4, 2),
            )
        )
    note, order = "note", "Order"
    made += [
        _seed(_put("none", held=False), _takes("none", 2, wait_s=1.0), _ends("flush", 3), _ends("prepare", 4, gid="g")),
        _seed(encode_control(ListInDoubt(request=1)), encode_control(Decide(request=2, gid="g", commit=True))),
        _seed(_put("none"), _ends("commit", 2, decision={"gid": "g", "participant": "p"})),
        _seed(encode_control(Decisions(request=1)), encode_control(ForgetDecision(request=2, gid="g"))),
        _seed(
            encode_control(Settle(request=1, gid="g", number=4096)),
            encode_control(HoldingRequest(request=2, number=4096)),
        ),
        _seed(
            encode_control(DeclareType(request=1, text="t: [n: int, s: string?]")),
            encode_control(
                DeclareQueue(
                    request=2, name="t", types=["t"], functions={"t": "n * 2"}, dead_letter="u", max_deliveries=1
                )
            ),
            encode_control(Queues(request=3)),
            encode_control(DeleteQueue(request=4, name="t")),
            encode_control(DeleteType(request=5, name="t")),
            encode_control(Types(request=6)),
        ),
        _seed(
            _put("none", due_us=1 << 62),
            _put("none", step=2, ends_us=1),
            _ends("commit", 3),
            encode_control(Browse(request=1, queue="none", type=note, where="s = 'x' or l is null", count=5)),
            encode_control(MoveMessages(request=2, source="none", target="ordered", type=note, where="a = 1")),
            encode_control(Purge(request=3, queue="ordered", type=order, count=1)),
            encode_control(Dequeue(request=4, queue="none", peek=True, type=order, order="id asc, name desc")),
        ),
        _seed(
            encode_control(SetTransfer(request=1, queue="none", address="milepost://127.0.0.1:1", target="x")),
            encode_control(Transfers(request=2)),
            encode_control(DeleteTransfer(request=3, queue="none")),
        ),
    ]
    return made


if __name__ == "__main__":
    start(one_input, seeds())
    sys.exit(0)
