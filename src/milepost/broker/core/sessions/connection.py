"""A connection and its plain subscriptions, as the core keeps them."""

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
    from milepost.wire import Subscribe


@dataclass(slots=True, eq=False)
class PlainSubscription:
    """A plain subscription of one client: the rows of its topics that satisfy `where`."""

    connection: Connection
    number: int  # the client's number of it; the tag on its deliveries
    pattern: str
    where: str | None
    keys: dict[int, int]  # topic number -> key in the topic's table
    since: dict[int, int]  # topic number -> the topic's `rows_in` when it began; only without `where`


class PublisherIdentity:
    """The publisher of messages. A named one outlives its connections, so that its stamps keep increasing."""

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
    """One connection: a plain record, which the other modules of the core change.

    Thousands of connections may be idle, so fields that only busy ones need are None until then.
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
        self.receiver: Any = None  # the shell's `Peer`
        self.kind: Kind = "client"
        self.principal = ANONYMOUS  # the user or service at the other end
        self.name = ""
        self.instance = b""  # of the client: 16 bytes, the same over its connections
        self.publisher = NOBODY
        self.open = True
        self.greeted = False  # the handshake is done
        self.heard = now  # seconds, by the shell's monotonic clock
        self.partial = 0  # bytes of an unfinished frame at the last scan
        self.heard_part = now  # when an unfinished frame was last seen to grow
        self.grown = 0  # bytes of the unfinished frame at `grown_at`
        self.grown_at = now  # when it last grew by `LEAST_PROGRESS`
        self.took = now  # when the client last read bytes from its channel, or had none to read
        self.moved = False  # it has read bytes since the last scan
        self.paused = False  # its frames are not read: it does not read answers, or too much is under way
        self.halted: float | None = None  # when it was paused because memory is short; None: it was not
        self.passes = 0  # 0, `PASSES` or `PASSED`: a frame that it may send although paused; `MemoryAccount.let_pass`
        self.busy = False  # a request of it is handled in pieces or in a thread: its later frames wait
        self.slow: str | None = None  # its slow-consumer policy; None: that of each topic

        self.window = 0  # bytes of deliveries that may be sent before the client gives credit
        self.credit = 0  # bytes of the window that are left; may fall below zero by one frame
        self.blocked = False  # the channel has not taken everything yet
        self.ready = False  # a delivery may be written at once: greeted, credit left, not blocked, nothing waiting
        self.backlog: Backlog | None = None
        self.dropped: dict[int, int] | None = None  # subscription -> dropped rows that the client was not told of

        self.taken = 0  # bytes of puts that were handled and not yet given back as credit
        self.puts = 0
        self.outstanding = 0  # bytes of puts that were received and not given back
        self.keys = 0  # number of topics over all its subscriptions
        self.subscriptions: dict[int, PlainSubscription] | None = None
        # Durable subscriptions by the client's number; the request itself until the store has answered it.
        self.members: dict[int, tuple[LogSubscription, Member] | Subscribe] | None = None
        # Resumed plain subscriptions that are behind, by their number and the number of the topic.
        self.catchups: dict[tuple[int, int], LogSubscription] | None = None
        self.positioned = 0  # `Core.moves` when the client was last told positions
        self.places = False  # the client reads log positions in DELIVER frames
        self.atomic: list[Put] | None = None  # parts of an atomic put that wait for the last part
        self.owner: ConnectedClient | None = None  # of its transactions, once it has begun one
        self.types: set[int] | None = None  # fingerprints of the message types that the client knows
        self.announced: dict[int, int] | None = None  # topic number -> versions of its schema that the client knows

        # Bytes that are held for it, as `MemoryAccount` counts them, beside `outstanding`.
        self.coming = 0  # frames that are not handled yet
        self.asking: dict[int, Asking] | None = None  # requests under way, by number
        self.asked = 0  # requests under way, without dequeues
        self.dequeuing = 0  # dequeues under way
        self.unsent = 0  # in the channel's write buffer
        self.queued = 0  # its share of the batches in `backlog`
        self.ahead = 0  # rows read from logs for its durable subscriptions and catch-ups

        self.rows_in = self.rows_out = self.bytes_in = self.bytes_out = self.frames_out = self.dropped_rows = 0

    @property
    def incoming(self) -> int:
        """Bytes of its own frames that are held."""
        return self.coming + self.outstanding - self.taken + self.asked

    @property
    def held(self) -> int:
        """All bytes that are held for it."""
        return self.incoming + self.dequeuing + self.unsent + self.queued + self.ahead

    def settle(self) -> None:
        """Update `ready`."""
        self.ready = (
            self.open
            and self.greeted
            and not self.blocked
            and self.credit > 0
            and (self.backlog is None or not self.backlog.waiting)
        )

    def spend(self, credit: int, size: int, rows: int) -> None:
        """Count a frame of `size` bytes that is about to be written, and take `credit` for it."""
        self.credit -= credit
        self.bytes_out += size
        self.rows_out += rows
        self.frames_out += 1
        if self.credit <= 0:
            self.ready = False

    def unspend(self, size: int, rows: int) -> None:
        """Undo `spend` for a frame that is not written."""
        self.credit += size
        self.bytes_out -= size
        self.rows_out -= rows
        self.frames_out -= 1
        self.settle()

    def wait(self, item: Waiting) -> Backlog:
        """Append a delivery to the backlog."""
        if self.backlog is None:
            self.backlog = Backlog()
        self.backlog.append(item)
        self.ready = False
        return self.backlog

    def __repr__(self) -> str:
        return f"<Connection {self.number} {self.name or 'anonymous'} at {self.peer}>"
