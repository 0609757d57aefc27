"""The broker.

::

    core/       its mind: events in, effects out
    server      its only I/O: sockets, timers, effects carried out
    peer        one connection: frames to the right event
    examination puts as they arrive: decoded, joined, matched
    matcher     rows that were stored: matched
    predicate_cache   compiled predicates, for the core and for threads
    workers     threads for that, when there are input queues
    transfers   queues that go on to other brokers
    clock       where time comes from
    metrics     its figures, for Prometheus
"""

from milepost.extras import extra, require

with extra("a broker needs", "server"):
    require("a broker needs", "server", "numba", "sqlalchemy")  # which are imported when they are needed first
    from milepost.broker.clock import Clock, SystemClock
    from milepost.broker.server import Broker

__all__ = ["Broker", "Clock", "SystemClock"]
