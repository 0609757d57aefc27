"""The command line: one module per command, put together here."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated

import typer
from rich.console import Console

from milepost.cli import demo, type
from milepost.errors import MilepostError

__all__ = ["app", "main"]

app = typer.Typer(
    name="milepost",
    help="Messaging that can tell you where every message went.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"milepost {version('milepost')}")
        raise typer.Exit


@app.callback()
def _options(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Messaging that can tell you where every message went."""


app.command("demo")(demo.run)
app.add_typer(type.app, name="type")


def main() -> None:
    """Run the command line. An error that Milepost raises on purpose is a message for people, not a traceback."""
    try:
        app()
    except (MilepostError, demo.ClaimFailed) as error:
        Console(stderr=True).print(f"milepost: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)
