"""`milepost topic`: make topics, show them, trim them, remove them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from milepost.cli import position, quantity, terminal, tree
from milepost.cli.definition import METAVAR, given
from milepost.cli.quantity import counted
from milepost.cli.session import DEFAULT_BROKER, Broker, durable_topic, known_topics, talk, topic_of
from milepost.cli.terminal import echo
from milepost.errors import BrokerError, ConfigError

if TYPE_CHECKING:
    from milepost.client import AsyncClient, TopicInfo

app = typer.Typer(no_args_is_help=True, help="Make topics, show them, trim them, remove them.")

SHOWN_NAMES = 3  # subscriptions that an error names

Name = Annotated[str, typer.Argument(autocompletion=known_topics)]


class Slow(StrEnum):
    """What the broker does when a subscriber is slower than the publishers."""

    throttle = "throttle"
    drop = "drop"
    disconnect = "disconnect"


@app.command(
    epilog="""Examples:
  milepost topic create quotes 'quote: \\[symbol: string, price: double]'
  milepost topic create orders orders.txt --slow drop
  milepost topic create trades trades.txt --durable --keep 30d --keep-bytes 10GB
"""
)
def create(
    name: Annotated[str, typer.Argument(help="as in orders.eu; patterns such as orders.* go by the dots")],
    schema: Annotated[
        str, typer.Argument(metavar=METAVAR, help="a schema: a file, the text itself, or - for standard input")
    ],
    slow: Annotated[
        Slow | None,
        typer.Option(
            help="when a subscriber is slow: hold publishers back, drop its oldest messages, or disconnect it"
        ),
    ] = None,
    durable: Annotated[bool, typer.Option("--durable", help="store its messages at the broker")] = False,
    keep: Annotated[
        str | None,
        typer.Option(metavar="7d|for-ever|consumed", help="how long a durable topic keeps messages; by default 7d"),
    ] = None,
    keep_bytes: Annotated[
        str | None,
        typer.Option(
            metavar="10GB", help="its largest size, the oldest messages are removed first; by default unlimited"
        ),
    ] = None,
    hold: Annotated[
        bool,
        typer.Option("--hold/--no-hold", help="keep messages that named subscriptions have not consumed, or not"),
    ] = True,
    broker: Broker = DEFAULT_BROKER,
) -> None:
    """Make a topic, or give it a new version of its schema.

    A new version may add fields and cases; changes that break readers are
    refused. A live topic keeps no messages. A durable one keeps them until they
    are older than --keep or exceed --keep-bytes and, without --no-hold, until
    every named subscription has consumed them.
    """
    retain = _retention(keep, keep_bytes, hold)
    if retain and not durable:
        raise typer.BadParameter("only a durable topic keeps anything: add --durable")
    parsed = given(schema)

    async def declare(client: AsyncClient) -> None:
        await client.declare_topic(
            name, parsed, slow=slow.value if slow is not None else None, durable=durable or None, retain=retain
        )

    talk(broker, declare)
    echo(f"{name} takes {parsed.name} {parsed.fingerprint:016x}{', and keeps it' if durable else ''}")


def _retention(keep: str | None, keep_bytes: str | None, hold: bool) -> dict[str, Any] | None:
    """The given retention; None when nothing was given, and the topic's retention stays."""
    if keep is None and keep_bytes is None and hold:
        return None
    retain: dict[str, Any] = {"hold": hold}
    if keep is not None:
        words = {"for-ever": None, "forever": None, "consumed": 0.0}
        retain["age_s"] = words[keep] if keep in words else quantity.seconds(keep)
    elif keep_bytes is not None:
        retain["age_s"] = None  # bounded by size only
    if keep_bytes is not None:
        retain["bytes"] = quantity.size(keep_bytes)
    return retain


