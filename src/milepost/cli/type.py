"""`milepost type`: schemas and message types in files, looked at and checked without a broker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from milepost.batch.format import format_of
from milepost.cli import parts, tree
from milepost.errors import IncompatibleSchema, SchemaError
from milepost.query import rules
from milepost.schema import Schema, breaks, dataclass_source, parse, python_source

app = typer.Typer(no_args_is_help=True, help="Look at, check and use the schemas and message types in files.")

SHOWN_CASES = 4  # of a schema with variants; the rest is one sentence

File = Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="a schema, or a DEFINE MESSAGETYPE statement")]


@app.command()
def show(file: File) -> None:
    """Draw a schema as a tree, and the places of its columns in a message that travels alone."""
    schema = _read(file)
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


@app.command()
def check(
    file: File,
    against: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="the version before; refuse what breaks its readers"),
    ] = None,
) -> None:
    """Say whether a file holds a schema that can be, and whether it may follow the version before."""
    schema = _read(file)
    if against is not None:
        broken = breaks(_read(against), schema)
        if broken:
            where = "".join(f"\n  {item.path}: {item.reason}" for item in broken)
            raise IncompatibleSchema(
                f"{file} breaks readers of {against}; add fields and cases, and leave what is there{where}",
                tuple(item.path for item in broken),
            )
    print(f"{schema.name} {schema.fingerprint:016x}")


@app.command()
def python(file: File) -> None:
    """Print Python classes for a schema or message type, for editors and type checkers."""
    schema = _read(file)
    source = dataclass_source(schema) if schema.message_type is None else python_source(schema.message_type)
    print(source, end="")


def _read(file: Path) -> Schema:
    try:
        text = file.read_text()
    except UnicodeDecodeError as error:
        raise SchemaError(f"{file} is not text in UTF-8: {error.reason} at byte {error.start}") from None
    schema = parse(text)
    rules(schema)  # a check that does not fit the schema is found here, as it would be where a topic is declared
    return schema
