"""The types and queues of a store, and their tables."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cached_property
from typing import Any, Final, NamedTuple

from milepost import limits
from milepost.errors import (
    InvalidValue,
    QueueExists,
    QueueInUse,
    TypeExists,
    TypeInUse,
    UnknownQueue,
    UnknownType,
    WrongType,
    did_you_mean,
)
from milepost.operations.queues import DeclareQueue
from milepost.operations.records import QueueRecord
from milepost.query import expression, parse_schema
from milepost.query.sql import Tables
from milepost.queues import statements
from milepost.queues.states import ARRIVAL, BLOCKS, GROUPS, LEVELS, NEVER_US
from milepost.schema import Schema
from milepost.storage.database import Session
from milepost.storage.statement import worded


class TypeEntry(NamedTuple):
    """A message type of the store."""

    number: int
    name: str
    text: str
    schema: Schema
    tables: Tables


class Queue(NamedTuple):
    """A queue of the store."""

    number: int
    name: str
    level: str
    direction: str
    priority: float
    prioritized: bool
    dead_letter: int | None
    max_deliveries: int
    created_us: int
    functions: dict[int, str | None]  # accepted type -> its priority function, if any

    @property
    def table(self) -> str:
        """Its header table."""
        return f"q{self.number}"

    @property
    def group(self) -> str:
        """The column of the groups that a consumer reserves: "s" or "t"; empty at level none."""
        return GROUPS[self.level]

    @property
    def arrival(self) -> tuple[str, ...]:
        """The columns of the order of arrival."""
        return ARRIVAL[self.level]

    @property
    def blocks(self) -> bool:
        """Whether a consumer must read whole transactions of a writer."""
        return self.level in BLOCKS


class QueueCatalogue:
    """The types and queues of a store when they were loaded; `version` tells whether they are current."""

    def __init__(self, version: int, types: Iterable[TypeEntry], queues: Iterable[Queue]) -> None:
        self.version: Final = version
        self.types: Final = {each.number: each for each in types}
        self.queues: Final = {each.number: each for each in queues}

    @cached_property
    def types_by_name(self) -> dict[str, TypeEntry]:
        """Types by name."""
        return {each.name: each for each in self.types.values()}

    @cached_property
    def queues_by_name(self) -> dict[str, Queue]:
        """Queues by name."""
        return {each.name: each for each in self.queues.values()}

    def type(self, name: str) -> TypeEntry:
        """The type of that name."""
        found = self.types_by_name.get(name)
        if found is None:
            near = did_you_mean(name, self.types_by_name)
            raise UnknownType(f"there is no message type {name!r}{near or '; declare it first'}")
        return found

    def queue(self, name: str) -> Queue:
        """The queue of that name."""
        found = self.queues_by_name.get(name)
        if found is None:
            near = did_you_mean(name, self.queues_by_name)
            raise UnknownQueue(f"there is no queue {name!r}{near or '; declare it first'}")
        return found

    def taken_by(self, queue: Queue, name: str) -> TypeEntry:
        """The type of that name; `WrongType` when the queue does not accept it."""
        found = self.type(name)
        if found.number not in queue.functions:
            taken = ", ".join(self.types[number].name for number in queue.functions)
            raise WrongType(f"queue {queue.name!r} does not take messages of type {name}; it takes {taken}")
        return found

    def names(self, queues: Iterable[int]) -> tuple[str, ...]:
        """The names of queues, sorted."""
        return tuple(sorted([self.queues[number].name for number in queues]))

    def record(self, queue: Queue, statistics: dict[str, int]) -> QueueRecord:
        """A queue as its users see it."""
        names = {number: self.types[number].name for number in queue.functions}
        return QueueRecord(
            queue.name, queue.level, queue.direction, queue.priority, tuple(names.values()),
            {names[number]: text for number, text in queue.functions.items() if text is not None},
            self.queues[queue.dead_letter].name if queue.dead_letter is not None else None, queue.max_deliveries,
            queue.created_us, statistics,
        )  # fmt: skip


def lock(session: Session) -> None:
    """Keep other brokers from changing the catalogue until the transaction ends."""
    session.row(statements.LOCK_CATALOGUE)


def version(session: Session) -> int:
    """The current version of the catalogue."""
    return int(session.row(statements.CATALOGUE_VERSION)[0])


def load(session: Session, known: QueueCatalogue | None = None) -> QueueCatalogue:
    """Load the catalogue. Types of `known` that still exist are not parsed again."""
    while True:
        number = version(session)
        found = _load(session, known, number)
        if version(session) == number:  # otherwise another broker has changed it between the statements
            return found


def _load(session: Session, known: QueueCatalogue | None, number: int) -> QueueCatalogue:
    old = known.types if known is not None else {}
    types = [
        old[row[0]] if row[0] in old and old[row[0]].text == row[2] else _type(row[0], row[1], row[2])
        for row in session.rows(statements.TYPES)
    ]
    functions: dict[int, dict[int, str | None]] = {}
    for queue, kind, function in session.rows(statements.ACCEPTED_TYPES):
        functions.setdefault(queue, {})[kind] = function
    queues = [
        Queue(row[0], row[1], row[2], row[3], row[4], bool(row[5]), row[6], row[7], row[8], functions.get(row[0], {}))
        for row in session.rows(statements.QUEUES)
    ]
    return QueueCatalogue(number, types, queues)


def _type(number: int, name: str, text: str) -> TypeEntry:
    schema = parse_schema(text)
    return TypeEntry(number, name, text, schema, Tables(schema, number))


# Types


def declare_type(session: Session, known: QueueCatalogue, text: str, time_us: int) -> int:
    """Make a type, or find an equal one. Returns its number."""
    schema = parse_schema(text)
    Tables(schema, 0).indexes  # noqa: B018  # raises when the schema does not fit into tables
    there = known.types_by_name.get(schema.name)
    if there is not None:
        if there.schema.fingerprint == schema.fingerprint:
            return there.number
        raise TypeExists(
            f"message type {schema.name} is declared in another way: delete it, once no queue takes it, or choose "
            "another name"
        )
    source = schema.canonical
    row = session.row(statements.MAKE_TYPE, name=schema.name, source=source, time_us=time_us)
    for statement in Tables(schema, row[0]).create(session.dialect):
        session.say(statement)
    session.run(statements.CHANGE_CATALOGUE)
    return int(row[0])


def delete_type(session: Session, known: QueueCatalogue, name: str) -> None:
    """Remove a type that no queue accepts."""
    found = known.type(name)
    users = [queue.name for queue in known.queues.values() if found.number in queue.functions]
    if users:
        raise TypeInUse(f"message type {name} is taken by {', '.join(sorted(users))}: delete that first")
    session.run(statements.DELETE_TYPE, number=found.number)
    for statement in found.tables.drop():
        session.say(statement)
    session.run(statements.CHANGE_CATALOGUE)


# Queues


def declare_queue(session: Session, known: QueueCatalogue, wanted: DeclareQueue, time_us: int) -> int:
    """Make a queue, or find an equal one. Returns its number."""
    _require(wanted)
    types = {name: known.type(name) for name in wanted.types}
    for name, text in wanted.functions:
        if name not in types:
            raise WrongType(f"a priority function for {name}, which queue {wanted.name!r} does not take")
        require_function(text, types[name])
    there = known.queues_by_name.get(wanted.name)
    if there is not None:
        if known.record(there, {})[:8] == _as_record(wanted, types):
            return there.number
        raise QueueExists(f"queue {wanted.name!r} is there, and is another: delete it, or choose another name")
    dead_letter: int | None = None
    if wanted.dead_letter is not None:
        found = known.queues_by_name.get(wanted.dead_letter)
        if found is None:
            dead_letter = _make(session, DeclareQueue(wanted.dead_letter, wanted.types), None, types, time_us)
        else:
            dead_letter = found.number
            for each in wanted.types:
                known.taken_by(found, each)
    return _make(session, wanted, dead_letter, types, time_us)


def _make(
    session: Session, wanted: DeclareQueue, dead_letter: int | None, types: dict[str, TypeEntry], time_us: int
) -> int:
    row = session.row(
        statements.MAKE_QUEUE, name=wanted.name, level=wanted.level, direction=wanted.direction,
        priority=float(wanted.priority), prioritized=int(bool(wanted.functions)), dead_letter=dead_letter,
        max_deliveries=wanted.max_deliveries, time_us=time_us,
    )  # fmt: skip
    number, functions = int(row[0]), dict(wanted.functions)
    for name in wanted.types:
        session.run(statements.ACCEPT_TYPE, queue=number, type=types[name].number, function=functions.get(name))
    for statement in made_of(number, wanted.level, wanted.direction):
        session.say(worded(statement, session.dialect))
    session.run(statements.CHANGE_CATALOGUE)
    return number


def made_of(number: int, level: str, direction: str) -> list[str]:
    """The statements that make a queue's table and its indexes."""
    table = f"q{number}"
    made = [
        f"CREATE TABLE {table} (mid {{integer}} PRIMARY KEY, s {{integer}} NOT NULL, t {{integer}} NOT NULL, "
        "type {integer} NOT NULL, priority {real} NOT NULL, lsf TEXT NOT NULL, owner {integer} NOT NULL, "
        "aborts {integer} NOT NULL, due_us {integer} NOT NULL, ends_us {integer} NOT NULL)",
        # For the end of a transaction: all messages that it has enqueued or taken.
        f"CREATE INDEX {table}_owner ON {table} (owner) WHERE owner <> 0",
        # For delayed messages, and for messages that expire.
        f"CREATE INDEX {table}_due ON {table} (due_us) WHERE due_us > 0",
        f"CREATE INDEX {table}_ends ON {table} (ends_us) WHERE ends_us < {NEVER_US}",
    ]
    if level == "none":  # for the next message
        made.append(f"CREATE INDEX {table}_next ON {table} (priority {direction.upper()}, mid) WHERE lsf = 'c'")
    if GROUPS[level] == "s":  # for a writer's oldest message
        arrival = ", ".join(("s", *ARRIVAL[level]))
        made.append(f"CREATE INDEX {table}_s ON {table} ({arrival}) WHERE lsf = 'c'")
    if level in BLOCKS:  # for the next block, and the rest of a block
        made.append(f"CREATE INDEX {table}_t ON {table} (t, mid)")
    return made


