"""The response time of a lane: what load balancing measures.

It is the time from an event's assignment to the lane until its result is visible. The plain way, averaging the events
that became visible, is the wrong one to steer by: an event that took a minute tells what the lane was like a minute
ago, so the loop's delay would grow with the very quantity it is to hold, and a lane that has stopped would report
nothing at all. What is wanted is the response time of an event assigned *now*: what is pending in the lane, waiting
for admission or admitted, over the rate at which the lane gets it done. A weight acts on that within the interval,
and a hog shows within a micro-batch.

The rate is that of a lane at work: events over the seconds that their micro-batches took. Events over the seconds that
passed would not do. Flow control holds back a fast lane whose results wait for a slow one at the combiner; by the
clock the fast lane is then as slow as the other, and nothing would tell them apart.

Results become visible a micro-batch at a time. What the lane has done since its last commit is not seen, but it was
done: it is taken off, as long as the next commit is not overdue.
"""

from __future__ import annotations

from collections import deque

from milepost.errors import ConfigError

RATE_SECONDS = 4.0
"""The time that a rate is averaged over, at least; longer when one micro-batch takes longer. Two intervals: a hog
should show in the next decision but one, and single micro-batches vary."""

STARTUP = 30.0
"""Seconds in which a lane that has work and has never committed is not yet judged: the first micro-batch of a query
plans, compiles and starts workers, in one lane sooner than in another."""

OVERDUE = 2.0
"""Micro-batches of the last one's length, after which the one under way counts as late."""

COMMITS = 256
"""Commits remembered. At ten a second, which Spark does not reach, they still cover the time above six times."""


class ResponseMeter:
    """The expected response time of one lane, in seconds, from its commits and from what it was assigned."""

    def __init__(self) -> None:
        self._commits: deque[tuple[float, int, float]] = deque(maxlen=COMMITS)
        self.alone: float | None = None  # seconds that an event takes which finds nobody before it
        self._turn = 0.0  # … the last one that did
        self._visible = 0
        self._last: float | None = None
        self._idle = 0.0  # when it was last seen without work

    def commit(self, time: float, visible: int, busy: float, turn: float | None = None) -> None:
        """A micro-batch was committed at `time` (seconds, any origin) after `busy` seconds of work.

        `visible` counts the lane's events whose results are visible, from the beginning. `turn` are the seconds since
        the last of its events was assigned, which found nobody before it but those it was done with; where that is not
        known, it is `busy`.
        """
        if visible <= self._visible or not busy > 0:
            return  # a commit without events says nothing about their rate
        self._commits.append((time, visible - self._visible, busy))
        self._visible = visible
        self._turn = busy if turn is None else turn

    def step(self, time: float, assigned: int, admitted: int | None = None) -> float | None:
        """Seconds that an event assigned at `time` may expect; None when there is nothing yet to tell from.

        `assigned` and `admitted` count the events given to the lane and those that flow control has let in, from the
        beginning; without flow control they are the same. Called once an interval, after the commits.
        """
        if self._last is not None and time < self._last:
            raise ConfigError(f"time goes on: {time} is before {self._last}")
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
            return batch  # an event that finds nobody before it takes one micro-batch
        # A lane that was idle, or held back, is not late.
        since = max(0.0, time - max(self._commits[-1][0], self._idle))
        if since > OVERDUE * self._turn:
            self.alone = since
        # An overdue micro-batch is expected to take as long again as it is late already.
        return max(pending * busy / events - min(since, batch), 0.0) + batch + 2 * max(0.0, since - 2 * batch)
