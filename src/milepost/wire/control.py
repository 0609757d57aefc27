"""The bodies of control frames: MessagePack maps, with the field names below as keys.

A reader ignores unknown keys, and a missing key takes its default, so fields may be added without a new protocol
version.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from milepost import limits
from milepost.errors import MilepostError, ProtocolError
from milepost.wire.frames import HEADER, MAGIC, PROTOCOL, Kind

Slow: TypeAlias = str  # "throttle", "drop" or "disconnect"


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """The first frame, by which a client introduces itself: at most `limits.HELLO_BYTES` long."""

    protocol: int = PROTOCOL
    kind: str = "client"  # of the connection: "gateway" for a program that acts for clients of another protocol
    name: str = ""  # of the publisher; empty: anonymous
    auth: dict[str, Any] = {}  # {"method": "none"}; reserved for tokens and certificates
    software: str = ""
    window: int  # bytes of deliveries that may be in flight to this client before it gives credit
    slow: Slow | None = None  # policy when this client is slow, instead of that of its topics
    instance: bytes = b""  # 16 random bytes of this client object: identify a publisher without a name, and a consumer
    resume: bool = False  # this instance has put to durable topics before: find its number and its high water
    held: int = 0  # bytes of the window in use: deliveries of earlier connections that wait in the client
    places: bool = False  # the client reads the places of rows in DELIVER frames from durable topics


class Welcome(msgspec.Struct, frozen=True, kw_only=True):
    """The broker accepts the client."""

    protocol: int = PROTOCOL
    broker: str  # its name
    broker_id: int  # 32 bits; the `broker` of message IDs
    publisher: int  # 32 bits; the `publisher` of this client's message IDs
    high_water: int = (
        0  # the publisher's highest committed stamp; any value if it stored nothing: new stamps are above it
    )
    last: int = 0  # the highest stamp known from this publisher, stored or not: new stamps are above it
    time_us: int  # the broker's clock, microseconds since 1970
    window: int  # bytes of puts that may be in flight before the broker gives credit
    delivery_window: int = 0  # bytes of deliveries that the broker will have in flight: at most what HELLO asked for
    frame_bytes: int = limits.FRAME_BYTES  # the longest body of a frame that the broker accepts
    heartbeat_s: float  # longest interval between two frames of a peer
    software: str = ""
    store_id: str = ""  # changes only when stored state was lost; empty: this broker stores nothing


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """An error: of a request (its number), of a put (counted from 1 on this connection), or of the whole connection."""

    code: str
    message: str
    request: int = 0
    put: int = 0
    topic: str = ""
    subscription: int = 0  # that has ended with this error
    fatal: bool = False  # the connection is closed after this frame


class Ping(msgspec.Struct, frozen=True):
    """Asks for a `Pong` with the same number."""

    number: int


class Pong(msgspec.Struct, frozen=True):
    """Answers a `Ping`."""

    number: int
    time_us: int = 0


class Credit(msgspec.Struct, frozen=True):
    """The bytes of PUT or DELIVER frames, headers included, that were taken; as many more may be sent."""

    bytes: int


class Bye(msgspec.Struct, frozen=True):
    """A deliberate close."""

    reason: str = ""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The reply to a request that succeeded."""

    request: int
    value: Any = None


class TopicAnnounced(msgspec.Struct, frozen=True, kw_only=True):
    """A topic: DELIVER and PUT frames name it by its number, which is valid for one run of the broker."""

    number: int
    name: str
    schemas: list[str]  # texts of all versions, oldest first
    slow: Slow = "throttle"
    durable: bool = False
    stored: int = 0  # the store's number of a durable topic: the same for all brokers, and never reused


class Dropped(msgspec.Struct, frozen=True):
    """Rows that were dropped since the last such frame, by subscription.

    `lost` names rows that are gone from a log: [subscription, log, first offset, offset after the last]. `skipped`
    names topics that were declared after a subscription to their pattern and deliver no rows to it, with the reason.
    """

    rows: dict[int, int]
    lost: list[list[int]] = []
    skipped: dict[int, dict[str, str]] = {}


class Stored(msgspec.Struct, frozen=True):
    """Every durable put of this connection up to number `put` is committed and synced, or was refused by a FAILURE."""

    put: int


