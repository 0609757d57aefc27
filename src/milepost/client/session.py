"""A connection that is made again when it breaks, and the state that outlives connections."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import msgspec

from milepost.address import DATABASE
from milepost.client.backoff import LONGEST_SECONDS, Backoff
from milepost.client.connection import BrokerConnection, Heard
from milepost.client.waiters import WaitingTasks
from milepost.client.window import DeliveryWindow
from milepost.errors import Closed, ConnectionLost, HandshakeRefused, MilepostError, TimedOut
from milepost.transport import Address
from milepost.wire import Control, Hello

if TYPE_CHECKING:
    from milepost.client.session_handler import SessionHandler
    from milepost.client.subscription import Subscription

_log = logging.getLogger("milepost.client")


class ClientSession:
    """Connects, reconnects, and lets requests wait for a connection. Holds the tasks of its client.

    It tries several addresses in turn, beginning with the last one that it was connected to: a broker that only
    restarts keeps its clients.
    """

    def __init__(
        self,
        host: SessionHandler,
        inboxes: dict[int, Subscription],
        addresses: Sequence[Address],
        hello: Hello,
        timeout: float,
        reconnects: bool,
    ) -> None:
        self._host = host
        self.announced, self.put_refused = host.announced, host.put_refused
        self.stored, self.subscription_ended = host.stored, host.subscription_ended
        self._inboxes = inboxes
        self._addresses = addresses
        self._at = 0  # index of the address in use, or to be tried next
        self._hello = hello
        self.window = DeliveryWindow(hello.window)
        self._reconnects = reconnects
        self._supervisor: asyncio.Task[None] | None = None
        self._group: asyncio.TaskGroup | None = None
        # The broker closed the last connection on purpose. It may accept the next one and close it at the first put:
        # so delays keep growing, though connecting succeeds.
        self._sent_away = False
        changes = WaitingTasks()
        self.wait: Final = changes.wait  # for any change: room, a connection, the end; callers check again
        self.wake: Final = changes.wake
        self.timeout = timeout  # seconds
        self.connection: BrokerConnection | None = None  # the one in use
        self.failure: MilepostError | None = None  # the error that ended the session
        self.reconnected = 0

    # Beginning and end

    async def begin(self) -> None:
        """Connect for the first time. Raises when that fails."""
        if self._supervisor is not None or self.failure is not None:
            raise self.failure or Closed("this client is connected already")
        connection = await self._first()
        ready = asyncio.get_running_loop().create_future()
        self._supervisor = asyncio.create_task(self._supervise(connection, ready), name="milepost client")
        try:
            await ready
        except BaseException:
            connection.abort()
            await self.end()
            raise
        self._use(connection)

    async def end(self) -> None:
        """Disconnect and end all tasks."""
        self.fail(Closed("this client is closed"))
        connection = self.connection
        if connection is not None:
            connection.goodbye()
            try:
                async with asyncio.timeout(self.timeout):
                    await asyncio.shield(connection.done)
            except TimeoutError:
                connection.abort()
        supervisor = self._supervisor
        if supervisor is not None:
            supervisor.cancel()
            await asyncio.wait([supervisor])
            if not supervisor.cancelled() and (error := supervisor.exception()) is not None:
                _log.error("the client's own task failed", exc_info=error)

    def start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run a task until it is done or the session ends."""
        if self._group is None or self.failure is not None:
            work.close()
        else:
            self._group.create_task(work, name=f"milepost {name}")

    def fail(self, error: MilepostError) -> None:
        """End the session with an error."""
        if self.failure is None:
            self.failure = error
            self._host.failed(error)
            self.wake()

    @property
    def begun(self) -> bool:
        """Whether the session was ever connected."""
        return self._supervisor is not None

    def require_open(self) -> None:
        """Raise `Closed`, or the error that ended the session."""
        if self.failure is not None:
            raise self.failure
        if self._supervisor is None:
            raise Closed("this client is not connected; write `async with AsyncClient(...)`, or await connect()")

    # Connecting

    @property
    def _address(self) -> Address:
        return self._addresses[self._at]

    def _next_address(self) -> None:
        self._at = (self._at + 1) % len(self._addresses)

    def remember(self) -> None:
        """Record that a durable put was made: new connections ask for the publisher's number and high water again."""
        if not self._hello.resume:
            self._hello = msgspec.structs.replace(self._hello, resume=True)

    @property
    def remembered(self) -> bool:
        return self._hello.resume

    async def _first(self) -> BrokerConnection:
        """A connection to the first broker that accepts this client. Raises the last error when none does.

        A refused handshake takes precedence: it says more than an unreachable broker.
        """
        refused: HandshakeRefused | None = None
        for attempt in range(1, len(self._addresses) + 1):
            try:
                return await self._open()
            except (ConnectionLost, TimedOut, OSError, HandshakeRefused) as error:
                refused = error if isinstance(error, HandshakeRefused) else refused
                if attempt == len(self._addresses):
                    raise refused or error from None
                _log.info("no broker at %s: %s; trying the next", self._address, error)
                self._next_address()
        raise AssertionError  # there is at least one address

    async def _open(self) -> BrokerConnection:
        kind = _kind(self._address)
        connection, welcome = await kind.open(
            self._address, self, self._inboxes, self._hello, self.timeout, self.window
        )
        try:
            self._host.welcomed(welcome)
        except BaseException:
            connection.abort()
            raise
        return connection

    def _use(self, connection: BrokerConnection) -> None:
        if connection.alive:
            self.connection = connection
            self._host.room()
            self.wake()  # with or without room: requests wait only for a connection

    async def _supervise(self, connection: BrokerConnection, ready: asyncio.Future[None]) -> None:
        """The client's root task: reconnects, and holds the tasks of callbacks."""
        backoff = Backoff()
        clock = asyncio.get_running_loop().time
        async with asyncio.TaskGroup() as self._group:
            ready.set_result(None)
            while True:
                since = clock()
                await asyncio.shield(connection.done)
                if not self._reconnects:  # lost before it was in use
                    self.fail(ConnectionLost("the connection to the broker was lost"))
                if self.failure is not None:
                    return
                if not self._sent_away or clock() - since > LONGEST_SECONDS:
                    backoff = Backoff()
                again = await self._again(backoff)
                if again is None:
                    return
                connection = again

    async def _again(self, backoff: Backoff) -> BrokerConnection | None:
        """A new connection with all topics and subscriptions restored, however long it takes; None if that fails."""
        attempts = 0
        refused = 0  # refusals in a row: in a cell that is being upgraded, some brokers may speak the old protocol
        while True:
            # Try all addresses without a pause: another broker of the cell is available at once.
            if attempts % len(self._addresses) == 0:
                await asyncio.sleep(backoff.next())
            attempts += 1
            connection = None
            try:
                connection = await self._open()
                async with asyncio.timeout(self.timeout):
                    await self._host.restore(connection)
            except (MilepostError, OSError, TimeoutError) as error:
                if connection is not None:
                    connection.abort()
                refused = refused + 1 if isinstance(error, HandshakeRefused) else 0
                others = 0 < refused < len(self._addresses)  # other addresses may accept this client
                if isinstance(error, MilepostError) and not error.retriable and not others:
                    _log.error("not connecting to %s again: %s", self._address, error)
                    self.fail(error)
                    return None
                level = logging.WARNING if refused else logging.INFO
                _log.log(level, "attempt %d to connect to %s again: %s", attempts, self._address, error)
                self._next_address()
                continue
            except BaseException:
                if connection is not None:
                    connection.abort()
                raise
            if connection.alive:
                self.reconnected += 1
                _log.warning("connected to %s again, after %d attempts", self._address, attempts)
                self._use(connection)
                return connection

    # Called by the connection

    def room(self) -> None:
        """Called when there may be room for puts."""
        if self.connection is not None:  # a connection that is not in use yet has nothing to send
            self._host.room()

    def ended(self, connection: BrokerConnection, error: MilepostError) -> None:
        """A connection is gone. Called once, and only after the handshake was done."""
        was_used = self.connection is connection
        self._sent_away = not isinstance(error, ConnectionLost)
        if was_used:
            self.connection = None
        told = self._host.lost(connection, error, was_used)
        if was_used and self.failure is None:
            if not self._reconnects or not error.retriable:
                self.fail(error)
            else:
                _log.warning("%s; connecting again", told)

    # Waiting

    @property
    def has_room(self) -> bool:
        """Whether a put may be sent now."""
        return self.connection is not None and self.connection.has_room

    async def ask(self, make: Callable[[int], Control], *, again: bool = True) -> Any:
        """The reply to a request. With `again`, for requests that may run twice, a lost connection leads to a retry."""
        return (await self.ask_on(make, again=again))[1]

    async def ask_on(
        self, make: Callable[[int], Control], *, again: bool = True, heard: Heard | None = None
    ) -> tuple[BrokerConnection, Any]:
        """Like `ask`, with the connection that brought the reply."""
        self.require_open()
        try:
            async with asyncio.timeout(self.timeout):
                while True:
                    connection = await self.connected()
                    try:
                        return connection, await connection.ask(make, heard=heard)
                    except ConnectionLost:
                        if not again or not self._reconnects:
                            raise
        except TimeoutError:
            raise TimedOut(f"the broker did not answer within {self.timeout:g} s") from None

    async def connected(self) -> BrokerConnection:
        """Wait for a connection in use."""
        while True:
            self.require_open()
            if self.connection is not None:
                return self.connection
            await self.wait()

    async def over(self) -> None:
        """Wait until the session has ended."""
        while self.failure is None:
            await self.wait()


def _kind(address: Address) -> type[BrokerConnection]:
    """The kind of connection for an address. For a database, a layer above the client runs in this process."""
    if address.scheme != DATABASE:
        return BrokerConnection
    kind: type[BrokerConnection] = import_module("milepost.brokerless").BrokerlessConnection
    return kind
