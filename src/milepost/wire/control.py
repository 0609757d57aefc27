"""What control frames say: MessagePack maps, with the field names below as keys.

A reader ignores keys that it does not know, and a key that is missing takes its default, so fields may be added
without a new protocol version.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from milepost import limits
from milepost.errors import MilepostError, ProtocolError
from milepost.wire.frames import HEADER, MAGIC, PROTOCOL, Kind

Slow: TypeAlias = str  # "throttle", "drop" or "disconnect"


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """A client introduces itself. It is the first frame, and at most `limits.HELLO_BYTES` long."""

    protocol: int = PROTOCOL
    kind: str = "client"  # of the connection: "gateway" for a program that speaks for clients of another protocol
    name: str = ""  # of the publisher; empty: anonymous
    auth: dict[str, Any] = {}  # {"method": "none"}; the place of tokens and certificates to come
    software: str = ""
    window: int  # bytes of deliveries that may be under way to this client before it gives credit
    slow: Slow | None = None  # what to do when this client is slow, instead of what its topics say
    instance: bytes = b""  # 16 random bytes of this client object: who puts without a name, and who acknowledges
    resume: bool = False  # this instance has put to durable topics before: find its number and its high water
    held: int = 0  # bytes of the window that are in use: deliveries of earlier connections wait in the client
    places: bool = False  # it reads the places of rows in DELIVER frames from durable topics


class Welcome(msgspec.Struct, frozen=True, kw_only=True):
    """The broker takes the client."""

    protocol: int = PROTOCOL
    broker: str  # its name
    broker_id: int  # 32 bits; the `broker` of message IDs
    publisher: int  # 32 bits; the `publisher` of this client's message IDs
    high_water: int = (
        0  # the publisher's highest stamp that is committed; of one that stored nothing, any: go on above it
    )
    last: int = 0  # the highest stamp known from this publisher, stored or not: go on above it
    time_us: int  # the broker's clock, microseconds since 1970
    window: int  # bytes of puts that may be under way before the broker gives credit
    delivery_window: int = 0  # bytes of deliveries that the broker will have under way: what HELLO asked for, or less
    frame_bytes: int = limits.FRAME_BYTES  # the longest body of a frame that the broker takes
    heartbeat_s: float  # say something at least this often
    software: str = ""
    store_id: str = ""  # changes only when stored state was lost; empty: this broker keeps nothing


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """An error: of a request (its number), of a put (counted from 1 on this connection), or of the whole connection."""

    code: str
    message: str
    request: int = 0
    put: int = 0
    topic: str = ""
    subscription: int = 0  # that has ended, for this reason
    fatal: bool = False  # the connection is closed behind this frame


class Ping(msgspec.Struct, frozen=True):
    """Asks for a `Pong` with the same number."""

    number: int


class Pong(msgspec.Struct, frozen=True):
    """Answers a `Ping`."""

    number: int
    time_us: int = 0


class Credit(msgspec.Struct, frozen=True):
    """So many bytes of PUT or DELIVER frames, headers included, were taken, and as many may follow."""

    bytes: int


class Bye(msgspec.Struct, frozen=True):
    """A close on purpose."""

    reason: str = ""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A request was carried out."""

    request: int
    value: Any = None


class TopicAnnounced(msgspec.Struct, frozen=True, kw_only=True):
    """A topic: DELIVER and PUT frames name it by its number, which is good for one run of the broker."""

    number: int
    name: str
    schemas: list[str]  # texts of all versions, the oldest first
    slow: Slow = "throttle"
    durable: bool = False
    stored: int = 0  # the store's number of a durable topic: the same for all brokers, and never used again


class Dropped(msgspec.Struct, frozen=True):
    """Rows that were dropped since the last such frame, by subscription.

    `lost` names those that are gone from a log: [subscription, log, first offset, offset after the last]. `skipped`
    names topics that came after a subscription to their pattern, and of which it gets no rows, with the reason.
    """

    rows: dict[int, int]
    lost: list[list[int]] = []
    skipped: dict[int, dict[str, str]] = {}


