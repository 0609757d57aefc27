"""The paper's experiments on the plant of `plant.py`. Runs on Spark should resemble these figures.

Each returns the trace of a run and its plant, whose accounts say whether an event was lost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from milepost.pipeline.control.balance import Balancer
from milepost.pipeline.control.flow import FlowController
from milepost.pipeline.control.identification import Identified, excitation, identify
from milepost.pipeline.control.model import Model
from milepost.pipeline.control.pauses import EVENTS, LanePauses
from milepost.pipeline.control.placement import Gains, place_pi
from milepost.pipeline.control.response import ResponseMeter
from milepost.pipeline.control.trace import Record, Trace
from milepost.pipeline.experiments.plant import Plant, SimulatedHog

PAPER = Model(a=0.985, b=-134.0)
"""The paper's model of its node, from event rate to free space."""

PAPER_POLES = (0.046 + 0.4j, 0.046 - 0.4j)
"""The poles that the paper uses for five intervals."""

PAPER_GAINS = place_pi(PAPER, PAPER_POLES)
"""KP = -0.00614, KI = -0.00799. The KI printed in the paper, 0.02168, gives a radius of 4: gains are computed, never
copied.
"""

CAPACITY = 10_000.0
"""Events a second that the simulated combiner merges."""

REFERENCE = 4_000_000.0
"""Bytes of free space that the experiments hold; the queue has twice as many."""

EVENT_BYTES = 134
"""Bytes of an event in a result queue: with the queue as an integrator, this is -b."""

HOG = (180.0, 500.0)
"""Start and end of the CPU hog in seconds, as in the paper's Figure 6."""


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """A trace, and the final state of the plant."""

    trace: Trace
    plant: Plant


def simulate(
    plant: Plant,
    seconds: float,
    flow: Sequence[FlowController] | None = None,
    balancer: Balancer | None = None,
    *,
    reserve: bool = True,
) -> SimulatedRun:
    """Run `plant` under the given controllers: none, either, or both. This is the work of a runner, without I/O.

    With `reserve`, controllers see the free space minus the space that admitted events will take.
    """
    lanes = len(plant.lanes)
    meters = [ResponseMeter() for _ in range(lanes)]
    pauses = LanePauses(lanes)
    weights = [1 / lanes] * lanes
    trace = Trace()
    before = plant.read()
    for k in range(round(seconds / plant.interval)):
        time = plant.time
        readings = plant.read()
        free = [now.free - (now.reserved if reserve else 0.0) for now in readings]
        responses = []
        for meter, now in zip(meters, readings, strict=True):
            for commit in now.commits:
                meter.commit(*commit)
            found = meter.step(time, now.assigned, now.admitted)
            responses.append(found if found is None else max(found, meter.alone or 0.0))
        if balancer is not None:
            pauses.step(responses, [meter.alone for meter in meters])
            weights = pauses.of(balancer.step(responses))
            plant.probes = dict.fromkeys(pauses.probes, EVENTS)
        admissions: list[int | None] = [None] * lanes
        if flow is not None:
            # The events of the interval are not known in advance, so the whole limit is given out, and the number of
            # admitted events is reported afterwards.
            admissions = [one.admit(shown) for one, shown in zip(flow, free, strict=True)]
        at = [lane.admitted for lane in plant.lanes]
        plant.run(admissions, weights)
        for number, (now, response) in enumerate(zip(readings, responses, strict=True)):
            admitted = plant.lanes[number].admitted - at[number]
            if flow is not None and not plant.lanes[number].waiting.count:
                flow[number].applied(admitted, plant.delay)
            trace.add(
                Record(
                    k=k,
                    time=time,
                    lane=number,
                    set_point=flow[number].reference if flow is not None else None,
                    measurement=free[number],
                    input=float(admitted),
                    weight=weights[number],
                    response_time=response,
                    delay=now.delay,
                    queue_bytes=now.queue_bytes,
                    waiting=now.waiting,
                    offered=now.assigned - before[number].assigned,
                    dropped=now.dropped - before[number].dropped,
                )
            )
        before = readings
    return SimulatedRun(trace, plant)


