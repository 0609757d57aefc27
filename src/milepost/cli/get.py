"""`milepost get`: the next messages of a durable subscription, each once."""

from __future__ import annotations

import asyncio
import math
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from milepost.cli import position
from milepost.cli.durable import Name, Start, acknowledged, attached, encoded
from milepost.cli.session import DEFAULT_BROKER, Broker, known_topics, talk
from milepost.cli.sub import Format, OutputFormat
from milepost.cli.terminal import echo, write
from milepost.errors import TimedOut

if TYPE_CHECKING:
    from milepost.client import AsyncClient

EXAMPLES = """Examples:
  milepost get quotes --name desk
  milepost get quotes --name desk --count 100 --timeout 5 --format csv
  milepost get quotes --name desk --start earliest --where "price > 100"
"""


def run(
    topic: Annotated[str, typer.Argument(autocompletion=known_topics, help="a durable topic")],
    name: Name,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="the number of messages")] = 1,
    timeout: Annotated[
        float | None,
        typer.Option(min=0.1, metavar="SECONDS", help="the longest wait; by default, and with inf, without limit"),
    ] = None,
    start: Start = None,
    where: Annotated[str | None, typer.Option(help="which messages; stored with a new subscription")] = None,
    form: Format = OutputFormat.json,
    envelope: Annotated[
        bool, typer.Option("--envelope/--no-envelope", help="print the topic (in JSON also the ID) with each message")
    ] = False,
    broker: Broker = DEFAULT_BROKER,
) -> None:
    """Get messages of a durable topic exactly once, under a name.

    A message is acknowledged before it is printed: no other consumer with this
    name will get it. The first use of a name makes a subscription, and the next
    use continues where it was. With a timeout the exit code is 1 when no
    message came.
    """
    from milepost.cli.printer import printer

    timeout = None if timeout is None or math.isinf(timeout) else timeout
    chosen = None if start is None else position.start(start, "--start")
    shown = printer(form.value, envelope, sys.stdout.isatty())

    async def get(client: AsyncClient) -> int:
        subscription, schema = await attached(client, topic, name, where, chosen, count)
        loop = asyncio.get_running_loop()
        end = None if timeout is None else loop.time() + timeout
        got = 0
        while got < count:
            left = None if end is None else max(0.0, end - loop.time())
            messages: list[Any] = await subscription.get_many(count - got, left)
            if not messages:
                break
            if not await acknowledged(subscription):
                continue
            got += len(messages)
            batch, ids = encoded(schema, messages)
            await asyncio.to_thread(write, shown(topic, batch, ids))
        return got

    # When the connection breaks after an acknowledgement, the next connection reports its outcome.
    got = talk(broker, get, reconnect=True)
    if not got:
        raise TimedOut(f"nothing came for {name} from {topic} within {timeout:g} s")
    if got < count:
        echo(f"milepost: {got:,} of {count:,} messages came within {timeout:g} s", err=True)
