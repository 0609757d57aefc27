"""A client as the core sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from milepost.broker.core.rights import ANONYMOUS
from milepost.broker.core.topics.backlog import Backlog, Waiting

if TYPE_CHECKING:
    from milepost.broker.core.log.member import Member
    from milepost.broker.core.log.subscription import LogSubscription
    from milepost.broker.core.memory import Asking
    from milepost.broker.core.put import Put
    from milepost.broker.core.queues.clients import ConnectedClient
    from milepost.broker.core.topics.topic import Topic
    from milepost.wire import Subscribe


@dataclass(slots=True, eq=False)
class PlainSubscription:
    """What one client wants: the rows of its topics that satisfy `where`."""

    connection: Connection
    number: int  # the client's; the tag on what is delivered for it
    pattern: str
    where: str | None
    keys: dict[int, int]  # topic number -> key in the topic's table
    since: dict[int, int]  # topic number -> rows that had come in when this began; only without `where`


class PublisherIdentity:
    """Whose messages they are. A named one outlives its connections, so that its stamps go on where they were."""

    __slots__ = ("enrolled", "last_stamp", "name", "number")

    def __init__(self, number: int, name: str) -> None:
        self.number = number
        self.name = name
        self.last_stamp = 0  # of its messages; each is above the one before
        self.enrolled = False  # the store knows it


NOBODY: Final = PublisherIdentity(0, "")

Kind: TypeAlias = Literal["client", "gateway"]  # of a connection, as HELLO says it
KINDS: Final = get_args(Kind)


class Connection:
    """One connection. A plain record: who changes what, and why, is in `core`.

    Thousands of them are idle at any time, so what only busy ones need is made when it is needed.
    """

    __slots__ = (
        "ahead", "announced", "asked", "asking", "atomic", "backlog", "blocked", "busy", "bytes_in", "bytes_out",
        "catchups", "channel", "coming", "credit", "dequeuing", "dropped", "dropped_rows", "frames_out", "greeted",
        "grown", "grown_at", "halted", "heard", "heard_part", "instance", "keys", "kind", "members", "moved", "name",
        "number", "open", "outstanding", "owner", "partial", "passes", "paused", "peer", "places", "positioned",
        "principal", "publisher", "puts", "queued", "ready", "receiver", "rows_in", "rows_out", "slow", "subscriptions",
        "taken", "took", "types", "unsent", "window",
    )  # fmt: skip

    def __init__(self, number: int, peer: str, now: float) -> None:
        self.number = number
        self.peer = peer
        self.channel: Any = None  # the shell's; the core never touches it
        self.receiver: Any = None  # the same
        self.kind: Kind = "client"
        self.principal = ANONYMOUS  # who is at the other end, as far as that was shown
        self.name = ""
        self.instance = b""  # of the client: 16 bytes, the same over its connections
        self.publisher = NOBODY
        self.open = True
        self.greeted = False  # the handshake is done
        self.heard = now  # seconds, by the shell's monotonic clock
        self.partial = 0  # bytes of an unfinished frame that were here at the last scan
        self.heard_part = now  # when such a frame was last seen to have grown,
        self.grown = 0  # bytes of it at the time
        self.grown_at = now  # from which on it has to grow by a good piece
        self.took = now  # when the client was last seen to take something, or had nothing to take
        self.moved = False  # it took something since the last scan
        self.paused = False  # what it sends is not read: it does not read answers, or too much of it is under way
        self.halted: float | None = None  # since when, for want of memory
        self.passes = 0  # whether it may send a frame all the same, or has: see `Memory.let_pass`
        self.busy = False  # a request of it is carried out piece by piece, or elsewhere: what it sends next waits
        self.slow: str | None = None

        self.window = 0  # bytes of deliveries that the client lets us send before it gives credit
        self.credit = 0  # bytes of it that are left; may fall below zero by one frame
        self.blocked = False  # the channel has not taken everything yet
        self.ready = False  # a delivery may be written at once: greeted, credit left, not blocked, nothing waiting
        self.backlog: Backlog | None = None
        self.dropped: dict[int, int] | None = None  # rows lost by subscription, not yet told

        self.taken = 0  # bytes of puts that were carried out and not yet given back as credit
        self.puts = 0
        self.outstanding = 0  # bytes of puts that came in and were not given back
        self.keys = 0  # topics of all its subscriptions
        self.subscriptions: dict[int, PlainSubscription] | None = None
        # Durable subscriptions, by its numbers; a request that the store has not answered yet holds its place.
        self.members: dict[int, tuple[LogSubscription, Member] | Subscribe] | None = None
        # Plain subscriptions that were resumed and are behind, by number and number of the topic.
        self.catchups: dict[tuple[int, int], LogSubscription] | None = None
        self.positioned = 0  # what `Core.moves` was when the client was last told positions
        self.places = False  # the client reads the places of rows in deliveries
        self.atomic: list[Put] | None = None  # parts of an atomic put that wait for the last one
        self.owner: ConnectedClient | None = None  # of its transactions, once it has begun one
        self.types: set[int] | None = None  # fingerprints of the message types that the client knows
        self.announced: dict[int, int] | None = None  # topic number -> versions of its schema that the client knows

        # Bytes that are held for it, as `Memory` counts them, beside `outstanding`.
        self.coming = 0  # frames that are not carried out yet
        self.asking: dict[int, Asking] | None = None  # requests under way, by number
        self.asked = 0  # their bytes, but for
        self.dequeuing = 0  # those of dequeues
        self.unsent = 0  # kept by the channel
        self.queued = 0  # its share of what is in `backlog`
        self.ahead = 0  # rows that were read for its own streams

        self.rows_in = self.rows_out = self.bytes_in = self.bytes_out = self.frames_out = self.dropped_rows = 0

    @property
    def incoming(self) -> int:
        """Bytes that are held of what it sent."""
        return self.coming + self.outstanding - self.taken + self.asked

    @property
    def held(self) -> int:
        """All bytes that are held for it."""
        return self.incoming + self.dequeuing + self.unsent + self.queued + self.ahead

    def settle(self) -> None:
        """Work out `ready` after something changed."""
        self.ready = (
            self.open
            and self.greeted
            and not self.blocked
            and self.credit > 0
            and (self.backlog is None or not self.backlog.waiting)
        )

    def spend(self, credit: int, size: int, rows: int) -> None:
        """Count a frame of so many bytes that is about to be written, and takes so much credit."""
        self.credit -= credit
        self.bytes_out += size
        self.rows_out += rows
        self.frames_out += 1
        if self.credit <= 0:
            self.ready = False

    def unspend(self, size: int, rows: int) -> None:
        """A frame that was counted is not written."""
        self.credit += size
        self.bytes_out -= size
        self.rows_out -= rows
        self.frames_out -= 1
        self.settle()

    def wait(self, item: Waiting) -> Backlog:
        """Put a delivery behind what is already waiting."""
        if self.backlog is None:
            self.backlog = Backlog()
        self.backlog.append(item)
        self.ready = False
        return self.backlog

    def policy(self, topic: Topic) -> str:
        """What to do when this client is slow with a topic."""
        return self.slow or topic.slow

    def __repr__(self) -> str:
        return f"<Connection {self.number} {self.name or 'anonymous'} at {self.peer}>"