def delete_queue(session: Session, known: QueueCatalogue, name: str) -> None:
    """Remove a queue that has no messages and is in use by no transaction."""
    found = known.queue(name)
    if session.dialect == "postgresql":  # otherwise another broker may enqueue between the check and the commit
        session.say(f"LOCK TABLE {found.table} IN ACCESS EXCLUSIVE MODE")
    count = int(session.row(statements.about(statements.COUNT_MESSAGES, found.table))[0])
    if count:
        raise QueueInUse(f"queue {name!r} has {count} messages: purge it, or let them be dequeued, and delete it then")
    if session.row(statements.COUNT_TRANSACTIONS_OF, number=found.number)[0]:
        raise QueueInUse(f"queue {name!r} is in a transaction under way: delete it when that has ended")
    users = [each.name for each in known.queues.values() if each.dead_letter == found.number]
    if users:
        raise QueueInUse(f"queue {name!r} takes the dead messages of {', '.join(sorted(users))}: delete that first")
    session.run(statements.DELETE_QUEUE, number=found.number)
    for statement in (statements.DELETE_ACCEPTED, statements.DELETE_GROUPS, statements.DELETE_TRANSFER):
        session.run(statement, queue=found.number)
    session.say(f"DROP TABLE {found.table}")
    session.run(statements.CHANGE_CATALOGUE)


