"""The broker.

::

    core/       its mind: events in, effects out
    server      its only I/O: sockets, timers, effects carried out
    peer        one connection: frames to the right event
    examine     batches as they arrive: checked, joined, matched
    workers     threads for that, when there are input queues
    forwarding  queues that go on to other brokers
    clock       where time comes from
    metrics     its figures, for Prometheus
"""

from milepost.broker.clock import Clock, SystemClock
from milepost.broker.server import Broker

__all__ = ["Broker", "Clock", "SystemClock"]
