"""`milepost sub`: print the messages of a topic, or of all topics of a pattern, as they come."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from milepost.cli import durable, position
from milepost.cli.durable import Start
from milepost.cli.session import DEFAULT_BROKER, Broker, connected, durable_topic, known_topics, talk
from milepost.cli.terminal import echo, write
from milepost.errors import UnknownSubscription

if TYPE_CHECKING:
    from milepost.cli.printer import Printer
    from milepost.client import AsyncClient

EXAMPLES = """Examples:
  milepost sub quotes --where "symbol = 'IBM' and price > 100"
  milepost sub 'orders.>' --format table
  milepost sub quotes --count 1000 --format csv > quotes.csv
  milepost sub quotes --name desk --start earliest
  milepost sub quotes --start 2026-03-02T14:30:00Z --where "size > 1000"
"""


class OutputFormat(StrEnum):
    """The output format of messages."""

    json = "json"
    table = "table"
    csv = "csv"


Format = Annotated[OutputFormat, typer.Option("--format", help="lines of JSON, aligned columns, or CSV")]


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
        str | None, typer.Option(help="which messages: a predicate on their fields, as in docs/query.md")
    ] = None,
    form: Format = OutputFormat.json,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="stop after so many messages")] = None,
    envelope: Annotated[
        bool | None,
        typer.Option(
            "--envelope/--no-envelope",
            help="print the topic (in JSON also the ID) with each message; default for patterns",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="of a durable topic: continue where this name was; users of a name share messages"),
    ] = None,
    start: Start = None,
    ack: Annotated[
        bool,
        typer.Option("--ack/--no-ack", help="with a name: acknowledge printed messages, or only show them"),
    ] = True,
    broker: Broker = DEFAULT_BROKER,
) -> None:
    """Print messages as they come, until Ctrl-C.

    A line of JSON for each message. For a pattern, a line is
    {"topic": …, "id": …, "message": {…}}; CSV and tables then have a column for
    the topic, and a new header where the columns change.

    For a durable topic, --start alone replays it from there and changes
    nothing. With --name, messages are acknowledged after they are printed:
    after a failure some may be printed again; `milepost get` gets each once.
    """
    from milepost.cli.printer import printer

    if name is None and not ack:
        raise typer.BadParameter("only a named subscription acknowledges anything: give --name")
    if name is not None or start is not None:
        shown = printer(form.value, bool(envelope), sys.stdout.isatty())
        begin = None if start is None else position.start(start, "--start")
        try:
            talk(broker, _Durable(pattern, where, name, begin, ack, count, shown).follow, reconnect=True)
        except BrokenPipeError:
            pass  # the reader of the pipe has ended
        return
    with connected(broker, reconnect=True) as client:
        subscription = client.subscribe(pattern, where=where)
        wild = pattern.endswith(">") or "*" in pattern
        shown = printer(form.value, wild if envelope is None else envelope, sys.stdout.isatty())
        for name, why in sorted(subscription.skipped.items()):
            echo(f"milepost: nothing of {name}: {why}", err=True)
        _say_waiting(pattern)
        left = count
        lost = 0
        try:
            for batch in subscription.batches():
                chosen = batch if left is None or len(batch) <= left else batch.slice(0, left)
                # Without Python's buffer: messages that came together are one write, and nothing waits for more.
                write(shown(subscription.topic, chosen))
                if subscription.dropped > lost:
                    echo(f"milepost: too slow: {subscription.dropped - lost:,} messages dropped", err=True)
                    lost = subscription.dropped
                if left is not None:
                    left -= len(chosen)
                    if not left:
                        return
        except BrokenPipeError:
            return  # the reader of the pipe has ended


@dataclass
class _Durable:
    """The messages of a durable topic, stored ones and new ones."""

    topic: str
    where: str | None
    name: str | None
    start: Any
    ack: bool
    count: int | None
    shown: Printer

    async def follow(self, client: AsyncClient) -> None:
        """Print until the count is reached."""
        await durable_topic(client, self.topic)
        if self.name is None:
            await self._replay(client, self.where, self.start)
        elif self.ack:
            await self._consume(client, self.name)
        else:
            await self._look_at(client, self.name)

    async def _look_at(self, client: AsyncClient, name: str) -> None:
        """Print what a subscription has ahead, by a replay, which does not change the subscription."""
        for each in (await client.look(self.topic))["subscriptions"]:
            if each["name"] == name:
                await self._replay(client, self.where or each["where"], each["cursor"] or "earliest")
                return
        raise UnknownSubscription(f"{self.topic} has no subscription {name!r}; leave out --no-ack to make it")

    async def _replay(self, client: AsyncClient, where: str | None, start: Any) -> None:
        left = self.count
        subscription = await client.subscribe(self.topic, where, start=start)
        _say_waiting(self.topic)
        async for batch in subscription.batches():
            chosen = batch if left is None or len(batch) <= left else batch.slice(0, left)
            await asyncio.to_thread(write, self.shown(self.topic, chosen))
            if left is not None:
                left -= len(chosen)
                if not left:
                    return

    async def _consume(self, client: AsyncClient, name: str) -> None:
        left = self.count
        most = GATHERED if left is None else left
        subscription, schema = await durable.attached(client, self.topic, name, self.where, self.start, most)
        _say_waiting(self.topic)
        while left is None or left:
            messages = await subscription.get_many(GATHERED if left is None else min(left, GATHERED))
            if not messages:
                return
            batch, ids = durable.encoded(schema, messages)
            await asyncio.to_thread(write, self.shown(self.topic, batch, ids))
            await durable.acknowledged(subscription)
            if left is not None:
                left -= len(messages)


def _say_waiting(topic: str) -> None:
    if sys.stderr.isatty():
        echo(f"waiting for messages of {topic}; Ctrl-C stops", err=True)


GATHERED = 2_000  # most messages that are printed and acknowledged together