class Stored(msgspec.Struct, frozen=True):
    """Every durable put of this connection up to number `put` is committed and synced, or was refused by a FAILURE."""

    put: int


class CaughtUp(msgspec.Struct, frozen=True):
    """A plain subscription has had all rows of a durable topic before a position; what follows is delivered."""

    subscription: int
    topic: int  # `stored`
    position: dict[int, int]


class Ended(msgspec.Struct, frozen=True):
    """A subscription with a `stop` has had everything before it, and is gone. Comes behind its last HAND."""

    subscription: int


class Resume(msgspec.Struct, frozen=True):
    """After a FAILURE of a durable put by the store, all that follow fail too, up to this frame.

    Otherwise a later put could be stored before an earlier one, whose stamps would then look like a repetition.
    """

    put: int = 0  # how many puts were sent before


class Declare(msgspec.Struct, frozen=True, kw_only=True):
    """Make a topic, or a new version of its schema. Replied to with {"number", "created"}, after `TopicAnnounced`."""

    request: int
    name: str
    schema: str | None = None  # None: the topic must be there, and its `TopicAnnounced` is wanted
    slow: Slow | None = None
    durable: bool | None = None  # None: as it is; a new topic is live
    retain: dict[str, Any] | None = None  # {"age_s", "bytes", "hold"}: see `Retention`; None: as it is


class Delete(msgspec.Struct, frozen=True, kw_only=True):
    """Remove a topic and the subscriptions to it."""

    request: int
    name: str


class Subscribe(msgspec.Struct, frozen=True, kw_only=True):
    """Deliver the rows of a topic, or of all topics of a pattern, that satisfy `where`.

    Replied to with {"topics": [names], "skipped": {name: why `where` does not fit its schema}, "positions": as in
    `resume`, of the durable topics that are delivered from now on or skipped, "behind": {name: `stored`} of those
    whose missed rows come first, in HAND frames, until a CAUGHT_UP}; a durable one with {"created", "position": {log:
    offset}: where it is, "sequence": of this client's last acknowledgement that was carried out}, and with `hands`
    {"handed": {log: [offsets]}: handed on and not acknowledged, this client's now, "acknowledged": {log: offset}: the
    row that was handed on and acknowledged last}.
    """

    request: int
    subscription: int  # the client's number for it: the tag on what is delivered
    pattern: str  # empty, with `name` and without `create`: whatever topic the subscription has
    where: str | None = None
    durable: bool = False  # read the log of a durable topic: rows come in HAND frames
    name: str = ""  # of a durable subscription: its cursor is stored, and several clients may share it
    start: Any = None  # "new" (also None), "earliest", {"time_us": …} or {"position": {log: offset}}; for a new one
    create: bool = True  # False: a subscription of this name must be there; `where` and `start` are then not looked at
    token: bytes = b""  # 16 random bytes, the same when the request is repeated: so is then its effect
    prefetch: int = 10_000  # rows that may be handed out and not acknowledged
    max_deliveries: int = 0  # of a row before it is dead; 0: any number
    dead_letter: str = ""  # topic for dead rows; it is made as a durable topic if it is not there
    # {log: offset}: read these logs only, rows before these offsets only, and end by itself, with an ENDED. `start` is
    # a position then; a log that it does not name begins at 0. Rows of the range that are gone: FAILURE `rows_gone`.
    stop: dict[int, int] | None = None
    # {`stored` of a topic: {log: offset}}: a plain subscription comes back on a new connection, and has had all rows of
    # these durable topics before these offsets. A durable topic that is not named was made since: it has had nothing.
    resume: dict[int, dict[int, int]] | None = None
    hands: bool = False  # this client hands rows on to clients of its own, and says so (ACK): that is stored


