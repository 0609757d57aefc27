"""Load and measurement beside a running pipeline, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.pipeline import events
from milepost.client import Client

TICK_S = 0.02  # between two puts
_CONTEXT = multiprocessing.get_context("spawn")


class _Beside:
    """A process that works until it is told to stop, and then answers with its result."""

    def __init__(self, target: Any, *arguments: Any) -> None:
        self._here, there = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(target=target, args=(there, *arguments), daemon=True)
        self._process.start()
        self._here.recv()  # it is ready
        self._answer: Any = None
        self._over = False

    def stop(self) -> Any:
        """Its answer."""
        if not self._over:
            self._over = True
            self._here.send("stop")
            self._answer = self._here.recv()
            self._process.join()
        return self._answer


class Feed(_Beside):
    """Puts events at a rate, each with the time at which it is put; the answer is how many."""

    def __init__(self, broker: str, topic: str, rate: float) -> None:
        super().__init__(_feed, broker, topic, rate)


class Watch(_Beside):
    """Takes the rows of a topic; the answer is an array of (seconds since the start, delay of the row)."""

    def __init__(self, broker: str, topic: str) -> None:
        super().__init__(_watch, broker, topic)

    def stop(self) -> npt.NDArray[np.float64]:
        found: npt.NDArray[np.float64] = super().stop()
        return found


def _feed(pipe: Connection, broker: str, topic: str, rate: float) -> None:
    with Client(broker, timeout=60.0) as client:
        pipe.send("ready")
        began, sent = time.time(), 0
        while not pipe.poll(TICK_S):
            due = int((time.time() - began) * rate) - sent
            if due > 0:
                now_us = round(time.time() * 1e6)
                # Spread over the time since the last put: the newest is now.
                piece = events.table(sent, due, start_us=now_us - round((sent + due) * 1e6 / rate), step_us=1e6 / rate)
                client.put_many(topic, piece)
                sent += due
        pipe.recv()
        pipe.send(sent)


def _watch(pipe: Connection, broker: str, topic: str) -> None:
    found: list[npt.NDArray[np.float64]] = []
    with Client(broker, timeout=60.0) as client:
        ends: dict[int, int] = {}
        pipe.send("ready")
        began = time.time()
        while not pipe.poll(TICK_S):
            _look(client, topic, ends, began, found)
        pipe.recv()
        _look(client, topic, ends, began, found)
    pipe.send(np.concatenate(found) if found else np.empty((0, 2)))


def _look(client: Client, topic: str, ends: dict[int, int], began: float, found: list[npt.NDArray[np.float64]]) -> None:
    stop = {int(each["log"]): int(each["next"]) for each in client.look(topic)["logs"]}
    if stop == ends or not any(stop.values()):
        return
    seen = time.time()
    for batch in client.read(topic, {log: ends.get(log, 0) for log in stop}, stop):
        times = batch.to_arrow().column("at").cast("int64").to_numpy() / 1e6
        found.append(np.column_stack([np.full(len(times), seen - began), seen - times]))
    ends.clear()
    ends.update(stop)
