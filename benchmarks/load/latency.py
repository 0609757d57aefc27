"""A publisher that sends at planned times, and a subscriber that notes when each message came: two processes.

The timers of an event loop count in milliseconds, which is the whole interval between two messages here. So the
kernel's timer wakes the publisher, through a file descriptor that any event loop can wait for.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import time
from typing import Any, Protocol

from benchmarks.load.pair import made
from benchmarks.load.worker import Commands

SETTLE_SECONDS = 0.2  # at the end of a round, for the last messages to arrive
_MONOTONIC = 1  # CLOCK_MONOTONIC, the clock of time.monotonic_ns
_ABSOLUTE = 1  # TFD_TIMER_ABSTIME
_SECOND = 1_000_000_000


class Timed(Protocol):
    """Made with host, port and topic. A message carries when it was sent; `arrivals` has that and when it came."""

    arrivals: list[tuple[int, int]]

    async def open(self) -> None: ...

    async def listen(self) -> None: ...

    async def send(self) -> None: ...

    async def close(self) -> None: ...


class Timer:
    """Ticks at planned times, `interval` ns apart, also when a tick is late."""

    def __init__(self, interval: int) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.timerfd_create(_MONOTONIC, os.O_NONBLOCK)
        self._interval = interval
        self._due = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self._due.set)

    def start(self) -> int:
        """Start the ticks in one interval. Returns the time of the first tick in ns."""
        first = time.monotonic_ns() + self._interval
        times = (ctypes.c_long * 4)(*divmod(self._interval, _SECOND), *divmod(first, _SECOND))
        assert self._libc.timerfd_settime(self._fd, _ABSOLUTE, times, None) == 0
        return first

    async def ticks(self) -> int:
        """Wait for the next tick. Returns how many are due by now."""
        while True:
            self._due.clear()
            try:
                return int.from_bytes(os.read(self._fd, 8), "little")
            except BlockingIOError:
                await self._due.wait()

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)


async def send(commands: Commands, client: str, host: str, port: int, topic: str, interval: int) -> None:
    """A publisher process: for each number it sends as many messages, and answers with the planned time of each."""
    publisher: Timed = made(client, host, port, topic)
    await publisher.open()
    commands.say("open")
    while (count := await commands.next()) is not None:
        timer = Timer(interval)
        first = timer.start()
        sent = 0
        while sent < count:
            for _ in range(min(await timer.ticks(), count - sent)):
                await publisher.send()
                sent += 1
        timer.close()
        commands.say([first + number * interval for number in range(count)])
    await publisher.close()


class Collector:
    """The pauses of Python's collector in this process, in ms."""

    def __init__(self) -> None:
        self._began = 0
        self._pauses: list[float] = []
        gc.callbacks.append(self._called)

    def taken(self) -> list[float]:
        """The pauses since the last call."""
        found, self._pauses = self._pauses, []
        return found

    def _called(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.perf_counter_ns()
        else:
            self._pauses.append((time.perf_counter_ns() - self._began) / 1e6)


async def listen(commands: Commands, client: str, host: str, port: int, topic: str) -> None:
    """A subscriber process. After each window it answers with (sent, came) of every message in ns, and with the
    pauses of its own collector.
    """
    collector = Collector()
    subscriber: Timed = made(client, host, port, topic)
    await subscriber.open()
    await subscriber.listen()
    commands.say("open")
    while await commands.next() is not None:
        await asyncio.sleep(SETTLE_SECONDS)
        arrivals: list[Any] = list(subscriber.arrivals)
        subscriber.arrivals.clear()
        commands.say((arrivals, collector.taken()))
    await subscriber.close()
