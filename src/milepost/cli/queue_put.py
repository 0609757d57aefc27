"""`milepost queue put`: messages from arguments, a pipe or a file into a queue, in transactions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from milepost.cli import position, put, quantity
from milepost.cli.queue_options import Queue, Type, type_of
from milepost.cli.session import DEFAULT_BROKER, Broker, connected, transact
from milepost.cli.terminal import echo
from milepost.errors import InvalidValue, MilepostError, from_code

if TYPE_CHECKING:
    from milepost.batch import Batch
    from milepost.client.client import SyncTransaction
    from milepost.client.transaction import Receipt

EXAMPLES = """Examples:
  milepost queue put orders '{"id": 1, "name": "Smith", "lines": \\[]}'
  milepost queue put quotes symbol=IBM price=101.5 --priority 9 --delay 30s
  milepost queue put orders --file orders.jsonl --per-transaction 100
  tail -f orders.jsonl | milepost queue put orders -
"""
TOGETHER = 1_000  # most messages of a transaction by default


def run(
    queue: Queue,
    message: Annotated[
        list[str] | None,
        typer.Argument(metavar="JSON… | FIELD=VALUE… | -", help="messages as JSON, one message as fields, or a pipe"),
    ] = None,
    type: Type = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", exists=True, dir_okay=False, help="a .jsonl, .csv or .parquet file"),
    ] = None,
    together: Annotated[
        int | None,
        typer.Option(
            "--per-transaction",
            min=1,
            metavar="N",
            help=f"messages of a transaction; by default those that arrive together, up to {TOGETHER}",
        ),
    ] = None,
    priority: Annotated[
        float | None, typer.Option(help="the priority of all messages, instead of the queue's own")
    ] = None,
    delay: Annotated[str | None, typer.Option(metavar="30s", help="how long they cannot be taken")] = None,
    not_before: Annotated[str | None, typer.Option(metavar="TIME", help="the same, as a time")] = None,
    expires: Annotated[str | None, typer.Option(metavar="7d", help="how long they can be taken")] = None,
    ids: Annotated[bool, typer.Option("--ids", help="print the ID of each message")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="do not print how many were enqueued")] = False,
    broker: Broker = DEFAULT_BROKER,
) -> None:
    """Enqueue messages.

    The type gives the types of values, as for `milepost put`. An invalid line
    ends the command, and its transaction is not enqueued. When the command ends
    well, everything is stored and synced to disk. Messages from a pipe or a
    file wait for a broker that is away.
    """
    arguments = put.checked(message, file)
    options: dict[str, Any] = {
        "priority": priority,
        "delay": None if delay is None else quantity.seconds(delay),
        "not_before": None if not_before is None else position.moment(not_before, "--not-before"),
        "expires": None if expires is None else quantity.seconds(expires),
    }
    started, done, transactions = time.monotonic(), 0, 0

    def enqueue(batch: Batch, tx: SyncTransaction) -> Receipt:
        receipt = tx.enqueue(queue, batch, **options)
        tx.commit()
        return receipt

    with connected(broker, reconnect=not arguments) as client:
        schema = type_of(client, queue, type)
        try:
            for batch in _blocks(put.batches(schema, arguments, file), together):
                receipt = transact(client, partial(enqueue, batch))
                done += len(batch)
                transactions += 1
                if ids:
                    echo("\n".join(receipt.mids))
        except MilepostError as error:
            if not done and not isinstance(error, InvalidValue):
                raise
            raise from_code(error.code, f"{error} ({put.before_it(done, 'message', 'enqueued')})") from None
    if not quiet:
        rate = put.rate_text(done, time.monotonic() - started) if file is not None else ""
        many = "" if transactions == 1 else f", in {transactions:,} transactions"
        echo(f"{quantity.counted(done, 'message')} enqueued in {queue}{many}{rate}", err=True)


def _blocks(batches: Iterator[Batch], wanted: int | None) -> Iterator[Batch]:
    """Batches for one transaction each: exactly `wanted` messages except for the last, or what arrived together."""
    from milepost.batch import Batch

    if wanted is None:
        for batch in batches:
            yield from (batch.slice(at, min(at + TOGETHER, len(batch))) for at in range(0, len(batch), TOGETHER))
        return
    rest: Batch | None = None
    for batch in batches:
        whole = batch if rest is None else Batch.concat([rest, batch])
        end = len(whole) - len(whole) % wanted
        yield from (whole.slice(at, at + wanted) for at in range(0, end, wanted))
        rest = whole.slice(end, len(whole)) if end < len(whole) else None
    if rest is not None:
        yield rest
