"""A transaction of a client without a broker, between its requests."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from milepost.batch import Batch
from milepost.batch.loose import Loose
from milepost.errors import MilepostError
from milepost.operations.steps import Enqueue as EnqueueStep
from milepost.queues.requests import enqueue_of
from milepost.wire import Dequeue, Enqueue


class Dealing:
    """`client` is the client's number of it, `number` what the store calls it; 0: it has not heard of it."""

    __slots__ = (
        "busy", "client", "enqueued", "held", "idle", "messages", "mids", "number", "over", "resumed", "taken",
        "writer",
    )  # fmt: skip

    def __init__(self, client: int, writer: int, resumed: bool) -> None:
        self.client = client
        self.resumed = resumed  # it was begun on a connection that is gone: what came of it there, the store knows
        self.writer = writer  # S of its messages
        self.number = 0
        self.held: list[tuple[Enqueue, Batch | Loose]] = []  # goes with the next request
        self.messages = 0  # enqueued
        self.mids: list[list[int]] = []  # of messages whose numbers the client was not told yet
        self.enqueued: Counter[str] = Counter()  # by queue
        self.taken: Counter[str] = Counter()
        self.busy = False  # the store is carrying something out
        self.idle: asyncio.Future[None] | None = None  # somebody waits until it has
        self.over: MilepostError | None = None  # it was undone, and this is why

    def steps(self) -> list[EnqueueStep]:
        """What is held."""
        return [enqueue_of(frame, batch) for frame, batch in self.held]

    def stored(self, outcomes: tuple[Any, ...]) -> None:
        """What was held is in the store."""
        for (frame, _), outcome in zip(self.held, outcomes, strict=False):
            if outcome is None:  # of a commit that was done before: what the messages' numbers were is forgotten
                self.mids.append([])
                continue
            self.writer = outcome.s
            self.mids.append(outcome.mids)
            self.enqueued[frame.queue] += len(outcome.mids)
        self.held = []

    def receipt(self) -> dict[str, Any]:
        """What is told with each answer."""
        mids, self.mids = self.mids, []
        return {"s": self.writer, "t": self.number, "mids": mids}

    def wish(self, said: Dequeue) -> Any:
        """What a dequeue looks for. Whoever holds messages of the queue may see others than the rest do."""
        return said.type, said.where, self.client if self.taken[said.queue] else 0
