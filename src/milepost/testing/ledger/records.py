"""The events that programs record while they run, one line of JSON each, so that they survive a SIGKILL.

::

    ["began", at, member]                                       a consumer or a publisher starts, perhaps again
    ["ended", at, member]                                       a consumer ends, with no message in hand
    ["put", at, publisher, topic, first, count]                 before putting; the sequences are dense
    ["stored", at, publisher, topic, first, count]              the put has returned
    ["refused", at, publisher, topic, first, count]             it failed, and nothing can have been stored
    ["reach", at, subscription, member, count]                  before a get of up to `count` messages
    ["got", at, subscription, member, publishers, sequences, again]
    ["done", at, subscription, member, publishers, sequences]   an acknowledgement was confirmed
    ["cursor", at, subscription, log, offset]
    ["broke", at, until]                                        a broker was killed, and was back by then

`at` is the machine's monotonic clock in nanoseconds, which all its processes share; files are merged by it. Each line
is one `write` to a file opened for appending, so the kernel keeps it even if the process is killed right after.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

CHUNK_BYTES: Final = 8 << 20  # of a file that are decoded at once, so that memory does not grow with the file


class BeganRecord(msgspec.Struct, array_like=True, tag="began", frozen=True):
    """A program starts. Messages that its previous process had reached for count as in hand when that one died."""

    at: int
    member: str


class EndedRecord(msgspec.Struct, array_like=True, tag="ended", frozen=True):
    """A consumer ends normally: no get is under way."""

    at: int
    member: str


class PutRecord(msgspec.Struct, array_like=True, tag="put", frozen=True):
    """A publisher is about to put messages `first` to before `first + count`."""

    at: int
    publisher: str
    topic: str
    first: int
    count: int


class StoredRecord(PutRecord, tag="stored", frozen=True):
    """The put returned: acknowledged."""


class RefusedRecord(PutRecord, tag="refused", frozen=True):
    """The put failed, and certainly nothing was stored."""


class ReachRecord(msgspec.Struct, array_like=True, tag="reach", frozen=True):
    """A consumer is about to get up to `count` messages, which are consumed before it can record them."""

    at: int
    subscription: str
    member: str
    count: int


class DoneRecord(msgspec.Struct, array_like=True, tag="done", frozen=True):
    """The broker has confirmed an acknowledgement: these messages may not be delivered again."""

    at: int
    subscription: str
    member: str
    publishers: list[str]
    sequences: list[int]


class GotRecord(DoneRecord, tag="got", frozen=True):
    """Messages arrived, possibly none. `again`: which were marked as redelivered; empty: none."""

    again: list[int] = []


class CursorRecord(msgspec.Struct, array_like=True, tag="cursor", frozen=True):
    """The observed position of a subscription."""

    at: int
    subscription: str
    log: int
    offset: int


class BrokeRecord(msgspec.Struct, array_like=True, tag="broke", frozen=True):
    """A broker died, and lost which messages it had handed out: they may be delivered again without a mark."""

    at: int
    until: int


Event: TypeAlias = (
    BeganRecord
    | EndedRecord
    | PutRecord
    | StoredRecord
    | RefusedRecord
    | ReachRecord
    | GotRecord
    | DoneRecord
    | CursorRecord
    | BrokeRecord
)
_DECODER: Final = msgspec.json.Decoder(Event)
_ENCODE: Final = msgspec.json.Encoder().encode


class Book(ABC):
    """The verbs that `Ledger` and `Recorder` share."""

    @abstractmethod
    def note(self, event: Event) -> None:
        """Add one event."""

    def began(self, member: str) -> None:
        """A program with this name starts. Everything that its previous process had reached for was in its hands."""
        self.note(BeganRecord(time.monotonic_ns(), member))

    def ended(self, member: str) -> None:
        """A consumer ends normally: no get is under way, and everything it got is recorded."""
        self.note(EndedRecord(time.monotonic_ns(), member))

    def put(self, publisher: str, topic: str, first: int, count: int = 1) -> None:
        """Before a put. A publisher numbers its messages itself, and puts no number twice into one topic."""
        self.note(PutRecord(time.monotonic_ns(), publisher, topic, first, count))

    def stored(self, publisher: str, topic: str, first: int, count: int = 1) -> None:
        """After a put has returned."""
        self.note(StoredRecord(time.monotonic_ns(), publisher, topic, first, count))

    def refused(self, publisher: str, topic: str, first: int, count: int = 1) -> None:
        """After a put has certainly failed. When the message may have been stored, record nothing."""
        self.note(RefusedRecord(time.monotonic_ns(), publisher, topic, first, count))

    def reach(self, subscription: str, member: str = "", count: int = 1) -> None:
        """Before a `get` or `get_many`. If the program dies before it records the result, this many messages are
        excused.
        """
        self.note(ReachRecord(time.monotonic_ns(), subscription, member, count))

    def got(
        self,
        subscription: str,
        publishers: str | Sequence[str] = (),
        sequences: int | Sequence[int] = (),
        *,
        member: str = "",
        again: bool | Sequence[bool] = (),
    ) -> None:
        """The messages of a get: one, many, or none. A consumer that acknowledges explicitly records them *before*
        that.
        """
        names, numbers = _lists(publishers, sequences)
        marks = [again] * len(numbers) if isinstance(again, bool) else again
        flags = [int(mark) for mark in marks] if any(marks) else []
        if len(flags) not in (0, len(numbers)):
            raise ValueError(f"{len(numbers)} sequences and {len(flags)} marks differ in number")
        self.note(GotRecord(time.monotonic_ns(), subscription, member, names, numbers, flags))

    def done(
        self,
        subscription: str,
        publishers: str | Sequence[str],
        sequences: int | Sequence[int],
        *,
        member: str = "",
    ) -> None:
        """After an `ack` has returned."""
        names, numbers = _lists(publishers, sequences)
        self.note(DoneRecord(time.monotonic_ns(), subscription, member, names, numbers))

    def cursor(self, subscription: str, log: int, offset: int) -> None:
        """A position that was read from the broker."""
        self.note(CursorRecord(time.monotonic_ns(), subscription, log, offset))

    def broke(self, since: int) -> None:
        """A broker was killed at `since` (`time.monotonic_ns()`), and is back now. This excuses missing redelivery
        marks only.
        """
        self.note(BrokeRecord(since, time.monotonic_ns()))


def _lists(publishers: str | Sequence[str], sequences: int | Sequence[int]) -> tuple[list[str], list[int]]:
    numbers = [sequences] if isinstance(sequences, int) else list(sequences)
    names = [publishers] * len(numbers) if isinstance(publishers, str) else list(publishers)
    if len(names) != len(numbers):
        raise ValueError(f"{len(names)} publishers and {len(numbers)} sequences differ in number")
    return names, numbers


class Recorder(Book):
    """Writes events to a file, each before the call returns. The next process of the program may continue the file.

    It records `began` by itself: the first line of each process says which line before it may be torn. `member` is the
    unique name of the program.
    """

    def __init__(self, path: Path | str, member: str) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            os.write(self._file, b"\n")  # the previous process was killed in the middle of a line
        self.began(member)

    def note(self, event: Event) -> None:
        line = memoryview(_ENCODE(event) + b"\n")
        while line:
            line = line[os.write(self._file, line) :]

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Damage(msgspec.Struct, frozen=True):
    """A line that cannot be read. `torn`: it was cut off by the death of its writer, which is allowed."""

    line: int  # counted from 1
    torn: bool


def read_records(path: Path | str) -> Iterator[Event | Damage]:
    """The events of a file in their order.

    An unreadable line is torn when it is the last one and has no end, or when the next line is `began`.
    """
    number, rest, damaged = 0, b"", 0
    with Path(path).open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            whole, mark, tail = (rest + chunk).rpartition(b"\n")
            rest = tail
            if not mark:
                continue
            for event in _decoded(whole):
                number += 1
                if damaged:
                    yield Damage(damaged, isinstance(event, BeganRecord))
                    damaged = 0
                if event is None:
                    damaged = number
                else:
                    yield event
    if damaged:
        yield Damage(damaged, False)
    if rest:
        yield Damage(number + 1, True)


def _decoded(lines: bytes) -> list[Event | None]:
    try:
        if lines and b"\n\n" not in lines:
            found: list[Event | None] = list(_DECODER.decode_lines(lines))
            return found
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass  # one of them is damaged: find out which
    return [_one(line) for line in lines.split(b"\n")]


def _one(line: bytes) -> Event | None:
    try:
        event: Event = _DECODER.decode(line)
        return event
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
