"""Operations of parts other than the log: each part registers a function for each of its operations.

The function is called with the operation, a session whose transaction has begun, and a `WorkContext`; the caller
commits. It returns the outcome. A `MilepostError` that it raises before it has changed anything is an outcome too.
After a change it raises `Spoiled` instead, and the group is written again without the operation. The function may be
called several times before a commit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import singledispatch
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from milepost.errors import BrokerError, MilepostError
from milepost.operations import Barrier, Entry, Move
from milepost.storage.session import Session


class WorkContext(NamedTuple):
    """What the function of an operation is given beside the session."""

    time_us: int  # of this transaction; does not go back within a log
    log: int  # the number of the writing broker's log
    shared: bool  # other brokers write to the same store
    memory: dict[str, Any]  # kept by the parts while this process has the store open
    move: Callable[[Move], None]  # move a cursor in the same transaction; raises when the move is refused
    later: Callable[[Callable[[], None]], None]  # call a function once the transaction is committed


@singledispatch
def execute(operation: Any, session: Session, context: WorkContext) -> Any:
    """Carry out an operation; `BrokerError` when no part has registered a function for it."""
    name = f"{type(operation).__module__}.{type(operation).__qualname__}"
    raise BrokerError(f"this process cannot carry out {name}: import the part that does, as milepost.queues.execution")


@execute.register
def _(operation: Barrier, session: Session, context: WorkContext) -> None:
    """Do nothing: all earlier operations are done by now."""


class Promise(ABC):
    """An outcome that is known only after its group is committed: its statements are sent together with the COMMIT.

    A statement that cannot be carried out raises an error in the database, and nothing is committed.
    """

    @abstractmethod
    def kept(self, session: Session) -> Any:
        """The outcome, after the commit. When the connection was lost with the answers, it is looked up."""


class Spoiled(Exception):
    """An operation failed after it had changed something: its changes must be undone."""

    def __init__(self, error: MilepostError, place: int = -1) -> None:
        self.error = error
        self.place = place  # among the operations of its group
        super().__init__(str(error))


# The outcome of an operation that its group had no time for. Nothing was done; it goes into the next group.
POSTPONED: Final = object()


class Committed(NamedTuple):
    """The result of `Store.write`."""

    outcomes: list[Any]  # one for each operation: its result, a MilepostError, or `POSTPONED`
    entries: list[Entry]  # that were added to the log, in order
    asked_s: Mapping[int, float] = MappingProxyType({})  # index of an operation -> seconds of clients' expressions
