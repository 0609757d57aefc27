"""Milepost's side of the selector run: batches written beforehand, deliveries counted by their marks."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa

from benchmarks.load.selection import SCHEMA, Selection
from benchmarks.load.wire import Line, Stamped
from benchmarks.load.worker import Commands
from milepost.wire import Subscribe, encode_control

TOPIC = "events"
ASKED_AT_ONCE = 500  # subscriptions under way to the broker


async def publish(commands: Commands, host: str, port: int, selectors: int, most: int, batch_rows: int) -> None:
    """For each number it sends as many events, from the first on, and answers with the start time in ns."""
    events = Selection(selectors).events(most)
    with Line(host, port) as line:
        topic = line.declare(TOPIC, SCHEMA)
        commands.say("open")
        stamp = 1
        while (count := commands.wait()) is not None:
            frames = []
            for start in range(0, count, batch_rows):
                rows = _table(events, start, min(start + batch_rows, count))
                put = Stamped(topic, SCHEMA, rows, line.welcome.publisher, line.welcome.broker_id)
                frames.append(bytes(put.frame(stamp)))
                stamp += put.rows
            began = time.monotonic_ns()
            for frame in frames:
                while line.room < len(frame):
                    line.read()
                line.room -= len(frame)
                line.socket.sendall(frame)
            commands.say(began)


async def subscribe(commands: Commands, host: str, port: int, selectors: int) -> None:
    """All selectors on one connection. For each number it takes as many marks, and answers when the last one came.

    A row is delivered once, with a mark for each subscription that it matches. Other brokers deliver it once for each.
    """
    texts = Selection(selectors).texts()
    with Line(host, port) as line:
        line.declare(TOPIC, SCHEMA)
        first = 1_000_000  # numbers of requests that the line itself does not use
        for start in range(0, selectors, ASKED_AT_ONCE):
            some = texts[start : start + ASKED_AT_ONCE]
            for number, text in enumerate(some, start):
                asked = Subscribe(request=first + number, subscription=number + 1, pattern=TOPIC, where=text)
                line.socket.sendall(encode_control(asked))
            line.replies(first + start + len(some) - 1)
        commands.say("open")
        while (count := commands.wait()) is not None:
            before = line.tags
            commands.say("receiving")
            try:
                while line.tags - before < count:
                    line.read()
            except TimeoutError:
                pass
            commands.say((line.tags - before, time.monotonic_ns()))


def _table(events: dict[str, Any], start: int, end: int) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "symbol": pa.array([f"S{symbol}" for symbol in events["symbol"][start:end].tolist()]),
            "price": pa.array(events["price"][start:end]),
            "number": pa.array(range(start, end), pa.int64()),
        }
    )
