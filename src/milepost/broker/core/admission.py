"""The only way in: every message that a client sends passes `Admission.admit`, on the fast paths too.

It has two steps, since a batch takes memory before it is known to be valid:

::

    accept   before a frame with rows is decoded: is there credit for its bytes?
    admit    before its rows are stored or delivered, in the order of the connection's puts: are they its publisher's,
             may they be put here, are their stamps valid?

What must hold for every message on its way in belongs into `admit`. A fast path that is refused takes the normal path
and is asked again, so a count is made last, when nothing refuses the message any more. Messages that the broker moves
by itself were admitted before: dead letters, transfers, messages that an operator moves, staged rows when published.
The request that asks for such a move is where its right is checked. Three places are kept for parts that are to come:
rights (refuse a put that `connection.principal` has no right to), quotas, and the publisher history of tracking.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from milepost.batch import Batch
from milepost.broker.core.effects import Effect, Say
from milepost.broker.core.put import Put, RowPut
from milepost.broker.core.topics.backlog import Backlog, CreditHold
from milepost.errors import InvalidValue, MilepostError, ProtocolError
from milepost.wire import Credit

if TYPE_CHECKING:
    from milepost.broker.core.core import Core
    from milepost.broker.core.sessions.connection import Connection
    from milepost.broker.core.topics.topic import Topic


class Admission:
    """Checks the messages that clients send, and gives credit."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def accept(self, connection: Connection, size: int) -> None:
        """Count the bytes of a frame with rows; raises `ProtocolError` when its client had no credit for them."""
        if connection.outstanding >= self._core.settings.put_window:
            raise ProtocolError(
                f"a put came while {connection.outstanding} bytes of puts were under way; WELCOME allowed "
                f"{self._core.settings.put_window}, and CREDIT says when there may be more"
            )
        connection.outstanding += size
        connection.bytes_in += size
        self._core.memory.held += size

    def admit(self, connection: Connection, target: Topic | str, first: int, last: int, rows: Batch | None) -> None:
        """Admit messages of one connection for a topic, or for a queue by name; raises if they are refused.

        `first` and `last` are their stamps. `rows` has their IDs; None: one message, whose ID is the connection's
        publisher, this broker and `first`. Messages for queues get their IDs when they are stored.
        """
        # Rights: check `connection.kind` and `connection.principal` against `target` here.
        # Quotas: count the messages and bytes of the principal here.
        if first and not target.stored:  # type: ignore[union-attr]  # durable: the store checks
            publisher = connection.publisher
            if first <= publisher.last_stamp:
                raise InvalidValue("the stamps of a publisher's messages increase; these are not above the last ones")
            publisher.last_stamp = last
        # Publisher history: record the IDs here.

    def admit_put(self, put: Put) -> bool:
        """Admit a put that was examined; False: it is refused, and `put.error` is the reason."""
        if put.error is None:
            try:
                first, last = self._stamps(put.connection, put.topic, put.batch)
                self.admit(put.connection, put.topic, first, last, put.batch)
            except MilepostError as error:
                put.error = error
        return put.error is None

    def _stamps(self, connection: Connection, topic: Topic, batch: Batch) -> tuple[int, int]:
        """The first and last stamp of a batch; raises `InvalidValue` when its message IDs are not its publisher's.

        Rows for a durable topic may have the ID of another broker, if they were put there before.
        """
        ids = batch.ids
        if ids is None or (topic.stored and not len(batch)):
            raise InvalidValue("a put has messages, and they have IDs; this batch has none")
        if not len(batch):
            return 0, 0
        number, broker = connection.publisher.number, self._core.broker_id
        for run in ids.runs:
            if run.publisher != number or (run.broker != broker and not topic.stored):
                raise InvalidValue(
                    "the message IDs of a put are those of its publisher and its broker, as WELCOME gave them"
                )
        if len(ids) == 1:
            first = last = ids[0].stamp
        else:
            stamps = ids.stamps
            if not (stamps[1:] > stamps[:-1]).all():
                raise InvalidValue("the stamps of a publisher's messages increase; these do not")
            first, last = int(stamps[0]), int(stamps[-1])
        if topic.stored and not 0 < first <= last < 1 << 63:
            raise InvalidValue("the stamps of messages that are stored are above 0 and below 2**63")
        return first, last

    # Credit: a client gets the bytes of a frame back when its rows are stored or delivered.

    def give_back(self, puts: Sequence[Put | RowPut], full: list[Backlog], effects: list[Effect]) -> None:
        """Give the bytes of puts back as credit; if backlogs are `full`, when they have room again."""
        for put in puts:
            if full:
                hold = CreditHold(put.connection, put.size, len(full))
                self._core.totals["puts_throttled"] += 1
                for backlog in full:
                    backlog.holds.append(hold)
            elif put.connection.open:
                self.give_credit(put.connection, put.size, effects)

    def release(self, backlog: Backlog, effects: list[Effect]) -> None:
        """Give credit to the publishers that waited only for this backlog, which has room again."""
        holds, backlog.holds = backlog.holds, []
        for hold in holds:
            hold.backlogs -= 1
            if not hold.backlogs and hold.publisher.open:
                self.give_credit(hold.publisher, hold.size, effects)

    def give_credit(self, connection: Connection, size: int, effects: list[Effect]) -> None:
        """Give bytes back; a CREDIT frame is sent once they add up to half of the window."""
        connection.taken += size
        self._core.memory.held -= size
        if connection.taken >= self._core.settings.put_window // 2:
            effects.append(Say(connection, Credit(connection.taken)))
            connection.outstanding -= connection.taken
            connection.taken = 0