def identified(
    plant: Plant, low: float, high: float, samples: int = 60, seed: int = 0, *, reserve: bool = True
) -> Identified:
    """Identify a one-lane plant by a short run: fill its queue half, admit `low` or `high` events an interval,
    and fit.
    """
    empty = plant.read()[0].free
    while plant.read()[0].free > empty / 2:
        plant.run([round(high)], [1.0])
    inputs = excitation(low, high, samples, seed)
    outputs = np.empty(samples)
    for k in range(samples):
        now = plant.read()[0]
        outputs[k] = now.free - (now.reserved if reserve else 0.0)
        plant.run([round(inputs[k])], [1.0])
    return identify(inputs, outputs)


def no_control(seconds: float = 600.0) -> SimulatedRun:
    """Figure 3: the load rises in steps. Above the combiner's capacity the result queue fills, and events are
    dropped.
    """
    plant = Plant(
        [2 * CAPACITY],
        lambda time: CAPACITY * (0.6 + 0.2 * math.floor(time / 100)),
        combiner=CAPACITY,
        bound=round(2 * REFERENCE),
        on_overflow="drop",
    )
    return simulate(plant, seconds)


def flow_control(
    seconds: float = 640.0,
    *,
    delay: int = 0,
    model: Model | None = None,
    gains: Gains | None = None,
    settling: float = 5.0,
    noise: float = 0.0,
    seed: int = 0,
) -> SimulatedRun:
    """Figure 6: more load than capacity, a hog that halves the capacity, and a constant free space.

    `delay` is the delay of the plant, `model` the model of the controller (by default the true one). The accident of
    Figure 9 is a model without the plant's delay.
    """
    plant = Plant(
        [4 * CAPACITY],
        lambda time: 1.5 * CAPACITY if time < HOG[1] else 0.8 * CAPACITY,
        combiner=CAPACITY,
        bound=round(2 * REFERENCE),
        event_bytes=EVENT_BYTES,
        hogs=[SimulatedHog(*HOG, 0.5)],
        delay=delay,
        noise=noise,
        seed=seed,
    )
    believed = model or Model(1.0, -EVENT_BYTES, EVENT_BYTES * CAPACITY * plant.interval, delay)
    controller = FlowController(believed, REFERENCE, settling, limits=(0, 4 * CAPACITY), gains=gains)
    return simulate(plant, seconds, [controller])


def wrong_delay(seconds: float = 640.0) -> SimulatedRun:
    """Figure 9: the controller of Figure 6 with the paper's poles, on a plant that applies decisions one interval
    late.
    """
    believed = Model(1.0, -EVENT_BYTES, EVENT_BYTES * CAPACITY * 2.0, 0)
    return flow_control(seconds, delay=1, model=believed, gains=place_pi(believed, PAPER_POLES))


def load_balancing(
    seconds: float = 640.0, *, lanes: int = 2, balanced: bool = True, factor: float = 0.4, seed: int = 0
) -> SimulatedRun:
    """Figure 8: a hog on the first lane that leaves `factor` of it, with the controller or with round robin.

    The load is 0.45 of the lanes' capacity without the hog: the first lane cannot process its half any more, and the
    others can take over the rest.
    """
    rate = CAPACITY / lanes
    random = np.random.default_rng(seed)
    plant = Plant(
        [rate] * lanes,
        lambda _: 0.45 * CAPACITY * (1 + 0.1 * float(random.standard_normal())),
        bound=10**12,
        hogs=[SimulatedHog(*HOG, factor, lane=0)],
        overhead=0.4,
    )
    return simulate(plant, seconds, balancer=Balancer(lanes) if balanced else None)
