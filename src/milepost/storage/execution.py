"""How operations of other parts than the log are carried out: each part registers a function for each of its own.

The function is called with the operation, a session whose transaction has begun, and a `WorkContext`; the caller
commits. It returns the outcome. A `MilepostError` that it raises is the outcome too, and must come before it has
changed anything; after that it raises `Spoiled`, and the group is written again without the operation. It may be called
several times before it is committed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from enum import Enum
from functools import singledispatch
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from milepost.errors import BrokerError, MilepostError
from milepost.operations import Barrier, Entry, Move
from milepost.storage.session import Session


class WorkContext(NamedTuple):
    """Where an operation is carried out."""

    time_us: int  # of this transaction; does not go back within a log
    log: int  # of the broker that writes
    shared: bool  # other brokers write to the same store
    memory: dict[str, Any]  # of the part, for as long as this process has the store
    move: Callable[[Move], None]  # move a cursor in the same transaction; raises what is wrong with it
    later: Callable[[Callable[[], None]], None]  # call something once the transaction is committed


@singledispatch
def execute(operation: Any, session: Session, context: WorkContext) -> Any:
    """Carry an operation out; `BrokerError` when no part has registered how."""
    name = f"{type(operation).__module__}.{type(operation).__qualname__}"
    raise BrokerError(f"this process cannot carry out {name}: import the part that does, as milepost.queues.execution")


@execute.register
def _(operation: Barrier, session: Session, context: WorkContext) -> None:
    """What was before it is done by now."""


class Promise(ABC):
    """An outcome that is not there before its group is committed: the statements that bring it travel with the COMMIT.

    By itself such a statement raises in the database when it cannot be carried out: then nothing is committed.
    """

    @abstractmethod
    def kept(self, session: Session) -> Any:
        """The outcome, once the commit is known to have happened. The answers may be lost: then it is looked up."""


class Spoiled(Exception):
    """An operation failed after it had changed something: none of that may stay."""

    def __init__(self, error: MilepostError, place: int = -1) -> None:
        self.error = error
        self.place = place  # among the operations of its group
        super().__init__(str(error))


class Postponed(Enum):
    """The outcome of an operation that its group had no time for: nothing was done. It goes into the next group."""

    POSTPONED = 1


POSTPONED: Final = Postponed.POSTPONED


class Committed(NamedTuple):
    """What a call to `Store.write` did."""

    outcomes: list[Any]  # one for each operation: what it promises, a MilepostError, or `POSTPONED`
    entries: list[Entry]  # what the log has now, in its order
    asked_s: Mapping[int, float] = MappingProxyType({})  # place of an operation: seconds of its clients' expressions
