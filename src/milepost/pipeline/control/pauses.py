"""Pauses: lanes that get no events for now, because any event they get makes the others wait.

Balancing moves shares until response times are equal. They cannot always become equal: a slow lane also pays the fixed
cost of each micro-batch, which a hog multiplies. When a single event in an empty lane takes longer than the others take
with all their events, even the least share is too much, because the combiner waits for that event. The best share of
such a lane is 0.

A lane without events is not measured. So it is *probed* now and then: it gets a few events at once, and the time until
they are done shows whether it has recovered. The combiner waits for them, so probes become rarer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from milepost.pipeline.control.split import without

PROBE: Final = 4
"""Intervals from the start of a pause to the first probe: events assigned before should be done by then."""

RAREST: Final = 16
"""Most intervals between probes; the number doubles from one probe to the next. With an interval of two seconds a
recovered lane is found within half a minute, and a lane that takes two seconds for a probe delays the others by a
sixteenth of a second on average.
"""

EVENTS: Final = 100
"""Events of a probe. It measures the cost of a micro-batch with hardly any events."""

WELL: Final = 0.8
"""Of the others' response time: how fast a probe must be to end a pause. Less than 1, so that a lane at the limit does
not pause and return repeatedly.
"""

NEEDED: Final = 1.25
"""Times the others' response time at the start of the pause: beyond that the others need the lane."""

BARRED: Final = 100
"""Intervals without a pause for a lane that the others needed. Trying again and again would swing all events between
lanes.
"""


class LanePauses:
    """The pauses of some lanes. Called once an interval, after the balancer."""

    def __init__(self, lanes: int) -> None:
        self._every: list[int] = [0] * lanes  # intervals between probes; 0: no pause
        self._left: list[int] = [0] * lanes  # intervals until the next probe; without a pause: until one may start
        self._usual: list[float] = [0.0] * lanes  # the others' response time at the start of the pause
        self.probes: list[int] = []  # lanes to probe now

    def step(self, responses: Sequence[float | None], alone: Sequence[float | None]) -> None:
        """`responses` are the expected response times of an event assigned now, `alone` of an event in an empty lane,
        for each lane in seconds; None: not known.
        """
        self.probes = []
        for lane, least in enumerate(alone):
            others = [
                response
                for other, response in enumerate(responses)
                if other != lane and response is not None and not self._every[other]
            ]
            if not others or least is None:
                self._every[lane] = 0  # at least one lane must work
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
        """Weights with 0 for paused lanes, scaled to a sum of 1 again."""
        return without(weights, [lane for lane in range(len(weights)) if self.paused(lane)])


def late(ages: Sequence[float], limit: float) -> list[int]:
    """The lane that is late, if exactly one is: its oldest event was assigned more than `limit` seconds ago, and the
    oldest events of all other lanes later.

    Between two decisions of the balancer, a lane under a hog gets events as before, and the combiner waits for each of
    them. This check detects it within a fraction of an interval. When several lanes are late, all lanes are overloaded,
    and moving events does not help.
    """
    found = [lane for lane, age in enumerate(ages) if age > limit]
    return found if len(found) == 1 and len(ages) > 1 else []