def prioritize(session: Session, queue: Queue) -> None:
    """Record that messages may have priorities of their own: an ordered queue must then compare the writers' heads."""
    if session.run(statements.PRIORITIZE_QUEUE, number=queue.number):
        session.run(statements.CHANGE_CATALOGUE)


def require_function(text: str, kind: TypeEntry) -> None:
    """Refuse a priority function that does not return a number."""
    found = expression(text, kind.schema)
    if found.type.name not in ("double", "integer", "decimal"):
        raise WrongType(f"a priority is a number, and {text!r} gives a {found.type}")


def _require(wanted: DeclareQueue) -> None:
    for name in (wanted.name, *([] if wanted.dead_letter is None else [wanted.dead_letter])):
        limits.require("NAME_CHARS", len(name), "the characters of a queue's name")
        if not name or not name.isprintable():
            raise InvalidValue("the name of a queue is shown to people: it takes printable characters, one at least")
    if wanted.level not in LEVELS:
        near = did_you_mean(wanted.level, LEVELS) or f"; there are {', '.join(LEVELS)}"
        raise InvalidValue(f"there is no level {wanted.level!r}{near}")
    if wanted.direction not in ("desc", "asc"):
        raise InvalidValue(f"direction {wanted.direction!r}: takes 'desc' (high priorities first) or 'asc'")
    if not wanted.types:
        raise InvalidValue(f"queue {wanted.name!r} takes no type of messages; name one at least")
    if len(set(wanted.types)) < len(wanted.types):
        raise InvalidValue(f"queue {wanted.name!r} is to take one type twice")
    if not math.isfinite(wanted.priority):
        raise InvalidValue(f"priority {wanted.priority}: takes a finite number")
    if wanted.max_deliveries < 0 or bool(wanted.max_deliveries) != (wanted.dead_letter is not None):
        raise InvalidValue("dead_letter takes messages that were delivered max_deliveries times: give both or neither")
    limits.require("DELIVERIES", wanted.max_deliveries, "max_deliveries")
    if wanted.dead_letter == wanted.name:
        raise InvalidValue(f"queue {wanted.name!r} cannot take its own dead messages")


def _as_record(wanted: DeclareQueue, types: dict[str, TypeEntry]) -> tuple[Any, ...]:
    """The fields of a `QueueRecord`, independent of the order in which the types are named."""
    names = tuple(sorted(wanted.types, key=lambda name: types[name].number))
    return (
        wanted.name, wanted.level, wanted.direction, float(wanted.priority), names,
        dict(wanted.functions), wanted.dead_letter, wanted.max_deliveries,
    )  # fmt: skip