class Unsubscribe(msgspec.Struct, frozen=True, kw_only=True):
    """Deliver no more for a subscription. With `name`, the durable subscription of that name is removed for good.

    What a client holds of a durable subscription comes again. `seen` names the rows that its application was given, as
    in an ACK: those were delivered, and the others count as never sent. Without it, all of them were delivered.
    """

    request: int
    subscription: int = 0
    name: str = ""
    token: bytes = b""
    seen: dict[int, list[list[int]]] | None = None  # log -> ranges


class Positions(msgspec.Struct, frozen=True, kw_only=True):
    """How far are the durable topics that plain subscriptions of this connection have? {`stored`: {log: offset}}.

    The reply comes behind everything before these offsets, and tells of topics that have moved since the last one; it
    is empty while deliveries wait.
    """

    request: int


class Ack(msgspec.Struct, frozen=True, kw_only=True):
    """Rows are done with, are to come again, or were handed on. Replied to when that is committed.

    A range [first, last] of a log names rows that were all handed to this client for this subscription and are not
    acknowledged yet; ranges ascend, and none is over another. When one is not so, the request fails, and the rows that
    it named come again. `sequence` counts a client's acknowledgements of a subscription, over its connections:
    one that the broker has carried out already is replied to and not carried out again.
    """

    request: int
    subscription: int
    sequence: int
    done: dict[int, list[list[int]]] = {}  # log -> ranges
    again: dict[int, list[list[int]]] = {}
    handed: dict[int, list[list[int]]] = {}  # to clients of this client: still its own, and not done


class Trim(msgspec.Struct, frozen=True, kw_only=True):
    """An operator removes the rows of a durable topic before a position, consumed or not.

    Replied to with {"rows"}: how many went.
    """

    request: int
    topic: str
    before: dict[int, int]  # log -> offset


class RetentionHold(msgspec.Struct, frozen=True, kw_only=True):
    """Make or move a hold: a named cursor without a consumer. Retention removes only rows before it.

    It moves forward only, log by log. Replied to with {"position": {log: offset}}: where it is now.
    """

    request: int
    topic: str
    name: str
    position: dict[int, int] | None = None  # None: a new one at what is there of the topic, any other as it is


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """Tell about a durable topic: logs and sizes, named subscriptions and their cursors, or where a time is.

    Replied to with {"logs": [{"log", "start", "next", "rows", "bytes", "entries", "broker"}], "subscriptions":
    [{"name", "where", "hold", "cursor": {log: offset}, "behind", "members", "coming": rows are on their way to its
    members, …}], "retain": {…}, "position": {log: offset}}.
    """

    request: int
    topic: str
    start: Any = None  # as in `Subscribe`; the position it means is in the reply


class Publish(msgspec.Struct, frozen=True, kw_only=True):
    """Let the staged rows of an epoch be seen, in one transaction, in the order of `parts`; everything else that is
    staged for the sink up to this epoch goes.

    Replied to with {"repeated", "rows"}. An epoch that is not above the sink's last one was published before: nothing
    changes, and `repeated` is true. FAILURE `staging_lost` when nothing is staged for one of the parts.
    """

    request: int
    sink: str
    epoch: int
    parts: list[tuple[int, int]]  # part, attempt


class Unstage(msgspec.Struct, frozen=True, kw_only=True):
    """The rows that are staged for an epoch of a sink will never be seen."""

    request: int
    sink: str
    epoch: int


class PublishedEpoch(msgspec.Struct, frozen=True, kw_only=True):
    """How far is a sink? Replied to with {"epoch"}: the last one that was published, or nil."""

    request: int
    sink: str


class ListTopics(msgspec.Struct, frozen=True, kw_only=True):
    """Name the topics of a pattern. Replied to with a list of {"name", "schemas", "slow", and figures}."""

    request: int
    pattern: str = ">"


class StatusRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Tell how the broker is. Replied to with its statistics, what `milepost top` draws."""

    request: int


# Queues


class TypeAnnounced(msgspec.Struct, frozen=True, kw_only=True):
    """A message type of queues. Comes before the first TAKEN with messages of it on a connection."""

    name: str
    text: str


class DeclareType(msgspec.Struct, frozen=True, kw_only=True):
    """Make a message type, named in its text. One that is there as it is declared stays: {"name", "created"}."""

    request: int
    text: str


class Types(msgspec.Struct, frozen=True, kw_only=True):
    """Name the message types. Replied to with a list of {"name", "text"}."""

    request: int


class DeleteType(msgspec.Struct, frozen=True, kw_only=True):
    """Remove a message type that no queue takes."""

    request: int
    name: str


class DeclareQueue(msgspec.Struct, frozen=True, kw_only=True):
    """Make a queue. Replied to with what QUEUES tells about it, without figures."""

    request: int
    name: str
    types: list[str]
    level: str = "none"  # "ordered", "blockwise", "ordered blockwise"
    direction: str = "desc"  # of priorities: "desc" takes the highest first, "asc" the lowest
    priority: float = 0.0  # of messages that come without one and have no function for it
    functions: dict[str, str] = {}  # by type: the expression that gives a message its priority
    dead_letter: str | None = None  # the queue for messages that were delivered too often, each time in vain
    max_deliveries: int = 0  # what too often is; 0: never


class DeleteQueue(msgspec.Struct, frozen=True, kw_only=True):
    """Remove a queue and its messages, if no transaction has any of them."""

    request: int
    name: str


class Queues(msgspec.Struct, frozen=True, kw_only=True):
    """Tell about all queues, or one: a list of {"name", "types", "level", "direction", "priority", …, figures}.

    Figures take the time to count all messages; who does not need them does without.
    """

    request: int
    name: str | None = None
    counted: bool = True


class Dequeue(msgspec.Struct, frozen=True, kw_only=True):
    """Take messages out of a queue, in a transaction; or, with `peek`, look at those that would come.

    They come in TAKEN frames; then a REPLY {"messages": how many, and what FINISH tells about ENQUEUE frames}. When
    nothing qualifies, the broker waits `wait_s` seconds for something, or until the next frame of the transaction.
    """

    request: int
    transaction: int = 0  # 0 with `peek`
    step: int = 0  # what the client sends for a transaction is counted from 1 on; also over its connections
    number: int = 0  # "t" of an earlier reply; 0: none had one. A broker that was started anew asks its store about it
    queue: str
    type: str | None = None  # None: any; then without `where` and `order` over what a type alone has
    count: int = 1
    where: str | None = None
    order: str | None = None
    wait_s: float = 0.0
    peek: bool = False


class Finish(msgspec.Struct, frozen=True, kw_only=True):
    """End a transaction, or carry out what is held of it ("flush").

    Replied to with {"s", "t", "mids"}: the writer and the transaction, and for each ENQUEUE since the last reply, in
    order, the numbers of its messages, 64 bits each. A commit is replied to when it is stored and synced; the same
    again, on another connection, has the same answer.
    """

    request: int
    transaction: int
    step: int
    how: str  # "commit", "abort", "prepare", "flush"
    number: int = 0  # as in DEQUEUE
    gid: str = ""  # of a transaction over several brokers: what it is called, for "prepare",
    coordinator: str = ""  # and who decides about it
    decision: dict[str, Any] | None = None  # of the coordinator, stored with its "commit": {"gid", "participant"}
    acks: list[Ack] = []  # of durable subscriptions, carried out with the commit; their `request` is not looked at


class Browse(msgspec.Struct, frozen=True, kw_only=True):
    """Look at messages in the order in which they came, also at those that wait for a time or are taken.

    They come in TAKEN frames, then a REPLY {"messages", "after": the last one's number, to go on behind}.
    """

    request: int
    queue: str
    type: str | None = None
    where: str | None = None
    after: int = 0
    count: int = 100


class MoveMessages(msgspec.Struct, frozen=True, kw_only=True):
    """Move messages that no transaction has taken to another queue: {"messages": how many}."""

    request: int
    source: str
    target: str
    type: str | None = None
    where: str | None = None
    count: int | None = None  # None: all


class Purge(msgspec.Struct, frozen=True, kw_only=True):
    """Remove messages that no transaction has taken: {"messages": how many}."""

    request: int
    queue: str
    type: str | None = None
    where: str | None = None
    count: int | None = None


class Decide(msgspec.Struct, frozen=True, kw_only=True):
    """Commit or undo a transaction that was prepared; the same again has the same answer."""

    request: int
    gid: str
    commit: bool


class ListInDoubt(msgspec.Struct, frozen=True, kw_only=True):
    """Which prepared transactions wait for a decision? Replied to with a list of their names."""

    request: int
    coordinator: str | None = None  # of one who decides; None: of all


class Decisions(msgspec.Struct, frozen=True, kw_only=True):
    """What did this broker's store decide, as coordinator, and has not forgotten? A list of [gid, participant]."""

    request: int


class ForgetDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The participant has committed: nobody will ask about this decision again."""

    request: int
    gid: str


class Settle(msgspec.Struct, frozen=True, kw_only=True):
    """Was a transaction over two stores decided here? {"commit": whether it is to commit}, once and for all.

    If not, the transaction here whose commit would have decided it is undone, unless it has ended.
    """

    request: int
    gid: str
    number: int  # "t" of that transaction


class HoldingRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be known of the messages that a transaction under way has taken.

    Replied to with {"remaining": messages of blocks that it has begun and not taken, "ends": [[number of a message, the
    microsecond since 1970 at which its time is over]], for those that have one}.
    """

    request: int
    number: int  # "t" of the transaction


class SetTransfer(msgspec.Struct, frozen=True, kw_only=True):
    """Transfer a queue to one of another broker, from now on; the same again changes nothing."""

    request: int
    queue: str
    address: str
    target: str  # the queue there


class DeleteTransfer(msgspec.Struct, frozen=True, kw_only=True):
    """Transfer a queue no more."""

    request: int
    queue: str


class Transfers(msgspec.Struct, frozen=True, kw_only=True):
    """Tell about transfers: a list of {"queue", "address", "target", "created_us", "runner", "messages", "error"}."""

    request: int


Control: TypeAlias = (
    Hello | Welcome | Failure | Ping | Pong | Credit | Bye | Reply | TopicAnnounced | Dropped | Stored | CaughtUp
    | Ended | Declare | Delete | Subscribe | Unsubscribe | Positions | ListTopics | StatusRequest | Ack | Resume | Trim
    | Look | RetentionHold | Publish | Unstage | PublishedEpoch
    | TypeAnnounced | DeclareType | Types | DeleteType | DeclareQueue | DeleteQueue | Queues | Dequeue | Finish | Browse
    | MoveMessages | Purge | Decide | ListInDoubt
    | Decisions | ForgetDecision | Settle | HoldingRequest | SetTransfer | DeleteTransfer | Transfers
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
    """What a control frame says; `ProtocolError` when its body is not what its kind promises."""
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise ProtocolError(f"a frame of kind {kind} is no control frame")
    try:
        said: Control = decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"the body of a {Kind(kind).name} frame is not right: {error}") from None
    return said


def failure(error: MilepostError, **what: Any) -> Failure:
    """An error in the form it travels in; `what` names what failed, as the fields of `Failure`."""
    text = str(error)
    if len(text) > MESSAGE_CHARS:
        text = text[:MESSAGE_CHARS] + " …"
    return Failure(code=error.code, message=text, **what)


MESSAGE_CHARS: Final = 4_000  # of an error on the wire: a caret under a line fits, a megabyte of echo does not
