"""The state diagrams of messages, as data: the transitions of each of the four levels.

The state of a message is (MID, log state flag, visibility flag). The log state tells what an open transaction has done
to it, so that this can be undone; the visibility tells which transactions may see it: all (``*``) or one.
The diagrams, rebuilt from the prose of the paper, with `a/1` the writer's transaction, `b/2` a reader's::

    level none
                 enqueue             commit a/1            dequeue               commit b/2
        (gone) ───────────▶ (e, a/1) ───────────▶ (c, *) ───────────▶ (d, b/2) ───────────▶ (gone)
                               │  │                  ▲                   │
             rollback a/1      │  │ dequeue by a/1   └───────────────────┘ rollback b/2
        (gone) ◀───────────────┘  ▼
                              (b, a/1) ── commit a/1 or rollback a/1 ──▶ (gone)

    levels ordered and ordered blockwise: beside these, for all messages of writer a
                 b/2 dequeues any message of a                     commit or rollback b/2
        (c, *) ─────────────────────────────────▶ (c, b/2) ─────────────────────────────────▶ (c, *)
        and the commit of a/1 leads to (c, b/2) instead of (c, *) while b/2 has reserved the writer

    level blockwise: the same, for all messages of transaction a/1

A writer may have a hundred thousand messages waiting, and each first dequeue and each commit would write to all of
them. So the visibility of messages that are only *reserved* is stored once, in the row of their group: a message in log
state c is visible to the transactions that see its group. The flag of the message itself is used in states e, d and b.

Each arc is one set-oriented statement, with the old state in its condition.
"""

from __future__ import annotations

from functools import cache
from typing import Final, Literal, NamedTuple, TypeAlias

from milepost.storage.statement import Statement

Level: TypeAlias = Literal["none", "ordered", "blockwise", "ordered blockwise"]
LEVELS: Final[tuple[Level, ...]] = ("none", "ordered", "blockwise", "ordered blockwise")

# The column that identifies the group which a reader reserves with the first message that it takes.
GROUPS: Final[dict[str, str]] = {"none": "", "ordered": "s", "blockwise": "t", "ordered blockwise": "s"}
# The columns of the order of arrival at each level.
ARRIVAL: Final[dict[str, tuple[str, ...]]] = {
    "none": ("mid",), "ordered": ("mid",), "blockwise": ("t", "mid"), "ordered blockwise": ("t", "mid"),
}  # fmt: skip
NEVER_US: Final = (1 << 63) - 1  # the expiry of a message that never expires
BLOCKS: Final = frozenset({"blockwise", "ordered blockwise"})  # levels that are read by whole transactions of a writer


class MessageState(NamedTuple):
    """The flags of a message."""

    log: str  # e enqueued, c committed, d dequeued, b both by one transaction
    own: bool  # visible to the transaction alone; otherwise to all, or to the transaction that has reserved its group


ENQUEUED: Final = MessageState("e", True)
COMMITTED: Final = MessageState("c", False)
DEQUEUED: Final = MessageState("d", True)
BOTH: Final = MessageState("b", True)


class Arc(NamedTuple):
    """A transition of messages. None: they are not in the queue."""

    old: MessageState | None
    new: MessageState | None


DEQUEUE: Final = {"d": Arc(COMMITTED, DEQUEUED), "b": Arc(ENQUEUED, BOTH)}
# By log state in the transaction's log: the transition of its messages in that state when the transaction ends.
COMMIT: Final = {"e": Arc(ENQUEUED, COMMITTED), "d": Arc(DEQUEUED, None), "b": Arc(BOTH, None)}
ROLLBACK: Final = {"e": Arc(ENQUEUED, None), "d": Arc(DEQUEUED, COMMITTED), "b": Arc(BOTH, None)}


@cache
def taking(arc: Arc, table: str) -> Statement:
    """The statement of a dequeue, for messages by number; `owner` is the transaction."""
    assert arc.old is not None
    assert arc.new is not None
    seen = ":owner" if arc.old.own else "0"
    return Statement(
        f"UPDATE {table} SET lsf = '{arc.new.log}', owner = :owner "
        f"WHERE mid {{in mids}} AND lsf = '{arc.old.log}' AND owner = {seen}"
    )


def ending_text(arc: Arc, table: str) -> str:
    """The statement of a commit or a rollback, for all messages that transaction `owner` brought to the old state."""
    assert arc.old is not None
    where = f"WHERE owner = :owner AND owner <> 0 AND lsf = '{arc.old.log}'"  # matches the condition of the index
    if arc.new is None:
        return f"DELETE FROM {table} {where}"
    counted = ", aborts = aborts + :counted" if arc.old == DEQUEUED else ""
    return f"UPDATE {table} SET lsf = '{arc.new.log}', owner = 0{counted} {where}"


@cache
def ending(arc: Arc, table: str, *, told: bool = True) -> Statement:
    """The same; if `told`, it returns the messages."""
    gives = "" if not told else " RETURNING mid, type" if arc.new is None else " RETURNING mid, type, s, aborts"
    return Statement(ending_text(arc, table) + gives)