@app.command("list", epilog="Examples:\n  milepost topic list 'orders.>'\n  milepost topic list --all")
def list_(
    pattern: Annotated[str, typer.Argument(help="orders.* for one more word, orders.> for any number of them")] = ">",
    every: Annotated[
        bool, typer.Option("--all", "-a", help="also the topics that pipelines declare for themselves")
    ] = False,
    broker: Broker = DEFAULT_BROKER,
) -> None:
    """List the topics of a pattern, with their schemas, and the rows of the durable ones.

    The topics that a pipeline declares for itself, such as dns.marks and
    dns.lane.0, are only counted.
    """
    from milepost.pipeline.own_topics import pipeline_topics

    async def look(client: AsyncClient) -> tuple[list[TopicInfo], dict[str, list[dict[str, Any]]], int]:
        found = await client.topics(pattern)
        hidden = set() if every else pipeline_topics(found if pattern == ">" else await client.topics())
        topics = [each for each in found if each.name not in hidden]
        logs = {each.name: (await client.look(each.name))["logs"] for each in topics if each.durable}
        return topics, logs, len(found) - len(topics)

    topics, logs, hidden = talk(broker, look)
    if hidden:
        echo(f"{counted(hidden, 'topic')} of pipelines hidden; --all shows them", err=True)
    if not topics and not hidden:
        what = "no topics" if pattern == ">" else f"no topics of the pattern {pattern}"
        echo(f"There are {what}; make one with: milepost topic create NAME SCHEMA", err=True)
    if not topics:
        return
    table = _table("topic", "schema", *(("stored", "size") if logs else ()), "slow")
    for topic in sorted(topics, key=lambda topic: topic.name):
        kept = logs.get(topic.name)
        stored = "" if kept is None else f"{sum(log['rows'] for log in kept):,}"
        size = "" if kept is None else quantity.size_text(sum(log["bytes"] for log in kept))
        schema = Text(terminal.cut(tree.one_line(topic.schema), tree.LIST_CHARS))
        table.add_row(Text(topic.name), schema, *((stored, size) if logs else ()), topic.slow)
    terminal.console().print(table)


@app.command(epilog="Example:\n  milepost topic show quotes")
def show(name: Name, broker: Broker = DEFAULT_BROKER) -> None:
    """Show a topic: its schema as a tree, its versions and its figures.

    For a durable topic also its retention, its logs, and how far its named
    subscriptions are.
    """

    async def look(client: AsyncClient) -> tuple[TopicInfo, dict[str, Any] | None]:
        found = await topic_of(client, name)
        return found, await client.look(name) if found.durable else None

    topic, kept = talk(broker, look)
    console = terminal.console()
    console.print(tree.drawn(topic.schema))
    versions = len(topic.versions)
    console.print(f"\n{'one version' if versions == 1 else f'{versions} versions'}; slow subscribers: {topic.slow}")
    for earlier in topic.versions[:-1]:
        console.print(Text(f"  before: {tree.one_line(earlier)}"), style="dim", soft_wrap=True)
    console.print(_figures(topic.figures))
    if kept is not None:
        console.print(f"\n{_kept(kept['retain'])}")
        console.print(_logs(kept["logs"]))
        console.print(*_subscriptions(kept["subscriptions"]))


@app.command(
    epilog="""Examples:
  milepost topic trim quotes --before 120000
  milepost topic trim quotes --before 2026-03-01T00:00:00Z --yes
"""
)
def trim(
    name: Name,
    before: Annotated[str, typer.Option(metavar="LOG:OFFSET|OFFSET|TIME", help="the first message that stays")],
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="also what named subscriptions have not consumed; they are notified")
    ] = False,
    broker: Broker = DEFAULT_BROKER,
) -> None:
    """Remove the oldest messages of a durable topic.

    A time is the time at which messages were stored. `--before new` removes
    all.
    """
    wanted = position.start(before, "--before")

    async def remove(client: AsyncClient) -> int:
        await durable_topic(client, name)
        found = await client.look(name, start=wanted)
        reached, logs = found["position"], {log["log"]: log for log in found["logs"]}
        rows = sum(
            max(0, min(at, logs[log]["next"]) - logs[log]["start"]) for log, at in reached.items() if log in logs
        )
        if not rows:
            return 0
        late = [each for each in found["subscriptions"] if _lacks(each["cursor"], reached, logs)]
        if late and not yes:
            names = ", ".join(str(each["name"]) for each in late[:SHOWN_NAMES])
            more = f" and {len(late) - SHOWN_NAMES:,} more" if len(late) > SHOWN_NAMES else ""
            have = "has" if len(late) == 1 else "have"
            raise ConfigError(
                f"{counted(rows, 'row')} would be removed from {name}, and {names}{more} {have} not consumed all of "
                "them; nothing was removed. Use --yes to remove them"
            )
        await client.trim(name, {log: min(at, logs[log]["next"]) for log, at in reached.items() if log in logs})
        return int(rows)

    rows = talk(broker, remove)
    done = f"{counted(rows, 'row')} removed from {name}"
    echo(done if rows else f"nothing of {name} is before {before}; nothing was removed")


