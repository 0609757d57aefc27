"""The command line: one module per command, assembled here.

Commands import their dependencies when they run, so that `milepost --help` is fast.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from milepost.cli import (
    bench,
    demo,
    get,
    network,
    pipeline,
    pipeline_run,
    put,
    queue,
    queue_get,
    queue_messages,
    queue_put,
    sub,
    top,
    topic,
    transfer,
    type,
    unsubscribe,
    up,
    warm,
)
from milepost.cli.terminal import echo, warn
from milepost.errors import MilepostError

__all__ = ["app", "main"]

app = typer.Typer(
    name="milepost",
    help="Messaging that can tell you where every message went.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        echo(f"milepost {version('milepost')}")
        raise typer.Exit


@app.callback()
def _options(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Messaging that can tell you where every message went."""


# In the order in which new users need them.
app.command("demo")(demo.run)
app.command("up", epilog=up.EXAMPLES)(up.run)
app.add_typer(topic.app, name="topic")
app.command("put", epilog=put.EXAMPLES)(put.run)
app.command("sub", epilog=sub.EXAMPLES)(sub.run)
app.command("get", epilog=get.EXAMPLES)(get.run)
app.command("unsubscribe", epilog=unsubscribe.EXAMPLES)(unsubscribe.run)
queue.app.command("put", epilog=queue_put.EXAMPLES)(queue_put.run)
queue.app.command("get", epilog=queue_get.EXAMPLES)(queue_get.run)
queue.app.command("browse", epilog=queue_messages.BROWSE_EXAMPLES)(queue_messages.browse)
queue.app.command("move", epilog=queue_messages.MOVE_EXAMPLES)(queue_messages.move)
queue.app.command("purge", epilog=queue_messages.PURGE_EXAMPLES)(queue_messages.purge)
queue.app.command("transfer", epilog=transfer.TRANSFER_EXAMPLES)(transfer.transfer)
queue.app.command("resolve", epilog=transfer.RESOLVE_EXAMPLES)(transfer.resolve)
app.add_typer(queue.app, name="queue")
app.command("top", epilog=top.EXAMPLES)(top.run)
pipeline.app.command("run", epilog=pipeline_run.RUN_EXAMPLES)(pipeline_run.run)
pipeline.app.command("status", epilog=pipeline_run.STATUS_EXAMPLES)(pipeline_run.status)
pipeline.app.command("stop", epilog="Example:\n  milepost pipeline stop dns")(pipeline_run.stop)
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(network.app, name="network")
app.add_typer(type.app, name="type")
app.add_typer(bench.app, name="bench")
app.command("warm", epilog=warm.EXAMPLES)(warm.run)


def main() -> None:
    """Run the command line. Errors of Milepost and of the system are printed as messages, without a traceback.

    Errors of the system are a full disk or a missing file, for example. A closed pipe (`| head`) is not an error.
    """
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # buffered output fails here, where the error can be reported
    except BrokenPipeError:
        _give_up_output()
        sys.exit(1)
    except (MilepostError, demo.ClaimFailed, OSError) as error:
        if isinstance(error, OSError) and not isinstance(error, MilepostError):
            _give_up_output()
        # Some errors of the system, such as a timeout, have no text.
        warn(f"milepost: {str(error) or error.__class__.__name__}", "red")
        sys.exit(1)


def _give_up_output() -> None:
    """Discard output that could not be written, so that the interpreter does not try again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
