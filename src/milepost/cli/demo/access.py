"""A scene: read one field from the bytes of one message, with the time it takes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from milepost.batch import Batch, projection, reader
from milepost.cli import terminal
from milepost.cli.demo.market import TRADE, many
from milepost.cli.demo.narrator import Narrator

MESSAGES = 2_000
ROUNDS = 5  # repetitions, of which the fastest counts


def play(narrator: Narrator) -> None:
    narrator.scene("A field is read without reading the message")
    rows = many(MESSAGES)
    ours = [bytes(Batch.encode(TRADE, [row]).data) for row in rows]
    texts = [json.dumps(row, default=str) for row in rows]
    size, floor = reader(TRADE, "size"), reader(TRADE, "desk.floor")
    three = projection(TRADE, ["symbol", "price", "size"])

    narrator.say(f"{MESSAGES:,} trades, each alone in a batch of one row. A reader is made once for a field:")
    narrator.claim("`size` reads what was written", [size(data) for data in ours] == [row["size"] for row in rows])
    floors = [row["desk"]["floor"] if row["desk"] else None for row in rows]
    narrator.claim("`desk.floor` too, and None where there is no desk", [floor(data) for data in ours] == floors)
    triples = [(row["symbol"], row["price"], row["size"]) for row in rows]
    narrator.claim("a projection reads three fields in one call", [three(data) for data in ours] == triples)

    table = terminal.table("what", "ns a message", right=("ns a message",))
    table.add_row("size", f"{_ns(size, ours):,.0f}")
    table.add_row("desk.floor, one level down", f"{_ns(floor, ours):,.0f}")
    table.add_row("symbol, price, size", f"{_ns(three, ours):,.0f}")
    table.add_row("size out of JSON, by Python's own json", f"{_ns(lambda text: json.loads(text)['size'], texts):,.0f}")
    narrator.show(table)
    narrator.say("`make bench NAME=format` compares with the fast libraries, on the same messages.")


def _ns(read: Callable[[Any], Any], messages: list[Any]) -> float:
    quickest = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter_ns()
        for data in messages:
            read(data)
        quickest = min(quickest, time.perf_counter_ns() - start)
    return quickest / len(messages)
