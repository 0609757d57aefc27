"""The one account of all bytes that a broker holds for its connections.

Counted are frames that are coming in, puts and requests under way, rows that were read for a subscription or wait for
it, answers and deliveries that the socket has not taken, and answers that are kept for transactions. Each kind has a
bound of its own for each connection; `memory_bytes` is the bound for all of them together.

From half of it on memory is short. Then connections that hold more than their share, the other half divided by the
number of connections, are not read until there is room again, their deliveries follow the policy for slow consumers,
and requests that would keep more for them are refused; answers are cut short for everybody. A client that holds little
is served as before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from milepost.broker.core.effects import Effect, Write
from milepost.errors import Overloaded
from milepost.operations import Barrier
from milepost.wire import Dequeue

if TYPE_CHECKING:
    from milepost.broker.core.core import Core
    from milepost.broker.core.log.subscription import LogSubscription
    from milepost.broker.core.queues.clients import ConnectedClient
    from milepost.broker.core.sessions.connection import Connection
    from milepost.queues.open_transaction import OpenTransaction

SOME_KEPT: Final = 1 << 20  # bytes said to a client that it has not read: it is not listened to until it has
MOST_KEPT: Final = 16 << 20  # bytes: with so many, it is closed
ANSWER_BYTES: Final = 8 << 20  # of messages in one answer: whoever wants more asks again from there on
LEAST_ANSWER: Final = 64 << 10  # the same when memory is short: everybody gets on
DECODED: Final = 16  # bytes of Python objects for one byte of a request: lists of small numbers take as much
MESSAGE_BYTES: Final = 1 << 10  # of a message in a queue, as long as nothing is known about those of the queue
QUEUES_KNOWN: Final = 10_000  # for which the size of messages is remembered
PASSING_PART: Final = 8  # of all memory: for frames that are let through when it is short
WAITING_WINDOWS: Final = 16  # for dequeues, each a `put_window`: some ten thousand
READ_BYTES: Final = 2 << 20  # that a read of the log brings, about
AHEAD_BYTES: Final = 8 << 20  # of rows that are read for the subscriptions of one connection before it takes some
SCARCE_READS: Final = 4  # reads of logs under way when memory is short: two threads read
PASSES: Final = 1  # a connection may send a frame although memory is short;
PASSED: Final = 2  # it has, and what it sent is under way
ORPHAN_BYTES: Final = 64 << 10  # of a connection that is gone: what less than this is under way is not looked after


class Asking(NamedTuple):
    """Requests of one number that are under way."""

    requests: int
    size: int  # bytes of those that soon have an answer
    waiting: int  # bytes of dequeues, which may wait for messages


_NOTHING: Final = Asking(0, 0, 0)


class MemoryAccount:
    """See above. Sizes are added where something begins to be held, and taken off where it ends."""

    def __init__(self, core: Core, limit: int) -> None:
        self._core = core
        self.limit: Final = limit  # bytes
        self.enough: Final = limit // 2  # above it, memory is short
        self.held = 0
        self.refused = 0  # requests
        self._window: Final = core.settings.put_window
        self._passes: Final = max(1, limit // PASSING_PART // core.settings.frame_bytes)
        self._passing = 0  # connections that may finish a frame although memory is short
        self.reads = 0  # of logs, under way
        self._sizes: dict[str, float] = {}  # bytes of a message, by queue

    @property
    def scarce(self) -> bool:
        """Whether memory is short."""
        return self.held > self.enough

    @property
    def share(self) -> int:
        """Bytes that a connection may hold whatever the others do."""
        return self.enough // max(1, len(self._core.connections))

    def over(self, connection: Connection) -> bool:
        """Whether a connection is to be read no more for now: memory is short, and what it sends takes most of it."""
        return self.held > self.enough and connection.passes != PASSES and connection.incoming > self.share

    def heavy(self, connection: Connection, size: int) -> bool:
        """Whether a request in a frame of so many bytes is not to be decoded for now."""
        size *= DECODED
        return connection.passes != PASSES and size > self.share and self.held + size > self.enough

    def let_pass(self, connection: Connection) -> bool:
        """Let a connection that has waited send one more frame, unless too many do.

        So large frames get through however long memory is short, some at a time.
        """
        if not connection.passes and self._passing < self._passes:
            connection.passes = PASSES
            self._passing += 1
        return connection.passes == PASSES

    def passed(self, connection: Connection) -> None:
        """What was let through is done, or its connection is gone."""
        if connection.passes:
            connection.passes = 0
            self._passing -= 1

    # What comes in

    def full(self, connection: Connection) -> bool:
        """Whether so many requests of a connection are under way that no more are read of it.

        Dequeues may wait for what the same client sends after them, so there may be many more of those.
        """
        return connection.asked > self._window or connection.dequeuing > WAITING_WINDOWS * self._window

    def partial(self, connection: Connection, size: int) -> None:
        """So much is here of frames that are not whole, or cannot be carried out yet."""
        self.held += size - connection.coming
        connection.coming = size

    def asked(self, connection: Connection, request: Any, size: int) -> None:
        """A request came in a frame of so many bytes. It counts until it is answered."""
        number = getattr(request, "request", 0)
        if not number:
            return
        size *= DECODED
        if connection.asking is None:
            connection.asking = {}
        found = connection.asking.get(number, _NOTHING)
        if type(request) is Dequeue and not request.peek:
            found = Asking(found.requests + 1, found.size, found.waiting + size)
            connection.dequeuing += size
        else:
            found = Asking(found.requests + 1, found.size + size, found.waiting)
            connection.asked += size
        connection.asking[number] = found
        self.held += size

    def answered(self, connection: Connection, number: int) -> None:
        """A request has its answer. Of several with one number, none counts as answered before all are."""
        asking = connection.asking
        found = asking.get(number) if asking is not None else None
        if asking is None or found is None:
            return
        if found.requests > 1:
            asking[number] = found._replace(requests=found.requests - 1)
            return
        del asking[number]
        connection.asked -= found.size
        connection.dequeuing -= found.waiting
        self.held -= found.size + found.waiting

    # What goes out

    def unsent(self, connection: Connection, size: int) -> None:
        """The channel of a connection keeps so much."""
        self.held += size - connection.unsent
        connection.unsent = size

    def queued(self, connection: Connection) -> None:
        """What waits for a connection has changed."""
        size = 0 if connection.backlog is None else connection.backlog.held
        self.held += size - connection.queued
        connection.queued = size

    def queue_bytes(self) -> int:
        """Bytes of deliveries that may wait for a connection before the policy for slow consumers decides."""
        most = self._core.settings.queue_bytes
        return most if self.held <= self.enough else min(most, max(LEAST_ANSWER, self.share))

    def pending(self, subscription: LogSubscription) -> None:
        """Rows read for a subscription that wait, or its reads under way, have changed. Its first member pays."""
        size = sum([len(each.batch.data) for each in subscription.pending]) + READ_BYTES * subscription.reading
        payer = next(iter(subscription.members.values())).connection
        if subscription.payer is not None:
            subscription.payer.ahead -= subscription.held
        payer.ahead += size
        self.held += size - subscription.held
        subscription.held, subscription.payer = size, payer

    def ended(self, subscription: LogSubscription) -> None:
        """Nobody is attached to a subscription any more."""
        if subscription.payer is not None:
            subscription.payer.ahead -= subscription.held
        self.held -= subscription.held
        subscription.held, subscription.payer = 0, None

    def may_read(self, subscription: LogSubscription) -> bool:
        """Whether more may be read for a subscription: not too much for one client, and little when memory is short."""
        if self.scarce and self.reads >= SCARCE_READS:
            return False
        ahead = next(iter(subscription.members.values())).connection.ahead
        return ahead < AHEAD_BYTES and not (self.scarce and subscription.pending)

    # Messages of queues

    def answer_bytes(self) -> int:
        """The most that an answer may have now."""
        return max(LEAST_ANSWER, min(ANSWER_BYTES, self.limit - self.held))

    def measured(self, queue: str, messages: int, size: int) -> None:
        """Messages of a queue that were so long together came by."""
        if messages:
            if len(self._sizes) >= QUEUES_KNOWN:
                self._sizes.clear()
            each = size / messages
            before = self._sizes.get(queue, each)
            self._sizes[queue] = max(each, (before + each) / 2)  # up at once, down slowly

    def messages(self, queue: str, count: int) -> int:
        """How many messages of a queue may be in one answer, of so many that are wanted; one at least."""
        if count == 1:
            return 1
        return max(1, min(count, int(self.answer_bytes() / self._sizes.get(queue, MESSAGE_BYTES))))

    def require(self, connection: Connection, owner: ConnectedClient) -> None:
        """`Overloaded` when a client may not have more messages now."""
        if self.held > self.enough and connection.held + owner.kept > self.share:
            self.refused += 1
            raise Overloaded(
                f"this broker holds {self.held} bytes for its clients, {connection.held + owner.kept} of them for this "
                "one, and has no room for more (memory_bytes); finish transactions, and try again later"
            )

    def keep(self, transaction: OpenTransaction, size: int) -> None:
        """An answer of a transaction is kept until the client goes on."""
        owner = transaction.client
        change, transaction.kept = size - transaction.kept, size
        if not owner.gone:
            owner.kept += change
            self.held += change

    def forget(self, owner: ConnectedClient) -> None:
        """A client has no transactions here any more."""
        self.held -= owner.kept
        owner.kept, owner.gone = 0, True

    # The end of a connection

    def left(self, connection: Connection) -> list[Effect]:
        """A connection ends. What was given to the store is held until the store has come so far.

        What its channel keeps is held until the channel is gone: then the shell says so by `partial` and `unsent`.
        """
        self.queued(connection)
        self.passed(connection)
        size = connection.outstanding - connection.taken + connection.asked + connection.dequeuing
        connection.asked = connection.dequeuing = connection.outstanding = connection.taken = 0
        connection.asking = None
        if size < ORPHAN_BYTES or not self._core.durable.on:
            self.held -= size
            return []

        def done(_: Any) -> list[Effect]:
            self.held -= size
            return []

        return [Write(Barrier(), done)]
