"""Operations on durable topics."""

from __future__ import annotations

from typing import NamedTuple

from milepost.operations.records import Position, Retention, TopicRecord


class MakeTopic(NamedTuple):
    """Make a durable topic. Outcome: `Made`. An existing topic of this name stays unchanged."""

    name: str
    schemas: tuple[str, ...]
    slow: str
    retention: Retention


class Made(NamedTuple):
    """A topic that was made, or existed already."""

    topic: TopicRecord
    created: bool


class ChangeTopic(NamedTuple):
    """Change fields of a topic that are not None; `schema` is a new version of its schema. Outcome: None.

    When the schema does not have `versions` versions, as the caller has seen, nothing changes. Outcome: `Made`.
    """

    topic: int
    schema: str | None = None
    slow: str | None = None
    retention: Retention | None = None
    versions: int | None = None  # that the schema must have


class DropTopic(NamedTuple):
    """Remove a topic, its log and its subscriptions."""

    topic: int


class Trim(NamedTuple):
    """Remove rows before a position, even if subscriptions have not consumed them. Outcome: the number of rows.

    Offsets before the position are gone at once; upkeep removes whole entries later.
    """

    topic: int
    before: Position
