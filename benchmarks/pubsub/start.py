"""From the command to the first message that the broker has accepted."""

from __future__ import annotations

import time

from benchmarks.load.payload import SCHEMA, rows
from benchmarks.load.wire import Line, Stamped
from benchmarks.peers import Milepost


def measure(repeats: int) -> float:
    """Seconds of the quickest start of several: from starting the process to the answer behind the first put."""
    best = float("inf")
    for _ in range(repeats):
        began = time.monotonic()
        with Milepost() as broker, Line(broker.host, broker.port) as line:
            topic = line.declare("first", SCHEMA)
            put = Stamped(topic, SCHEMA, rows()[:1], line.welcome.publisher, line.welcome.broker_id)
            line.socket.sendall(put.frame(1))
            line.flush()
            best = min(best, time.monotonic() - began)
    return best
