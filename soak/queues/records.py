"""The events that clients of queues record, one line of JSON each, written before the call returns.

::

    ["began", at, member]                                   a client starts, perhaps again
    ["write", at, member, number, queue, first, count]      its transaction `number` is about to enqueue these
    ["reach", at, member, number, queue]                    … to dequeue
    ["took", at, member, number, queue, writers, numbers, sequences, origins]
    ["commits", at, member, number]                         … to commit, and now one of
    ["refused", at, member, number]                         it may not, and continues: a block is not complete
    ["committed", at, member, number]
    ["undone", at, member, number]                          it was aborted, or an error says that it was undone

`at` is the machine's monotonic clock in nanoseconds. A transaction whose last event is "commits" has no answer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

import msgspec


class Began(msgspec.Struct, array_like=True, tag="began", frozen=True):
    """The first line of each process."""

    at: int
    member: str


class Write(msgspec.Struct, array_like=True, tag="write", frozen=True):
    """Messages `first` to before `first + count` of a member, into one queue."""

    at: int
    member: str
    number: int
    queue: str
    first: int
    count: int


class Reach(msgspec.Struct, array_like=True, tag="reach", frozen=True):
    """What is taken next was taken after this time."""

    at: int
    member: str
    number: int
    queue: str


class Took(msgspec.Struct, array_like=True, tag="took", frozen=True):
    """Messages by their content: writer, transaction, number and origin."""

    at: int
    member: str
    number: int
    queue: str
    writers: list[str]
    numbers: list[int]
    sequences: list[int]
    origins: list[str]


class Commits(msgspec.Struct, array_like=True, tag="commits", frozen=True):
    """A commit is about to be requested."""

    at: int
    member: str
    number: int


class Refused(Commits, tag="refused", frozen=True):
    """`BlockIncomplete`."""


class Committed(Commits, tag="committed", frozen=True):
    """The commit has returned."""


class Undone(Commits, tag="undone", frozen=True):
    """Nothing of it can be stored."""


Event: TypeAlias = Began | Write | Reach | Took | Commits | Refused | Committed | Undone
_DECODER: Final = msgspec.json.Decoder(Event)
_ENCODE: Final = msgspec.json.Encoder().encode
ENDS: Final = (b'["committed"', b'["undone"', b'["began"')


class Book:
    """A client's file. `life` counts its processes, from 1."""

    def __init__(self, path: Path, member: str) -> None:
        self._member = member
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        before = path.read_bytes()
        if before and not before.endswith(b"\n"):
            os.write(self._file, b"\n")  # the previous process was killed in the middle of a line
        self.life: Final = 1 + sum(line.startswith(b'["began"') for line in before.split(b"\n"))
        self._note(Began(time.monotonic_ns(), member))

    def _note(self, event: Event) -> None:
        line = memoryview(_ENCODE(event) + b"\n")
        while line:
            line = line[os.write(self._file, line) :]

    def write(self, number: int, queue: str, first: int, count: int) -> None:
        self._note(Write(time.monotonic_ns(), self._member, number, queue, first, count))

    def reach(self, number: int, queue: str) -> None:
        self._note(Reach(time.monotonic_ns(), self._member, number, queue))

    def took(
        self, number: int, queue: str, writers: list[str], numbers: list[int], sequences: list[int], origins: list[str]
    ) -> None:
        at = time.monotonic_ns()
        self._note(Took(at, self._member, number, queue, writers, numbers, sequences, origins))

    def commits(self, number: int) -> None:
        self._note(Commits(time.monotonic_ns(), self._member, number))

    def refused(self, number: int) -> None:
        self._note(Refused(time.monotonic_ns(), self._member, number))

    def committed(self, number: int) -> None:
        self._note(Committed(time.monotonic_ns(), self._member, number))

    def undone(self, number: int) -> None:
        self._note(Undone(time.monotonic_ns(), self._member, number))

    def close(self) -> None:
        os.close(self._file)


def read_records(path: Path) -> Iterator[Event]:
    """The events of a file in their order. A line that was cut off by the death of its writer is skipped."""
    lines = path.read_bytes().split(b"\n")
    for index, line in enumerate(lines):
        if line:
            try:
                yield _DECODER.decode(line)
            except msgspec.DecodeError:
                following = lines[index + 1] if index + 1 < len(lines) else b""
                if following and not following.startswith(b'["began"'):
                    raise ValueError(f"{path.name}, line {index + 1}, is no event") from None
