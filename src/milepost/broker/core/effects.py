"""Effects: what the core wants done. The shell carries them out in order, and answers with events."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from milepost.broker.core.sessions.connection import Connection
from milepost.operations import Operation, Start, Work
from milepost.wire import Control
from milepost.wire.payload import Buffer

if TYPE_CHECKING:
    from milepost.batch import Batch
    from milepost.broker.core.predicates import Work as Pieces
    from milepost.broker.core.topics.topic import Topic, Version
    from milepost.match import MaskSnapshot, Snapshot


class Say(NamedTuple):
    """Write a control frame."""

    connection: Connection
    message: Control


class Deliver(NamedTuple):
    """Write one frame of messages, in parts, to each of some connections; its credit is already spent.

    The shell calls `Delivery.blocked` for a connection whose channel does not take all of it.
    """

    parts: tuple[Buffer, ...]
    connections: list[Connection]
    answer: bool = False  # it took no credit: the client's frames are not read before it has read most of the answer


class Acknowledge(NamedTuple):
    """Tell connections up to which number their puts are stored: one STORED frame for each."""

    puts: dict[Connection, int]


class Close(NamedTuple):
    """Send what is still unsent, then close. The core has already removed the connection (`Core.lost`)."""

    connection: Connection


class Write(NamedTuple):
    """Write to the store, in the order of these effects; the shell gives the outcomes to `DurableTopics.stored`.

    `then` takes the outcome, or the error. When the store fails an operation of a session, it fails the later ones of
    the session too, until `Mend`.
    """

    operation: Operation
    then: Callable[[Any], list[Effect]]
    session: object = None


class Mend(NamedTuple):
    """Let the store carry out the operations of a session again, after a failure."""

    session: object


class ReadLog(NamedTuple):
    """Read rows of a log that match; `then` takes a list of `Portion`, or the error.

    With `only`, read exactly these offsets, ascending. Otherwise read one piece of bounded size from `offset` on, and
    only rows before `stop`.
    """

    topic: Topic
    where: str | None
    log: int
    offset: int
    only: npt.NDArray[np.uint64] | None
    then: Callable[[Any], list[Effect]]
    stop: int | None = None


class Ask(NamedTuple):
    """Ask the store about a topic's logs and subscriptions; with `start`, also for the position of that start."""

    topic: Topic
    start: Start | None
    then: Callable[[Any], list[Effect]]
    connection: Connection | None = None  # that gets the answer; one at a time for each


class Inspect(NamedTuple):
    """Have the store do read-only work, beside its writes; `then` takes the outcome, or the error."""

    operation: Work
    then: Callable[[Any], list[Effect]]
    connection: Connection | None = None  # that gets the answer; one at a time for each. None: the broker


class Learn(NamedTuple):
    """Ask a shared store for all its topics; `then` takes their records, or the error."""

    then: Callable[[Any], list[Effect]]


class Compile(NamedTuple):
    """Do work that is too long for the event loop, in a thread and in pieces; `then` takes its outcome, or the error.

    One thread does all such work, a piece at a time. Frames that the connection sends meanwhile wait, so that they are
    handled in order.
    """

    connection: Connection | None  # whose request needs it
    work: Callable[[], Pieces]
    then: Callable[[Any], list[Effect]]


class Match(NamedTuple):
    """Match rows that were stored with snapshots of the topic's indexes, in order for each topic.

    `then` takes the `Matches` of plain and of durable subscriptions, each None without a snapshot; or the error. The
    shell matches at once when that is short: `then` is then called before the effects that follow are carried out.
    """

    topic: Topic
    version: Version  # of the topic's schema, which the rows have
    batch: Batch
    plain: Snapshot | MaskSnapshot | None
    durable: Snapshot | MaskSnapshot | None
    then: Callable[[Any], list[Effect]]


class Later(NamedTuple):
    """Call `then` in the next round of the event loop. Frames that the connection sends wait, as for `Compile`."""

    connection: Connection
    then: Callable[[], list[Effect]]


Effect: TypeAlias = (
    Say | Deliver | Acknowledge | Close | Write | Mend | ReadLog | Ask | Inspect | Learn | Compile | Match | Later
)
