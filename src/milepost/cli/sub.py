"""`milepost sub`: print the messages of a topic, or of all topics of a pattern, as they come."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from typing import Annotated

import typer

from milepost.cli.session import DEFAULT_BROKER, Broker, connected, known_topics

EXAMPLES = """Examples:
  milepost sub quotes --where "symbol = 'IBM' and price > 100"
  milepost sub 'orders.>' --format table
  milepost sub quotes --count 1000 --format csv > quotes.csv
"""


class Format(StrEnum):
    """How messages are printed."""

    json = "json"
    table = "table"
    csv = "csv"


def run(
    pattern: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC",
            autocompletion=known_topics,
            help="a topic; or a pattern: orders.* for one more word, orders.> for any",
        ),
    ],
    where: Annotated[
        str | None, typer.Option(help="which messages: a predicate about their fields, as in docs/query.md")
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="lines of JSON, aligned columns, or CSV")] = Format.json,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="stop after so many messages")] = None,
    envelope: Annotated[
        bool | None,
        typer.Option(
            "--envelope/--no-envelope", help="say the topic (in JSON also the ID) with each message; usual for patterns"
        ),
    ] = None,
    broker: Broker = DEFAULT_BROKER,
) -> None:
    """Print messages as they come, until Ctrl-C.

    A line of JSON for each message. For a pattern, a line is
    {"topic": …, "id": …, "message": {…}}; CSV and tables have a column for the
    topic then, and a new header where the columns change.
    """
    from milepost.cli.printer import printer

    with connected(broker, reconnect=True) as client:
        subscription = client.subscribe(pattern, where=where)
        wild = pattern.endswith(">") or "*" in pattern
        shown = printer(form.value, wild if envelope is None else envelope, sys.stdout.isatty())
        for name, why in sorted(subscription.skipped.items()):
            print(f"milepost: nothing of {name}: {why}", file=sys.stderr)
        if sys.stderr.isatty():
            print(f"waiting for messages of {pattern}; Ctrl-C stops", file=sys.stderr)
        left = count
        lost = 0
        try:
            for batch in subscription.batches():
                chosen = batch if left is None or len(batch) <= left else batch.slice(0, left)
                # Past Python's own buffer: whatever came together is one write, and nothing waits for more.
                _write(shown(subscription.topic, chosen))
                if subscription.dropped > lost:
                    print(f"milepost: too slow: {subscription.dropped - lost:,} messages dropped", file=sys.stderr)
                    lost = subscription.dropped
                if left is not None:
                    left -= len(chosen)
                    if not left:
                        return
        except BrokenPipeError:
            return  # whoever read it has seen enough


def _write(data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(1, rest) :]
