"""The events of the experiments, and rules with an adjustable cost.

The number of an event is its rank among all events, and its time is its arrival, so its outcome and delay follow from
number and time.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

SCHEMA: Final = "event: [id: long, at: timestamp, kind: string, path: string, ms: int]"
KINDS: Final = 16  # every so many events one is a test, which tier 1 discards
PATHS: Final = 1_024

_PATHS: Final = pa.array(
    [f"/shop/{number:04d}/item/{number * 7919 % 9973:05d}/view?session=1" for number in range(PATHS)]
)
_NAMES: Final = pa.array(["performance", "test"])

Numbers = npt.NDArray[np.int64]


def table(first: int, count: int, since_us: int, until_us: int) -> pa.Table:
    """`count` events that arrived evenly between two times. The first has the number `first`."""
    ids = np.arange(first, first + count, dtype=np.int64)
    return pa.table(
        {
            "id": ids,
            "at": pa.array(times(count, since_us, until_us), pa.timestamp("us", "UTC")),
            "kind": _NAMES.take(pa.array(np.where(is_test(ids), 1, 0))),
            "path": _PATHS.take(pa.array(ids % PATHS)),
            "ms": pa.array((ids * 31 % 1_000).astype(np.int32)),
        }
    )


def times(count: int, since_us: int, until_us: int) -> Numbers:
    """The arrival time of each event, in microseconds since 1970: after `since_us`, the last at `until_us`."""
    return since_us + (np.arange(1, count + 1, dtype=np.int64) * (until_us - since_us)) // max(1, count)


def is_test(ids: Numbers) -> npt.NDArray[np.bool_]:
    """Whether tier 1 discards an event."""
    return np.equal(ids % KINDS, 0)


def signatures(count: int) -> str:
    """A rule that searches an event's path for `count` patterns, like a list of known attacks. None matches."""
    return " or ".join(f"path like '%/etc/{number}%.php%'" for number in range(count))
