"""Feedback control of a pipeline: how much each lane admits, and how events are split over lanes.

Pure: no Spark, no broker, no clock. In the order of reading:

- `model`: what is controlled; `identification`: how a model is found from data, at once or (`adaptation`) online
- `placement`: gains for a wanted settling time; `regulator`: the control law
- `flow`: the admission of one lane; `response`, `lqr`, `balance`, `pauses` and `split`: the shares of all lanes
- `trace`: a record of measurements and decisions; `report` draws it

A runner does this every interval::

    events = flow[lane].admit(free_space, waiting)                          # whole events that the lane may take
    weights = balancer.step([meter.step(now, assigned, admitted) for ...])  # seconds in, shares out
    counts, carry = split(new_events, weights, carry)                       # whole events for each lane
"""

from milepost.pipeline.control.balance import Balancer
from milepost.pipeline.control.flow import FlowController
from milepost.pipeline.control.identification import Identified, Quality, Recursive, excitation, identify
from milepost.pipeline.control.model import Model
from milepost.pipeline.control.placement import (
    Gains,
    best_pi,
    closed_loop_poles,
    design,
    gain_margin,
    place,
    place_pi,
    pole_pair,
    pole_radius,
    settling_time,
    spectral_radius,
)
from milepost.pipeline.control.response import ResponseMeter
from milepost.pipeline.control.split import split
from milepost.pipeline.control.trace import Record, Trace, settled_after

__all__ = [
    "Model",
    "identify",
    "excitation",
    "Identified",
    "Quality",
    "Recursive",
    "Gains",
    "design",
    "place",
    "place_pi",
    "best_pi",
    "closed_loop_poles",
    "spectral_radius",
    "settling_time",
    "gain_margin",
    "pole_pair",
    "pole_radius",
    "FlowController",
    "ResponseMeter",
    "Balancer",
    "split",
    "Record",
    "Trace",
    "settled_after",
]
