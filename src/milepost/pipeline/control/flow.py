"""Flow control of one IAP: how many events its lane may take in the next interval.

The measurement is the free space of the lane's result queue in bytes: its bound, minus the results that the lane has
committed and the combiner has not consumed. The input is the number of events to admit. Admitting more leaves less
space, so b and the gains are negative. Space held at its reference is a buffer both ways: the combiner does not run dry
because a lane was throttled too much, and when the combiner stops, the results under way find space. Events that are
not admitted stay in the durable topic. Nothing is dropped.

Pure: no clock and no I/O. A runner calls `admit` (or `step`) once an interval, and carries out the decision.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from milepost.errors import ConfigError
from milepost.pipeline.control.adaptation import Adaptation
from milepost.pipeline.control.model import Model
from milepost.pipeline.control.placement import OVERSHOOT, Gains, design
from milepost.pipeline.control.regulator import Regulator

INTERVAL = 2.0
"""Seconds between decisions, as in the paper. A micro-batch of Spark has a fixed cost of about 0.12 s and takes several
times that under load: a shorter interval would often see the same commit twice, and a longer one reacts to a hog later.
"""

SETTLING = 5.0
"""Intervals until a disturbance has settled, as in the paper: ten seconds."""

LIMITS = (0.0, 1_000_000.0)
"""Events an interval. The upper limit is half a million events a second in one lane, more than twice the target of a
whole pipeline. It keeps the first interval after a night's outage from admitting the whole backlog.
"""

PATIENCE = 3
"""Intervals without a measurement for which the input is held. After them it is halved each time, because a queue that
is not measured may be filling.
"""

PROBE = 1.0
"""Events an interval that are admitted however long no measurement comes. Some lanes report only when they have worked;
with nothing admitted they would never report again.
"""


class FlowController:
    """A PI controller of free space, with feedback on past inputs where the model has a delay.

    `reference` is the free space to hold, in bytes; half of the bound is a good start. `settling` is in intervals of
    `interval` seconds. `limits` are events an interval. `start` is the first input; by default the input that holds the
    reference according to the model. `gains` replaces the placed ones, for experiments such as repeating the mistake in
    the paper. With `adaptive`, b is tracked while running (see `adaptation.py`).
    """

    def __init__(
        self,
        model: Model,
        reference: float,
        settling: float = SETTLING,
        limits: tuple[float, float] = LIMITS,
        *,
        overshoot: float = OVERSHOOT,
        interval: float = INTERVAL,
        start: float | None = None,
        gains: Gains | None = None,
        adaptive: bool = False,
    ) -> None:
        if limits[0] < 0:
            raise ConfigError(f"a lane cannot admit fewer than 0 events, so its lower limit is not {limits[0]}")
        if not interval > 0:
            raise ConfigError(f"an interval is a positive number of seconds, not {interval}")
        if not math.isfinite(reference):
            raise ConfigError(f"a reference is a number of bytes, not {reference}")
        self.model = model
        self.reference = float(reference)
        self.settling, self.overshoot, self.interval = settling, overshoot, interval
        first = model.input_for(reference) if start is None else start
        self._regulator = Regulator(gains or design(model, settling, overshoot), limits, first)
        self._adaptation = (
            Adaptation(model, abs(reference), max(abs(self.input), abs(reference / model.b) / settling))
            if adaptive
            else None
        )
        self._missed = 0
        self._carry = 0.0
        self._measured: float | None = None
        self._learned = True  # whether the adaptation has seen the last interval

    @property
    def input(self) -> float:
        """Events admitted in the last interval."""
        return self._regulator.input

    @property
    def gains(self) -> Gains:
        """The gains in use."""
        return self._regulator.gains

    @property
    def saturated(self) -> bool:
        """Whether the last input is at a limit."""
        return self._regulator.saturated

    def step(self, measurement: float | None) -> float:
        """Events to admit in the next interval, from the free space now (None or NaN: no measurement).

        When fewer events than this are there to admit, call `applied`.
        """
        self._learn()
        self._learned = False
        if measurement is None or not math.isfinite(measurement):
            self._measured = None
            self._missed += 1
            held = self.input if self._missed <= PATIENCE else max(self.input / 2, min(self.input, PROBE))
            return self._regulator.hold(held)
        self._measured = float(measurement)
        self._missed = 0
        return self._regulator.step(self.reference - self._measured)

    def applied(self, events: float, ago: int = 0) -> None:
        """Correct how many events were admitted in the interval that `step` decided last, or `ago` intervals before
        that.

        A controller that believes it has admitted a million events while only ten were there would admit the rest of
        the million when they come. From what was applied, it admits as many more as there is space for. A runner that
        uses the result of `step` as a limit on events still to come calls this at the end of the interval, with the
        number that came.
        """
        self._regulator.applied(events, ago)

    def admit(self, measurement: float | None, waiting: int | None = None) -> int:
        """`step` in whole events, at most `waiting` (the events in the topic that the lane may have), and applied.

        Fractions are carried to the next interval, so that 0.4 events an interval are two in five intervals.
        """
        exact = self.step(measurement) + self._carry
        count = math.floor(exact)
        if waiting is not None and count >= waiting:
            # Events that were not there to take are not owed later.
            self._carry = 0.0
            self.applied(min(waiting, self.input))
            return max(0, waiting)
        self._carry = exact - count
        return count

    def state(self) -> dict[str, Any]:
        """The whole state in plain values, for JSON; `restore` continues from it.

        What the adaptation has learned since it last changed the model is left out, and learned again.
        """
        return {
            "model": self.model.as_dict(),
            "reference": self.reference,
            "settling": self.settling,
            "overshoot": self.overshoot,
            "interval": self.interval,
            "limits": list(self._regulator.limits),
            "adaptive": self._adaptation is not None,
            "regulator": self._regulator.state(),
            "missed": self._missed,
            "carry": self._carry,
        }

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> FlowController:
        low, high = state["limits"]
        restored = cls(
            Model.from_dict(state["model"]),
            state["reference"],
            state["settling"],
            (low, high),
            overshoot=state["overshoot"],
            interval=state["interval"],
            adaptive=state["adaptive"],
        )
        restored._regulator.restore(state["regulator"])
        restored._missed = int(state["missed"])
        restored._carry = float(state["carry"])
        return restored

    def _learn(self) -> None:
        """Give the finished interval to the adaptation, now that the applied input is known."""
        if self._adaptation is None or self._learned:
            return
        self._learned = True
        model = self._adaptation.observe(self._measured, self.input)
        if model is not None:
            self.model = model
            self._regulator.gains = design(model, self.settling, self.overshoot)
