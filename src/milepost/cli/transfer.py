"""`milepost queue transfer` and `milepost queue resolve`: transfers of queues to other brokers, and transactions in
doubt.
"""

from __future__ import annotations

import asyncio
import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from milepost.cli.quantity import counted
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
    """How to end a transaction in doubt."""

    commit = "commit"
    abort = "abort"
    forget = "forget"


def transfer(
    source: Annotated[str | None, typer.Argument(metavar="[QUEUE]", help="the queue to transfer")] = None,
    target: Annotated[
        str | None, typer.Argument(metavar="[ADDRESS/QUEUE]", help="the broker and the queue to forward to")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="transfer the current messages from this process, and stop")
    ] = False,
    stop: Annotated[bool, typer.Option("--stop", help="stop transferring this queue")] = False,
    status: Annotated[bool, typer.Option("--status", help="show the status of transfers")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="with --status: a line of JSON for each")] = False,
    broker: Broker = DEFAULT_BROKER,
) -> None:
    """Transfer a queue to a queue of another broker.

    The broker transfers from now on, also after a restart, until --stop. Each
    message leaves here and arrives there exactly once, whatever fails on the
    way: both brokers commit, or neither does. Types that the other broker does
    not have are declared there; the queue must exist there. The order of a
    writer's messages is kept, and a transaction to a blockwise queue arrives as
    one transaction. At the other broker, the writer is this transfer.
    """
    if sum((once, stop, status)) > 1:
        raise typer.BadParameter("give only one of --once, --stop and --status")
    if status:
        if target is not None:
            raise typer.BadParameter("--status takes at most a queue")
        _print(talk(broker, lambda client: _status(client, source)), as_json)
        return
    if source is None or (target is None) is not stop:
        raise typer.BadParameter("give QUEUE ADDRESS/QUEUE to transfer, or QUEUE --stop")
    if stop:
        talk(broker, lambda client: client.delete_transfer(source))
        echo(f"{source} is no longer transferred")
        return
    assert target is not None
    address, there = split(target)
    if once:
        from milepost.queues.transfer import Transfer

        messages = asyncio.run(Transfer(broker, source, address, there).once())
        echo(f"{counted(messages, 'message')} of {source} went to {there} at {address}")
        return
    talk(broker, lambda client: client.transfer(source, address, there))
    echo(f"{source} is transferred to {there} at {address}; `milepost queue transfer --status` shows its status")


def resolve(
    gid: Annotated[str | None, typer.Argument(metavar="[GID]", help="the name of a transaction in doubt")] = None,
    how: Annotated[How | None, typer.Argument(metavar="[commit|abort|forget]", help="how to end it")] = None,
    broker: Broker = DEFAULT_BROKER,
) -> None:
    """List the transactions in doubt, or end one.

    A transaction that was prepared here waits for the decision of the broker
    that transfers, which comes by itself when both brokers run. Only when that
    broker is gone for good, decide in its place: commit if the messages are no
    longer there, abort if they still are. `forget` removes a decision that was
    made here for a broker that is gone for good.
    """
    if gid is None:
        for line in talk(broker, _doubtful):
            echo(line)
        return
    if how is None:
        raise typer.BadParameter("say how to end it: commit, abort or forget")
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
