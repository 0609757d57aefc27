"""A control loop with a script: the pipeline's own steering, which a script may take over and give back.

A script is a generator. It offers load, starts hogs and chooses how is steered, and yields for how many intervals to go
on like that. Everything runs in the runner's one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from milepost.pipeline.control.flow import FlowController
from milepost.pipeline.control_loop import ControlLoop, Decided, Measured, _Lane
from milepost.pipeline.definition import Control

Script = Iterator[int]


class Law(Protocol):
    """How many events are admitted to a lane."""

    def __call__(self, used: int, free: float) -> float:
        """`used` of those of the interval before were there to be taken; `free` bytes are free now."""
        ...


class Seen(NamedTuple):
    """One interval."""

    time: float  # seconds since 1970, at its beginning
    put: int  # events put so far
    measured: tuple[Measured, ...]
    decided: tuple[Decided, ...]
    control: Control


class ScriptedLoop(ControlLoop):
    """Steering under a script. `seen` has every interval."""

    def __init__(self, control: Control, done: Sequence[int], put: Callable[[], int]) -> None:
        super().__init__(control, done)
        self._put = put
        self.law: Law | None = None
        self.piece: int | None = None  # the most events of a lane's micro-batch; None: as the lane's speed says
        self.seen: list[Seen] = []

    def bound(self, queue_bytes: float, reference: float) -> None:
        """Another result queue and another reference from now on, and a controller that begins anew."""
        self._control = replace(self._control, queue_bytes=round(queue_bytes), reference=round(reference))
        self.renew()

    def renew(self) -> None:
        """The pipeline's own controllers, without a memory."""
        self.law = None
        for lane in self._lanes:
            lane.controller = None

    def balance(self, balance: bool) -> None:
        """Whether weights follow response times."""
        self._control = replace(self._control, balance=balance)

    @property
    def control(self) -> Control:
        """What holds now."""
        return self._control

    def step(self, time: float, measured: Sequence[Measured]) -> list[Decided]:
        """One interval, and what it was like."""
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


class Given:
    """Admits so many, whatever is measured: to find out what that does."""

    def __init__(self, events: float) -> None:
        self._events = max(0.0, events)

    def __call__(self, used: int, free: float) -> float:
        """Always the same."""
        return self._events


class DelayedController:
    """A controller whose decisions are carried out some intervals after they are made."""

    def __init__(self, controller: FlowController, intervals: int) -> None:
        self._controller = controller
        self._waiting = [controller.input] * intervals
        self._last: float | None = None

    def __call__(self, used: int, free: float) -> float:
        """Decide, and carry out what was decided before."""
        if self._last is not None and used < round(self._last):
            self._controller.applied(used, len(self._waiting))
        self._waiting.append(self._controller.step(free))
        self._last = self._waiting.pop(0)
        return self._last


class Director:
    """Goes on with a script when its intervals are over: what a runner asks again and again whether it is the end."""

    def __init__(self, loop: ScriptedLoop, script: Script, tell: Callable[[], None]) -> None:
        self._program = loop
        self._script = script
        self._tell = tell
        self._until = 0

    def __call__(self) -> bool:
        """Whether the script is at its end."""
        self._tell()
        if self._program.intervals < self._until:
            return False
        try:
            self._until = self._program.intervals + next(self._script)
        except StopIteration:
            return True
        return False
