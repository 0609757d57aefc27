"""A durable subscription whose client, such as a gateway, hands its messages on to clients of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from milepost.client.acks import BatchRows, Places, Word
from milepost.client.connection import BrokerConnection
from milepost.client.durable import DurableSubscription
from milepost.client.logbatch import LogBatch
from milepost.errors import AckMismatch

Place: TypeAlias = tuple[int, int]  # of a message: its log, and its offset there
Row: TypeAlias = tuple[LogBatch, int]  # a message as a row of a batch


class HandoutSubscription(DurableSubscription):
    """Made by `AsyncClient.subscribe(..., ack="handed")`.

    ::

        row = await subscription.next_row(timeout=1.0)  # a batch, and the number of the message's row in it
        place = await subscription.hand_on(row)         # stored: before the message is handed on
        await subscription.acknowledge(place)           # by this client, or by another one after a restart

    Messages that were handed on belong to the subscription, not to a connection. They stay in `handed_on`, over lost
    connections and restarts, until they are acknowledged, or until another consumer of the subscription takes them over
    while no handout client is attached.
    """

    handed_on: Mapping[Place, bool] = {}  # handed on and not acknowledged, in order; True: on this connection
    acknowledged: Mapping[int, int] = {}  # by log, the offset of the last message that was handed on and acknowledged

    def attached(self, connection: BrokerConnection, reply: Mapping[str, Any]) -> None:
        handed: dict[int, list[int]] = reply["handed"]
        self.handed_on = {(log, offset): False for log, offsets in handed.items() for offset in offsets}
        self.acknowledged = dict(reply["acknowledged"])
        super().attached(connection, reply)

    async def next_row(self, timeout: float | None = None) -> Row | None:
        """The message that `get` would return, as a row of a batch: nodes of a message type do not know their place."""
        return None if await self.get(timeout) is None else self._last()

    async def hand_on(self, row: Row) -> Place:
        """Store that a message is handed on. Returns when that is stored.

        `AckMismatch` when the connection broke since it arrived: it is delivered again, here or to another consumer.
        """
        self._require_explicit()
        self._came_back()
        batch, number = row
        named = self._close(self._outs.get(id(batch)), np.array([number]))
        place = batch.log, int(batch.offsets[number])
        connections = self._connections
        await self._say(named, "handed")
        if connections == self._connections:
            self.handed_on = {**self.handed_on, place: True}
        elif place not in self.handed_on:
            raise AckMismatch("the connection broke while this message was handed on, and another consumer has it")
        return place

    async def hand_on_again(self, place: Place) -> None:
        """Store that a message of `handed_on` is handed on again; after a restart this reserves it again.

        `AckMismatch` when another consumer has taken it over.
        """
        connections = self._connections
        await self._say_of(place, "handed")
        if connections == self._connections and place in self.handed_on:
            self.handed_on = {**self.handed_on, place: True}

    async def acknowledge(self, place: Place) -> None:
        """Acknowledge a message of `handed_on`. Keeps trying on the next connection.

        `AckMismatch` when another consumer has taken it over.
        """
        await self._say_of(place, "done")
        self._forget_place(place)
        self.acknowledged = {**self.acknowledged, place[0]: place[1]}

    async def send_back(self, place: Place) -> None:
        """Have a message of `handed_on` delivered again."""
        await self._say_of(place, "again")
        self._forget_place(place)

    async def _say_of(self, place: Place, word: Word) -> None:
        self._require_explicit()
        log, offset = place
        try:
            await self._say([BatchRows(Places(log, [offset]), slice(0, 1))], word, lasting=True)
        except AckMismatch:
            self._forget_place(place)
            raise

    def _forget_place(self, place: Place) -> None:
        self.handed_on = {each: here for each, here in self.handed_on.items() if each != place}
