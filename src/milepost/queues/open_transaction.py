"""Transactions of clients between a client's requests and the store's outcomes: what `machine` keeps of each."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from milepost.batch import Batch
from milepost.batch.plain_rows import PlainRows
from milepost.errors import MilepostError
from milepost.wire import Dequeue, Enqueue, Finish

if TYPE_CHECKING:
    from milepost.operations.steps import Group


@dataclass(slots=True, eq=False)
class HeldEnqueue:
    """An ENQUEUE that goes to the store with the next request of its transaction."""

    said: Enqueue
    batch: Batch | PlainRows | None = None  # None: of a type that is not known yet
    error: MilepostError | None = None  # what is wrong with it, told with the next request


@dataclass(slots=True, eq=False)
class TransactionRequest:
    """One request of a transaction, with the enqueues before it."""

    transaction: OpenTransaction
    said: Dequeue | Finish | Enqueue | None  # None: enqueues that are carried out without a request
    reply_to: Any  # what the driver replies to; false: nobody waits for the reply
    held: list[Any]  # of `HeldEnqueue`
    order: int  # as in `WaitingDequeue`
    step: int = 0  # the client's count, by which a repetition is recognised
    until: float = 0.0  # seconds, by the driver's monotonic clock: when a dequeue ends without messages
    waiting: bool = False
    changes: int = 0
    waited: bool = False  # it has found nothing before
    settling: Sequence[Any] = ()  # acknowledgements that its commit carries

    @property
    def dequeue(self) -> Dequeue:
        """What is asked for, of a request that is known to be a dequeue."""
        assert isinstance(self.said, Dequeue)
        return self.said

    @property
    def selector(self) -> Any:
        """What a dequeue looks for. A transaction that holds messages of the queue may see others than the rest do."""
        said = self.dequeue
        return said.type, said.where, self.transaction.client_number if self.transaction.taken[said.queue] else 0


@dataclass(slots=True)
class KeptReply:
    """The reply to a request, as it is repeated on another connection."""

    step: int
    value: Any = None
    groups: list[Group] = field(default_factory=list)
    error: MilepostError | None = None

    @property
    def size(self) -> int:
        """Bytes of the numbers of messages, of which there may be many."""
        return sum(map(len, (self.value or {}).get("mids", ())))


@dataclass(slots=True, eq=False)
class OpenTransaction:
    """A transaction of a client.

    The client counts what it sends for it in steps. Steps up to `asked` are carried out, or will be; the enqueues
    behind, up to `step`, are held in memory and forgotten with their connection: the client sends them again.
    """

    client: Any  # a `QueueClient`, of the driver's kind
    client_number: int  # what the client calls it
    writer: int  # S of its messages
    number: int = 0  # what the store calls it; 0: the store has not heard of it
    resumed: bool = False  # it was begun on a connection that is gone, and is not known here,
    claimed: int = 0  # where the store called it so; 0: the store had not heard of it, as far as the client knows
    step: int = 0
    asked: int = 0
    held: list[Any] = field(default_factory=list)  # of `HeldEnqueue`: goes with the next request
    held_bytes: int = 0
    requests: deque[TransactionRequest] = field(default_factory=deque)  # the first is carried out, or waits
    busy: bool = False  # the store is carrying something out
    reply: KeptReply | None = None  # to the last request
    kept: int = 0  # bytes of the messages in it
    mids: list[list[int]] = field(default_factory=list)  # of messages whose numbers the client was not told yet
    messages: int = 0  # enqueued
    enqueued: Counter[str] = field(default_factory=Counter)  # by queue
    taken: Counter[str] = field(default_factory=Counter)
    over: MilepostError | None = None  # it was undone, and this is why,
    told: bool = False  # as the client has heard

    def forget_held(self) -> list[Any]:
        """Drop what is held; the client may send it again."""
        held, self.held, self.held_bytes = self.held, [], 0
        self.step = self.asked
        self.uncount(held)
        return held

    def uncount(self, held: list[Any]) -> None:
        """These are not enqueued after all, or are to come again."""
        self.messages -= sum(len(each.batch) for each in held if each.batch is not None)

    def receipt(self) -> dict[str, Any]:
        """What each reply tells: the numbers of the client, of the transaction, and of messages not told before."""
        mids, self.mids = self.mids, []
        return {"s": self.writer, "t": self.number, "mids": mids}


class QueueClient:
    """A client object, over its connections: whose transactions they are."""

    __slots__ = ("came", "instance", "transactions")

    def __init__(self, instance: bytes) -> None:
        self.instance = instance
        self.transactions: dict[int, OpenTransaction] = {}  # by the client's number
        self.came = True  # just now: it may have written through another log before
