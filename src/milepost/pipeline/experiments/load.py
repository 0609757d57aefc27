"""The process that puts events: `python -m milepost.pipeline.experiments.load BROKER TOPIC FILE CORES`.

It reads the number of events a second from its standard input whenever it changes, and `end` at the end. For each put
it writes a line to the file: the number of events, and the times between which they arrived. Puts that the broker did
not confirm are not in the file.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import numpy as np

from milepost.client import Client
from milepost.pipeline.experiments import events

PERIOD_S: Final = 0.1  # between two puts
MOST: Final = 50_000  # events of one put
END_S: Final = 60.0  # for the process to end; stops one that hangs


class _Orders:
    """Commands from standard input, read by a thread."""

    def __init__(self) -> None:
        self.rate = 0.0
        self.at_once = 0
        self.ended = False
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin:
            word, _, number = line.strip().partition(" ")
            if word == "rate":
                self.rate = float(number)
            elif word == "now":
                self.at_once += int(number)
            else:
                break
        self.ended = True  # also when the parent process is gone


def main() -> None:
    """Put events at their due times, until the end."""
    address, topic, file, cores = sys.argv[1:]
    os.sched_setaffinity(0, {int(each) for each in cores.split(",")})
    orders = _Orders()
    number, owed = 0, 0.0
    with Client(address) as client, Path(file).open("w") as log:
        before = time.time()
        while not orders.ended:
            time.sleep(max(0.0, before + PERIOD_S - time.time()))
            now = time.time()
            owed += orders.rate * (now - before) + orders.at_once
            orders.at_once = 0
            count = int(owed)
            owed -= count
            since, until = round(before * 1e6), round(now * 1e6)
            for first in range(0, count, MOST):
                some = min(MOST, count - first)
                # The parts of a large put share its time, in order.
                low, high = (since + (until - since) * part // count for part in (first, first + some))
                client.put_many(topic, events.table(number, some, low, high))
                log.write(f"{some} {low} {high}\n")
                log.flush()
                number += some
            before = now


class Load:
    """The process that puts events, and what it has put."""

    def __init__(self, address: str, topic: str, file: Path, cores: Iterable[int]) -> None:
        self._file = file
        command = [sys.executable, "-m", __name__, address, topic, str(file), ",".join(map(str, sorted(cores)))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True)
        self._read = 0
        self._seen = 0
        self.rate = 0.0

    @property
    def pid(self) -> int:
        """Its process ID."""
        return self._process.pid

    def offer(self, rate: float) -> None:
        """Put so many events a second from now on."""
        self.rate = rate
        self._say(f"rate {rate}")

    def add(self, count: int) -> None:
        """Put so many events at once."""
        self._say(f"now {count}")

    def _say(self, order: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(order + "\n")
        self._process.stdin.flush()

    def put(self) -> int:
        """The number of events put so far."""
        if self._file.exists():
            with self._file.open() as log:
                log.seek(self._read)
                text = log.read()
            whole = text[: text.rfind("\n") + 1]
            self._read += len(whole)
            self._seen += sum(int(line.split()[0]) for line in whole.splitlines())
        return self._seen

    def times(self) -> events.Numbers:
        """The arrival time of each event in microseconds, by number."""
        lines = [tuple(map(int, line.split())) for line in self._file.read_text().splitlines()]
        return np.concatenate([np.zeros(0, np.int64), *(events.times(*line) for line in lines)])

    def end(self) -> None:
        """Stop putting, and wait until all puts are in the file."""
        if self._process.poll() is None:
            self._say("end")
            self._process.wait(END_S)

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


if __name__ == "__main__":
    main()
