"""`milepost queue transfer` and `milepost queue resolve`: queues that go on to another broker, and what is in doubt."""

from __future__ import annotations

import asyncio
import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from milepost.cli.session import DEFAULT_BROKER, Broker, talk
from milepost.cli.terminal import echo
from milepost.errors import InvalidValue

if TYPE_CHECKING:
    from milepost.client import AsyncClient, TransferInfo

TRANSFER_EXAMPLES = """Examples:
  milepost queue transfer orders milepost://there:7450/orders
  milepost queue transfer --status
  milepost queue transfer orders there:7450/orders --once
  milepost queue transfer orders --stop
"""
RESOLVE_EXAMPLES = """Examples:
  milepost queue resolve
  milepost queue resolve transfer/4f0c/orders/8123 abort
"""


class How(StrEnum):
    """What becomes of a transaction in doubt."""

    commit = "commit"
    abort = "abort"
    forget = "forget"


def register(app: typer.Typer) -> None:
    """Put the commands of this module among those of `milepost queue`."""
    app.command("transfer", epilog=TRANSFER_EXAMPLES)(transfer)
    app.command("resolve", epilog=RESOLVE_EXAMPLES)(resolve)


def transfer(
    source: Annotated[str | None, typer.Argument(metavar="[QUEUE]", help="the queue that messages leave")] = None,
    target: Annotated[
        str | None, typer.Argument(metavar="[ADDRESS/QUEUE]", help="the broker and the queue that they go to")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="transfer the messages that are there now, from this process, and end")
    ] = False,
    stop: Annotated[bool, typer.Option("--stop", help="stop the transfer of this queue")] = False,
    status: Annotated[bool, typer.Option("--status", help="show the transfers and their progress")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="with --status: a line of JSON for each")] = False,
    broker: Broker = DEFAULT_BROKER,
) -> None:
    """Transfer a queue to a queue of another broker.

    The broker does so from now on, also after a restart, until --stop. Each
    message arrives once and is gone here once, whatever breaks on the way:
    both brokers commit, or neither does. The target queue has to exist; types
    that the other broker lacks are declared there. The order of a writer's
    messages is kept, and a transaction of a blockwise queue arrives as one.
    At the target, the writer is this transfer.
    """
    if sum((once, stop, status)) > 1:
        raise typer.BadParameter("--once, --stop and --status are different things: give one")
    if status:
        if target is not None:
            raise typer.BadParameter("--status takes a queue at most")
        _print(talk(broker, lambda client: _status(client, source)), as_json)
        return
    if source is None or (target is None) is not stop:
        raise typer.BadParameter("say QUEUE ADDRESS/QUEUE to transfer, or QUEUE --stop")
    if stop:
        talk(broker, lambda client: client.delete_transfer(source))
        echo(f"{source} is no longer transferred")
        return
    assert target is not None
    address, there = split(target)
    if once:
        from milepost.queues.transfer import Transfer

        messages = asyncio.run(Transfer(broker, source, address, there).once())
        echo(f"{messages:,} message{'' if messages == 1 else 's'} of {source} went to {there} at {address}")
        return
    talk(broker, lambda client: client.transfer(source, address, there))
    echo(f"{source} is transferred to {there} at {address}; `milepost queue transfer --status` tells how it goes")


def resolve(
    gid: Annotated[str | None, typer.Argument(metavar="[GID]", help="the name of a transaction in doubt")] = None,
    how: Annotated[How | None, typer.Argument(metavar="[commit|abort|forget]", help="what becomes of it")] = None,
    broker: Broker = DEFAULT_BROKER,
) -> None:
    """Name the transactions in doubt, or end one.

    One that was prepared here waits for the decision of the broker that
    transfers, which decides by itself when both are up. Only when that broker
    is gone for ever, decide for it: commit if the messages are no longer
    there, abort if they still are. `forget` removes a decision that was made
    here for a broker that is gone for ever.
    """
    if gid is None:
        for line in talk(broker, _doubtful):
            echo(line)
        return
    if how is None:
        raise typer.BadParameter("say what becomes of it: commit, abort or forget")
    if how is How.forget:
        talk(broker, lambda client: _forget(client, gid))
        echo(f"the decision about {gid} is forgotten")
        return
    repeated = talk(broker, lambda client: client.decide(gid, how is How.commit))
    done = "committed" if how is How.commit else "undone"
    echo(f"{gid} {'was' if repeated else 'is'} {done}{' before, or was never here' if repeated else ''}")


def split(target: str) -> tuple[str, str]:
    """The address and the queue of `milepost://host:port/queue`, or of `host:port/queue`."""
    scheme, sign, rest = target.rpartition("://")
    host, slash, queue = rest.partition("/")
    if not host or not slash or not queue:
        raise InvalidValue(f"{target!r} names no queue: write milepost://host:port/queue")
    return f"{scheme or 'milepost'}{sign or '://'}{host}", queue


async def _status(client: AsyncClient, queue: str | None) -> list[tuple[TransferInfo, int]]:
    from milepost.queues.transfer import coordinator_of

    found = [each for each in await client.transfers() if queue in (None, each.queue)]
    if queue is not None and not found:
        raise InvalidValue(f"queue {queue!r} is not transferred")
    decided = [gid.rpartition("/")[0] for gid, _ in await client.decisions()]
    return [(each, decided.count(coordinator_of(client.broker_id, each.queue))) for each in found]


def _print(found: list[tuple[TransferInfo, int]], as_json: bool) -> None:
    if not found and not as_json:
        echo("No queue is transferred.", err=True)
    for each, doubtful in found:
        if as_json:
            said: dict[str, Any] = {
                "queue": each.queue, "address": each.address, "target": each.target, "messages": each.messages,
                "in_doubt": doubtful, "error": each.error, "created_at": each.created_at.isoformat(),
            }  # fmt: skip
            echo(json.dumps(said))
            continue
        echo(f"{each.queue} → {each.address}/{each.target}: {each.messages:,} transferred, {doubtful} in doubt")
        if each.error:
            echo(f"  not now: {each.error}")


async def _doubtful(client: AsyncClient) -> list[str]:
    said = [f"{gid}  waits for the decision of {coordinator}" for gid, coordinator in await client.in_doubt()]
    said += [f"{gid}  is decided: commit; waits for {participant}" for gid, participant in await client.decisions()]
    return said or ["Nothing is in doubt."]


async def _forget(client: AsyncClient, gid: str) -> None:
    if gid not in {known for known, _ in await client.decisions()}:
        raise InvalidValue(f"no decision about {gid!r} is in the log of this broker")
    await client.forget_decision(gid)
