"""What every command that talks to a broker shares: where it is, and what to say when it cannot be reached."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final

import typer

from milepost.errors import MilepostError, UnknownTopic, did_you_mean

if TYPE_CHECKING:
    from milepost.client import Client, TopicInfo

DEFAULT_BROKER: Final = "milepost://127.0.0.1:7450"

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
def connected(address: str, *, reconnect: bool = False) -> Iterator[Client]:
    """A connection for one command. It has no name of its own: two commands at once would fence each other off.

    Commands that watch come back when the broker does, and say so; the others fail, and leave it to their caller.
    """
    from milepost.client import Client

    said: logging.Handler = logging.StreamHandler() if reconnect else logging.NullHandler()  # else it is said twice
    said.setFormatter(logging.Formatter("milepost: %(message)s"))
    log = logging.getLogger("milepost")
    log.addHandler(said)
    try:
        with Client(address, reconnect=reconnect) as client:
            yield client
    finally:
        log.removeHandler(said)


def topic_named(client: Client, name: str) -> TopicInfo:
    """What the broker knows of a topic; `UnknownTopic` names the one that was probably meant."""
    topics = client.topics()
    found = [topic for topic in topics if topic.name == name]
    if not found:
        known = [topic.name for topic in topics]
        raise UnknownTopic(
            f"no topic is called {name!r}{did_you_mean(name, known)}; "
            "`milepost topic list` names those there are, `milepost topic create` makes one"
        )
    return found[0]
