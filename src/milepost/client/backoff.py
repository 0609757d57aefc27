"""How long to wait before a failed operation, mostly a connect, is tried again."""

from __future__ import annotations

import random
from typing import Final

FIRST_SECONDS: Final = 0.05  # bound of the first delay: a broker that restarts is back soon
LONGEST_SECONDS: Final = 5.0  # bound of any delay: clients should not wait much longer than the broker was away


class Backoff:
    """Delays whose bound doubles, each drawn uniformly from zero to its bound.

    Full jitter: a thousand clients that lost one broker reconnect spread out, not all at once.
    """

    def __init__(
        self, draw: random.Random | None = None, first: float = FIRST_SECONDS, longest: float = LONGEST_SECONDS
    ) -> None:
        self._draw = draw or random.Random()
        self._first, self._longest = first, max(first, longest)
        self.attempts = 0

    @property
    def bound(self) -> float:
        """Upper bound of the next delay, in seconds."""
        # 2.0 ** 1024 overflows, and the bound is reached after a handful of doublings.
        return min(self._longest, self._first * 2.0 ** min(self.attempts, 32))

    def next(self) -> float:
        """Seconds to wait before the next attempt."""
        delay = self._draw.uniform(0.0, self.bound)
        self.attempts += 1
        return delay
