"""Many publishers in one process: sockets that send single rows, at planned times or as fast as they are taken."""

from __future__ import annotations

import time

from benchmarks.load.payload import SCHEMA, rows
from benchmarks.load.wire import Line, Stamped
from benchmarks.load.worker import Commands

LOOK_SECONDS = 0.01  # between two checks for a command of the benchmark
READ_EVERY = 200  # rounds of all publishers between two looks for credit


class Feeder(Line):
    """A publisher of single rows that never waits: it returns whether a row could be sent."""

    def __init__(self, host: str, port: int, topic: str) -> None:
        super().__init__(host, port)
        number = self.declare(topic, SCHEMA)
        self._row = Stamped(number, SCHEMA, rows()[:1], self.welcome.publisher, self.welcome.broker_id)
        self._stamp = 0
        self._rest = b""  # of a frame that the socket took a part of
        self.socket.setblocking(False)

    def put(self) -> bool:
        """Send a row, if the broker lets it in and the socket takes it."""
        if self._rest and not self._push(self._rest):
            return False
        if self.room < len(self._row):
            self.look()
            if self.room < len(self._row):
                return False
        if not self._push(self._row.frame(self._stamp + 1)):
            return False
        self._stamp += 1
        self.room -= len(self._row)
        return True

    def look(self) -> None:
        """Read the credit that the broker gives."""
        try:
            self.read()
        except BlockingIOError:
            pass

    def _push(self, data: bytes | bytearray) -> bool:
        try:
            sent = self.socket.send(data)
        except BlockingIOError:
            return False
        self._rest = bytes(data[sent:])
        return True


async def rush(commands: Commands, host: str, port: int, topic: str, publishers: int) -> None:
    """For each number, all publishers send as many rows as fast as they can. Answers with the start time in ns."""
    feeders = [Feeder(host, port, topic) for _ in range(publishers)]
    commands.say("open")
    while (count := commands.wait()) is not None:
        began = time.monotonic_ns()
        left = dict.fromkeys(feeders, count)
        round_ = 0
        while left:
            for feeder in list(left):
                if feeder.put():
                    left[feeder] -= 1
                    if not left[feeder]:
                        del left[feeder]
            round_ += 1
            if round_ % READ_EVERY == 0:
                for feeder in feeders:
                    feeder.look()
        commands.say(began)
    for feeder in feeders:
        feeder.socket.close()


async def pace(commands: Commands, host: str, port: int, topics: dict[str, float]) -> None:
    """A publisher for each topic, of so many rows a second, evenly in time and one after the other.

    A publisher that the broker throttles when a row is due leaves that row out. The commands are "go", "pause" and
    "count", which answers with (ns, rows sent by each, rows left out by each).
    """
    feeders = [Feeder(host, port, topic) for topic in topics]
    steps = [1 / rate for rate in topics.values()]
    due: list[float] = []
    sent, left_out = [0] * len(steps), [0] * len(steps)
    commands.say("open")
    while True:
        if not due or commands.poll():
            word = commands.wait()
            if word is None:
                break
            if word == "count":
                commands.say((time.monotonic_ns(), list(sent), list(left_out)))
                continue
            start = time.monotonic()
            due = [start + step * number / len(steps) for number, step in enumerate(steps)] if word == "go" else []
            commands.say(word)
            continue
        now = time.monotonic()
        soonest = min(due)
        if soonest > now:
            time.sleep(min(soonest - now, LOOK_SECONDS))
            continue
        which = due.index(soonest)
        due[which] += steps[which]
        if feeders[which].put():
            sent[which] += 1
        else:
            left_out[which] += 1
    for feeder in feeders:
        feeder.socket.close()
