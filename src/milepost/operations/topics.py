"""Durable topics."""

from __future__ import annotations

from typing import NamedTuple

from milepost.operations.records import Position, Retention, TopicRecord


class MakeTopic(NamedTuple):
    """Make a durable topic: `Made`. One of this name that is there stays as it is."""

    name: str
    schemas: tuple[str, ...]
    slow: str
    retention: Retention


class Made(NamedTuple):
    """A topic that is there now."""

    topic: TopicRecord
    created: bool


class ChangeTopic(NamedTuple):
    """Add a version of its schema (`schema`), change its policy or its retention; None leaves as it is: None.

    When it does not have as many `versions` as whoever asks has seen, nothing is changed: `Made` tells what it has.
    """

    topic: int
    schema: str | None = None
    slow: str | None = None
    retention: Retention | None = None
    versions: int | None = None  # of its schema, that it must have


class DropTopic(NamedTuple):
    """Remove a topic, its log and its subscriptions."""

    topic: int


class Trim(NamedTuple):
    """Remove rows before a position, whoever has not consumed them; the number of rows that went.

    Only what is in whole entries is removed at once; offsets before the position count as gone in any case.
    """

    topic: int
    before: Position
