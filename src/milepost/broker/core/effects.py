"""What the core wants done. The shell does it in this order, and answers with events."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from milepost.broker.core.predicates import Work as Pieces
from milepost.broker.core.sessions.connection import Connection
from milepost.operations import Operation, Start, Work
from milepost.wire import Control
from milepost.wire.payload import Buffer

if TYPE_CHECKING:
    from milepost.batch import Batch
    from milepost.broker.core.topics.topic import Topic, Version
    from milepost.match import MaskSnapshot, Snapshot


class Say(NamedTuple):
    """Write a control frame."""

    connection: Connection
    message: Control


class Deliver(NamedTuple):
    """Write one DELIVER frame, in parts, to each of some connections; credit is spent already.

    Of a connection whose channel does not take all of it, the shell tells by `Delivery.blocked`.
    """

    parts: tuple[Buffer, ...]
    connections: list[Connection]
    answer: bool = False  # it took no credit: the client is not listened to before it has read most of it


class Acknowledge(NamedTuple):
    """Tell connections that their puts are stored, up to this number of each: one STORED frame to a connection."""

    puts: dict[Connection, int]


class Close(NamedTuple):
    """Send what was said, then close; `Core.lost` has already been taken care of."""

    connection: Connection


class Write(NamedTuple):
    """Write to the store, in the order of these effects; `DurableTopics.stored` is told what came of it.

    `then` takes the outcome, or the error. When an operation of a session fails because the store does, those behind
    it fail too, until `Mend`.
    """

    operation: Operation
    then: Callable[[Any], list[Effect]]
    session: object = None


class Mend(NamedTuple):
    """Operations of a session that are given from now on are to be tried again."""

    session: object


class ReadLog(NamedTuple):
    """Read rows of a log, those that match; `then` takes a list of `Found`, or the error.

    With `only`, exactly these offsets, ascending; otherwise from `offset` on, as many as make a good piece, and those
    before `stop` only.
    """

    topic: Topic
    where: str | None
    log: int
    offset: int
    only: npt.NDArray[np.uint64] | None
    then: Callable[[Any], list[Effect]]
    stop: int | None = None


class Ask(NamedTuple):
    """Ask the store: where a start is, with `start`; otherwise about a topic's logs and subscriptions."""

    topic: Topic
    start: Start | None
    then: Callable[[Any], list[Effect]]
    connection: Connection | None = None  # whose answer it is; each has one at a time


class Inspect(NamedTuple):
    """Have the store do work that changes nothing, beside what it writes; `then` takes the outcome, or the error."""

    operation: Work
    then: Callable[[Any], list[Effect]]
    connection: Connection | None = None  # whose answer it is; each has one at a time. None: the broker's own


class Learn(NamedTuple):
    """Ask a store that is shared for all its topics; `then` takes their records, or the error."""

    then: Callable[[Any], list[Effect]]


class Compile(NamedTuple):
    """Do work that is too long for the event loop, elsewhere and in pieces; `then` takes what it returns, or the error.

    One thread does all of it, a piece at a time. What a connection sends meanwhile waits, so that it is carried out in
    order.
    """

    connection: Connection | None  # whose request it is for
    work: Callable[[], Pieces]
    then: Callable[[Any], list[Effect]]


class Match(NamedTuple):
    """Match rows that were stored with snapshots of the topic's indexes, those of one topic in order.

    `then` takes the `Matches` of plain subscriptions and of durable ones, each None without a snapshot; or the error.
    The shell matches at once when that is short: `then` is called before the effects behind this one are carried out.
    """

    topic: Topic
    version: Version  # of the topic's schema, that the rows have
    batch: Batch
    plain: Snapshot | MaskSnapshot | None
    durable: Snapshot | MaskSnapshot | None
    then: Callable[[Any], list[Effect]]


class Later(NamedTuple):
    """Call back in another round of the event loop: others have their turn between. What is sent waits as above."""

    connection: Connection
    then: Callable[[], list[Effect]]


Effect: TypeAlias = (
    Say | Deliver | Acknowledge | Close | Write | Mend | ReadLog | Ask | Inspect | Learn | Compile | Match | Later
)
