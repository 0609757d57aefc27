"""Rows of a durable topic as they are read from its log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from milepost.batch import Batch
from milepost.batch.header import Buffer
from milepost.batch.row import MessageHeader
from milepost.errors import ProtocolError
from milepost.schema import Schema


class LogBatch(Batch):
    """A batch whose rows have places in a log: `offsets[row]` in log number `log`.

    `deliveries[row]` is how often a row was handed out before, to any consumer; None when no row was.
    """

    log: int
    offsets: npt.NDArray[np.uint64]
    deliveries: npt.NDArray[np.uint32] | None

    @classmethod
    def opened(
        cls,
        data: Buffer,
        schema: Schema,
        log: int,
        offsets: npt.NDArray[np.uint64],
        deliveries: npt.NDArray[np.uint32] | None,
    ) -> LogBatch:
        """The batch of a HAND, checked whole."""
        made = cls.decode(data, schema)
        assert isinstance(made, LogBatch)
        if len(made) != len(offsets):
            raise ProtocolError(f"a HAND has {len(offsets)} offsets for {len(made)} rows")
        made.log, made.offsets, made.deliveries = log, offsets, deliveries
        return made

    def header(self, row: int) -> MessageHeader:
        """The ID, place and delivery count of a message."""
        deliveries = 0 if self.deliveries is None else int(self.deliveries[row])
        return MessageHeader(None if self.ids is None else self.ids[row], self.log, int(self.offsets[row]), deliveries)

    def read_as(self, schema: Schema) -> LogBatch:
        """The rows as a reader of another version sees them, at the same places."""
        made = super().read_as(schema)
        assert isinstance(made, LogBatch)
        made.log, made.offsets, made.deliveries = self.log, self.offsets, self.deliveries
        return made

    def some(self, rows: Sequence[int] | npt.NDArray[Any] | slice) -> LogBatch:
        """Some rows, ascending, with their places."""
        index = np.arange(len(self))[rows] if isinstance(rows, slice) else np.asarray(rows, np.intp)
        made = LogBatch.trusted(self.take(index).data, self.schema)
        assert isinstance(made, LogBatch)
        made.log, made.offsets = self.log, self.offsets[index]
        made.deliveries = None if self.deliveries is None else self.deliveries[index]
        return made


def ranges(offsets: npt.NDArray[np.uint64]) -> list[list[int]]:
    """Ascending offsets as [first, last] of each run. No Python loop over rows: acks come in thousands."""
    if not len(offsets):
        return []
    first, last = int(offsets[0]), int(offsets[-1])
    if last - first == len(offsets) - 1:  # the usual case, and always for one row
        return [[first, last]]
    cuts = np.flatnonzero(np.diff(offsets) != 1)
    ends = np.empty((len(cuts) + 1, 2), np.uint64)
    ends[0, 0], ends[-1, 1] = offsets[0], offsets[-1]
    ends[1:, 0], ends[:-1, 1] = offsets[cuts + 1], offsets[cuts]
    found: list[list[int]] = ends.tolist()
    return found
