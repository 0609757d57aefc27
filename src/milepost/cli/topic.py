"""`milepost topic`: make topics, look at them, remove them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from milepost.cli.session import DEFAULT_BROKER, Broker, connected, known_topics, topic_named
from milepost.errors import SchemaError

if TYPE_CHECKING:
    from milepost.schema import Schema

app = typer.Typer(no_args_is_help=True, help="Make topics, look at them, remove them.")

SCHEMA_CHARS = 60  # of a schema in a list; `show` has the whole of it

Name = Annotated[str, typer.Argument(autocompletion=known_topics)]


class Slow(StrEnum):
    """What happens when a subscriber takes messages slower than they come."""

    throttle = "throttle"
    drop = "drop"
    disconnect = "disconnect"


@app.command(
    epilog="""Examples:
  milepost topic create quotes 'quote: \\[symbol: string, price: double]'
  milepost topic create orders @orders.txt --slow drop
"""
)
def create(
    name: Annotated[str, typer.Argument(help="as in orders.eu; patterns such as orders.* go by the dots")],
    schema: Annotated[
        str, typer.Argument(help="the text of a schema, @FILE for one in a file, or - for standard input")
    ],
    slow: Annotated[
        Slow | None,
        typer.Option(
            help="when a subscriber is slow: hold publishers back, drop its oldest messages, or disconnect it"
        ),
    ] = None,
    broker: Broker = DEFAULT_BROKER,
) -> None:
    """Make a topic, or give it a new version of its schema.

    A new version may add fields and cases; what would break readers is refused.
    """
    from milepost.query import parse_schema

    parsed = parse_schema(_schema_text(schema))
    with connected(broker) as client:
        client.declare_topic(name, parsed, slow=slow.value if slow is not None else None)
    print(f"{name} takes {parsed.name} {parsed.fingerprint:016x}")


@app.command("list", epilog="Example:\n  milepost topic list 'orders.>'")
def list_(
    pattern: Annotated[str, typer.Argument(help="orders.* for one more word, orders.> for any number of them")] = ">",
    broker: Broker = DEFAULT_BROKER,
) -> None:
    """Name the topics of a pattern, with their schemas."""
    with connected(broker) as client:
        topics = client.topics(pattern)
        if not topics:
            what = "no topics" if pattern == ">" else f"no topics of the pattern {pattern}"
            print(f"There are {what}; make one with: milepost topic create NAME SCHEMA", file=sys.stderr)
            return
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    for column in ("topic", "schema", "slow"):
        table.add_column(column, no_wrap=True)
    for topic in sorted(topics, key=lambda topic: topic.name):
        text = _one_line(topic.schema)
        shown = text if len(text) <= SCHEMA_CHARS else f"{text[: SCHEMA_CHARS - 1]}…"
        table.add_row(Text(topic.name), Text(shown), topic.slow)
    _console().print(table)


@app.command(epilog="Example:\n  milepost topic show quotes")
def show(name: Name, broker: Broker = DEFAULT_BROKER) -> None:
    """Draw a topic's schema as a tree, with its versions and its figures."""
    from milepost.cli import tree

    with connected(broker) as client:
        topic = topic_named(client, name)
    console = _console()
    console.print(tree.drawn(topic.schema))
    versions = len(topic.versions)
    console.print(f"\n{'one version' if versions == 1 else f'{versions} versions'}; slow subscribers: {topic.slow}")
    for earlier in topic.versions[:-1]:
        console.print(Text(f"  before: {_one_line(earlier)}"), style="dim", soft_wrap=True)
    console.print(_figures(topic.figures))


@app.command(epilog="Example:\n  milepost topic delete quotes")
def delete(name: Name, broker: Broker = DEFAULT_BROKER) -> None:
    """Remove a topic and the subscriptions to it."""
    with connected(broker) as client:
        topic_named(client, name)
        client.delete_topic(name)
    print(f"{name} is gone")


def _schema_text(given: str) -> str:
    try:
        if given == "-":
            return sys.stdin.read()
        return Path(given[1:]).read_text("utf-8") if given.startswith("@") else given
    except OSError as error:
        raise SchemaError(f"cannot read the schema from {given[1:]}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise SchemaError(f"{given} is not text in UTF-8: {error.reason} at byte {error.start}") from None


def _one_line(schema: Schema) -> str:
    return " ".join(schema.canonical.split())


def _figures(figures: Mapping[str, Any]) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    for column in ("", "rows", "bytes"):
        table.add_column(column, justify="right" if column else "left")
    table.add_row("in", f"{figures['rows_in']:,}", f"{figures['bytes_in']:,}")
    table.add_row("out", f"{figures['rows_out']:,}", f"{figures['bytes_out']:,}")
    table.add_row("subscriptions", f"{figures['subscriptions']:,}", "")
    return table


def _console() -> Console:
    """As wide as the terminal; into a pipe, lines are as long as they are."""
    console = Console()
    return console if console.is_terminal else Console(width=PIPE_COLUMNS)


PIPE_COLUMNS = 200  # without a terminal to ask