def _lacks(cursor: Mapping[int, int], reached: Mapping[int, int], logs: Mapping[int, Mapping[str, int]]) -> bool:
    """Whether a subscription has not consumed some existing rows before a position."""
    return any(max(cursor.get(log, 0), logs[log]["start"]) < at for log, at in reached.items() if log in logs)


@app.command(epilog="Example:\n  milepost topic delete quotes")
def delete(
    name: Name,
    yes: Annotated[
        bool, typer.Option("--yes", help="also when named subscriptions have not consumed everything")
    ] = False,
    broker: Broker = DEFAULT_BROKER,
) -> None:
    """Remove a topic and its subscriptions, and the messages of a durable topic."""

    async def remove(client: AsyncClient) -> int:
        found = await topic_of(client, name)
        looked = await client.look(name) if found.durable else {"logs": (), "subscriptions": ()}
        rows = sum(int(log["rows"]) for log in looked["logs"])
        behind = [each["name"] for each in looked["subscriptions"] if each["behind"]]
        if behind and not yes:
            behind_it = f"{', '.join(behind[:5])} {'has' if len(behind) == 1 else 'have'}"
            kept = counted(rows, "row")
            raise BrokerError(
                f"{behind_it} not consumed all of {name}, which keeps {kept}; --yes removes it all the same"
            )
        await client.delete_topic(name)
        return rows

    rows = talk(broker, remove)
    and_rows = f", and {counted(rows, 'row')} with it" if rows else ""
    echo(f"{name} is deleted{and_rows}")


def _kept(retain: Mapping[str, Any]) -> str:
    """A topic's retention, as a sentence."""
    age, size = retain["age_s"], retain["bytes"]
    if age == 0:
        kept = "kept until consumed"
    else:
        kept = "kept for ever" if age is None else f"kept for {quantity.duration_text(age)}"
    if size is not None:
        kept += f", {quantity.size_text(size)} at most"
    if retain["hold"]:
        return f"durable, {kept}{'' if age == 0 else '; longer if a named subscription has not consumed it'}"
    return f"durable, {kept}, consumed or not"


def _logs(logs: list[dict[str, Any]]) -> Table:
    table = _table("log", "start", "next", "rows", "bytes", "entries")
    for log in logs:
        table.add_row(*(f"{log[column]:,}" for column in ("log", "start", "next", "rows", "bytes", "entries")))
    return table


def _subscriptions(subscriptions: list[dict[str, Any]]) -> list[Any]:
    if not subscriptions:
        return ["no named subscriptions"]
    table = _table("subscription", "cursor", "behind", "members", "where")
    for each in sorted(subscriptions, key=lambda each: str(each["name"])):
        cursor, where = position.shown(each["cursor"]), each["where"] or ""
        members = "hold" if each.get("hold") else f"{each['members']:,}"  # a hold has no members
        table.add_row(Text(each["name"]), cursor, f"{each['behind']:,}", members, Text(where, "magenta"))
    return [table]


def _table(*columns: str) -> Table:
    numbers = ("start", "next", "rows", "bytes", "entries", "stored", "size", "behind", "members")
    return terminal.table(*columns, right=numbers, wrapped=("where",))


def _figures(figures: Mapping[str, Any]) -> Table:
    table = _table("", "rows", "bytes")
    for way in ("in", "out"):
        table.add_row(way, f"{figures[f'rows_{way}']:,}", f"{figures[f'bytes_{way}']:,}")
    table.add_row("subscriptions", f"{figures['subscriptions']:,}", "")
    return table
