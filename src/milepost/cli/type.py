"""`milepost type`: schemas and message types in files, and those of a broker's queues.

Files are shown and checked without a broker.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from milepost.batch.format import format_of
from milepost.cli import parts, terminal, tree, values
from milepost.cli.definition import METAVAR, file_of, given, read
from milepost.cli.old_names import CommandGroup
from milepost.cli.queue_options import Json
from milepost.cli.session import DEFAULT_BROKER, Broker, connected
from milepost.cli.terminal import Console, echo, write
from milepost.errors import BrokerError, IncompatibleSchema, UnknownType, did_you_mean, from_code
from milepost.schema import Schema, breaks, dataclass_source, python_source

app = typer.Typer(
    cls=CommandGroup, no_args_is_help=True, help="Schemas and message types: in files, and in a broker for its queues."
)

SHOWN_CASES = 4  # of a schema with variants; the others are counted

File = Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="a schema, or a DEFINE MESSAGETYPE statement")]


@app.command(
    epilog="""Examples:
  milepost type create 'quote: \\[symbol: string, price: double] index (symbol)'
  milepost type create orders.txt
"""
)
def create(
    definition: Annotated[
        str, typer.Argument(metavar=METAVAR, help="a file, the text itself, or - for standard input")
    ],
    broker: Broker = DEFAULT_BROKER,
) -> None:
    """Make a message type, so that queues can take it.

    The definition is a schema or a DEFINE MESSAGETYPE statement; `index` in it
    names values by which messages are selected. Repeating the command changes
    nothing; another definition with the same name is refused.
    """
    schema = given(definition)
    with connected(broker) as client:
        made = client.declare_type(schema)
    echo(f"{made.name} {made.fingerprint:016x}")


@app.command("list", epilog="Example:\n  milepost type list")
def list_(as_json: Json = False, broker: Broker = DEFAULT_BROKER) -> None:
    """List the message types of a broker, and the queues that take them."""
    with connected(broker) as client:
        types, queues = client.types(), client.queues()
    takers = {name: sorted(queue.name for queue in queues if name in queue.types) for name in types}
    if as_json:
        found = [
            {
                "name": name,
                "fingerprint": f"{schema.fingerprint:016x}",
                "text": schema.canonical,
                "queues": takers[name],
            }
            for name, schema in sorted(types.items())
        ]
        write(values.to_json_lines(found))
        return
    if not types:
        echo("There are no message types; make one with: milepost type create FILE", err=True)
        return
    table = terminal.table("type", "fingerprint", "queues", "definition")
    for name, schema in sorted(types.items()):
        definition = terminal.cut(tree.one_line(schema), tree.LIST_CHARS)
        table.add_row(Text(name), f"{schema.fingerprint:016x}", Text(", ".join(takers[name])), Text(definition))
    terminal.console().print(table)


@app.command(epilog="Examples:\n  milepost type show orders.txt\n  milepost type show OrderMessage")
def show(
    name: Annotated[str, typer.Argument(metavar="FILE|NAME", help="a file, or the name of a type at a broker")],
    broker: Broker = DEFAULT_BROKER,
) -> None:
    """Show a schema as a tree, and the positions of its columns in a single message."""
    file = file_of(name)
    schema = _known(name, broker) if file is None else read(file)
    console = Console()
    console.print(tree.drawn(schema))
    count = format_of(schema).cases.count
    for code in range(min(count, SHOWN_CASES)):
        console.print()
        if count > 1:
            console.print(f"case {code} of {count}")
        console.print(parts.places(schema, code))
    if count > SHOWN_CASES:
        console.print(f"\nand {count - SHOWN_CASES} more cases, laid out when they first occur")


def _known(name: str, broker: str) -> Schema:
    """A type at a broker."""
    try:
        with connected(broker) as client:
            types = client.types()
    except BrokerError as error:
        what = f"there is no file {name!r}, and no broker to ask for a type with that name: {error}"
        raise from_code(error.code, what) from None
    if name not in types:
        near = did_you_mean(name, types) or "; `milepost type list` lists the types at the broker"
        raise UnknownType(f"there is neither a file {name!r} nor a message type with that name{near}")
    return types[name]


@app.command()
def check(
    file: File,
    against: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="the previous version; changes that break its readers are refused"
        ),
    ] = None,
) -> None:
    """Check that a file has a valid schema, and that it may follow the previous version."""
    schema = read(file)
    if against is not None:
        broken = breaks(read(against), schema)
        if broken:
            where = "".join(f"\n  {item.path}: {item.reason}" for item in broken)
            raise IncompatibleSchema(
                f"{file} breaks readers of {against}; add fields and cases only{where}",
                tuple(item.path for item in broken),
            )
    echo(f"{schema.name} {schema.fingerprint:016x}")


@app.command()
def python(file: File) -> None:
    """Print Python classes for a schema or message type, for editors and type checkers."""
    schema = read(file)
    source = dataclass_source(schema) if schema.message_type is None else python_source(schema.message_type)
    echo(source, end="")


@app.command(epilog="Example:\n  milepost type delete OrderMessage")
def delete(name: str, broker: Broker = DEFAULT_BROKER) -> None:
    """Remove a message type from a broker, once no queue takes it."""
    with connected(broker) as client:
        client.delete_type(name)
    echo(f"{name} is deleted")
