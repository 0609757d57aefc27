"""`milepost queue browse`, `move` and `purge`: the messages of a queue, for operators."""

from __future__ import annotations

import sys
from itertools import islice
from typing import Annotated

import typer

from milepost.cli import queue_picture, values
from milepost.cli.quantity import counted
from milepost.cli.queue_options import Json, Queue, Type, Where, known_queues
from milepost.cli.session import DEFAULT_BROKER, Broker, connected
from milepost.cli.terminal import console, echo, write
from milepost.errors import ConfigError, InvalidValue

BROWSE_EXAMPLES = """Examples:
  milepost queue browse orders
  milepost queue browse orders.dead --where "name = 'Smith'" --json | jq .message
"""
MOVE_EXAMPLES = """Examples:
  milepost queue move orders.dead orders
  milepost queue move orders.dead orders --where "name = 'Smith'" --count 10
"""
PURGE_EXAMPLES = """Examples:
  milepost queue purge orders --where "date < date '2026-01-01'"
  milepost queue purge orders.dead --yes
"""
SHOWN = 100  # messages that `browse` shows by default
PIECE = 500  # messages that are written at once

Most = Annotated[int | None, typer.Option("--count", "-n", min=1, help="at most so many, the oldest first")]


def browse(
    queue: Queue,
    type: Type = None,
    where: Where = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help=f"how many; by default {SHOWN}, with --json all")
    ] = None,
    after: Annotated[
        str | None, typer.Option(metavar="ID", help="continue after this message, the last of the previous page")
    ] = None,
    as_json: Json = False,
    broker: Broker = DEFAULT_BROKER,
) -> None:
    """Show the messages of a queue in the order of their arrival, without taking any.

    Messages that an open transaction has taken, or written and not committed,
    are left out; delayed ones are included.
    """
    most = count if count is not None or as_json else SHOWN
    with connected(broker) as client:
        found = client.browse(
            queue, type, where=where, after=_number(after), count=None if most is None else most + (not as_json)
        )
        if as_json:
            while piece := list(islice(found, PIECE)):
                write(values.to_json_lines([queue_picture.message_json(each) for each in piece]))
            return
        messages = list(found)
    assert most is not None
    if not messages:
        echo(f"nothing {f'behind {after} ' if after else ''}in {queue}{' that qualifies' if where else ''}")
        return
    screen = console()
    screen.print(queue_picture.of_messages(messages[:most], screen.width))
    if len(messages) > most:
        echo(f"there are more: --after {messages[most - 1].header.id} continues, --count shows more at once", err=True)


def _number(mid: str | None) -> int:
    """The message number in an ID, S/T/M or M alone."""
    if mid is None:
        return 0
    last = mid.rpartition("/")[2]
    if not (last.isascii() and last.isdecimal()) or int(last) >= 1 << 63:
        raise InvalidValue(f"--after {mid!r} is not an ID of a message; IDs look like 12/3456/7890")
    return int(last)


def move(
    queue: Queue,
    target: Annotated[str, typer.Argument(autocompletion=known_queues, help="the queue to move them to")],
    type: Type = None,
    where: Where = None,
    count: Most = None,
    broker: Broker = DEFAULT_BROKER,
) -> None:
    """Move messages that no transaction has taken to another queue, for example out of a dead-letter queue.

    They keep their IDs, and their deliveries are counted from 0 again.
    """
    with connected(broker) as client:
        moved = client.move(queue, target, type, where=where, count=count)
    echo(f"{counted(moved, 'message')} moved from {queue} to {target}")


def purge(
    queue: Queue,
    type: Type = None,
    where: Where = None,
    count: Most = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask, also without a predicate")] = False,
    broker: Broker = DEFAULT_BROKER,
) -> None:
    """Remove messages that no transaction has taken.

    Without --where it asks before it removes all of them.
    """
    with connected(broker) as client:
        if where is None and not yes:
            there = client.queue(queue).figures
            waiting = sum(there.get(state, 0) for state in ("waiting", "delayed", "expired"))
            what = counted(waiting if count is None else min(count, waiting), "message")
            if sys.stdin is None or not sys.stdin.isatty():
                raise ConfigError(
                    f"{what} would be removed from {queue}; nothing was removed. Use --yes to remove them, "
                    "or --where to select some"
                )
            typer.confirm(f"Remove {what} from {queue}?", abort=True)
        removed = client.purge(queue, type, where=where, count=count)
    echo(f"{counted(removed, 'message')} removed from {queue}")