class CaughtUp(msgspec.Struct, frozen=True):
    """All rows of a durable topic before a position were sent to a plain subscription; later rows are delivered."""

    subscription: int
    topic: int  # `stored`
    position: dict[int, int]


class Ended(msgspec.Struct, frozen=True):
    """All rows before the `stop` of a subscription were sent, and it is gone. Follows its last HAND."""

    subscription: int


class Resume(msgspec.Struct, frozen=True):
    """Ends a run of failed puts: after the store fails a durable put, all later ones fail too, up to this frame.

    Otherwise a later put could be stored before an earlier one, whose stamps would then look like a repetition.
    """

    put: int = 0  # number of puts sent before


class WireRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A message that the peer answers with a `Reply` or a `Failure`, under the number of the request."""

    request: int


class Declare(WireRequest, frozen=True, kw_only=True):
    """Create a topic, or a new version of its schema. Replied to with {"number", "created"}, after `TopicAnnounced`."""

    name: str
    schema: str | None = None  # None: the topic must exist; only its `TopicAnnounced` is wanted
    slow: Slow | None = None
    durable: bool | None = None  # None: unchanged; a new topic is live
    retain: dict[str, Any] | None = None  # {"age_s", "bytes", "hold"}: see `Retention`; None: unchanged


class Delete(WireRequest, frozen=True, kw_only=True):
    """Remove a topic and the subscriptions to it."""

    name: str


class Subscribe(WireRequest, frozen=True, kw_only=True):
    """Deliver the rows of a topic, or of all topics that match a pattern, that satisfy `where`.

    Replied to with {"topics": [names], "skipped": {name: why `where` does not fit its schema}, "positions": as in
    `resume`, of the durable topics that are delivered from now on or skipped, "behind": {name: `stored`} of those
    whose missed rows come first, in HAND frames, until a CAUGHT_UP}. A durable one is replied to with {"created",
    "position": {log: offset}: its cursor, "sequence": of this client's last acknowledgement that was carried out}, and
    with `hands` also {"handed": {log: [offsets]}: handed on and not acknowledged, now this client's, "acknowledged":
    {log: offset}: the last row that was handed on and acknowledged}.
    """

    subscription: int  # the client's number for it: the tag of its deliveries
    pattern: str  # empty, with `name` and without `create`: the topic that the subscription has
    where: str | None = None
    durable: bool = False  # read the log of a durable topic: rows come in HAND frames
    name: str = ""  # of a durable subscription: its cursor is stored, and several clients may share it
    start: Any = None  # "new" (also None), "earliest", {"time_us": …} or {"position": {log: offset}}; for a new one
    create: bool = True  # False: a subscription of this name must exist; `where` and `start` are then ignored
    token: bytes = b""  # 16 random bytes, the same when the request is repeated: then its effect is the same too
    prefetch: int = 10_000  # rows that may be handed out and not acknowledged
    max_deliveries: int = 0  # of a row before it is dead; 0: no limit
    dead_letter: str = ""  # topic for dead rows; created as a durable topic if it does not exist
    # {log: offset}: read only these logs, only rows before these offsets, and end with an ENDED. `start` is then a
    # position; a log that it does not name begins at 0. If rows of the range are gone: FAILURE `rows_gone`.
    stop: dict[int, int] | None = None
    # {`stored` of a topic: {log: offset}}: a plain subscription resumes on a new connection, after all rows of these
    # durable topics before these offsets. Any other durable topic is new: none of its rows were delivered.
    resume: dict[int, dict[int, int]] | None = None
    hands: bool = False  # this client hands rows on to clients of its own, and reports it (ACK): each handout is stored


class Unsubscribe(WireRequest, frozen=True, kw_only=True):
    """End deliveries for a subscription. With `name`, the durable subscription of that name is removed for good.

    Rows of a durable subscription that the client holds are delivered again. `seen` names the rows that its application
    was given, as in an ACK: those count as delivered, and the others as never sent. Without it, all count as delivered.
    """

    subscription: int = 0
    name: str = ""
    token: bytes = b""
    seen: dict[int, list[list[int]]] | None = None  # log -> ranges


class Positions(WireRequest, frozen=True, kw_only=True):
    """Ask for the positions of durable topics of plain subscriptions on this connection: {`stored`: {log: offset}}.

    The reply follows all rows before these offsets, and names topics that have moved since the last reply; it is empty
    while deliveries wait.
    """


class Ack(WireRequest, frozen=True, kw_only=True):
    """Rows are done, must be delivered again, or were handed on. Replied to when that is committed.

    A range [first, last] of a log names rows that were all handed to this client for this subscription and are not
    acknowledged yet; ranges ascend and do not overlap. Otherwise the request fails, and the rows that it named are
    delivered again. `sequence` counts a client's acknowledgements of a subscription, over its connections: one that the
    broker has already carried out is replied to and not carried out again.
    """

    subscription: int
    sequence: int
    done: dict[int, list[list[int]]] = {}  # log -> ranges
    again: dict[int, list[list[int]]] = {}
    handed: dict[int, list[list[int]]] = {}  # handed on to clients of this client: still its own, and not done


class Trim(WireRequest, frozen=True, kw_only=True):
    """An operator removes the rows of a durable topic before a position, consumed or not.

    Replied to with {"rows"}: the number removed.
    """

    topic: str
    before: dict[int, int]  # log -> offset


class RetentionHold(WireRequest, frozen=True, kw_only=True):
    """Create or move a hold: a named cursor without a consumer. Retention removes only rows before it.

    It moves forward only, log by log. Replied to with {"position": {log: offset}}: its position now.
    """

    topic: str
    name: str
    position: dict[int, int] | None = None  # None: a new hold begins at the earliest row, an existing one stays


class Look(WireRequest, frozen=True, kw_only=True):
    """Describe a durable topic: logs and sizes, named subscriptions and their cursors, or the position of a time.

    Replied to with {"logs": [{"log", "start", "next", "rows", "bytes", "entries", "broker"}], "subscriptions":
    [{"name", "where", "hold", "cursor": {log: offset}, "behind", "members", "coming": rows are in flight to its
    members, …}], "retain": {…}, "position": {log: offset}}.
    """

    topic: str
    start: Any = None  # as in `Subscribe`; the reply has its position


class Publish(WireRequest, frozen=True, kw_only=True):
    """Make the staged rows of an epoch visible, in one transaction, in the order of `parts`; all other rows staged for
    the sink up to this epoch are discarded.

    Replied to with {"repeated", "rows"}. An epoch that is not above the sink's last one was published before: nothing
    changes, and `repeated` is true. FAILURE `staging_lost` when nothing is staged for one of the parts.
    """

    sink: str
    epoch: int
    parts: list[tuple[int, int]]  # part, attempt


class Unstage(WireRequest, frozen=True, kw_only=True):
    """Discard the rows that are staged for an epoch of a sink."""

    sink: str
    epoch: int


class PublishedEpoch(WireRequest, frozen=True, kw_only=True):
    """Ask for the last epoch that a sink has published. Replied to with {"epoch"}, nil before the first."""

    sink: str


class ListTopics(WireRequest, frozen=True, kw_only=True):
    """List the topics that match a pattern. Replied to with a list of {"name", "schemas", "slow", and statistics}."""

    pattern: str = ">"


class StatusRequest(WireRequest, frozen=True, kw_only=True):
    """Ask for the broker's statistics, which `milepost top` shows."""


# Queues


class TypeAnnounced(msgspec.Struct, frozen=True, kw_only=True):
    """A message type of queues. Precedes the first TAKEN with messages of this type on a connection."""

    name: str
    text: str


class DeclareType(WireRequest, frozen=True, kw_only=True):
    """Create a message type, named in its text. One that already is as declared stays: {"name", "created"}."""

    text: str


class Types(WireRequest, frozen=True, kw_only=True):
    """List the message types. Replied to with a list of {"name", "text"}."""


class DeleteType(WireRequest, frozen=True, kw_only=True):
    """Remove a message type that no queue takes."""

    name: str


class DeclareQueue(WireRequest, frozen=True, kw_only=True):
    """Create a queue. Replied to with its description as in QUEUES, without statistics."""

    name: str
    types: list[str]
    level: str = "none"  # "ordered", "blockwise", "ordered blockwise"
    direction: str = "desc"  # of priorities: "desc" takes the highest first, "asc" the lowest
    priority: float = 0.0  # of messages without a priority of their own or a function for it
    functions: dict[str, str] = {}  # by type: the expression that gives a message its priority
    dead_letter: str | None = None  # the queue for messages whose deliveries all failed
    max_deliveries: int = 0  # deliveries before a message goes to `dead_letter`; 0: no limit


class DeleteQueue(WireRequest, frozen=True, kw_only=True):
    """Remove a queue and its messages, if no transaction has any of them."""

    name: str


class Queues(WireRequest, frozen=True, kw_only=True):
    """Describe all queues, or one: a list of {"name", "types", "level", "direction", "priority", …, statistics}.

    `counted` adds the statistics, which cost a count of all messages.
    """

    name: str | None = None
    counted: bool = True


class Dequeue(WireRequest, frozen=True, kw_only=True):
    """Take messages out of a queue, in a transaction; or, with `peek`, look at those that it would take.

    They come in TAKEN frames, followed by a REPLY {"messages": their number, and FINISH's fields about ENQUEUE frames}.
    When no message qualifies, the broker waits `wait_s` seconds, or until the next frame of the transaction.
    """

    transaction: int = 0  # 0 with `peek`
    step: int = 0  # counts the client's frames for a transaction from 1 on, also over its connections
    number: int = 0  # "t" of an earlier reply; 0: none had one. A restarted broker asks its store about it
    queue: str
    type: str | None = None  # None: any; then `where` and `order` may not use members of one type
    count: int = 1
    where: str | None = None
    order: str | None = None
    wait_s: float = 0.0
    peek: bool = False


class Finish(WireRequest, frozen=True, kw_only=True):
    """End a transaction, or execute its held frames ("flush").

    Replied to with {"s", "t", "mids"}: the writer and the transaction, and for each ENQUEUE since the last reply, in
    order, the numbers of its messages, 64 bits each. A commit is replied to when it is stored and synced; repeated
    on another connection, it has the same answer.
    """

    transaction: int
    step: int
    how: str  # "commit", "abort", "prepare", "flush"
    number: int = 0  # as in DEQUEUE
    gid: str = ""  # of a transaction over several brokers, for "prepare": its name,
    coordinator: str = ""  # and the coordinator that decides about it
    decision: dict[str, Any] | None = None  # of the coordinator, stored with its "commit": {"gid", "participant"}
    acks: list[Ack] = []  # of durable subscriptions, carried out with the commit; their `request` is ignored


class Browse(WireRequest, frozen=True, kw_only=True):
    """Look at messages in order of arrival, including those that are delayed or taken.

    They come in TAKEN frames, followed by a REPLY {"messages", "after": the last message's number, to continue from}.
    """

    queue: str
    type: str | None = None
    where: str | None = None
    after: int = 0
    count: int = 100


class MoveMessages(WireRequest, frozen=True, kw_only=True):
    """Move messages that no transaction has taken to another queue: {"messages": their number}."""

    source: str
    target: str
    type: str | None = None
    where: str | None = None
    count: int | None = None  # None: all


class Purge(WireRequest, frozen=True, kw_only=True):
    """Remove messages that no transaction has taken: {"messages": their number}."""

    queue: str
    type: str | None = None
    where: str | None = None
    count: int | None = None


class Decide(WireRequest, frozen=True, kw_only=True):
    """Commit or abort a prepared transaction; repeated, it has the same answer."""

    gid: str
    commit: bool


class ListInDoubt(WireRequest, frozen=True, kw_only=True):
    """List the prepared transactions that wait for a decision. Replied to with a list of their names."""

    coordinator: str | None = None  # only those of this coordinator; None: all


class Decisions(WireRequest, frozen=True, kw_only=True):
    """List the decisions of this broker's store, as coordinator, that are not forgotten: [gid, participant] each."""


class ForgetDecision(WireRequest, frozen=True, kw_only=True):
    """The participant has committed: this decision is not needed any more."""

    gid: str


class Settle(WireRequest, frozen=True, kw_only=True):
    """Ask whether a transaction over two stores was decided here: {"commit": whether it commits}. The answer is final.

    If it was not decided, the transaction here whose commit would have decided it is aborted, unless it has ended.
    """

    gid: str
    number: int  # "t" of that transaction


class HoldingRequest(WireRequest, frozen=True, kw_only=True):
    """Describe the messages that an open transaction has taken.

    Replied to with {"remaining": messages of blocks that it has begun and not taken, "ends": [[number of a message, its
    expiry in microseconds since 1970]], for those that expire}.
    """

    number: int  # "t" of the transaction


class SetTransfer(WireRequest, frozen=True, kw_only=True):
    """Transfer a queue to one of another broker, from now on; repeated, it changes nothing."""

    queue: str
    address: str
    target: str  # the queue at the other broker


class DeleteTransfer(WireRequest, frozen=True, kw_only=True):
    """End the transfer of a queue."""

    queue: str


class Transfers(WireRequest, frozen=True, kw_only=True):
    """Describe transfers: a list of {"queue", "address", "target", "created_us", "runner", "messages", "error"}."""


Control: TypeAlias = (
    WireRequest | Hello | Welcome | Failure | Ping | Pong | Credit | Bye | Reply | TopicAnnounced | Dropped | Stored
    | CaughtUp | Ended | Resume | TypeAnnounced
)  # fmt: skip

_KINDS: Final[dict[type[Any], Kind]] = {
    Hello: Kind.HELLO, Welcome: Kind.WELCOME, Failure: Kind.FAILURE, Ping: Kind.PING, Pong: Kind.PONG,
    Credit: Kind.CREDIT, Bye: Kind.BYE, Reply: Kind.REPLY, TopicAnnounced: Kind.TOPIC, Dropped: Kind.DROPPED,
    Declare: Kind.DECLARE, Delete: Kind.DELETE, Subscribe: Kind.SUBSCRIBE, Unsubscribe: Kind.UNSUBSCRIBE,
    ListTopics: Kind.LIST, StatusRequest: Kind.STATUS, Stored: Kind.STORED, Ack: Kind.ACK,
    Resume: Kind.RESUME, Trim: Kind.TRIM, Look: Kind.LOOK, RetentionHold: Kind.HOLD, Ended: Kind.ENDED,
    CaughtUp: Kind.CAUGHT_UP, Positions: Kind.POSITIONS,
    Publish: Kind.PUBLISH, Unstage: Kind.UNSTAGE, PublishedEpoch: Kind.PUBLISHED,
    TypeAnnounced: Kind.TYPE, DeclareType: Kind.DECLARE_TYPE, Types: Kind.TYPES, DeleteType: Kind.DELETE_TYPE,
    DeclareQueue: Kind.DECLARE_QUEUE, DeleteQueue: Kind.DELETE_QUEUE, Queues: Kind.QUEUES, Dequeue: Kind.DEQUEUE,
    Finish: Kind.FINISH, Browse: Kind.BROWSE, MoveMessages: Kind.MOVE_MESSAGES, Purge: Kind.PURGE,
    Decide: Kind.DECIDE, ListInDoubt: Kind.IN_DOUBT,
    Decisions: Kind.DECISIONS, ForgetDecision: Kind.FORGET_DECISION, Settle: Kind.SETTLE, HoldingRequest: Kind.HOLDING,
    SetTransfer: Kind.SET_TRANSFER, DeleteTransfer: Kind.DELETE_TRANSFER, Transfers: Kind.TRANSFERS,
}  # fmt: skip
_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODERS: Final = {int(kind): msgspec.msgpack.Decoder(struct) for struct, kind in _KINDS.items()}


def encode_control(message: Control) -> bytes:
    """A whole frame, header included."""
    body = _ENCODE(message)
    if len(body) > limits.CONTROL_BYTES:
        limits.require("CONTROL_BYTES", len(body), f"the bytes of a {type(message).__name__} frame")
    return HEADER.pack(len(body), _KINDS[type(message)], 0, MAGIC) + body


def decode_control(kind: int, body: bytes | bytearray | memoryview) -> Control:
    """The message of a control frame. Raises `ProtocolError` when its body does not fit its kind."""
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise ProtocolError(f"a frame of kind {kind} is no control frame")
    try:
        said: Control = decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"the body of a {Kind(kind).name} frame is not right: {error}") from None
    return said


def failure(error: MilepostError, **what: Any) -> Failure:
    """An error as a frame; `what` names the failed request or put, as fields of `Failure`."""
    text = str(error)
    if len(text) > MESSAGE_CHARS:
        text = text[:MESSAGE_CHARS] + " …"
    return Failure(code=error.code, message=text, **what)


MESSAGE_CHARS: Final = 4_000  # of an error on the wire: a caret under a line fits, an echoed megabyte does not
