"""What every command that talks to a broker shares: where it is, and what to say when it cannot be reached."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from milepost.cli.terminal import logged
from milepost.errors import MilepostError, NotDurable, TransactionAborted, UnknownTopic, did_you_mean

if TYPE_CHECKING:
    from milepost.client import AsyncClient, Client, TopicInfo
    from milepost.client.sync_queues import SyncTransaction

T = TypeVar("T")

DEFAULT_BROKER: Final = "milepost://127.0.0.1:7450"
ANSWER_S: Final = 10.0  # for a broker to answer a command

Broker = Annotated[
    str, typer.Option("--broker", "-b", envvar="MILEPOST_BROKER", metavar="ADDRESS", help="the broker to talk to")
]

COMPLETION_SECONDS: Final = 1.0  # for a broker to name its topics while somebody waits for a completion


def known_topics(context: typer.Context, incomplete: str) -> list[str]:
    """Topics that a shell may complete a name to; none where no broker answers."""
    from milepost.client import Client

    address = context.params.get("broker") or os.environ.get("MILEPOST_BROKER") or DEFAULT_BROKER
    try:
        with Client(address, reconnect=False, timeout=COMPLETION_SECONDS) as client:
            return [topic.name for topic in client.topics() if topic.name.startswith(incomplete)]
    except MilepostError:
        return []


@contextmanager
def connected(
    address: str, *, reconnect: bool = False, say: bool = True, timeout: float = ANSWER_S
) -> Iterator[Client]:
    """A connection for one command. It has no name of its own: two commands at once would fence each other off.

    Commands that last, because they watch, wait or read a pipe, wait for a broker that goes away, and say so, or draw
    it; the others fail, and leave it to their caller.
    """
    from milepost.client import Client

    with _said(reconnect and say), Client(address, reconnect=reconnect, timeout=timeout) as client:
        yield client


def transact(client: Client, work: Callable[[SyncTransaction], T]) -> T:
    """Do work in a transaction that it ends itself; once more when that was undone because its broker went away.

    After an error it is undone before that is told. An interrupt waits for nobody: leaving the broker undoes it.
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
    """The same for commands about what is durable: they wait for several things at once, so they are coroutines."""
    from milepost.client import AsyncClient

    async def session() -> T:
        async with AsyncClient(address, reconnect=reconnect) as client:
            return await work(client)

    with _said(reconnect):
        return asyncio.run(session())


@contextmanager
def _said(reconnect: bool) -> Iterator[None]:
    """What a client logs is shown by commands that last; from others it would be said twice."""
    if reconnect:
        with logged():
            yield
        return
    nobody = logging.NullHandler()
    log = logging.getLogger("milepost")
    log.addHandler(nobody)
    try:
        yield
    finally:
        log.removeHandler(nobody)


def topic_named(client: Client, name: str) -> TopicInfo:
    """What the broker knows of a topic; `UnknownTopic` names the one that was probably meant."""
    return _named(client.topics(), name)


async def topic_of(client: AsyncClient, name: str) -> TopicInfo:
    """The same, for `talk`."""
    return _named(await client.topics(), name)


async def durable_topic(client: AsyncClient, name: str) -> TopicInfo:
    """The same for a topic that must be durable; `NotDurable` says what to do."""
    found = await topic_of(client, name)
    if not found.durable:
        raise NotDurable(
            f"{name} is a live topic: nothing of it is kept; `milepost topic create NAME SCHEMA --durable` makes a "
            "durable one, and a live one of that name has to be deleted first"
        )
    return found


def _named(topics: list[TopicInfo], name: str) -> TopicInfo:
    found = [topic for topic in topics if topic.name == name]
    if not found:
        known = [topic.name for topic in topics]
        raise UnknownTopic(
            f"no topic is called {name!r}{did_you_mean(name, known)}; "
            "`milepost topic list` names those there are, `milepost topic create` makes one"
        )
    return found[0]
