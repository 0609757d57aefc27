"""Messages as sorted numbers: the code of a publisher in the upper bits, a sequence in the lower 47."""

from __future__ import annotations

import heapq
from array import array
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

SEQUENCE_BITS: Final = 47
PUBLISHERS: Final = 1 << (63 - SEQUENCE_BITS)
NEVER: Final = (1 << 63) - 1  # a time after all others

Keys: TypeAlias = npt.NDArray[np.int64]
Window: TypeAlias = tuple[int, int, int]  # of a death: time of the reach, time of death, most messages in hand


def numbers(column: array[int]) -> Keys:
    """A column as a separate array."""
    return np.frombuffer(column, np.int64).copy() if len(column) else np.empty(0, np.int64)


def among(keys: Keys, others: Keys) -> Keys:
    """The sorted keys that are in `others`, which are sorted too."""
    return keys[is_in(keys, others)]


def without(keys: Keys, others: Keys) -> Keys:
    """The sorted keys that are not in `others`, which are sorted too."""
    return keys[~is_in(keys, others)]


def is_in(keys: Keys, others: Keys) -> npt.NDArray[np.bool_]:
    """Which keys are in `others`, which are sorted."""
    if not len(others):
        return np.zeros(len(keys), np.bool_)
    found: npt.NDArray[np.bool_] = others[np.minimum(np.searchsorted(others, keys), len(others) - 1)] == keys
    return found


def late(done_keys: Keys, done_at: Keys, key: Keys, at: Keys) -> npt.NDArray[np.bool_]:
    """Which deliveries came after the acknowledgement of their message was confirmed."""
    if not len(done_keys):
        return np.zeros(len(key), np.bool_)
    order = np.lexsort((done_at, done_keys))
    done_keys, rows = np.unique(done_keys[order], return_index=True)
    done_at = done_at[order][rows]
    place = np.minimum(np.searchsorted(done_keys, key), len(done_keys) - 1)
    found: npt.NDArray[np.bool_] = (done_keys[place] == key) & (done_at[place] < at)
    return found


def disordered(keys: Keys, members: Keys | None) -> Keys:
    """Of keys in the order of their arrival, those directly after a higher key of the same publisher.

    A member that records a message before its acknowledgement can be compared with the other members of its group,
    because the publisher's next message is handed out only after that. `get` records afterwards, so each member is
    compared with itself only.
    """
    publishers = keys >> SEQUENCE_BITS
    lane = publishers if members is None else members * PUBLISHERS + publishers
    order = np.argsort(lane, kind="stable")
    lane, keys = lane[order], keys[order]
    behind: Keys = keys[1:][(lane[1:] == lane[:-1]) & (keys[1:] < keys[:-1])]
    return behind


def excuse(missing: Keys, keys: Keys, at: Keys, windows: list[Window]) -> tuple[int, Keys]:
    """Assign missing messages to windows in which they may have been in hand. Returns how many, and the remaining
    messages.

    A message fits a window that was open between the deliveries of its publisher's neighbouring messages. Windows are
    processed by time, and take the fitting messages whose time ends first: no other choice excuses more.
    """
    if not len(missing) or not windows:
        return 0, missing
    place = np.searchsorted(keys, missing)
    before, after = np.maximum(place - 1, 0), np.minimum(place, len(keys) - 1)
    opens, closes = np.zeros(len(missing), np.int64), np.full(len(missing), NEVER, np.int64)
    if len(keys):
        same = (place > 0) & (keys[before] >> SEQUENCE_BITS == missing >> SEQUENCE_BITS)
        opens[same] = at[before][same]
        same = (place < len(keys)) & (keys[after] >> SEQUENCE_BITS == missing >> SEQUENCE_BITS)
        closes[same] = at[after][same]
    coming = np.argsort(opens, kind="stable").tolist()[::-1]  # the next is the last
    ready: list[tuple[int, int]] = []
    left = np.ones(len(missing), np.bool_)
    for reached, dead, count in windows:
        while coming and opens[coming[-1]] <= dead:
            index = coming.pop()
            heapq.heappush(ready, (int(closes[index]), index))
        while ready and count:
            closed, index = heapq.heappop(ready)
            if closed >= reached:
                left[index] = False
                count -= 1
    return int((~left).sum()), missing[left]
