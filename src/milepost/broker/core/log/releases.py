"""Durable subscriptions that this broker no longer serves, kept until the store knows that."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from milepost.broker.core.effects import Effect, Write
from milepost.errors import StoreError
from milepost.operations import Release

Epoch: TypeAlias = tuple[int, int]  # the store's number of a subscription, and its epoch


class Releases:
    """Pending releases by name. An `Attach` that is sent meanwhile names the release, and gets a new epoch."""

    def __init__(self) -> None:
        self.pending: Final[dict[str, Epoch]] = {}

    def give(self, name: str, epoch: Epoch) -> Write:
        """Let other brokers serve a subscription. `again` repeats the request until the store has taken it."""
        self.pending[name] = epoch

        def released(outcome: Any) -> list[Effect]:
            if not isinstance(outcome, StoreError) and self.pending.get(name) == epoch:
                del self.pending[name]
            return []

        return Write(Release(*epoch), released)

    def again(self) -> list[Effect]:
        """Repeat the releases that the store has not taken yet."""
        return [self.give(name, epoch) for name, epoch in list(self.pending.items())]
