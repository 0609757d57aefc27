"""`milepost queue`: make queues, show them, remove them. Commands for their messages are in other modules."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Group

from milepost.cli import queue_picture, values
from milepost.cli.old_names import CommandGroup
from milepost.cli.queue_options import LEVELS, Json, Queue
from milepost.cli.session import DEFAULT_BROKER, Broker, connected
from milepost.cli.terminal import console, echo, write
from milepost.errors import InvalidValue

app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    help="Transactional queues: make them, fill them, take from them, look after them.",
)


class Direction(StrEnum):
    """Which priorities come first."""

    desc = "desc"
    asc = "asc"


@app.command(
    epilog="""Examples:
  milepost queue create orders --type OrderMessage
  milepost queue create orders -t OrderMessage --level ordered --dead-letter orders.dead --max-deliveries 3
  milepost queue create mixed -t quote -t note --priority quote='price * size' --priority 5
"""
)
def create(
    name: Annotated[str, typer.Argument(help="the name of the queue, in printable characters")],
    types: Annotated[
        list[str], typer.Option("--type", "-t", help="a message type that it takes; see `milepost type create`")
    ],
    level: Annotated[
        str, typer.Option(metavar="LEVEL", help=f"the isolation of readers: {', '.join(LEVELS)}")
    ] = "none",
    priority: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[TYPE=]EXPR|NUMBER", help="an expression for the priority of messages; or the default priority"
        ),
    ] = None,
    direction: Annotated[Direction, typer.Option(help="whether high priorities come first, or low ones")] = (
        Direction.desc
    ),
    dead_letter: Annotated[
        str | None, typer.Option(metavar="QUEUE", help="the queue for messages that cannot be handled; made if needed")
    ] = None,
    max_deliveries: Annotated[
        int | None, typer.Option(min=1, help="deliveries of a message before it goes there; by default 3")
    ] = None,
    broker: Broker = DEFAULT_BROKER,
) -> None:
    """Make a queue for messages of some types.

    Messages come by priority, and within a priority in the order of arrival.
    The priority is given at enqueue, or computed from the content by the
    expression, or the default. Repeating the command changes nothing; an
    existing queue with other rules stays as it is.
    """
    if max_deliveries is not None and dead_letter is None:
        raise typer.BadParameter("--max-deliveries needs --dead-letter, the queue for the messages")
    usual, functions = _priorities(types, priority or [])
    with connected(broker) as client:
        made = client.declare_queue(
            name, types, level=level, direction=direction.value, priority=usual, priorities=functions,
            dead_letter=dead_letter, max_deliveries=None if dead_letter is None else max_deliveries or MAX_DELIVERIES,
        )  # fmt: skip
    echo(f"{name} takes {', '.join(made.types)}{'' if level == 'none' else f', {level}'}")


MAX_DELIVERIES = 3  # enough for faults that pass, and few for faults that do not


def _priorities(types: list[str], given: list[str]) -> tuple[float, dict[str, str]]:
    """The default priority, and the functions by type."""
    usual, functions = 0.0, {}
    for text in given:
        kind, sign, function = text.partition("=")
        if sign and kind.strip() in types:
            name = kind.strip()
        elif (number := _number(text)) is not None:
            usual = number
            continue
        elif len(types) > 1:
            raise InvalidValue(f"--priority {text!r}: name the type, as in {types[0]}={text!r}")
        else:
            name, function = types[0], text
        if name in functions:
            raise InvalidValue(f"--priority is given twice for {name}")
        functions[name] = function
    return usual, functions


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


@app.command("list", epilog="Examples:\n  milepost queue list\n  milepost queue list --json | jq .waiting")
def list_(as_json: Json = False, broker: Broker = DEFAULT_BROKER) -> None:
    """List the queues, with their types and the number of messages in each state."""
    with connected(broker) as client:
        queues = sorted(client.queues(), key=lambda queue: queue.name)
    if as_json:
        write(values.to_json_lines([queue_picture.as_json(queue) for queue in queues]))
    elif not queues:
        echo("There are no queues; make one with: milepost queue create NAME --type TYPE", err=True)
    else:
        console().print(queue_picture.of_queues(queues))


@app.command(epilog="Example:\n  milepost queue show orders")
def show(queue: Queue, as_json: Json = False, broker: Broker = DEFAULT_BROKER) -> None:
    """Show a queue: its types, level and priorities, and the states of its messages as bars."""
    with connected(broker) as client:
        found = client.queue(queue)
    if as_json:
        echo(values.to_json(queue_picture.as_json(found)).decode())
        return
    console().print(Group(*queue_picture.of_queue(found, datetime.now(UTC))))


@app.command(epilog="Example:\n  milepost queue delete orders")
def delete(queue: Queue, broker: Broker = DEFAULT_BROKER) -> None:
    """Remove a queue without messages that no transaction uses.

    `milepost queue purge` removes messages, `milepost queue move` moves them.
    """
    with connected(broker) as client:
        client.delete_queue(queue)
    echo(f"{queue} is deleted")
