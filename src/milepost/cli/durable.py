"""Durable subscriptions for `get` and `sub`: found or made by name, with a notice of what was done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from milepost.cli import position
from milepost.cli.session import durable_topic
from milepost.cli.terminal import echo
from milepost.errors import NotExpectingAck, UnknownSubscription

if TYPE_CHECKING:
    from milepost.batch import Batch
    from milepost.client import AsyncClient
    from milepost.client.durable import DurableSubscription
    from milepost.schema import Schema

Name = Annotated[str, typer.Option(help="the name of the subscription; its users share its messages")]
Start = Annotated[
    str | None,
    typer.Option(metavar="earliest|new|OFFSET|TIME", help=f"where a new subscription begins: {position.FORMS}"),
]


async def attached(
    client: AsyncClient,
    topic: str,
    name: str,
    where: str | None,
    start: Any,
    prefetch: int,
) -> tuple[DurableSubscription, Schema]:
    """The subscription with a name, made if it does not exist, and the schema in which to show its messages.

    It acknowledges explicitly: a `get` that times out must not leave an acknowledgement under way. An existing
    subscription keeps its filter; another filter is refused.
    """
    schema = (await durable_topic(client, topic)).schema
    options: dict[str, Any] = {"name": name, "ack": "explicit", "prefetch": max(1, min(prefetch, PREFETCH))}
    if where is None:
        try:
            found = await client.subscribe(topic, create=False, **options)
        except UnknownSubscription:
            found = await client.subscribe(topic, start=start, **options)
    else:
        found = await client.subscribe(topic, where, start=start, **options)
    if found.created:
        if start is None:
            _say(f"{name} is a new subscription to {topic}, from now on; --start earliest includes stored messages")
    elif start is not None:
        _say(f"{name} exists, and continues where it was; --start is for a new subscription")
    return found, schema


async def acknowledged(subscription: DurableSubscription) -> bool:
    """Acknowledge all messages handed out. False when the connection broke meanwhile; then they are delivered again."""
    try:
        await subscription.ack()
    except NotExpectingAck:
        return False
    return True


def encoded(schema: Schema, messages: list[Any]) -> tuple[Batch, list[str]]:
    """Messages as a batch of the topic's newest schema, for a printer, and their IDs."""
    from milepost.batch import Batch

    return Batch.encode(schema, messages), [str(message.header.id) for message in messages]


def _say(sentence: str) -> None:
    echo(f"milepost: {sentence}", err=True)


PREFETCH = 10_000  # unacknowledged messages here; more than needed would only keep them from others
