"""The subscribers of a gateway: a bounded number is known, a smaller number attached, and idle ones are detached."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from milepost.gateway.zmq.refusal import busy
from milepost.gateway.zmq.subscriber import Subscriber

KNOWN: Final = 100_000  # subscribers whose topic is remembered; some hundred bytes each
ATTACHED: Final = 5_000  # subscribers whose messages the broker sends to this gateway, a few ahead each
QUEUED: Final = 16  # requests of one subscriber that wait for their turn: a REQ socket has one
IDLE_S: Final = 300.0  # without a request: a polling client asks more often, and a returning one is attached again


class Roster:
    """Subscribers by sub_id, the most recently used last."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Subscriber] = OrderedDict()
        # Includes some that are detached, since a subscription may end by itself.
        self._attached: dict[str, Subscriber] = {}

    def __len__(self) -> int:
        return len(self._known)

    @property
    def attached(self) -> int:
        """The number of attached subscribers."""
        return sum(each.attached for each in self._attached.values())

    def enter(self, sub_id: str, now: float) -> Subscriber:
        """The subscriber of a request, known from now on."""
        found = self._known.get(sub_id)
        if found is None:
            if len(self._known) >= KNOWN:
                self._forget_one()
            found = self._known[sub_id] = Subscriber(sub_id)
        if found.queued >= QUEUED:
            raise busy(f"{sub_id!r} has {QUEUED} requests waiting")
        found.used = now
        self._known.move_to_end(sub_id)
        return found

    def remove(self, subscriber: Subscriber) -> None:
        if self._known.get(subscriber.sub_id) is subscriber:
            del self._known[subscriber.sub_id]

    def _forget_one(self) -> None:
        for sub_id, each in self._known.items():
            if not each.attached and not each.queued:
                del self._known[sub_id]
                return
        raise busy(f"there are {KNOWN} subscribers here")

    def attached_now(self, subscriber: Subscriber) -> None:
        """Note that the broker sends a subscriber's messages to this gateway."""
        self._attached[subscriber.sub_id] = subscriber

    async def make_room(self) -> None:
        """Detach the subscriber with the oldest request, so that at most `ATTACHED` - 1 are attached."""
        if len(self._attached) < ATTACHED:
            return
        self._attached = {sub_id: each for sub_id, each in self._attached.items() if each.attached}
        if len(self._attached) < ATTACHED:
            return
        silent = min(
            (each for each in self._attached.values() if not each.queued), key=lambda each: each.used, default=None
        )
        if silent is None:
            raise busy(f"{ATTACHED} subscribers are busy here")
        await self._detach(silent)

    async def sweep(self, now: float) -> None:
        """Detach idle subscribers. Called periodically."""
        for each in list(self._attached.values()):
            if not each.queued and now - each.used >= IDLE_S:
                await self._detach(each)

    async def _detach(self, subscriber: Subscriber) -> None:
        self._attached.pop(subscriber.sub_id, None)
        async with subscriber.turn:
            await subscriber.detach()
