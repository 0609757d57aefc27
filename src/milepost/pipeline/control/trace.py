"""The measurements and decisions of the controllers: one record for each lane and interval.

The report draws a trace, `milepost pipeline status` shows its end, and tests judge runs by it.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields

import numpy as np
from numpy.typing import NDArray

RECORDS = 100_000
"""Records kept: four lanes at two seconds for fourteen hours, in about 20 MB."""


@dataclass(frozen=True, slots=True)
class Record:
    """One lane in one interval. None: not measured, or not in use."""

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
    """Seconds from assignment to a visible result, as the balancer measured it."""
    delay: float | None = None
    """Seconds from an event to its emission by the combiner: the mean of the interval."""
    queue_bytes: int = 0
    """Committed by the lane and not consumed by the combiner."""
    waiting: int = 0
    """Events assigned to the lane and not admitted yet."""
    offered: int = 0
    """Events that arrived for the lane in the interval."""
    dropped: int = 0
    """Events lost in the interval: always 0 with control."""


class Trace:
    """Records in the order of their creation. The oldest are removed when there are more than `RECORDS`."""

    def __init__(self, records: Iterable[Record] = (), limit: int = RECORDS) -> None:
        self._records: deque[Record] = deque(records, maxlen=limit)

    def add(self, record: Record) -> None:
        """Append a record."""
        self._records.append(record)

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self._records)

    @property
    def lanes(self) -> list[int]:
        """The lanes that have records."""
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
        """One field of all records as numbers; None becomes NaN."""
        values = (getattr(record, name) for record in self._records)
        return np.array([np.nan if value is None else float(value) for value in values], dtype=np.float64)

    def to_json_lines(self) -> str:
        """One record a line."""
        return "".join(json.dumps(asdict(record), separators=(",", ":")) + "\n" for record in self._records)

    @classmethod
    def from_json_lines(cls, text: str) -> Trace:
        """Parse JSON lines. Unknown fields are ignored, so that an older reader can read a newer trace."""
        names = {field.name for field in fields(Record)}
        parsed = (json.loads(line) for line in text.splitlines() if line.strip())
        return cls(Record(**{name: value for name, value in line.items() if name in names}) for line in parsed)


def settled_after(values: NDArray[np.float64], reference: float, band: float) -> int | None:
    """The intervals until `values` stay within `band` (a share of the reference) of `reference`; None if they never do.

    0 when they never left the band. A missing value counts neither way.
    """
    off = np.flatnonzero(np.abs(values - reference) > band * abs(reference))
    if len(off) == 0:
        return 0
    after = int(off[-1]) + 1
    return after if after < len(values) else None
