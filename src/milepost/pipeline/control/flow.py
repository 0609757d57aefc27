"""Flow control of one IAP: how many events its lane may take in the next interval.

The measurement is the free space of the lane's result queue in bytes: its bound, less what the lane has committed and
the combiner has not consumed. The input is events to admit. Admitting more leaves less space, so b and the gains are
negative. Held at its reference the space is a buffer both ways: the combiner never runs dry because a lane was
throttled too much, and a combiner that stops finds room for what is under way. What is not admitted waits in the
topic, where it is durable. Nothing is dropped, here or anywhere.

Pure: no clock and no I/O. A runner calls `admit` (or `step`) once an interval, and does what it says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from milepost.errors import ConfigError
from milepost.pipeline.control.adaptation import Adaptation
from milepost.pipeline.control.model import Model
from milepost.pipeline.control.placement import OVERSHOOT, Gains, design, spectral_radius
from milepost.pipeline.control.regulator import Regulator

INTERVAL = 2.0
"""Seconds between decisions, as in the paper. A micro-batch of Spark has a fixed cost of about 0.12 s and takes several
times that under load: a shorter interval would often see the same commit twice, and a longer one reacts to a hog
later."""

SETTLING = 5.0
"""Intervals until a disturbance is gone, as in the paper: ten seconds."""

LIMITS = (0.0, 1_000_000.0)
"""Events an interval. The upper one is half a million events a second in one lane, more than twice what is asked of a
whole pipeline; it is there so that the first interval after a night's outage does not admit the night."""

PATIENCE = 3
"""Intervals without a measurement for which the input is held; after them it is halved each time, because a queue
nobody can see may be filling."""

PROBE = 1.0
"""Events an interval that are admitted however long no measurement comes. Where a lane reports only when it has worked,
admitting nothing would be for ever."""


class FlowController:
    """A PI controller of free space, with feedback on past inputs where the model has a delay.

    `reference` is the free space to hold, in bytes; half of the bound is a good start. `settling` is in intervals of
    `interval` seconds. `limits` are events an interval. `start` is the first input; by default what the model says
    holds the reference. `gains` replaces the placed ones: for experiments, such as repeating the paper's mistake.
    With `adaptive`, b is followed while running (see `adaptation.py`).
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
    def radius(self) -> float:
        """The spectral radius of the loop, if the model is right."""
        return spectral_radius(self.model, self.gains)

    @property
    def saturated(self) -> bool:
        """Whether the last input is at a limit."""
        return self._regulator.saturated

    def step(self, measurement: float | None) -> float:
        """Events to admit in the next interval, out of the free space now (None or NaN: no measurement).

        When fewer go out than this says, because fewer are there, tell `applied`.
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
        """What really was admitted in the interval that `step` decided last, or `ago` intervals before that.

        A controller that believed it had admitted a million events while ten were there would admit the rest of the
        million when they come. From what was applied, it goes on to as many more as there is space for. A runner that
        gives out `step`'s number as a limit on events still to come calls this at the end of the interval, with what
        came.
        """
        self._regulator.applied(events, ago)

    def admit(self, measurement: float | None, waiting: int | None = None) -> int:
        """`step` in whole events, at most `waiting` (those in the topic that the lane may have), and applied.

        Fractions are carried to the next interval, so that 0.4 events an interval are two in five.
        """
        exact = self.step(measurement) + self._carry
        count = math.floor(exact)
        if waiting is not None and count >= waiting:
            # What was not there to take is not owed later.
            self._carry = 0.0
            self.applied(min(waiting, self.input))
            return max(0, waiting)
        self._carry = exact - count
        return count

    def state(self) -> dict[str, Any]:
        """All of it in plain values, for JSON; `restore` goes on from there.

        What the adaptation has learned since it last changed the model is not in it, and is learned again.
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
        """Give the interval that is over to the adaptation: only now it is known what was applied in it."""
        if self._adaptation is None or self._learned:
            return
        self._learned = True
        model = self._adaptation.observe(self._measured, self.input)
        if model is not None:
            self.model = model
            self._regulator.retune(design(model, self.settling, self.overshoot))
