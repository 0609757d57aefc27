"""The broker as a server: a thin shell around the core, and the only module with sockets."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from importlib.metadata import version
from itertools import groupby
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from milepost.broker.clock import Clock, SystemClock
from milepost.broker.core import Close, Connection, Core, Deliver, Effect, Say
from milepost.broker.core.effects import Acknowledge, Compile, Later, Match
from milepost.broker.core.memory import MOST_KEPT, SOME_KEPT
from milepost.broker.core.put import Put, RowPut
from milepost.broker.examination import Examined, Pause, examine, examine_one, is_long
from milepost.broker.fast_path import FastPath
from milepost.broker.matcher import Matcher
from milepost.broker.pauses import Pauses
from milepost.broker.peer import Peer, frame_of
from milepost.broker.predicate_cache import PredicateCache
from milepost.broker.scheduler import Scheduler
from milepost.broker.workers import Workers
from milepost.config import Settings, settings
from milepost.errors import MilepostError
from milepost.kernels.compiler import Compiler
from milepost.transport import Address, Listener, listen, parse_address
from milepost.wire import Bye, Control, Enqueue, Failure, Reply, Stage, Stored, Welcome, encode_control

if TYPE_CHECKING:
    from milepost.broker.store_runner import StoreRunner
    from milepost.broker.transfers import TransferRunner

log = logging.getLogger("milepost.broker")

WAKE_S: Final = 0.05  # how often waiting dequeues are checked, while there are any: resolution of their timeouts
TICK_S: Final = 1.0  # interval of `Core.tick`
EXAMINED_AT_ONCE: Final = 256  # puts of one connection that are matched together, outside of the event loop
CLOSING_S: Final = 5.0  # for clients to take deliveries under way when the broker ends


class Broker:
    """A broker that listens from `start` to `stop`; or use it as an asynchronous context.

    ::

        async with Broker(settings(listen="127.0.0.1:0")) as broker:
            print(broker.address)
            await broker.serve()
    """

    def __init__(self, config: Settings | None = None, *, clock: Clock | None = None) -> None:
        self.settings = config or settings()
        self.clock: Clock = clock or SystemClock()
        self.predicates = PredicateCache()
        self.core = Core(
            self.settings,
            broker_id=_random32(),
            draw=_random32,
            cache=self.predicates,
            version=f"milepost {version('milepost')}",
        )
        self._started = self._scanned = self.clock.monotonic()
        self._pauses = Pauses(self.clock)
        self.core.about = self._about
        self._listener: Listener | None = None
        self._arrivals: list[Put | RowPut] = []
        self._scheduled = False
        self._round = 0.0  # the time of the last round that examined a put at once
        self._fast_path = FastPath(self)
        self._turning = False
        self._workers: Workers[_Job, _Result] | None = None
        self._finished: deque[_Result] = deque()
        self._compiling = Scheduler("milepost-compile", self._from_thread)
        self._matching = Scheduler("milepost-match", self._from_thread)
        self._matcher = Matcher(self._matching, self.run)
        self.kernels = Compiler()
        self.on_kernels: list[Callable[[], object]] = [self._fast_path.load_again]  # called once the kernels are loaded
        self.holding: dict[Connection, Peer] = {}  # busy connections that have sent more frames
        self._timers: list[Callable[[], None]] = []
        self._waking: Callable[[], None] | None = None  # ends the timer for waiting dequeues
        self.halted: dict[Peer, None] = {}  # connections that are not read because memory is short
        self._gone = asyncio.Event()
        self._stopping = asyncio.Event()
        self._store: StoreRunner | None = None
        self._transfers: TransferRunner | None = None
        self.failure: MilepostError | None = None  # why the broker ended by itself, if it did

    # From start to stop

    @property
    def address(self) -> Address:
        """The address on which it listens, with the port in use."""
        assert self._listener is not None, "the broker has not been started"
        return self._listener.address

    async def start(self) -> None:
        """Open the store and listen. Raises `OSError` if the port is taken, a `MilepostError` if the store fails."""
        loop = asyncio.get_running_loop()
        address = parse_address(self.settings.listen)
        self.loop = loop
        if self.settings.store:
            await self._open_store(str(address))
        try:
            per_address = self.settings.connections_per_address
            self._listener = await listen(address, lambda: Peer(self), per_address=per_address)
        except BaseException:
            if self._store is not None:
                await self._store.close()
                self._store = None
            raise
        if self.settings.input_queues:
            self._workers = Workers(self.settings.input_queues, self._work, self._done)
        if self._store is not None:
            from milepost.broker.transfers import TransferRunner

            self._transfers = TransferRunner(self)
            self._timers.append(self._transfers.start())
        self._timers.append(self._pauses.every(TICK_S, "tick", self._tick))
        self._timers.append(self._pauses.every(self.core.liveness.interval_s, "liveness", self._scan))
        self._pauses.start()

    async def _open_store(self, address: str) -> None:
        from milepost.broker.store_runner import POLL_S, StoreRunner
        from milepost.storage import open_store

        store = await asyncio.to_thread(
            open_store,
            self.settings.store,
            broker=self.settings.name,
            address=address,
            broker_id=self.core.broker_id,
            time_us=self.clock.time_us(),
            lease_s=self.settings.lease_s,
            remember_s=self.settings.remember_s,
            staged_s=self.settings.staged_s,
        )
        try:
            core, topics = self.core, await asyncio.to_thread(store.topics)
            core.store_id, core.broker_id = store.id, store.broker_id
            core.durable.on, core.durable.shared, core.durable.log = True, store.shared, store.log
            self._store = StoreRunner(self, store)
            self.run(core.durable.restore(topics) + core.queues.begin())
        except BaseException:
            store.close()
            raise
        if store.shared:
            self._timers.append(self.clock.every(POLL_S, self._store.poll))

    async def serve(self) -> None:
        """Wait until `finish` is called or the task is cancelled; or until the broker fails, which sets `failure`."""
        await self._stopping.wait()

    def finish(self) -> None:
        """Let `serve` return."""
        self._stopping.set()

    def fail(self, error: MilepostError) -> None:
        """Let `serve` return because this broker must not go on."""
        if self.failure is None:
            self.failure = error
            self.finish()

    async def stop(self) -> None:
        """Take no more connections, let clients take deliveries under way, and close."""
        self._stopping.set()
        self._pauses.stop()
        if self._transfers is not None:
            await self._transfers.stop()
        if self._listener is not None:
            await self._listener.close()
        for cancel in (*self._timers, *([self._waking] if self._waking is not None else [])):
            cancel()
        self._process()
        await asyncio.to_thread(self.kernels.close)
        await asyncio.to_thread(self._compiling.close)
        await asyncio.to_thread(self._matching.close)
        if self._workers is not None:
            await asyncio.to_thread(self._workers.close, CLOSING_S)
            self._settle()
        for connection in list(self.core.connections.values()):
            if connection.open:
                self.run([Say(connection, Bye("the broker is stopping")), Close(connection)])
        try:
            async with asyncio.timeout(CLOSING_S):
                while self.core.connections:
                    self._gone.clear()
                    await self._gone.wait()
        except TimeoutError:
            for connection in list(self.core.connections.values()):
                if connection.open:
                    connection.channel.abort()
        if self._store is not None:
            await self._store.close()

    async def __aenter__(self) -> Broker:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def _from_thread(self, call: Callable[[], None]) -> None:
        self.loop.call_soon_threadsafe(call)

    # Frames of peers

    def put(
        self, peer: Peer, connection: Connection, number: int, data: Any, size: int, alone: bool, key: bytes = b"",
        more: bool = False,
    ) -> None:  # fmt: skip
        """Take a PUT frame. It is examined at the end of this round of the event loop, with the round's other puts.

        The first put of a round is examined at once if it came `alone`: another round would cost as much as the
        examination. Under load, most puts are not the first, and are joined.
        """
        put = self.core.put(connection, number, data, size, key, more)
        if self._workers is not None or peer.jobs or is_long(put):
            self._give(peer, connection, put)
            return
        topic = put.topic
        plain = alone and put.error is None and not (key or more)
        if plain and not topic.stored and self.free():
            self._take(self.core.arrived, *examine_one(put))
        else:
            self.later(put)
            plain = plain and bool(topic.stored)
        if plain:
            self._fast_path.went(peer, connection, topic, data)

    def free(self) -> bool:
        """Whether a put may be examined at once: no other was, or waits to be, in this round of the loop."""
        now = self.loop.time()  # uvloop's time is constant within a round, and in milliseconds
        if self._scheduled or now == self._round:
            return False
        self._round = now
        return True

    def stage(self, peer: Peer, connection: Connection, stage: Stage, size: int) -> None:
        """Take a STAGE frame. It is examined as puts are, and in order with them."""
        put = self.core.put(connection, stage.topic, stage.data, size, stage=stage._replace(data=b""))
        if self._workers is not None or peer.jobs:
            self._give(peer, connection, put)
        else:
            self.later(put)

    def _give(self, peer: Peer, connection: Connection, job: Put | Control | Enqueue) -> None:
        peer.jobs += 1
        if self._workers is not None:
            self._workers.give(self._workers.place(connection.publisher.number), (peer, job))
            return
        self.catch_up()
        connection.channel.fast_path = None  # a fast path would overtake it
        peer.given.append(job)
        if len(peer.given) == 1:  # otherwise the matching thread has this peer's work already
            self._matching.give(peer, self._examine_given(peer), partial(self._examined, peer))

    def later(self, put: Put | RowPut) -> None:
        """Take a put at the end of this round of the event loop; `RowPut`: the fast path has examined it."""
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._process)
        self._arrivals.append(put)

    def asked(self, peer: Peer, connection: Connection, message: Control | Enqueue) -> None:
        """Take a request or an ENQUEUE frame, in order with the puts before it."""
        if peer.jobs:
            self._give(peer, connection, message)
            return
        self.catch_up()
        self.said(connection, message)

    def catch_up(self) -> None:
        """Handle the puts of this round now, before a frame that comes after them."""
        if self._arrivals:
            self._process()

    def said(self, connection: Connection, message: Control | Enqueue) -> None:
        """Handle a control or ENQUEUE frame."""
        self.run(self.core.said(connection, message, self.clock.monotonic(), self.clock.time_us()))

    def refuse(self, connection: Connection, error: MilepostError) -> None:
        """Close a connection that sent an invalid frame. Its earlier puts are handled first."""
        self._process()
        self.run(self.core.refused(connection, error))

    def gone(self, connection: Connection) -> None:
        """Called when a connection was lost. Its earlier puts are handled first."""
        self._process()
        self.run(self.core.lost(connection))
        self.core.memory.partial(connection, 0)
        self.core.memory.unsent(connection, 0)
        if self._store is not None:
            self._store.left(connection)
        self._gone.set()
        self.relieve()

    def drained(self, connection: Connection) -> None:
        """Called when the channel of a connection has written everything."""
        self.run(self.core.delivery.drained(connection))
        if self._store is not None:
            self._store.look_on(connection)

    def relieve(self) -> None:
        """Read again from connections that waited for memory; let the first of them pass even if it is still short."""
        for peer in list(self.halted):
            peer.go_on()
        for peer in list(self.halted):
            connection = peer.connection
            if connection is not None and connection.open and not (connection.passes or connection.blocked):
                if not self.core.memory.let_pass(connection):
                    break
                peer.go_on()

    # Batches

    def _process(self) -> None:
        self._scheduled = False
        arrivals, self._arrivals = self._arrivals, []
        for kind, run in groupby(arrivals, key=type):
            if kind is RowPut:
                self._take(self.core.durable.append_rows, list(run))
                continue
            for examined in examine(list(run), self.settings.join_bytes):  # type: ignore[arg-type]
                self._take(self.core.arrived, *examined)

    def _take(self, event: Callable[..., list[Effect]], *given: Any) -> None:
        try:
            self.run(event(*given))
        except Exception:  # a broker fault: only these puts are affected
            log.exception("puts could not be stored or delivered")

    def _examine_given(self, peer: Peer) -> Generator[None, None, _Result]:
        """In the matching thread: examine some puts of a connection."""
        jobs: list[_Job] = []
        while peer.given and len(jobs) < EXAMINED_AT_ONCE:
            jobs.append((peer, peer.given.popleft()))
        yield
        return self._work(jobs, self._matching.pause)

    def _examined(self, peer: Peer, result: _Result | MilepostError) -> None:
        if isinstance(result, MilepostError):  # a broker fault, which is logged
            if peer.connection is not None:
                self.refuse(peer.connection, result)
            return
        if peer.given:
            self._matching.give(peer, self._examine_given(peer), partial(self._examined, peer))
        self._finished.append(result)
        self._settle()

    def _work(self, jobs: list[_Job], pause: Pause = None) -> _Result:
        """In a worker: examine puts; requests between them stay in order."""
        results: list[Examined | tuple[Peer, Control | Enqueue]] = []
        puts: list[Put] = []
        for peer, job in jobs:
            if isinstance(job, Put):
                puts.append(job)
                continue
            if puts:
                results += examine(puts, self.settings.join_bytes, pause)
                puts = []
            results.append((peer, job))
        if puts:
            results += examine(puts, self.settings.join_bytes, pause)
        return [peer for peer, _ in jobs], results

    def _done(self, result: _Result) -> None:
        """In a worker: give results to the event loop, in order."""
        self._finished.append(result)
        self.loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        while self._finished:
            peers, results = self._finished.popleft()
            for result in results:
                if isinstance(result, Examined):
                    self._take(self.core.arrived, *result)
                else:
                    result[0].answered(result[1])
            for peer in peers:
                peer.jobs -= 1
                if peer.connection is not None and peer.connection.paused:
                    peer.go_on()

    # Effects

    def run(self, effects: list[Effect]) -> None:
        """Carry out the core's effects."""
        core = self.core
        while effects:
            more: list[Connection] = []
            for effect in effects:
                if type(effect) is Deliver:
                    parts = effect.parts
                    for connection in effect.connections:
                        if not connection.channel.write(*parts):
                            core.delivery.blocked(connection, connection.channel.waiting, sum(map(len, parts)))
                            if effect.answer:
                                self._choke(connection)
                        elif connection.backlog is not None:
                            more.append(connection)
                        if effect.answer:
                            self._answered(connection)
                elif type(effect) is Say:
                    self._say(effect.connection, effect.message)
                elif type(effect) is Acknowledge:
                    for connection, put in effect.puts.items():
                        if connection.open:
                            self._write(connection, encode_control(Stored(put)))
                elif type(effect) is Close:
                    effect.connection.channel.close()
                elif type(effect) is Compile:
                    self.kernels.begin()
                    then = partial(self._went_on, effect.connection, effect.then)
                    self._compiling.give(effect.connection or object(), effect.work(), then)
                elif type(effect) is Match:
                    self._matcher.run(effect)
                elif type(effect) is Later:
                    self.loop.call_soon(self._went_on, effect.connection, effect.then)
                else:
                    assert self._store is not None
                    self._store.run(effect)
            effects = []
            for connection in more:
                effects += core.delivery.served(connection)
        if not self.settings.cut_through and core.delivery.turning and not self._turning:
            self._turning = True
            self.loop.call_soon(self._turn)
        if self._waking is None and core.queues.waiting.some and not self._stopping.is_set():
            self._waking = self.clock.every(WAKE_S, self._wake)

    def _went_on(self, connection: Connection | None, then: Callable[..., list[Effect]], *outcome: Any) -> None:
        """Continue a deferred request; when it is done, handle the frames that its connection sent meanwhile."""
        self.run(then(*outcome))
        self._gone.set()
        if connection is not None and not connection.busy and (peer := self.holding.pop(connection, None)) is not None:
            peer.go_on()

    def _say(self, connection: Connection, message: Control) -> None:
        if type(message) is Welcome:
            connection.channel.set_limit(self.settings.frame_bytes)
        frame = frame_of(message)
        if type(message) is Reply or type(message) is Failure:
            self.core.memory.answered(connection, message.request)
            self._answered(connection)
        self._write(connection, frame)

    def _write(self, connection: Connection, frame: bytes) -> None:
        if not connection.channel.write(frame):
            self.core.delivery.blocked(connection, connection.channel.waiting, len(frame))
            self._choke(connection)

    def _answered(self, connection: Connection) -> None:
        """Called when a request is answered: there may be room for the next one."""
        if connection.paused:
            self.loop.call_soon(connection.receiver.go_on)

    def _choke(self, connection: Connection) -> None:
        """Stop reading from a client that does not read its answers."""
        channel = connection.channel
        if channel.waiting > MOST_KEPT + self.settings.frame_bytes:
            channel.abort()  # it reads nothing, while messages about other clients may still be added
        elif channel.waiting > SOME_KEPT:
            connection.paused = True  # `Peer` checks this before it handles a frame
            channel.pause()

    def _turn(self) -> None:
        self._turning = False
        self.run(self.core.delivery.turn())

    # Time

    def _tick(self) -> None:
        self.run(self.core.tick(self.clock.monotonic()))
        self.relieve()
        if self.on_kernels and self.kernels.state == "loaded":
            calls, self.on_kernels = self.on_kernels, []
            for call in calls:
                call()

    def _wake(self) -> None:
        waiting = self.core.queues.waiting
        self.run(waiting.wake(self.clock.monotonic(), self.clock.time_us()))
        if self._waking is not None and not waiting.some:
            self._waking()
            self._waking = None

    def _scan(self) -> None:
        now, interval = self.clock.monotonic(), self.core.liveness.interval_s
        late, self._scanned = now - self._scanned > 2 * interval, now
        if late:
            return  # this process was suspended: frames that clients sent meanwhile are not read yet
        self.run(
            self.core.liveness.scan(
                now,
                lambda connection: int(connection.channel.partial),
                lambda connection: int(connection.channel.waiting),
            )
        )

    def statistics(self) -> dict[str, Any]:
        """All figures as plain values, for metrics and people. Call it in the event loop's thread."""
        return self.core.statistics(self.clock.time_us())

    def counted(self, then: Callable[[dict[str, Any]], list[Effect]]) -> None:
        """Call `then` with the figures of `statistics`, once the store has counted: see `Counts.ask`."""
        self.run(self.core.durable.counts.ask(object(), self.clock.monotonic(), self.clock.time_us(), then))

    def _about(self) -> dict[str, Any]:
        listener = self._listener
        return {
            "address": "" if listener is None else str(listener.address),
            "uptime_s": self.clock.monotonic() - self._started,
            "connections_refused": 0 if listener is None else listener.refused,
            "elsewhere": {"compiling": len(self._compiling), "matching": len(self._matching)},
            "kernels": self.kernels.state,
            "pauses": self._pauses.figures(),
        }


_Job: TypeAlias = tuple[Peer, Put | Control | Enqueue]
_Result: TypeAlias = tuple[list[Peer], list[Examined | tuple[Peer, Control | Enqueue]]]


def _random32() -> int:
    return int.from_bytes(os.urandom(4), "little")
