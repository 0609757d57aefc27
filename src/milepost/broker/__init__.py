"""The broker.

::

    core/            all decisions: events in, effects out
    server           the only I/O: sockets, timers; carries out effects
    peer             one connection: turns frames into events
    examination      checks, joins and matches puts
    matcher          matches rows that were stored
    predicate_cache  compiled predicates, for the core and for threads
    workers          threads for `examination`, when there are input queues
    transfers        queues whose messages go to other brokers
    clock            time and timers
    metrics          the broker's figures, for Prometheus
"""

from milepost.extras import extra, require

with extra("a broker needs", "server"):
    require("a broker needs", "server", "numba", "sqlalchemy")  # which are imported when they are needed first
    from milepost.broker.clock import Clock, SystemClock
    from milepost.broker.server import Broker

__all__ = ["Broker", "Clock", "SystemClock"]
