"""The account of all bytes that a broker holds for its connections.

It counts unfinished frames, puts and requests under way, rows read for a subscription or waiting for it, answers and
deliveries that the socket has not taken, and answers kept for transactions. Each kind has its own limit for each
connection; `memory_bytes` is the limit for all of them together.

Above half of `memory_bytes`, memory is short. The share of a connection is that half divided by the number of
connections. A connection that holds more than its share is not read until there is room again, its deliveries follow
the slow-consumer policy, and its requests for more messages are refused. Answers are shorter for all clients. A client
that holds little is otherwise served as before.
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

SOME_KEPT: Final = 1 << 20  # unsent bytes of answers above which a client's frames are not read
MOST_KEPT: Final = 16 << 20  # unsent bytes above which its connection is closed
ANSWER_BYTES: Final = 8 << 20  # of messages in one answer: a client asks again for more
LEAST_ANSWER: Final = 64 << 10  # the same when memory is short, so that every client makes progress
DECODED: Final = 16  # bytes of Python objects per byte of a request, as in lists of small numbers
MESSAGE_BYTES: Final = 1 << 10  # assumed size of a queue's messages until some were measured
QUEUES_KNOWN: Final = 10_000  # queues for which the size of messages is remembered
PASSING_PART: Final = 8  # an eighth of all memory is for frames that are let through when it is short
WAITING_WINDOWS: Final = 16  # `put_window`s of waiting dequeues per connection: about ten thousand dequeues
READ_BYTES: Final = 2 << 20  # approximate result of a read of the log
AHEAD_BYTES: Final = 8 << 20  # of rows read for the subscriptions of one connection before it takes some
SCARCE_READS: Final = 4  # reads of logs under way when memory is short: two threads read
PASSES: Final = 1  # a connection may send one frame although memory is short
PASSED: Final = 2  # it has sent that frame, which is being handled
ORPHAN_BYTES: Final = 64 << 10  # of a closed connection: fewer bytes under way are no longer counted


class Asking(NamedTuple):
    """Requests of one number that are under way."""

    requests: int
    size: int  # bytes of requests other than dequeues
    waiting: int  # bytes of dequeues, which may wait for messages for long


_NOTHING: Final = Asking(0, 0, 0)


class MemoryAccount:
    """Counts the bytes. Callers add a size when they begin to hold bytes, and subtract it when they stop."""

    def __init__(self, core: Core, limit: int) -> None:
        self._core = core
        self.limit: Final = limit  # bytes
        self.enough: Final = limit // 2  # above it, memory is short
        self.held = 0
        self.refused = 0  # requests
        self._window: Final = core.settings.put_window
        self._passes: Final = max(1, limit // PASSING_PART // core.settings.frame_bytes)
        self._passing = 0  # connections in the state `PASSES` or `PASSED`
        self.reads = 0  # reads of logs under way
        self._sizes: dict[str, float] = {}  # queue -> estimated bytes of a message

    @property
    def scarce(self) -> bool:
        """Whether memory is short."""
        return self.held > self.enough

    @property
    def share(self) -> int:
        """Bytes that a connection may always hold, whatever other connections do."""
        return self.enough // max(1, len(self._core.connections))

    def over(self, connection: Connection) -> bool:
        """Whether reading from a connection must pause: memory is short, and its frames take more than its share."""
        return self.held > self.enough and connection.passes != PASSES and connection.incoming > self.share

    def heavy(self, connection: Connection, size: int) -> bool:
        """Whether a request in a frame of `size` bytes must wait before it is decoded."""
        size *= DECODED
        return connection.passes != PASSES and size > self.share and self.held + size > self.enough

    def let_pass(self, connection: Connection) -> bool:
        """Let a connection that has waited send one more frame, unless too many others do.

        So large frames get through a few at a time, however long memory is short.
        """
        if not connection.passes and self._passing < self._passes:
            connection.passes = PASSES
            self._passing += 1
        return connection.passes == PASSES

    def passed(self, connection: Connection) -> None:
        """Called when the frame that was let through is handled, or its connection is gone."""
        if connection.passes:
            connection.passes = 0
            self._passing -= 1

    # Incoming

    def full(self, connection: Connection) -> bool:
        """Whether a connection has so many requests under way that no more of its frames are read.

        Dequeues may wait for messages that the same client sends after them, so many more of those are allowed.
        """
        return connection.asked > self._window or connection.dequeuing > WAITING_WINDOWS * self._window

    def partial(self, connection: Connection, size: int) -> None:
        """Set the bytes of frames that are unfinished, or cannot be handled yet."""
        self.held += size - connection.coming
        connection.coming = size

    def asked(self, connection: Connection, request: Any, size: int) -> None:
        """Count a request in a frame of `size` bytes until it is answered."""
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
        """Stop counting a request that is answered. Several with one number count until all are answered."""
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

    # Outgoing

    def unsent(self, connection: Connection, size: int) -> None:
        """Set the bytes that wait in the channel of a connection."""
        self.held += size - connection.unsent
        connection.unsent = size

    def queued(self, connection: Connection) -> None:
        """Called when the backlog of a connection has changed."""
        size = 0 if connection.backlog is None else connection.backlog.held
        self.held += size - connection.queued
        connection.queued = size

    def queue_bytes(self) -> int:
        """Bytes of deliveries that may wait for a connection before the slow-consumer policy applies."""
        most = self._core.settings.queue_bytes
        return most if self.held <= self.enough else min(most, max(LEAST_ANSWER, self.share))

    def pending(self, subscription: LogSubscription) -> None:
        """Count again the waiting rows and the read of a subscription, for the connection of its first member."""
        size = sum([len(each.batch.data) for each in subscription.pending]) + READ_BYTES * subscription.reading
        payer = next(iter(subscription.members.values())).connection
        if subscription.payer is not None:
            subscription.payer.ahead -= subscription.held
        payer.ahead += size
        self.held += size - subscription.held
        subscription.held, subscription.payer = size, payer

    def ended(self, subscription: LogSubscription) -> None:
        """Stop counting a subscription that has no members any more."""
        if subscription.payer is not None:
            subscription.payer.ahead -= subscription.held
        self.held -= subscription.held
        subscription.held, subscription.payer = 0, None

    def may_read(self, subscription: LogSubscription) -> bool:
        """Whether more may be read for a subscription, given its client's rows and the memory that is left."""
        if self.held > self.enough and (self.reads >= SCARCE_READS or subscription.pending):
            return False
        return next(iter(subscription.members.values())).connection.ahead < AHEAD_BYTES

    # Messages of queues

    def answer_bytes(self) -> int:
        """The most bytes of messages that an answer may have now."""
        return max(LEAST_ANSWER, min(ANSWER_BYTES, self.limit - self.held))

    def measured(self, queue: str, messages: int, size: int) -> None:
        """Learn the size of a queue's messages from some that have `size` bytes together."""
        if messages:
            if len(self._sizes) >= QUEUES_KNOWN:
                self._sizes.clear()
            each = size / messages
            before = self._sizes.get(queue, each)
            self._sizes[queue] = max(each, (before + each) / 2)  # up at once, down slowly

    def messages(self, queue: str, count: int) -> int:
        """How many of the `count` messages that a client wants may be in one answer; at least one."""
        if count == 1:
            return 1
        return max(1, min(count, int(self.answer_bytes() / self._sizes.get(queue, MESSAGE_BYTES))))

    def require(self, connection: Connection, owner: ConnectedClient) -> None:
        """Raise `Overloaded` when a client may not have more messages now."""
        if self.held > self.enough and connection.held + owner.kept > self.share:
            self.refused += 1
            raise Overloaded(
                f"this broker holds {self.held} bytes for its clients, {connection.held + owner.kept} of them for this "
                "one, and has no room for more (memory_bytes); finish transactions, and try again later"
            )

    def keep(self, transaction: OpenTransaction, size: int) -> None:
        """Count the answer that a transaction keeps until the client's next request; 0: it is dropped."""
        owner = transaction.client
        change, transaction.kept = size - transaction.kept, size
        if not owner.gone:
            owner.kept += change
            self.held += change

    def forget(self, owner: ConnectedClient) -> None:
        """Stop counting a client that has no transactions here any more."""
        self.held -= owner.kept
        owner.kept, owner.gone = 0, True

    # The end of a connection

    def left(self, connection: Connection) -> list[Effect]:
        """Called when a connection ends. Its operations in the store's queue count until the store has done them.

        Bytes in its channel count until the channel is closed: then the shell calls `partial` and `unsent`.
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
