"""What the controllers saw and did: one record for each lane and interval.

The report draws it, `milepost pipeline status` shows its end, and a run can be judged by it afterwards.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

RECORDS = 100_000
"""Records kept: four lanes at two seconds for fourteen hours, in about 20 MB."""


@dataclass(frozen=True, slots=True)
class Record:
    """One lane in one interval. None is what was not measured, or is not in use."""

    k: int
    """The interval's number, from 0."""
    time: float
    """Its start, in seconds since the run began."""
    lane: int
    """From 0."""
    set_point: float | None = None
    """The free space to hold, in bytes."""
    measurement: float | None = None
    """The free space that was measured, in bytes."""
    input: float | None = None
    """Events admitted for the interval."""
    weight: float | None = None
    """The lane's share of new events, 0 to 1."""
    response_time: float | None = None
    """Seconds from assignment to a visible result, as the balancer was told."""
    delay: float | None = None
    """Seconds from an event to its way out of the combiner: the mean of the interval."""
    queue_bytes: int = 0
    """Committed by the lane and not consumed by the combiner."""
    waiting: int = 0
    """Events assigned to the lane and not admitted yet."""
    offered: int = 0
    """Events that came for the lane in the interval."""
    dropped: int = 0
    """Events lost in the interval: always 0 where there is control."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values, by name."""
        return asdict(self)


class Trace:
    """Records in the order in which they were made; the oldest go when there are more than `RECORDS`."""

    def __init__(self, records: Iterable[Record] = (), limit: int = RECORDS) -> None:
        self._records: deque[Record] = deque(records, maxlen=limit)

    def add(self, record: Record) -> None:
        """Append one."""
        self._records.append(record)

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self._records)

    @property
    def lanes(self) -> list[int]:
        """The lanes that occur."""
        return sorted({record.lane for record in self._records})

    def lane(self, lane: int) -> Trace:
        """The records of one lane."""
        return Trace(record for record in self._records if record.lane == lane)

    def between(self, start: float, end: float) -> Trace:
        """The records with start <= time < end, in seconds."""
        return Trace(record for record in self._records if start <= record.time < end)

    def last(self) -> dict[int, Record]:
        """The newest record of each lane."""
        return {record.lane: record for record in self._records}

    def column(self, name: str) -> NDArray[np.float64]:
        """One field of all records as numbers; None is NaN."""
        values = (getattr(record, name) for record in self._records)
        return np.array([np.nan if value is None else float(value) for value in values], dtype=np.float64)

    def to_json_lines(self) -> str:
        """One record a line."""
        return "".join(json.dumps(record.as_dict(), separators=(",", ":")) + "\n" for record in self._records)

    @classmethod
    def from_json_lines(cls, text: str) -> Trace:
        """The way back. Fields that are not known here are left out, so that an older reader reads a newer trace."""
        names = {field.name for field in fields(Record)}
        parsed = (json.loads(line) for line in text.splitlines() if line.strip())
        return cls(Record(**{name: value for name, value in line.items() if name in names}) for line in parsed)


def settled_after(values: NDArray[np.float64], reference: float, band: float) -> int | None:
    """The intervals until `values` are within `band` (a share of the reference) of it and stay there; None if never.

    0 when they never left it. A value that is missing is neither.
    """
    off = np.flatnonzero(np.abs(values - reference) > band * abs(reference))
    if len(off) == 0:
        return 0
    after = int(off[-1]) + 1
    return after if after < len(values) else None
