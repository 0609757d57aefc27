"""A bounded read: the rows of a log range, once, a batch at a time."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from milepost.client.durable import TOKEN_BYTES, DurableSubscription
from milepost.client.logbatch import LogBatch
from milepost.client.options import PREFETCH, DurableOptions
from milepost.client.start import position_on_wire
from milepost.client.topic import require_text
from milepost.client.window import DeliveryCredit
from milepost.errors import Closed, InvalidValue

if TYPE_CHECKING:
    from milepost.client.async_client import AsyncClient

TAKEN_BYTES: Final = 1 << 20  # that another thread takes at once: changing threads costs as much as a small batch


class LogRead(DurableSubscription):
    """A replay with a stop, where it ends by itself. Made by the `read` of a client, which hands out its batches.

    After a lost connection it resumes after the rows that have arrived: no row comes twice, none is left out.
    """

    def __init__(self, client: AsyncClient, number: int, topic: str, where: str | None, start: Any, stop: Any) -> None:
        begin, end = checked_range(topic, start, stop)
        options = DurableOptions("", {"position": begin}, False, PREFETCH, 0, "", True, end)
        super().__init__(client, number, topic, where, options, os.urandom(TOKEN_BYTES))
        self._taken: list[DeliveryCredit] = []

    async def take_batches(self, most_bytes: int = 1) -> list[LogBatch]:
        """Batches that are here, of about `most_bytes`, at least one; none at the end.

        Batches taken before are done: their bytes are returned. Raises the error that ended the read before its stop.
        """
        self._release()
        while not self._queue:
            if self._ended:
                if self.error is not None:
                    raise self.error
                if not self.complete:
                    raise Closed(f"the read of {self.pattern!r} was ended before it had everything")
                return []
            await self._waiters.wait()
        found: list[LogBatch] = []
        size = 0
        while self._queue and size < most_bytes:
            topic, batch, _, credit = self._queue.popleft()
            assert isinstance(batch, LogBatch)
            self.topic = topic
            self._taken.append(credit)
            found.append(batch)
            size += len(batch.data)
        return found

    def _release(self) -> None:
        while self._taken:
            self._taken.pop().release()

    def _drop_waiting(self) -> None:
        self._release()
        super()._drop_waiting()


def checked_range(topic: Any, start: Any, stop: Any) -> tuple[dict[int, int], dict[int, int]]:
    """Where a read begins and ends, in the logs that it reads. Raises `InvalidValue` for an invalid range."""
    require_text("the name of a topic", topic)
    for what, position in (("start", start), ("stop", stop)):
        if not isinstance(position, Mapping):
            raise InvalidValue(f"{what}={position!r:.60}: a read takes positions, {{log: offset}}")
    first, end = position_on_wire(start), position_on_wire(stop)
    begin = {log: first.get(log, 0) for log in end}
    for log, offset in begin.items():
        if offset > end[log]:
            raise InvalidValue(f"a read of log {log} begins at offset {offset} and stops before it, at {end[log]}")
    return begin, end
