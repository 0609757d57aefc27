"""Options that the commands for queues share: a queue, a type, and a predicate on messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from milepost.cli.session import completion
from milepost.errors import WrongType

if TYPE_CHECKING:
    from milepost.client import Client
    from milepost.schema import Schema

LEVELS: Final = ("none", "ordered", "blockwise", "ordered blockwise")


known_queues: Final = completion(lambda client: client.queues())
Queue = Annotated[str, typer.Argument(autocompletion=known_queues, help="the name of a queue")]
Type = Annotated[
    str | None, typer.Option("--type", "-t", help="the type of the messages; needed when a queue takes several")
]
Where = Annotated[
    str | None,
    typer.Option("--where", metavar="PREDICATE", help="which messages: a predicate on their content"),
]
Order = Annotated[
    str | None,
    typer.Option(metavar="KEYS", help="the order of messages, as in 'amount desc, name'; by default by priority"),
]
Json = Annotated[bool, typer.Option("--json", help="lines of JSON, for programs")]


def type_of(client: Client, queue: str, wanted: str | None) -> Schema:
    """The type of messages for a queue. Raises `WrongType` when the queue takes several and none is named."""
    taken = client.queue(queue).types
    if wanted is None and len(taken) > 1:
        raise WrongType(f"queue {queue!r} takes messages of {', '.join(taken)}: name one with --type")
    name = taken[0] if wanted is None else wanted
    if name not in taken:
        raise WrongType(f"queue {queue!r} does not take messages of type {name}; it takes {', '.join(taken)}")
    return client.types()[name]
