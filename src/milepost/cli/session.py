"""The connection of a command to a broker, and the messages when it cannot be reached."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from milepost.cli.terminal import logged
from milepost.errors import MilepostError, NotDurable, TransactionAborted, UnknownTopic, did_you_mean

if TYPE_CHECKING:
    from milepost.client import AsyncClient, Client, TopicInfo
    from milepost.client.client import SyncTransaction

T = TypeVar("T")

DEFAULT_BROKER: Final = "milepost://127.0.0.1:7450"
ANSWER_S: Final = 10.0  # for a broker to answer a command

Broker = Annotated[
    str, typer.Option("--broker", "-b", envvar="MILEPOST_BROKER", metavar="ADDRESS", help="the broker to connect to")
]

COMPLETION_SECONDS: Final = 1.0  # for a broker to list names for shell completion


def completion(things: Callable[[Client], list[Any]]) -> Callable[[typer.Context, str], list[str]]:
    """Names of topics or queues for shell completion; none when no broker answers."""

    def names(context: typer.Context, incomplete: str) -> list[str]:
        address = context.params.get("broker") or os.environ.get("MILEPOST_BROKER") or DEFAULT_BROKER
        try:
            with connected(address, timeout=COMPLETION_SECONDS) as client:
                return [each.name for each in things(client) if each.name.startswith(incomplete)]
        except MilepostError:
            return []

    return names


known_topics: Final = completion(lambda client: client.topics())


@contextmanager
def connected(
    address: str, *, reconnect: bool = False, say: bool = True, timeout: float = ANSWER_S
) -> Iterator[Client]:
    """A connection for one command. It has no name, because two commands at once would fence each other.

    Commands that watch, wait or read a pipe wait for a broker that is away, and report it. Other commands fail.
    """
    from milepost.client import Client

    # A command that does not wait for a broker reports the error itself, so its client's log would repeat it.
    with logged(shown=reconnect and say), Client(address, reconnect=reconnect, timeout=timeout) as client:
        yield client


def transact(client: Client, work: Callable[[SyncTransaction], T]) -> T:
    """Run work in a transaction that the work ends itself. Repeated once when the transaction was undone because the
    broker went away.

    After an error it is undone before the error is raised. An interrupt does not wait: disconnecting undoes it.
    """
    while True:
        before, tx = client.statistics().reconnects, client.transaction()
        try:
            return work(tx)
        except Exception as error:
            tx.abort()
            if not isinstance(error, TransactionAborted) or client.statistics().reconnects == before:
                raise


def talk(address: str, work: Callable[[AsyncClient], Awaitable[T]], *, reconnect: bool = False) -> T:
    """The same for commands on durable state, which wait for several things at once and so are coroutines."""
    from milepost.client import AsyncClient

    async def session() -> T:
        async with AsyncClient(address, reconnect=reconnect) as client:
            return await work(client)

    with logged(shown=reconnect):
        return asyncio.run(session())


def topic_named(client: Client, name: str) -> TopicInfo:
    """The broker's information on a topic. `UnknownTopic` suggests a similar name."""
    return _named(client.topics(), name)


async def topic_of(client: AsyncClient, name: str) -> TopicInfo:
    """The same, for `talk`."""
    return _named(await client.topics(), name)


async def durable_topic(client: AsyncClient, name: str) -> TopicInfo:
    """The same for a topic that must be durable. `NotDurable` says what to do."""
    found = await topic_of(client, name)
    if not found.durable:
        raise NotDurable(
            f"{name} is a live topic, which keeps no messages; `milepost topic create NAME SCHEMA --durable` makes a "
            "durable one, after a live one with that name is deleted"
        )
    return found


def _named(topics: list[TopicInfo], name: str) -> TopicInfo:
    found = [topic for topic in topics if topic.name == name]
    if not found:
        known = [topic.name for topic in topics]
        raise UnknownTopic(
            f"there is no topic {name!r}{did_you_mean(name, known)}; "
            "`milepost topic list` lists the topics, `milepost topic create` makes one"
        )
    return found[0]
