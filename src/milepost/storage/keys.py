"""Keys: what must not be done twice. A put's key is remembered for each topic that it was put into."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from milepost.operations import Append
from milepost.storage import statements
from milepost.storage.database import Session


class Key(NamedTuple):
    """A token, and the topic that it was put into. Topic 0 stands for any, or for what is no put."""

    token: bytes
    topic: int = 0


def keys_of(append: Append) -> list[Key]:
    """A put into several topics has one token, which is taken in each of them."""
    return [Key(append.token, topic) for topic in {part.topic for part in append.parts}] if append.token else []


def taken(session: Session, keys: Iterable[Key]) -> set[Key]:
    """Which of some keys are remembered, for their topics or for any."""
    given = [key._asdict() for key in set(keys)]
    return {Key(bytes(token), topic) for token, topic in session.found(statements.TAKEN, given)} if given else set()


def remember(session: Session, keys: Iterable[Key], time_us: int) -> int:
    """Remember keys; how many of them were not remembered yet."""
    ordered = sorted(keys)  # one order for all brokers, so that they do not lock each other out
    return session.each(statements.REMEMBER, [key._asdict() for key in ordered], time_us=time_us)
