"""Open transactions of clients, and their requests: the state that `machine` keeps."""

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
    """An ENQUEUE that is sent to the store with the next request of its transaction."""

    said: Enqueue
    batch: Batch | PlainRows | None = None  # None: its type is not known yet
    error: MilepostError | None = None  # why it is refused; the reply to the next request tells


@dataclass(slots=True, eq=False)
class TransactionRequest:
    """One request of a transaction, with the preceding enqueues."""

    transaction: OpenTransaction
    said: Dequeue | Finish | Enqueue | None  # None: only the held enqueues are carried out
    reply_to: Any  # the driver's handle for the reply; false: no client waits for it
    held: list[Any]  # of `HeldEnqueue`
    order: int  # as in `WaitingDequeue`
    step: int = 0  # the client's count of steps, which identifies a repetition
    until: float = 0.0  # seconds of the driver's monotonic clock: when a dequeue ends without messages
    waiting: bool = False
    changes: int = 0
    waited: bool = False  # it has found nothing before, and waited
    settling: Sequence[Any] = ()  # acknowledgements of its commit

    @property
    def dequeue(self) -> Dequeue:
        """The DEQUEUE, of a request that is known to be one."""
        assert isinstance(self.said, Dequeue)
        return self.said

    @property
    def selector(self) -> Any:
        """What a dequeue selects. A transaction that holds messages of the queue may see others than the rest."""
        said = self.dequeue
        return said.type, said.where, self.transaction.client_number if self.transaction.taken[said.queue] else 0


@dataclass(slots=True)
class KeptReply:
    """The reply to a request, kept to be repeated on another connection."""

    step: int
    value: Any = None
    groups: list[Group] = field(default_factory=list)
    error: MilepostError | None = None

    @property
    def size(self) -> int:
        """Bytes of the encoded message numbers, of which there may be many."""
        return sum(map(len, (self.value or {}).get("mids", ())))


@dataclass(slots=True, eq=False)
class OpenTransaction:
    """A transaction of a client.

    The client counts its requests and enqueues as steps. Steps up to `asked` are carried out, or will be; the later
    enqueues, up to `step`, are held in memory and dropped with their connection: the client sends them again.
    """

    client: Any  # a `QueueClient`, of the driver's kind
    client_number: int  # the client's number for it
    writer: int  # S of its messages
    number: int = 0  # the store's number for it; 0: the store has not begun it
    resumed: bool = False  # it was begun on a lost connection, and is not known here;
    claimed: int = 0  # then the store's number for it, according to the client; 0: the store had not begun it
    step: int = 0
    asked: int = 0
    held: list[Any] = field(default_factory=list)  # of `HeldEnqueue`, sent with the next request
    held_bytes: int = 0
    requests: deque[TransactionRequest] = field(default_factory=deque)  # the first is being carried out, or waits
    busy: bool = False  # the store is carrying out an operation
    reply: KeptReply | None = None  # to the last request
    kept: int = 0  # bytes of the messages in `reply`
    mids: list[list[int]] = field(default_factory=list)  # message numbers that the client was not told yet
    messages: int = 0  # enqueued
    enqueued: Counter[str] = field(default_factory=Counter)  # by queue
    taken: Counter[str] = field(default_factory=Counter)
    over: MilepostError | None = None  # why it was undone; None: it was not
    told: bool = False  # the client was told `over`

    def forget_held(self) -> list[Any]:
        """Drop the held enqueues; the client may send them again."""
        held, self.held, self.held_bytes = self.held, [], 0
        self.step = self.asked
        self.uncount(held)
        return held

    def uncount(self, held: list[Any]) -> None:
        """Subtract dropped enqueues from `messages`: they fail, or are sent again."""
        self.messages -= sum(len(each.batch) for each in held if each.batch is not None)

    def receipt(self) -> dict[str, Any]:
        """Part of each reply: the numbers of the client, of the transaction, and of messages not told before."""
        mids, self.mids = self.mids, []
        return {"s": self.writer, "t": self.number, "mids": mids}


class QueueClient:
    """A client object and its transactions, across its connections."""

    __slots__ = ("came", "instance", "transactions")

    def __init__(self, instance: bytes) -> None:
        self.instance = instance
        self.transactions: dict[int, OpenTransaction] = {}  # by `client_number`
        self.came = True  # it has just connected, and may have written through another log before
