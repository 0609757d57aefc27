"""Rows for several durable topics that are stored all or none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

from milepost.client.publisher import Publisher
from milepost.client.topic import require_text
from milepost.errors import Closed


class Atomic:
    """Collects rows; leaving the block stores them. Made by `AsyncClient.atomic`.

    ::

        async with client.atomic() as together:
            together.put("orders", order)
            together.put_many("lines", lines)

    Leaving waits until all rows are stored. After any error, such as a row that does not fit its schema, none of them
    is stored, and leaving the block raises it; leaving by an exception stores none either.
    """

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._sources: dict[str, list[Any]] = {}
        self._single: set[str] = set()  # topics whose last source is a list of ours, to which `put` appends
        self._over = False
        self.rows = 0  # stored rows

    def put(self, topic: str, row: Any) -> None:
        """Add one message, as `AsyncClient.put` takes it."""
        sources = self._of(topic)
        if topic not in self._single:
            self._single.add(topic)
            sources.append([])
        sources[-1].append(dict(row) if type(row) is dict else row)  # copied: the caller may reuse its dict

    def put_many(self, topic: str, source: Any) -> None:
        """Add many messages, as `AsyncClient.put_many` takes them; an iterator is read at once."""
        sources = self._of(topic)
        self._single.discard(topic)
        sources.append(list(source) if isinstance(source, Iterator) and not isinstance(source, Mapping) else source)

    def _of(self, topic: str) -> list[Any]:
        require_text("the name of a topic", topic)
        if self._over:
            raise Closed("this atomic put is over; begin another with client.atomic()")
        return self._sources.setdefault(topic, [])

    async def store(self) -> int:
        """Store all rows, once. Returns their number. Leaving the block calls this."""
        if self._over:
            raise Closed("this atomic put is over; begin another with client.atomic()")
        self._over = True
        self.rows = await self._publisher.durable_puts.put_together(self._sources)
        return self.rows

    def abandon(self) -> None:
        """Store nothing."""
        self._over = True
        self._sources.clear()

    async def __aenter__(self) -> Atomic:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.abandon()
        elif not self._over:
            await self.store()
