"""The response time of a lane, which load balancing measures.

It is the time from an event's assignment to the lane until its result is visible. Averaging the events that became
visible would be wrong for control: an event that took a minute describes the lane of a minute ago, so the delay of the
loop would grow with the quantity that it controls, and a lane that has stopped would report nothing. The balancer needs
the response time of an event assigned *now*: the events pending in the lane, waiting for admission or admitted, divided
by the lane's rate. A weight changes that within the interval, and a hog shows within a micro-batch.

The rate is measured while the lane works: events divided by the seconds that their micro-batches took. Events divided
by elapsed seconds would mislead: flow control holds back a fast lane whose results wait for a slow one at the combiner,
so by elapsed time both lanes would look equally slow.

Results become visible one micro-batch at a time. The work since the last commit is not visible but done, so it is
subtracted, as long as the next commit is not overdue.
"""

from __future__ import annotations

from collections import deque

from milepost.errors import ConfigError

RATE_SECONDS = 4.0
"""Least time over which a rate is averaged; longer when one micro-batch takes longer. Two intervals: a hog should show
in the next decision but one, and single micro-batches vary.
"""

STARTUP = 30.0
"""Seconds for which a lane with work and without a commit is not judged: the first micro-batch of a query plans,
compiles and starts workers, in one lane sooner than in another.
"""

OVERDUE = 2.0
"""Lengths of the last micro-batch after which the current one counts as late."""

COMMITS = 256
"""Commits remembered. At ten a second, which Spark does not reach, they cover the time above six times."""


class ResponseMeter:
    """The expected response time of one lane, in seconds, from its commits and its assigned events."""

    def __init__(self) -> None:
        self._commits: deque[tuple[float, int, float]] = deque(maxlen=COMMITS)
        self.alone: float | None = None  # seconds that an event takes in an empty lane
        self._turn = 0.0  # … as last measured
        self._visible = 0
        self._last: float | None = None
        self._idle = 0.0  # when it was last seen without work

    def commit(self, time: float, visible: int, busy: float, turn: float | None = None) -> None:
        """Note a micro-batch that was committed at `time` (seconds, any origin) after `busy` seconds of work.

        `visible` counts the lane's events with visible results since the beginning. `turn` is the seconds from the
        assignment of its last event, when only events of the same micro-batch were before it; by default `busy`.
        """
        if visible <= self._visible or not busy > 0:
            return  # a commit without events says nothing about their rate
        self._commits.append((time, visible - self._visible, busy))
        self._visible = visible
        self._turn = busy if turn is None else turn

    def step(self, time: float, assigned: int, admitted: int | None = None) -> float | None:
        """The expected response time of an event assigned at `time`, in seconds; None while nothing is known.

        `assigned` and `admitted` count the events given to the lane and the events that flow control has admitted,
        since the beginning; without flow control they are the same. Called once an interval, after the commits.
        """
        if self._last is not None and time < self._last:
            raise ConfigError(f"time must not go backwards: {time} is before {self._last}")
        if self._last is None or (assigned if admitted is None else admitted) <= self._visible:
            self._idle = time
        self._last = time
        if not self._commits:
            waited = time - self._idle
            return waited if waited > STARTUP else None
        events = batches = 0
        busy = 0.0
        for _, count, seconds in reversed(self._commits):
            events, batches, busy = events + count, batches + 1, busy + seconds
            if busy >= RATE_SECONDS:
                break
        batch = busy / batches
        pending = max(0, assigned - self._visible)
        self.alone = self._turn
        if pending == 0:
            return batch  # an event in an empty lane takes one micro-batch
        # A lane that was idle, or held back, is not late.
        since = max(0.0, time - max(self._commits[-1][0], self._idle))
        if since > OVERDUE * self._turn:
            self.alone = since
        # An overdue micro-batch is expected to take as much longer as it is late already.
        return max(pending * busy / events - min(since, batch), 0.0) + batch + 2 * max(0.0, since - 2 * batch)
