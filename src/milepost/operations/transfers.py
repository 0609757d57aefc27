"""Operations on transfers of queues to another broker, and on unfinished transactions over two stores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from milepost.operations.work import Look, Work


class TransferRecord(NamedTuple):
    """A queue whose messages are transferred to another broker."""

    queue: str
    number: int  # of the queue
    address: str
    target: str  # the queue at the other broker
    created_us: int
    runner: int  # the log of the broker that runs the transfer
    messages: int
    error: str


class Report(NamedTuple):
    """A broker's report on a transfer that it runs."""

    number: int  # of the queue
    created_us: int
    messages: int  # since the last report
    error: str


@dataclass(frozen=True)
class SetTransfer(Work):
    """Transfer a queue from now on, until `DeleteTransfer`; a repetition changes nothing."""

    queue: str
    address: str
    target: str


@dataclass(frozen=True)
class DeleteTransfer(Work):
    """End the transfer of a queue."""

    queue: str


@dataclass(frozen=True)
class Transfers(Look):
    """All transfers: a list of `TransferRecord`."""


@dataclass(frozen=True)
class KeepTransfers(Work):
    """Report on a broker's transfers; lease those that no other broker has. Outcome: their `TransferRecord`s.

    The lease only avoids conflicts of two brokers of a cell: messages are transferred once even when both run it.
    """

    lease_us: int  # 0: the broker stops, and others may take them at once
    reports: tuple[Report, ...] = ()

    durable = False  # a crash only ends the lease sooner, or loses figures


# Transactions over two stores


@dataclass(frozen=True)
class Settle(Work):
    """Ask this store, as coordinator, for its decision on a transaction over two stores. Outcome: whether to commit.

    `number` is the transaction here whose commit would be the decision. If it is still open, it is undone first: its
    client can then no longer commit, so the answer is final. Nothing else makes it safe to undo the other half; leases
    and names only make that rare. The undo does not count as an abort of its messages, since they were not processed.
    """

    gid: str
    number: int


class HeldMessages(NamedTuple):
    """Facts about the messages that a transaction has taken."""

    remaining: int  # unread messages of begun blocks, without which it cannot commit
    ends: list[tuple[int, int]]  # (message number, microsecond at which it expires), for messages that expire


@dataclass(frozen=True)
class Holding(Look):
    """Describe the messages that an open transaction has taken. Outcome: `HeldMessages`."""

    number: int
