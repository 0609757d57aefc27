"""`milepost queue get`: dequeue messages, print them, commit."""

from __future__ import annotations

import math
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from milepost.cli import queue_picture, values
from milepost.cli.quantity import counted
from milepost.cli.queue_options import Order, Queue, Type, Where
from milepost.cli.session import DEFAULT_BROKER, Broker, connected, transact
from milepost.cli.terminal import echo, write
from milepost.errors import BrokerError, TimedOut, TransactionAborted

if TYPE_CHECKING:
    from milepost.client.client import SyncTransaction
    from milepost.client.taken import QueueMessage

EXAMPLES = """Examples:
  milepost queue get orders
  milepost queue get orders --count 10 --where "name = 'Smith'" --order "date, id desc"
  milepost queue get orders --timeout 30 --envelope
"""


def run(
    queue: Queue,
    type: Type = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="the most messages to take")] = 1,
    where: Where = None,
    order: Order = None,
    timeout: Annotated[
        float,
        typer.Option(
            min=0, metavar="SECONDS", help="the longest wait for a message; by default none. inf: without limit"
        ),
    ] = 0.0,
    keep: Annotated[
        bool, typer.Option("--keep", help="abort instead of commit: messages go back, and the delivery counts")
    ] = False,
    peek: Annotated[bool, typer.Option("--peek", help="show the messages without taking them")] = False,
    envelope: Annotated[
        bool,
        typer.Option("--envelope/--no-envelope", help="print also ID, type, priority, earlier deliveries and time"),
    ] = False,
    broker: Broker = DEFAULT_BROKER,
) -> None:
    """Dequeue messages in a transaction, and print a line of JSON for each.

    Messages are printed before the commit: when the commit or the output fails,
    they are in the queue again. When there is nothing to take, the exit code is
    1.
    """
    if peek and (keep or timeout):
        raise typer.BadParameter("--peek takes nothing, so there is nothing to keep or to wait for")
    end = time.monotonic() + timeout

    def take(tx: SyncTransaction) -> list[QueueMessage]:
        left = None if math.isinf(timeout) else max(0.0, end - time.monotonic())
        found = tx.dequeue(queue, type, count=count, where=where, order=order, timeout=left)
        if not found:
            return found
        _write(found, envelope)
        if keep:
            tx.abort()
            return found
        try:
            tx.commit()
        except TransactionAborted as error:  # not repeated: the messages would be printed twice
            raise BrokerError(f"{error} (what was printed is in {queue} again)") from None
        return found

    with connected(broker, reconnect=timeout > 0) as client:
        if peek:
            found = client.peek(queue, type, count=count, where=where, order=order)
            _write(found, envelope)
        else:
            found = transact(client, take)
    if not found:
        that = " that qualifies" if where is not None else ""
        within = f" within {timeout:g} s" if timeout else ""
        raise TimedOut(f"there was nothing in {queue}{that}{within}")
    if keep and sys.stderr.isatty():
        echo(f"milepost: {counted(len(found), 'message')} went back", err=True)


def _write(messages: list[QueueMessage], envelope: bool) -> None:
    shown = [queue_picture.message_json(each) if envelope else queue_picture.plain(each) for each in messages]
    # Before the commit, and without Python's buffer, which would hide that the reader is gone.
    write(values.to_json_lines(shown))
