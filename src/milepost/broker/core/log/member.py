"""A client that is attached to a durable subscription, and what it may be given."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from milepost.broker.core.log.reach import RESERVED, Chosen

if TYPE_CHECKING:
    from milepost.broker.core.sessions.connection import Connection

REFILL: Final = 4  # a member is given rows when a quarter of what it may hold is acknowledged
PATIENCE: Final = 10  # ticks that a client may hold a row alone and acknowledge nothing: it may wait for others to come


@dataclass(slots=True, eq=False)
class Member:
    """A client that is attached."""

    key: int  # of this subscription's members; the owner of rows in a reach
    connection: Connection
    number: int  # the client's, of its subscription
    instance: bytes
    prefetch: int
    sequence: int  # of its acknowledgements: the last that was taken
    rows: int = 0  # handed out and not acknowledged
    alone: bool = False  # of those, there is one that may not be delivered again, and nothing else is given
    waited: int = 0  # ticks since something was given or acknowledged
    unsent: deque[Chosen] = field(default_factory=deque)  # rows that go to the client once their delivery is counted

    @property
    def room(self) -> int:
        """Rows that it may be given now: none before there is room for a good number, as each frame has its price."""
        if self.alone and self.rows and self.waited < PATIENCE:
            return 0
        room = self.prefetch - self.rows
        return room if self.connection.ready and room > 0 and room >= self.prefetch // REFILL else 0


NO_MEMBER: Final = Member(0, None, 0, b"", 0, 0)  # type: ignore[arg-type]  # on whose behalf cursors move by themselves
ABSENT: Final = Member(RESERVED, None, 0, b"", 0, 0)  # type: ignore[arg-type]  # has the rows that are reserved
