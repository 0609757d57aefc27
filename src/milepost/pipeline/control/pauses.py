"""Pauses: lanes that get nothing for now, because whatever they get makes everybody wait.

Balancing moves shares until response times meet. They cannot always meet: what a micro-batch costs anyway, before its
first event, a slow lane pays as well, many times over under a hog. When an event that finds nobody before it takes
longer in one lane than in the others with all that they have, the least share is still too much: the combiner waits for
that event. The best share of such a lane is none at all.

A lane that gets nothing is not measured. So now and then it is *probed*: it gets a few events, at once, and the time
until they are done says whether it is well. Meanwhile the combiner waits for them, so probes become rarer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from milepost.pipeline.control.split import without

PROBE: Final = 4
"""Intervals from the beginning of a pause to the first probe: what was given to the lane before should be done."""

RAREST: Final = 16
"""Intervals between probes, at most; from one to the next they double. With an interval of two seconds a lane that is
well again is found within half a minute, and a lane that takes two seconds for a probe delays others by a sixteenth of
a second on average."""

EVENTS: Final = 100
"""Of a probe. What matters is what a micro-batch costs with hardly any."""

WELL: Final = 0.8
"""Of the others' response time, at most: how fast a probe must be to end a pause. Less than 1, so that a lane at the
limit does not come and go."""

NEEDED: Final = 1.25
"""Times the others' response time when a pause began: beyond that they cannot do without the lane."""

BARRED: Final = 100
"""Intervals without a pause, for a lane that others could not do without. To try again and again would swing all events
to and fro."""


class LanePauses:
    """The pauses of some lanes. One call an interval, with the balancer's."""

    def __init__(self, lanes: int) -> None:
        self._every: list[int] = [0] * lanes  # intervals between probes; 0: no pause
        self._left: list[int] = [0] * lanes  # … until the next one; without a pause: until there may be one
        self._usual: list[float] = [0.0] * lanes  # the others' response time when the pause began
        self.probes: list[int] = []  # lanes to probe now

    def step(self, responses: Sequence[float | None], alone: Sequence[float | None]) -> None:
        """`responses` are what an event assigned now may expect of each lane, and `alone` what one does that finds
        nobody before it; in seconds, None: not known.
        """
        self.probes = []
        for lane, least in enumerate(alone):
            others = [
                response
                for other, response in enumerate(responses)
                if other != lane and response is not None and not self._every[other]
            ]
            if not others or least is None:
                self._every[lane] = 0  # somebody must do it
                continue
            usual = sum(others) / len(others)
            if not self._every[lane]:
                self._left[lane] = max(0, self._left[lane] - 1)
                if least > usual and not self._left[lane]:
                    self._every[lane] = self._left[lane] = PROBE
                    self._usual[lane] = usual
            elif least <= WELL * usual:
                self._every[lane] = 0
                self._left[lane] = BARRED if usual > NEEDED * self._usual[lane] else 0
            else:
                self._left[lane] -= 1
                if self._left[lane] <= 0:
                    self.probes.append(lane)
                    self._every[lane] = self._left[lane] = min(2 * self._every[lane], RAREST)

    def paused(self, lane: int) -> bool:
        """Whether a lane gets nothing but probes."""
        return self._every[lane] > 0

    def of(self, weights: Sequence[float]) -> list[float]:
        """Weights without what lanes that pause would get; they sum to 1 again."""
        return without(weights, [lane for lane in range(len(weights)) if self.paused(lane)])


def late(ages: Sequence[float], limit: float) -> list[int]:
    """The lane that is late, if it is one alone: its oldest event was assigned more than `limit` seconds ago, and those
    of all others later.

    Between two decisions of the balancer a lane that a hog has hit is given events as before, and the combiner waits
    for each of them. This is known within a fraction of an interval. When several lanes are late there is too much for
    all of them, and that is no question of where it goes.
    """
    found = [lane for lane, age in enumerate(ages) if age > limit]
    return found if len(found) == 1 and len(ages) > 1 else []
