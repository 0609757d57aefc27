"""Message IDs: who published a message, through which broker, and when.

::

    message ID, 16 bytes, big-endian so that IDs of one publisher sort by time
    ┌──────────────┬───────────┬──────────────────────┬───────────┐
    │ publisher 4  │ broker 4  │ time in ms 6         │ counter 2 │
    └──────────────┴───────────┴──────────────────────┴───────────┘
                               └────────── stamp ─────────────────┘

In a batch, publisher and broker are *runs* of rows and the stamp is one 64-bit column.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from milepost.errors import InvalidValue, MalformedBatch

COUNTER_BITS: Final = 16
_STAMP_END: Final = 1 << 64
_RUN: Final = struct.Struct("<III")  # the row after its last, publisher, broker
_COUNT: Final = struct.Struct("<I")
_STAMP: Final = struct.Struct("<Q")


class MessageId(NamedTuple):
    """The identity of one message; prints as 32 hexadecimal digits."""

    publisher: int  # 32 bits
    broker: int  # 32 bits
    stamp: int  # 64 bits: milliseconds since 1970, then a counter

    @property
    def time_ms(self) -> int:
        """Milliseconds since 1970, by the publisher's clock."""
        return self.stamp >> COUNTER_BITS

    @property
    def counter(self) -> int:
        """Tells messages of one millisecond apart."""
        return self.stamp & 0xFFFF

    def __bytes__(self) -> bytes:
        return bytes.fromhex(str(self))

    def __str__(self) -> str:
        return f"{self.publisher:08x}{self.broker:08x}{self.stamp:016x}"

    @classmethod
    def parse(cls, text: str) -> MessageId:
        """Read what `str()` printed."""
        if not re.fullmatch(r"[0-9a-fA-F]{32}", text):
            raise InvalidValue(f"{text[:40]!r} is no message ID: it has 32 hexadecimal digits")
        return cls(int(text[:8], 16), int(text[8:16], 16), int(text[16:], 16))


class Run(NamedTuple):
    """Rows of one publisher that entered through one broker; `end` is the row after the last."""

    end: int
    publisher: int
    broker: int


