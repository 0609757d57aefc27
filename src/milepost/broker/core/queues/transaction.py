"""Transactions of clients, as the core keeps them between a client's frames and the store's answers."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from milepost.batch import Batch
from milepost.broker.core.sessions.connection import Connection
from milepost.errors import MilepostError
from milepost.wire import Dequeue, Enqueue, Finish

if TYPE_CHECKING:
    from milepost.broker.core.log.acknowledgements import Settling
    from milepost.operations.steps import Group

# Of a client's transactions that are over: it asks again for those that were under way when its connection was lost.
# What is forgotten, the store knows.
ANSWERS_KEPT: Final = 1_024
ANSWER_BYTES: Final = 1 << 20


@dataclass(slots=True, eq=False)
class Held:
    """An ENQUEUE that came, on its way into the store."""

    said: Enqueue
    connection: Connection  # whose credit it took,
    size: int  # bytes
    batch: Batch | None = None  # None: of a type that is not known yet
    error: MilepostError | None = None
    looked: bool = False  # the types were read again for it


@dataclass(slots=True, eq=False)
class Request:
    """One request of a transaction, with the ENQUEUE frames before it."""

    dealing: OpenTransaction
    said: Dequeue | Finish | Enqueue | None  # None: what was held was too much, and is carried out without a request
    number: int  # of the request on the client's present connection; 0: there is none to be answered
    step: int
    held: list[Held]
    until: float = 0.0  # seconds, by the shell's monotonic clock: when a dequeue ends without messages
    order: int = 0  # as in `line.Waiter`
    waiting: bool = False
    changes: int = 0
    waited: bool = False  # it has found nothing before
    settling: list[Settling] = field(default_factory=list)  # acknowledgements that its commit carries

    @property
    def dequeue(self) -> Dequeue:
        """What is asked for, of a request that is known to be a dequeue."""
        assert isinstance(self.said, Dequeue)
        return self.said

    @property
    def wish(self) -> Any:
        """What a dequeue looks for. Whoever holds messages of the queue may see others than the rest do."""
        said = self.dequeue
        return said.type, said.where, self.dealing.client if self.dealing.taken[said.queue] else 0


@dataclass(slots=True)
class Answer:
    """What was answered to a request, to be said again on another connection."""

    step: int
    value: Any = None
    groups: list[Group] = field(default_factory=list)
    error: MilepostError | None = None

    @property
    def size(self) -> int:
        """Bytes of the numbers of messages, which is what may be many."""
        return sum(map(len, (self.value or {}).get("mids", ())))


@dataclass(slots=True, eq=False)
class OpenTransaction:
    """A transaction of a client: `number` is what the store calls it, `client` what the client does.

    What a client sends for it is counted in steps. Steps up to `asked` are in the hands of the broker; those behind, up
    to `step`, are held in memory, and forgotten with the connection they came on: the client sends them again.
    """

    owner: Owner
    client: int
    writer: int  # S of its messages
    number: int = 0  # 0: the store has not heard of it
    resumed: bool = False  # it was begun on a broker that is another one, or has forgotten it,
    claimed: int = 0  # where the store called it so; 0: the store had not heard of it, as far as the client knows
    step: int = 0
    asked: int = 0
    held: list[Held] = field(default_factory=list)
    held_bytes: int = 0
    requests: deque[Request] = field(default_factory=deque)  # the first is being carried out, or waits
    busy: bool = False  # the store is carrying something out
    answer: Answer | None = None
    kept: int = 0  # bytes of the messages in it
    mids: list[bytes] = field(default_factory=list)  # of messages whose numbers the client was not told yet
    messages: int = 0  # enqueued
    enqueued: Counter[str] = field(default_factory=Counter)  # by queue
    taken: Counter[str] = field(default_factory=Counter)
    over: MilepostError | None = None  # it was undone, and this is why,
    told: bool = False  # as the client has heard

    def forget_held(self) -> list[Held]:
        """What is held goes; the client may send it again."""
        held, self.held, self.held_bytes = self.held, [], 0
        self.step = self.asked
        self.uncount(held)
        return held

    def uncount(self, held: list[Held]) -> None:
        """These are not enqueued after all, or are to come again."""
        self.messages -= sum(len(each.batch) for each in held if each.batch is not None)


class Owner:
    """A client object, over its connections: whose transactions they are."""

    __slots__ = (
        "answer_bytes", "answers", "came", "connection", "dealings", "gone", "held_bytes", "instance", "kept", "until",
    )  # fmt: skip

    def __init__(self, instance: bytes) -> None:
        self.instance = instance
        self.connection: Connection | None = None  # None: it is away, and may come back
        self.dealings: dict[int, OpenTransaction] = {}  # by the client's number
        self.answers: dict[int, Answer] = {}  # of those that are over
        self.answer_bytes = 0
        self.held_bytes = 0
        self.kept = 0  # bytes of messages in answers of its transactions
        self.gone = False  # nothing of it counts any more
        self.came = True  # to this broker, and nothing was carried out for it since
        self.until: float | None = None  # when its transactions are undone; None: it is here, or left a moment ago

    def keep(self, client: int, answer: Answer) -> None:
        """A transaction is over; remember what was answered last."""
        self.dealings.pop(client, None)
        self.answers[client] = answer
        self.answer_bytes += answer.size
        while len(self.answers) > 1 and (len(self.answers) > ANSWERS_KEPT or self.answer_bytes > ANSWER_BYTES):
            self.answer_bytes -= self.answers.pop(next(iter(self.answers))).size
