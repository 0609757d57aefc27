"""The ZeroMQ gateway: a ROUTER socket for REQ sockets, in front of a broker.

Each request is a task, so a request that waits does not block others. Their number is bounded; beyond it nothing more
is read, and ZeroMQ's own queues pass that on to the clients. The gateway connects to the broker like any client. One
bound is missing, because libzmq has none: it gathers all frames of a message before it shows any of them, so a hostile
peer can make it hold many frames of `BODY_BYTES` each. Use CURVE when the port is open beyond this machine.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from hashlib import blake2b
from typing import Any, Final

import zmq
import zmq.asyncio

from milepost.client import AsyncClient
from milepost.client.durable import DurableSubscription
from milepost.errors import (
    CheckFailed,
    IncompatibleSchema,
    InvalidValue,
    MilepostError,
    StateLost,
    SubscriptionExists,
    UnknownSubscription,
    UnknownTopic,
)
from milepost.gateway.zmq import rows
from milepost.gateway.zmq.bodies import (
    NAMES,
    AckRequest,
    Encoding,
    GetRequest,
    PutRequest,
    Request,
    SubRequest,
    UnsubRequest,
    encoding_of,
    payload_bytes,
    read_request,
    uuid_bytes,
    write_error,
    write_reply,
)
from milepost.gateway.zmq.publishers import GatewayClient, GatewayPublishers
from milepost.gateway.zmq.refusal import Refusal, refusal
from milepost.gateway.zmq.roster import Roster
from milepost.gateway.zmq.router import endpoint_of, envelope_of, keys_of, open_router
from milepost.gateway.zmq.subscriber import PREFETCH_ROWS, Subscriber

REQUESTS: Final = 256  # concurrent requests
POLLS: Final = 4_000  # gets that wait for a message, in addition to those; any further get is answered at once
SWEEP_S: Final = 15.0  # between checks for idle subscribers

_log = logging.getLogger("milepost.gateway")


class Gateway:
    """Serves ZeroMQ clients at `listen` ("host:port"; port 0 finds a free one) with the broker at `address`.

    ::

        async with Gateway("milepost://127.0.0.1:7450", "127.0.0.1:7451") as gateway: ...

    `curve` names a file with a CURVE certificate and its secret key, as `zmq.auth.create_certificates` writes it; then
    only clients that know its public key can connect. With a `name`, which must be unique among gateways, its
    publishers stay the same after a restart. Raises `ConfigError` for wrong settings, `OSError` when the port is taken,
    and `ConnectionLost` when there is no broker.
    """

    def __init__(self, address: str, listen: str, *, curve: str = "", name: str = "") -> None:
        self._broker = address
        self._name = name
        self._endpoint = endpoint_of(listen)
        self._keys = keys_of(curve) if curve else None
        self._roster = Roster()
        self._publishers = GatewayPublishers(address, name)
        self._counts: Counter[str] = Counter()
        self._polls = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(REQUESTS)
        self._services: list[asyncio.Task[None]] = []
        self.address = ""  # where it listens, as tcp://host:port

    async def __aenter__(self) -> Gateway:
        self._client = await GatewayClient(self._broker).connect()
        self._context = zmq.asyncio.Context()
        try:
            self._socket = open_router(self._context, self._endpoint, self._keys)
            self.address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")
        except BaseException:
            self._context.destroy(linger=0)
            await self._client.close()
            raise
        self._services = [asyncio.create_task(self._serve()), asyncio.create_task(self._sweep())]
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [*self._services, *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._context.destroy(linger=0)
        await self._publishers.close()
        await self._client.close()  # detaches every subscription; messages in hand are delivered again

    @property
    def broker_id(self) -> str:
        """The identity of the broker's store."""
        return self._client.broker_id

    def statistics(self) -> dict[str, Any]:
        """Requests by type, errors by name, dropped messages, and numbers of clients."""
        return {
            **self._counts,
            "under_way": len(self._tasks),
            "waiting": self._polls,
            "subscribers": len(self._roster),
            "attached": self._roster.attached,
            "publishers": len(self._publishers),
        }

    # Frames

    async def _serve(self) -> None:
        while True:
            await self._room.acquire()
            try:
                frames = await self._socket.recv_multipart()
            except zmq.ZMQError as error:
                self._room.release()
                _log.warning("ZeroMQ: %s", error)
                continue
            envelope = envelope_of(frames)
            if envelope is None:
                self._room.release()
                self._counts["dropped"] += 1  # not from a REQ socket, so no client waits for an answer
                continue
            task = asyncio.create_task(self._answer(frames[:envelope], frames[envelope]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            try:
                await self._roster.sweep(asyncio.get_running_loop().time())
            except MilepostError as error:
                _log.warning("an idle subscriber could not be detached: %s", error)

    async def _answer(self, envelope: list[bytes], body: bytes) -> None:
        place = _Place(self._room)
        try:
            reply = await self._reply(body, place)
            try:
                await self._socket.send_multipart([*envelope, reply], flags=zmq.NOBLOCK)
            except zmq.ZMQError:
                self._counts["unsent"] += 1
        finally:
            place.leave()

    async def _reply(self, body: bytes, place: _Place) -> bytes:
        encoding = encoding_of(body)
        broker_id = self.broker_id
        try:
            request = read_request(body, encoding)
            self._counts[NAMES[type(request)].lower()] += 1
            fields = await self._carry_out(request, encoding, place)
            return write_reply(request, fields | {"broker_id": self.broker_id}, encoding)
        except Refusal as error:
            refused = error
        except StateLost as error:
            refused = refusal(error)
            await self._begin_anew(broker_id)
        except MilepostError as error:
            refused = refusal(error)
        except Exception:  # a fault of the gateway: only this request fails
            _log.exception("a request over ZeroMQ failed")
            refused = Refusal("UnknownMessage", "the gateway failed; its log says why", code="error")
        self._counts[refused.name] += 1
        return write_error(refused, self.broker_id, encoding)

    # Requests

    async def _carry_out(self, request: Request, encoding: Encoding, place: _Place) -> dict[str, Any]:
        match request:
            case PutRequest():
                return await self._put(request, encoding)
            case GetRequest():
                return await self._get(request, encoding, place)
            case AckRequest():
                return await self._ack(request)
            case SubRequest():
                return await self._subscribe(request)
            case UnsubRequest():
                return await self._unsubscribe(request)

    async def _put(self, request: PutRequest, encoding: Encoding) -> dict[str, Any]:
        key = uuid_bytes(request.message_uuid)
        raw = payload_bytes(request.payload, encoding)
        async with self._publishers.of(request.pub_id, request.topic, self.broker_id) as publisher:
            if raw is None:
                await _put_object(publisher, request.topic, request.payload, key)
            else:
                try:
                    await publisher.put(request.topic, {"payload": raw}, key=key)
                except (InvalidValue, CheckFailed):  # refused by the newest version: an older one may accept it
                    await _put_object(publisher, request.topic, {"payload": raw}, key)
        return {"message_uuid": request.message_uuid, "topic": request.topic}

    async def _get(self, request: GetRequest, encoding: Encoding, place: _Place) -> dict[str, Any]:
        seconds = request.timeout_ms / 1000
        polls = seconds > 0 and self._polls < POLLS
        if polls:
            place.leave()  # a waiting get occupies no place of a working request
            self._polls += 1
        try:
            async with self._turn(request.sub_id) as subscriber:
                await self._attach(subscriber, request.topic)
                held = await subscriber.get(self._client, seconds if polls else 0.0)
        finally:
            if polls:
                self._polls -= 1
        if held is None:
            raise Refusal(
                "NoPostsInTopic", f"nothing new in {request.topic!r}; ask again later", code="nothing_there", retry=True
            )
        try:
            payload = rows.shown(*held.row, encoding)
        except InvalidValue as error:
            raise Refusal(
                "UnknownMessage",
                f"message {held.number} cannot be shown: {error}; get it with a native client, or acknowledge it",
                code=error.code,
                message_no=held.number,
            ) from error
        return {"sub_id": request.sub_id, "message_no": held.number, "payload": payload}

    async def _ack(self, request: AckRequest) -> dict[str, Any]:
        async with self._turn(request.sub_id) as subscriber:
            await self._attach(subscriber, request.topic)
            await subscriber.ack(request.message_no)
        return {"sub_id": request.sub_id, "message_no": request.message_no}

    async def _subscribe(self, request: SubRequest) -> dict[str, Any]:
        """Find or make the subscription. Without a `request_uuid`, a second request counts as a repetition."""
        async with self._turn(request.sub_id) as subscriber:
            if subscriber.attached:
                subscriber.require_topic(request.topic)
                await subscriber.detach()
            token = _token("SUB", request.sub_id, request.topic, request.request_uuid)
            try:
                made = await self._subscribed(subscriber, request.topic, start="new", token=token)
            except UnknownTopic:
                with suppress(IncompatibleSchema):  # another request was faster, with another schema
                    await self._client.declare_topic(request.topic, rows.POST_SCHEMA, durable=True)
                made = await self._subscribed(subscriber, request.topic, start="new", token=token)
            if request.request_uuid is not None and not made.created:
                raise SubscriptionExists(
                    f"{request.sub_id!r} is already subscribed to {request.topic!r}, by another request: use GET"
                )
        offset = sum(made.position.values())
        return {"sub_id": request.sub_id, "topic": request.topic, "post_offset": offset}

    async def _subscribed(self, subscriber: Subscriber, topic: str, **options: Any) -> DurableSubscription:
        """Find or make the subscription of a subscriber, and attach it."""
        await self._roster.make_room()
        found: DurableSubscription = await self._client.subscribe(
            topic, name=subscriber.sub_id, ack="handed", prefetch=PREFETCH_ROWS, **options
        )
        subscriber.attach(found)
        self._roster.attached_now(subscriber)
        return found

    async def _unsubscribe(self, request: UnsubRequest) -> dict[str, Any]:
        async with self._turn(request.sub_id) as subscriber:
            await subscriber.detach()
            token = _token("UNSUB", request.sub_id, "", request.request_uuid)
            await self._client.unsubscribe(name=request.sub_id, token=token)
            if request.request_uuid is None:
                # The broker remembers this request, and keeps a subscription that was made since; this client wants
                # that one removed too.
                with suppress(UnknownSubscription):
                    await self._client.unsubscribe(name=request.sub_id)
            self._roster.remove(subscriber)
        return {"sub_id": request.sub_id}

    @asynccontextmanager
    async def _turn(self, sub_id: str) -> AsyncIterator[Subscriber]:
        """Be the only active request of a subscriber. A request that only waits for a message is interrupted."""
        subscriber = self._roster.enter(sub_id, asyncio.get_running_loop().time())
        subscriber.interrupt()
        subscriber.queued += 1
        try:
            async with subscriber.turn:
                yield subscriber
        finally:
            subscriber.queued -= 1
            if not subscriber.queued and not subscriber.known:
                self._roster.remove(subscriber)  # names without a subscription are not remembered

    async def _attach(self, subscriber: Subscriber, topic: str | None) -> None:
        """Attach an existing subscription; without a `topic`, to the topic that it has."""
        if not subscriber.attached:
            await self._subscribed(subscriber, topic or "", create=False)
        if topic is not None:
            subscriber.require_topic(topic)

    async def _begin_anew(self, broker_id: str) -> None:
        """Start again after the broker lost its state and the client stopped. Clients notice it by the broker_id.

        `broker_id` is the ID at the time of the request that noticed. Requests that waited meanwhile notice later, when
        the gateway has already started again.
        """
        lost = self._client
        if self.broker_id != broker_id and lost.failure is None:
            return
        made = await GatewayClient(self._broker).connect()
        if lost is not self._client:
            await made.close()  # another request was faster
            return
        publishers = self._publishers
        self._client = made
        self._publishers = GatewayPublishers(self._broker, self._name)
        self._roster = Roster()
        await lost.close(drain=False)
        await publishers.close(drain=False)


async def _put_object(publisher: AsyncClient, topic: str, payload: Any, key: bytes) -> None:
    """Put an object in the newest version of its topic's schema that accepts it: ZeroMQ clients declare no version."""
    known = await publisher.versions(topic)
    try:
        await publisher.put(topic, rows.encoded(known, payload), key=key)
    except (InvalidValue, CheckFailed):
        versions = await publisher.versions(topic, again=True)  # the announcement of a new version may be in flight
        if versions == known:
            raise
        await publisher.put(topic, rows.encoded(versions, payload), key=key)


class _Place:
    """One of the `REQUESTS` places for concurrent requests. It is released once."""

    def __init__(self, room: asyncio.Semaphore) -> None:
        self._room: asyncio.Semaphore | None = room

    def leave(self) -> None:
        if self._room is not None:
            self._room.release()
            self._room = None


def _token(kind: str, sub_id: str, topic: str, request_uuid: str | None) -> bytes:
    """A token that a request and its repetition share. The broker stores it with the outcome."""
    parts = (kind, sub_id, topic, "" if request_uuid is None else uuid_bytes(request_uuid).hex())
    digest = blake2b(digest_size=16, person=b"milepost zmq")
    for part in parts:
        digest.update(len(part.encode()).to_bytes(4, "little") + part.encode())
    return digest.digest()