class Ids:
    """The message IDs of a batch: runs that cover its rows, and one stamp a row. Immutable.

    Stamps that came as bytes stay bytes until somebody asks for the column: a message that travels alone is read and
    written without NumPy, whose fixed costs are those of the whole rest.
    """

    __slots__ = ("_at", "_raw", "_rows", "_stamps", "runs")

    def __init__(self, runs: tuple[Run, ...], stamps: npt.NDArray[np.uint64]) -> None:
        start = 0
        for run in runs:
            if run.end <= start:
                raise InvalidValue(f"a run ends at row {run.end}, not after row {start} where it begins")
            if not (0 <= run.publisher < 1 << 32 and 0 <= run.broker < 1 << 32):
                raise InvalidValue("publisher and broker are 32-bit numbers")
            start = run.end
        if start != len(stamps):
            raise InvalidValue(f"runs cover {start} rows, stamps {len(stamps)}")
        self.runs: Final = runs
        self._stamps: npt.NDArray[np.uint64] | None = stamps
        self._raw: Any = None
        self._at = 0
        self._rows = len(stamps)

    @property
    def stamps(self) -> npt.NDArray[np.uint64]:
        """One stamp a row."""
        if self._stamps is None:
            self._stamps = np.frombuffer(self._raw, "<u8", self._rows, self._at)
        return self._stamps

    @classmethod
    def single(cls, publisher: int, broker: int, stamps: Sequence[int] | npt.NDArray[np.uint64]) -> Ids:
        """IDs of one publisher."""
        column = np.asarray(stamps, dtype=np.uint64)
        return cls((Run(len(column), publisher, broker),) if len(column) else (), column)

    @classmethod
    def one(cls, publisher: int, broker: int, stamp: int) -> Ids:
        """The ID of a message that travels alone."""
        if not (0 <= publisher < 1 << 32 and 0 <= broker < 1 << 32 and 0 <= stamp < _STAMP_END):
            raise InvalidValue("publisher and broker are 32-bit numbers, a stamp has 64 bits")
        return cls._read((Run(1, publisher, broker),), _STAMP.pack(stamp), 0, 1)

    @classmethod
    def read_one(cls, data: bytes, at: int) -> Ids:
        """The ID of a message that travels alone, at a position of a batch that was found to be right."""
        made = cls.__new__(cls)
        made.runs = (tuple.__new__(Run, _RUN.unpack_from(data, at + 12)),)  # type: ignore[misc]
        made._stamps = None
        made._raw = data
        made._at = at
        made._rows = 1
        return made

    @classmethod
    def read_run(cls, data: Any, at: int, rows: int) -> Ids:
        """The IDs of one publisher's rows, at a position of a batch that was found to be right."""
        return cls._read((Run(*_RUN.unpack_from(data, at + 8 * rows + _COUNT.size)),), data, at, rows)

    @classmethod
    def _read(cls, runs: tuple[Run, ...], raw: Any, at: int, rows: int) -> Ids:
        made = cls.__new__(cls)
        made.runs = runs  # type: ignore[misc]
        made._stamps = None
        made._raw = raw
        made._at = at
        made._rows = rows
        return made

    def pack(self) -> list[Any]:
        """The bytes of the IDs, in parts: stamps, the number of runs, runs."""
        runs = [_RUN.pack(*run) for run in self.runs]
        if self._stamps is None:
            stamps = self._raw[self._at : self._at + 8 * self._rows]
        else:
            stamps = self._stamps.astype("<u8", copy=False)
        return [stamps, _COUNT.pack(len(runs)), *runs]

    @classmethod
    def unpack(cls, data: Any, at: int, rows: int) -> Ids:
        """The IDs that start at a position of a batch and end with it."""
        stamps = at
        at += 8 * rows
        if at + _COUNT.size > len(data):
            raise MalformedBatch("the message IDs are cut off")
        (count,) = _COUNT.unpack_from(data, at)
        at += _COUNT.size
        if count > rows or at + count * _RUN.size != len(data):
            raise MalformedBatch(f"{count} runs of message IDs do not end with the batch")
        runs = tuple([Run(*_RUN.unpack_from(data, at + number * _RUN.size)) for number in range(count)])
        if count != 1 or runs[0].end != rows:
            try:
                return cls(runs, np.frombuffer(data, "<u8", rows, stamps))
            except InvalidValue as error:
                raise MalformedBatch(f"message IDs: {error}") from None
        return cls._read(runs, data, stamps, rows)

    def __len__(self) -> int:
        return self._rows

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ids) and self.runs == other.runs and np.array_equal(self.stamps, other.stamps)

    def __getitem__(self, row: int) -> MessageId:
        position = row if row >= 0 else row + self._rows
        if not 0 <= position < self._rows:
            raise IndexError(f"row {row} of {self._rows}")
        if self._stamps is None:
            stamp = _STAMP.unpack_from(self._raw, self._at + 8 * position)[0]
        else:
            stamp = int(self._stamps[position])
        run = self.runs[0]
        if len(self.runs) > 1:
            run = self.runs[bisect_right(self.runs, position, key=lambda run: run.end)]
        return MessageId(run.publisher, run.broker, stamp)

    def take(self, rows: npt.NDArray[Any]) -> Ids:
        """The IDs of some rows, in their order."""
        ends = np.array([run.end for run in self.runs])
        owners = np.searchsorted(ends, rows, side="right")
        cuts = [*(np.flatnonzero(np.diff(owners)) + 1).tolist(), len(rows)] if len(rows) else []
        runs = (Run(end, *self.runs[owners[end - 1]][1:]) for end in cuts)
        return Ids(tuple(runs), self.stamps[rows])

    @classmethod
    def concat(cls, parts: Iterable[Ids]) -> Ids:
        """IDs one after the other; neighbouring runs of one publisher and broker join."""
        runs: list[Run] = []
        stamps = []
        start = 0
        for part in parts:
            for run in part.runs:
                if runs and runs[-1][1:] == run[1:]:
                    runs.pop()
                runs.append(Run(start + run.end, run.publisher, run.broker))
            start += len(part)
            stamps.append(part.stamps)
        return cls(tuple(runs), np.concatenate(stamps) if stamps else np.zeros(0, np.uint64))


def ids_of_rows(datas: Sequence[Any]) -> Ids | None:
    """The IDs of batches of one row each, which end with them; None when one of them is not of that kind."""
    found = np.frombuffer(b"".join([data[-_ROW.itemsize :] for data in datas]), _ROW)
    if len(found) != len(datas) or not (found["runs"] == 1).all() or not (found["end"] == 1).all():
        return None
    who = found["who"]
    ends = [*(np.flatnonzero(who[1:] != who[:-1]) + 1).tolist(), len(found)]
    publishers, brokers = (who & np.uint64(0xFFFFFFFF)).tolist(), (who >> np.uint64(32)).tolist()
    runs = tuple([Run(end, publishers[end - 1], brokers[end - 1]) for end in ends])
    return Ids(runs, np.ascontiguousarray(found["stamp"]))


# The ID at the end of a batch of one row; `who` is publisher and broker, compared as one.
_ROW: Final = np.dtype([("stamp", "<u8"), ("runs", "<u4"), ("end", "<u4"), ("who", "<u8")])


class Stamper:
    """Hands out a publisher's stamps: strictly increasing, whatever the clock does.

    A clock set back leaves the stamps counting on from the last one until the clock has caught up. `last` is the
    publisher's high water when it continues after a restart.
    """

    def __init__(self, clock_ms: Callable[[], int], last: int = 0) -> None:
        self._clock_ms = clock_ms
        self.last = last

    def next(self) -> int:
        """The next stamp, for a message that travels alone."""
        self.last = stamp = max(self._clock_ms() << COUNTER_BITS, self.last + 1)
        return stamp

    def take(self, count: int) -> npt.NDArray[np.uint64]:
        """The next `count` stamps."""
        first = max(self._clock_ms() << COUNTER_BITS, self.last + 1)
        if first + count > _STAMP_END:
            raise InvalidValue("the clock is past the year 10,889, where stamps end")
        if count:
            self.last = first + count - 1
        return np.arange(first, first + count, dtype=np.uint64)
