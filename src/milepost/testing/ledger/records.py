"""What programs note while they run, a line of JSON for each event, so that it outlives a SIGKILL.

::

    ["began", at, member]                                       a consumer or a publisher starts, perhaps again
    ["ended", at, member]                                       a consumer ends, with nothing in its hands
    ["put", at, publisher, topic, first, count]                 before putting; the sequences are dense
    ["stored", at, publisher, topic, first, count]              the put has returned
    ["refused", at, publisher, topic, first, count]             it failed, and nothing can have been stored
    ["reach", at, subscription, member, count]                  before a get of up to `count` messages
    ["got", at, subscription, member, publishers, sequences, again]
    ["done", at, subscription, member, publishers, sequences]   an acknowledgement was confirmed
    ["cursor", at, subscription, log, offset]
    ["broke", at, until]                                        a broker was killed, and was back by then

`at` is the machine's monotonic clock in nanoseconds, which all its processes share: files are merged by it. Each
line is one `write` to a file opened for appending: the kernel keeps it when the process is killed the instant after.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, TypeAlias

import msgspec

CHUNK_BYTES: Final = 8 << 20  # of a file that are decoded at once: the memory it takes does not grow with the file


class BeganRecord(msgspec.Struct, array_like=True, tag="began", frozen=True):
    """A program starts; what its life before had in hand, it had in hand when it died."""

    at: int
    member: str


class EndedRecord(msgspec.Struct, array_like=True, tag="ended", frozen=True):
    """A consumer ends in good order: no get is under way."""

    at: int
    member: str


class PutRecord(msgspec.Struct, array_like=True, tag="put", frozen=True):
    """Somebody is about to put messages `first` to before `first + count`."""

    at: int
    publisher: str
    topic: str
    first: int
    count: int


class StoredRecord(PutRecord, tag="stored", frozen=True):
    """The put returned: acknowledged."""


class RefusedRecord(PutRecord, tag="refused", frozen=True):
    """The put failed, for a reason that says that nothing was stored."""


class ReachRecord(msgspec.Struct, array_like=True, tag="reach", frozen=True):
    """A consumer is about to get up to `count` messages, which count as consumed before it has noted them."""

    at: int
    subscription: str
    member: str
    count: int


class GotRecord(msgspec.Struct, array_like=True, tag="got", frozen=True):
    """Messages arrived, none perhaps. `again`: which were marked as redelivered; empty: none was."""

    at: int
    subscription: str
    member: str
    publishers: list[str]
    sequences: list[int]
    again: list[int] = []


class DoneRecord(msgspec.Struct, array_like=True, tag="done", frozen=True):
    """The broker has confirmed that messages are acknowledged: they may not come again."""

    at: int
    subscription: str
    member: str
    publishers: list[str]
    sequences: list[int]


class CursorRecord(msgspec.Struct, array_like=True, tag="cursor", frozen=True):
    """Where a subscription was seen to be."""

    at: int
    subscription: str
    log: int
    offset: int


class BrokeRecord(msgspec.Struct, array_like=True, tag="broke", frozen=True):
    """A broker died, and forgot whom it had handed what: such messages come again without a mark."""

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
        """Take one event."""

    def began(self, member: str) -> None:
        """A program of this name starts. Whatever it was reaching for in an earlier life was in its hands."""
        self.note(BeganRecord(time.monotonic_ns(), member))

    def ended(self, member: str) -> None:
        """A consumer ends in good order: it reaches for nothing any more, and has noted all that it got."""
        self.note(EndedRecord(time.monotonic_ns(), member))

    def put(self, publisher: str, topic: str, first: int, count: int = 1) -> None:
        """Before a put: a publisher numbers its messages itself, and puts no number twice into one topic."""
        self.note(PutRecord(time.monotonic_ns(), publisher, topic, first, count))

    def stored(self, publisher: str, topic: str, first: int, count: int = 1) -> None:
        """After a put has returned."""
        self.note(StoredRecord(time.monotonic_ns(), publisher, topic, first, count))

    def refused(self, publisher: str, topic: str, first: int, count: int = 1) -> None:
        """After a put has failed for good. When it may have been stored none the less, note nothing."""
        self.note(RefusedRecord(time.monotonic_ns(), publisher, topic, first, count))

    def reach(self, subscription: str, member: str = "", count: int = 1) -> None:
        """Before a `get` or `get_many`: should the program die before it has noted what it got, so much is excused."""
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
        """What came: one message, many, or none. One that acknowledges by itself notes it *before* it does so."""
        numbers = [sequences] if isinstance(sequences, int) else list(sequences)
        names = [publishers] * len(numbers) if isinstance(publishers, str) else list(publishers)
        marks = [again] * len(numbers) if isinstance(again, bool) else again
        flags = [int(mark) for mark in marks] if any(marks) else []
        if len(names) != len(numbers) or len(flags) not in (0, len(numbers)):
            raise ValueError(f"{len(names)} publishers, {len(numbers)} sequences and {len(flags)} marks do not fit")
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
        numbers = [sequences] if isinstance(sequences, int) else list(sequences)
        names = [publishers] * len(numbers) if isinstance(publishers, str) else list(publishers)
        if len(names) != len(numbers):
            raise ValueError(f"{len(names)} publishers and {len(numbers)} sequences do not fit")
        self.note(DoneRecord(time.monotonic_ns(), subscription, member, names, numbers))

    def cursor(self, subscription: str, log: int, offset: int) -> None:
        """A position that somebody read off the broker."""
        self.note(CursorRecord(time.monotonic_ns(), subscription, log, offset))

    def broke(self, since: int) -> None:
        """A broker was killed at `since`, of `time.monotonic_ns()`, and is back now. It excuses missing marks alone."""
        self.note(BrokeRecord(since, time.monotonic_ns()))


class Recorder(Book):
    """Notes events in a file, each before the call returns. A file may be taken up again by the program's next life.

    It says `began` by itself: the first line of each life tells which lines before it may be cut off. `member` is the
    program's name, which no other has.
    """

    def __init__(self, path: Path | str, member: str) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            os.write(self._file, b"\n")  # the life before was killed in the middle of a line
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Damage(msgspec.Struct, frozen=True):
    """A line that is no event. `torn`: it was cut off by the death of its writer, as may be."""

    line: int  # counted from 1
    torn: bool


def read_records(path: Path | str) -> Iterator[Event | Damage]:
    """The events of a file in their order.

    A line that cannot be read is torn when it is the file's last and has no end, or when the next one says `began`.
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
        pass  # one of them is damaged: which?
    return [_one(line) for line in lines.split(b"\n")]


def _one(line: bytes) -> Event | None:
    try:
        event: Event = _DECODER.decode(line)
        return event
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
