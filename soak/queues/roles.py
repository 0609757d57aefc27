"""The roles of the soak of queues, and the content of a message."""

from __future__ import annotations

from typing import Any, Final

from soak.roles import Role

LEVELS: Final = ("none", "ordered", "blockwise", "ordered blockwise")
TYPE: Final = "step"
# The list is a separate table in the store, which must be written and removed with its message.
SCHEMA: Final = f"{TYPE}: [member: string, number: long, sequence: long, origin: string, marks: *(long)*]"

WRITERS: Final = (Role("writer-1", "write", ""), Role("writer-2", "write", ""))
MOVERS: Final = (Role("mover-1", "move", ""), Role("mover-2", "move", ""))
DRAINS: Final = (Role("drain-1", "drain", ""), Role("drain-2", "drain", ""))
READERS: Final = MOVERS + DRAINS
ROLES: Final = WRITERS + READERS
BROKERLESS: Final = (WRITERS[1], MOVERS[1], DRAINS[1])  # on PostgreSQL these use the database without a broker


def source(level: str) -> str:
    """The queue that writers write to."""
    return f"in {level}"


def target(level: str) -> str:
    """The queue that movers write to."""
    return f"out {level}"


QUEUES: Final = tuple(name(level) for level in LEVELS for name in (source, target))


def level_of(queue: str) -> str:
    """The level in the name of a queue."""
    return queue.partition(" ")[2]


def message(member: str, number: int, sequence: int, origin: str) -> dict[str, Any]:
    """A message of a member's transaction, with the number `sequence`, made from `origin` ("": from nothing)."""
    return {
        "member": member,
        "number": number,
        "sequence": sequence,
        "origin": origin,
        "marks": marks(sequence),
    }


def marks(sequence: int) -> list[int]:
    """The expected list of a message."""
    return [sequence + each for each in range(sequence % 4)]
