"""Rows of a sink that are stored, and not seen before their epoch is published."""

from __future__ import annotations

from typing import Literal, NamedTuple

from milepost.batch import Batch


class Stage(NamedTuple):
    """Store rows that are not to be seen before their epoch is published: `Staged`.

    `sequence` counts the pieces of an attempt from 0 on. One that is there already is not stored again; `StagingLost`
    when one before it is missing, or when another `writer` has begun the attempt since. A writer that begins an attempt
    of another one takes its place. `LimitExceeded` when the sink has too much staged.
    """

    sink: str
    epoch: int
    part: int
    attempt: int
    sequence: int
    writer: bytes
    topic: int
    batch: Batch


class Staged(NamedTuple):
    """What became of a `Stage`."""

    rows: int
    how: Literal["staged", "repeated", "late"]  # late: its epoch is published, and the rows were thrown away


class Publish(NamedTuple):
    """Append what some parts of an epoch have staged to their topics' logs, in this order: `Published`.

    In the same transaction the sink's epoch moves, and everything else that is staged for it up to this epoch is thrown
    away. Nothing of all that when the epoch is not above the sink's last one. `StagingLost` when nothing is staged for
    one of the parts.
    """

    sink: str
    epoch: int
    parts: tuple[tuple[int, int], ...]  # part, attempt


class Published(NamedTuple):
    """What became of a `Publish`."""

    repeated: bool  # the epoch was published before
    rows: int


class Unstage(NamedTuple):
    """Throw away what is staged for an epoch of a sink: None."""

    sink: str
    epoch: int


class Epoch(NamedTuple):
    """The last epoch that a sink has published, or None. Among the writes, so that it is seen in their order."""

    sink: str
