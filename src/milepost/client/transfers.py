"""The verbs of a client about transfers, and about transactions across two brokers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from milepost.batch.atoms import timestamp_of
from milepost.client.session import ClientSession
from milepost.client.topic import require_text
from milepost.wire import (
    Decide,
    Decisions,
    DeleteTransfer,
    ForgetDecision,
    HoldingRequest,
    ListInDoubt,
    Settle,
    SetTransfer,
    Transfers,
)


@dataclass(frozen=True, slots=True)
class TransferInfo:
    """A queue that is transferred to a queue of another broker."""

    queue: str
    address: str
    target: str  # the queue at the other broker
    created_at: datetime
    messages: int  # transferred, as of the broker's last report
    error: str  # why the transfer does not proceed; empty: it does


@dataclass(frozen=True, slots=True)
class HoldingInfo:
    """The messages that a transaction has taken out of queues."""

    remaining: int  # messages left in blocks that it has begun, without which it cannot commit
    ends: Mapping[int, datetime]  # number of a message: when it expires, if it does


class TransferVerbs:
    """The verbs of `AsyncClient` for transfers."""

    _session: ClientSession

    # Transfers

    async def transfer(self, queue: str, address: str, target: str) -> None:
        """Have the broker transfer a queue to the queue `target` of the broker at `address`, until `delete_transfer`.

        Each message is moved exactly once, whatever fails in between. A repeated call changes nothing. Raises
        `InvalidValue` when the queue is transferred elsewhere.
        """
        for what, text in (("the name of a queue", queue), ("an address", address), ("the name of a queue", target)):
            require_text(what, text)
        await self._session.ask(
            lambda request: SetTransfer(request=request, queue=queue, address=address, target=target)
        )

    async def delete_transfer(self, queue: str) -> None:
        """End the transfer of a queue. Raises `InvalidValue` when there is none."""
        require_text("the name of a queue", queue)
        await self._session.ask(lambda request: DeleteTransfer(request=request, queue=queue), again=False)

    async def transfers(self) -> list[TransferInfo]:
        """All transfers and their state."""
        found = await self._session.ask(lambda request: Transfers(request=request))
        return [
            TransferInfo(
                each["queue"], each["address"], each["target"], timestamp_of(each["created_us"]), each["messages"],
                each["error"],
            )
            for each in found
        ]  # fmt: skip

    # Transactions across two brokers: at the participant, which prepared

    async def decide(self, gid: str, commit: bool) -> bool:
        """End a transaction that was prepared under this name. Returns whether it had already ended this way."""
        require_text("the name of a transaction", gid)
        reply = await self._session.ask(lambda request: Decide(request=request, gid=gid, commit=commit))
        return bool(reply["repeated"])

    async def in_doubt(self, coordinator: str | None = None) -> list[tuple[str, str]]:
        """Prepared transactions that wait for a decision, of one coordinator or of all: name and coordinator."""
        found = await self._session.ask(lambda request: ListInDoubt(request=request, coordinator=coordinator))
        return [(gid, decider) for gid, decider in found]

    # Transactions across two brokers: at the coordinator, which decides

    async def decisions(self) -> list[tuple[str, str]]:
        """The decisions to commit that this broker's store has not forgotten: name and participant."""
        found = await self._session.ask(lambda request: Decisions(request=request))
        return [(gid, participant) for gid, participant in found]

    async def forget_decision(self, gid: str) -> None:
        """Forget a decision: the participant has committed."""
        require_text("the name of a transaction", gid)
        await self._session.ask(lambda request: ForgetDecision(request=request, gid=gid))

    async def settle(self, gid: str, number: int) -> bool:
        """Whether the other half of a transaction must commit; the answer never changes.

        `number` is that of the transaction here whose commit decides: if it is still open, it is aborted.
        """
        require_text("the name of a transaction", gid)
        reply: Any = await self._session.ask(lambda request: Settle(request=request, gid=gid, number=number))
        return bool(reply["commit"])

    async def holding(self, number: int) -> HoldingInfo:
        """Describe the messages that the open transaction `number` has taken; see `Transaction.number`."""
        reply = await self._session.ask(lambda request: HoldingRequest(request=request, number=number))
        return HoldingInfo(int(reply["remaining"]), {int(number): timestamp_of(ends) for number, ends in reply["ends"]})
