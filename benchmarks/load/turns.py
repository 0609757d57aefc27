"""Publishers with one message in flight each: the next one leaves when the broker has stored the one before.

They speak the protocol by hand: a hundred clients of Python objects in one process would cost more than the broker, and
so the benchmark would measure the clients.
"""

from __future__ import annotations

import os
import selectors
import time

from benchmarks.load.payload import SCHEMA, rows
from benchmarks.load.wire import Line, Stamped
from benchmarks.load.worker import Commands
from milepost.wire import Declare, Kind


class Publisher(Line):
    """One publisher. `put` sends a row; `stored` returns whether its answer has come.

    Its socket does not block, and has no timeout either: Python would ask whether it is ready before each call, and
    the selector has said so. A row and an answer always fit, as nothing else is under way.
    """

    def __init__(self, host: str, port: int, topic: str) -> None:
        super().__init__(host, port, instance=os.urandom(16))
        number = int(self.ask(Declare, name=topic, schema=SCHEMA, durable=True)["number"])
        self._row = Stamped(number, SCHEMA, rows()[:1], self.welcome.publisher, self.welcome.broker_id)
        self._stamp = self.welcome.high_water
        self.sent = 0  # ns
        self.socket.setblocking(False)

    def put(self) -> None:
        self._stamp += 1
        self.sent = time.monotonic_ns()
        self.socket.sendall(self._row.frame(self._stamp))

    def stored(self) -> bool:
        count = self.socket.recv_into(self._reader.buffer())
        if not count:
            raise ConnectionError("the broker closed the connection")
        stored = False
        for frame in self._reader.received(count):
            if frame.kind == Kind.STORED:
                stored = True  # the only row under way
            else:
                self.hear(frame)
        return stored


async def publishers(commands: Commands, host: str, port: int, topic: str, number: int) -> None:
    """For each number of seconds, the publishers put for so long. Answers with (seconds, latencies in ns)."""
    everybody = [Publisher(host, port, topic) for _ in range(number)]
    commands.say("open")
    with selectors.DefaultSelector() as selector:
        for publisher in everybody:
            selector.register(publisher.socket, selectors.EVENT_READ, publisher)
        while (seconds := commands.wait()) is not None:
            latencies: list[int] = []
            began = time.monotonic_ns()
            until = began + int(seconds * 1e9)
            for publisher in everybody:
                publisher.put()
            waiting = number
            while waiting:
                for key, _ in selector.select():
                    publisher = key.data
                    if not publisher.stored():
                        continue
                    now = time.monotonic_ns()
                    latencies.append(now - publisher.sent)
                    if now < until:
                        publisher.put()
                    else:
                        waiting -= 1
            commands.say(((time.monotonic_ns() - began) / 1e9, latencies))
    for publisher in everybody:
        publisher.socket.close()
