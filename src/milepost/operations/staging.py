"""Operations on staged rows: stored, but not visible before the epoch of their sink is published."""

from __future__ import annotations

from typing import Literal, NamedTuple

from milepost.batch import Batch


class Stage(NamedTuple):
    """Store rows that stay invisible until their epoch is published. Outcome: `Staged`.

    `sequence` counts the pieces of an attempt from 0. A piece that is stored already is not stored again. `StagingLost`
    when an earlier piece is missing, or when another `writer` has begun the attempt since. A writer that begins the
    attempt of another writer replaces its pieces. `LimitExceeded` when the sink has too much staged.
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
    """The outcome of a `Stage`."""

    rows: int
    how: Literal["staged", "repeated", "late"]  # late: the epoch is published, the rows were discarded


class Publish(NamedTuple):
    """Append the staged rows of some parts of an epoch to their topics' logs, in this order. Outcome: `Published`.

    The same transaction moves the sink's epoch, and discards all other rows that are staged for the sink up to this
    epoch. Nothing happens when the epoch is not above the sink's last one. `StagingLost` when nothing is staged for one
    of the parts.
    """

    sink: str
    epoch: int
    parts: tuple[tuple[int, int], ...]  # part, attempt


class Published(NamedTuple):
    """The outcome of a `Publish`."""

    repeated: bool  # the epoch was published before
    rows: int


class Unstage(NamedTuple):
    """Discard the rows that are staged for an epoch of a sink. Outcome: None."""

    sink: str
    epoch: int


class Epoch(NamedTuple):
    """Read the last epoch that a sink has published, or None. It is ordered among the writes, and sees earlier ones."""

    sink: str
