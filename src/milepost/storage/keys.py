"""Keys of operations that must not be carried out twice. A put's key is remembered for each of its topics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from milepost.operations import Append
from milepost.storage import statements
from milepost.storage.database import Session


class Key(NamedTuple):
    """A token and the topic of the put. Topic 0 stands for any topic, or for an operation that is no put."""

    token: bytes
    topic: int = 0


def keys_of(append: Append) -> list[Key]:
    """The keys of a put: its one token, for each of its topics."""
    return [Key(append.token, topic) for topic in {part.topic for part in append.parts}] if append.token else []


def taken(session: Session, keys: Iterable[Key]) -> set[Key]:
    """The keys that are remembered already, for their topic or for any topic."""
    given = [key._asdict() for key in set(keys)]
    return {Key(bytes(token), topic) for token, topic in session.found(statements.TAKEN, given)} if given else set()


def remember(session: Session, keys: Iterable[Key], time_us: int) -> int:
    """Remember keys. Returns how many of them are new."""
    ordered = sorted(keys)  # the same order in all brokers prevents deadlocks
    return session.each(statements.REMEMBER, [key._asdict() for key in ordered], time_us=time_us)
