"""Queues whose messages go on to another broker, and what transactions over two stores leave behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from milepost.operations.work import Look, Work


class TransferRecord(NamedTuple):
    """A queue that goes on to another broker."""

    queue: str
    number: int  # the queue's
    address: str
    target: str  # the queue there
    created_us: int
    runner: int  # the log of the broker that does it
    messages: int
    error: str


class Report(NamedTuple):
    """What a broker tells of a transfer that it runs."""

    number: int  # the queue's
    created_us: int
    messages: int  # since the last report
    error: str


@dataclass(frozen=True)
class SetTransfer(Work):
    """Transfer a queue from now on, until `DeleteTransfer`; the same again changes nothing."""

    queue: str
    address: str
    target: str


@dataclass(frozen=True)
class DeleteTransfer(Work):
    """Transfer a queue no more."""

    queue: str


@dataclass(frozen=True)
class Transfers(Look):
    """All transfers: a list of `TransferRecord`."""


@dataclass(frozen=True)
class KeepTransfers(Work):
    """A broker tells how its transfers are, and takes or keeps those that nobody else has: the `TransferRecord`s.

    The lease only spares two brokers of a cell each other's transactions: messages go over once also when both run it.
    """

    lease_us: int  # 0: it stops, and others may have them at once
    reports: tuple[Report, ...] = ()

    @property
    def durable(self) -> bool:
        """A crash ends the lease sooner, or takes figures back."""
        return False


# Transactions over two stores


@dataclass(frozen=True)
class Settle(Work):
    """What did this store, as coordinator, decide about a transaction over two stores? Whether it is to commit.

    `number` is the transaction here whose commit would have been the decision. If it is still under way, it is undone
    first: whoever runs it can then no longer commit, and so the answer holds for ever. Nothing else makes it safe to
    undo the other half; leases and names only make it rare. What is given back counts no abort, since it did nothing.
    """

    gid: str
    number: int


class HeldMessages(NamedTuple):
    """What is to be known of the messages that a transaction has taken."""

    remaining: int  # messages of blocks that were begun, without which it cannot commit
    ends: list[tuple[int, int]]  # number of a message, and the microsecond at which its time is over, if it has one


@dataclass(frozen=True)
class Holding(Look):
    """Tell about the messages that a transaction under way has taken: `HeldMessages`."""

    number: int
