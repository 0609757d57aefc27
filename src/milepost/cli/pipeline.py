"""`milepost pipeline`: event processing on Spark, defined in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from milepost.cli.definition import METAVAR, given
from milepost.cli.session import durable_topic, talk
from milepost.cli.terminal import Console, warn
from milepost.errors import ConfigError

if TYPE_CHECKING:
    from milepost.client import AsyncClient
    from milepost.pipeline.definition import Pipeline
    from milepost.schema import Schema

app = typer.Typer(no_args_is_help=True, help="Filter, enrich and correlate events on Spark.")

File = Annotated[Path, typer.Argument(metavar="FILE", help="the definition of a pipeline, in TOML")]
Broker = Annotated[
    str | None,
    typer.Option(
        "--broker",
        "-b",
        envvar="MILEPOST_BROKER",
        metavar="ADDRESS",
        help="the broker to connect to, instead of the one in the file",
    ),
]


@app.command(
    epilog="""Examples:
  milepost pipeline check dns.toml
  milepost pipeline check dns.toml --schema event.schema
  milepost pipeline check dns.toml --schema 'event: \\[at: timestamp, host: string]'
"""
)
def check(
    file: File,
    schema: Annotated[
        str | None,
        typer.Option(metavar=METAVAR, help="the schema of the input; by default the broker's"),
    ] = None,
    broker: Broker = None,
) -> None:
    """Show what a pipeline would do, or all its problems. Spark is not started.

    Every rule is checked against the fields that events have at its place, and
    tables are read.
    """
    from milepost.cli import plan
    from milepost.pipeline.definition import load_pipeline
    from milepost.pipeline.definition.checker import check as checked

    pipeline = load_pipeline(file)
    events = given(schema) if schema is not None else _known(pipeline, broker or pipeline.broker)
    found = checked(pipeline, events)
    Console().print(plan.drawn(found))
    for warning in found.warnings:
        warn(f"note: {warning}")


def _known(pipeline: Pipeline, broker: str) -> Schema:
    """The schema of the input topics at the broker; with `from`, the schema of the other pipelines' results."""
    names = pipeline.input or tuple(f"{source}.lane.0" for source in pipeline.sources)

    async def look(client: AsyncClient) -> list[Schema]:
        return [(await durable_topic(client, name)).schema for name in names]

    found = talk(broker, look)
    for name, schema in zip(names, found, strict=True):
        if schema.type != found[0].type:
            raise ConfigError(
                f"{names[0]} and {name} have different schemas, and tier 1 takes events of one schema; "
                "make a pipeline for each"
            )
    return found[0]
