"""A control loop under a script, which can replace the pipeline's own controllers and restore them.

A script is a generator. It sets the load, starts hogs and chooses the controllers, and yields the number of intervals
to continue like that. Everything runs in the one thread of the runner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from milepost.pipeline.control.flow import FlowController
from milepost.pipeline.control_loop import ControlLoop, Decided, Measured, _Lane
from milepost.pipeline.definition import Control

Script = Iterator[int]
# Decides how many events a lane admits, from the events of the previous interval's admission that were there to take,
# and from the bytes that are free now.
Law = Callable[[int, float], float]


class Seen(NamedTuple):
    """One interval."""

    time: float  # seconds since 1970, at its beginning
    put: int  # events put so far
    measured: tuple[Measured, ...]
    decided: tuple[Decided, ...]
    control: Control


class ScriptedLoop(ControlLoop):
    """A control loop that a script can change. `seen` has every interval."""

    def __init__(self, control: Control, done: Sequence[int], put: Callable[[], int]) -> None:
        super().__init__(control, done)
        self._put = put
        self.law: Law | None = None
        self.piece: int | None = None  # most events of a lane's micro-batch; None: by the lane's speed
        self.seen: list[Seen] = []

    def bound(self, queue_bytes: float, reference: float) -> None:
        """Change the size of the result queue and the reference, and start with a new controller."""
        self._control = replace(self._control, queue_bytes=round(queue_bytes), reference=round(reference))
        self.renew()

    def renew(self) -> None:
        """Restore the pipeline's own controllers, without state."""
        self.law = None
        for lane in self._lanes:
            lane.controller = None

    def balance(self, balance: bool) -> None:
        """Set whether weights follow response times."""
        self._control = replace(self._control, balance=balance)

    @property
    def control(self) -> Control:
        """The current settings."""
        return self._control

    def step(self, time: float, measured: Sequence[Measured]) -> list[Decided]:
        """One interval, which is also recorded."""
        decided = super().step(time, measured)
        self.seen.append(Seen(time, self._put(), tuple(measured), tuple(decided), self._control))
        return decided

    def _batch(self, lane: _Lane) -> int:
        found = super()._batch(lane)
        return found if self.piece is None else min(found, self.piece)

    def _input(self, lane: _Lane, used: int, event_bytes: float, free: float) -> float:
        if self.law is None:
            return super()._input(lane, used, event_bytes, free)
        return self.law(used, free)


def fixed(events: float) -> Law:
    """Admits a fixed number of events, to measure the effect."""
    return lambda used, free: max(0.0, events)


class DelayedController:
    """A controller whose decisions are applied some intervals late."""

    def __init__(self, controller: FlowController, intervals: int) -> None:
        self._controller = controller
        self._waiting = [controller.input] * intervals
        self._last: float | None = None

    def __call__(self, used: int, free: float) -> float:
        """Decide, and apply an earlier decision."""
        if self._last is not None and used < round(self._last):
            self._controller.applied(used, len(self._waiting))
        self._waiting.append(self._controller.step(free))
        self._last = self._waiting.pop(0)
        return self._last


class Director:
    """Continues a script when its intervals are over. A runner calls it repeatedly to learn whether to end."""

    def __init__(self, loop: ScriptedLoop, script: Script) -> None:
        self._program = loop
        self._script = script
        self._until = 0

    def __call__(self) -> bool:
        """Whether the script has ended."""
        if self._program.intervals < self._until:
            return False
        try:
            self._until = self._program.intervals + next(self._script)
        except StopIteration:
            return True
        return False
