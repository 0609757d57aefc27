"""`milepost unsubscribe`: remove a durable subscription."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from milepost.cli.quantity import counted
from milepost.cli.session import DEFAULT_BROKER, Broker, durable_topic, known_topics, talk
from milepost.cli.terminal import echo
from milepost.errors import UnknownSubscription, did_you_mean

if TYPE_CHECKING:
    from milepost.client import AsyncClient

EXAMPLES = """Example:
  milepost unsubscribe quotes --name desk
"""


def run(
    topic: Annotated[str, typer.Argument(autocompletion=known_topics, help="the durable topic")],
    name: Annotated[str, typer.Option(help="the name of the subscription")],
    broker: Broker = DEFAULT_BROKER,
) -> None:
    """Remove a named subscription: its cursor, and its hold on messages.

    Its consumers are told that it is removed.
    """

    async def remove(client: AsyncClient) -> int:
        await durable_topic(client, topic)
        known = {str(each["name"]): int(each["behind"]) for each in (await client.look(topic))["subscriptions"]}
        if name not in known:
            near = did_you_mean(name, known) or "; `milepost topic show` lists the subscriptions"
            raise UnknownSubscription(f"{topic} has no subscription {name!r}{near}")
        await client.unsubscribe(name=name)
        return known[name]

    behind = talk(broker, remove)
    left = "" if not behind else f"; it had not consumed {counted(behind, 'row')}"
    echo(f"{name} is no longer subscribed to {topic}{left}")
