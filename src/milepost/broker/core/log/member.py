"""A client that is attached to a durable subscription, and how many rows it may be given."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from milepost.broker.core.log.reach import RESERVED, Chosen

if TYPE_CHECKING:
    from milepost.broker.core.sessions.connection import Connection

REFILL: Final = 4  # a member is given rows when it has room for a quarter of `prefetch`
PATIENCE: Final = 10  # ticks that a client may hold one row alone unacknowledged; it may be waiting for more rows


@dataclass(slots=True, eq=False)
class Member:
    """A client attached to a durable subscription."""

    key: int  # among this subscription's members; in a reach, the owner of rows
    connection: Connection
    number: int  # the client's number of its subscription
    instance: bytes
    prefetch: int
    sequence: int  # number of the last acknowledgement accepted
    rows: int = 0  # handed out and not acknowledged
    alone: bool = False  # one of them is at its last delivery: no other row is given meanwhile
    waited: int = 0  # ticks since rows were given or acknowledged
    unsent: deque[Chosen] = field(default_factory=deque)  # sent once their delivery is stored

    @property
    def room(self) -> int:
        """Rows that it may be given now; 0 below a quarter of `prefetch`, since each frame has a fixed cost."""
        if self.alone and self.rows and self.waited < PATIENCE:
            return 0
        room = self.prefetch - self.rows
        return room if self.connection.ready and room > 0 and room >= self.prefetch // REFILL else 0


NO_MEMBER: Final = Member(0, None, 0, b"", 0, 0)  # type: ignore[arg-type]  # for moves without an ACK
ABSENT: Final = Member(RESERVED, None, 0, b"", 0, 0)  # type: ignore[arg-type]  # owns reserved rows
