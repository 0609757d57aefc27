"""The command line: one module per command, put together here.

What a command needs beyond its arguments is imported when it runs: `milepost --help` waits for nobody's kernels.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.metadata import version
from typing import Annotated, Any, Final

import typer

from milepost.cli import (
    bench,
    demo,
    get,
    pipeline,
    put,
    queue,
    queue_get,
    queue_messages,
    queue_put,
    running,
    sub,
    top,
    topic,
    transfer,
    type,
    unsubscribe,
    up,
    warm,
)
from milepost.cli.terminal import Console, echo
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


# In the order in which a newcomer meets them.
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
transfer.register(queue.app)
app.add_typer(queue.app, name="queue")
app.command("top", epilog=top.EXAMPLES)(top.run)
pipeline.app.command("run", epilog=running.RUN_EXAMPLES)(running.run)
pipeline.app.command("status", epilog=running.STATUS_EXAMPLES)(running.status)
pipeline.app.command("stop", epilog="Example:\n  milepost pipeline stop dns")(running.stop)
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(type.app, name="type")
app.add_typer(bench.app, name="bench")
app.command("warm", epilog=warm.EXAMPLES)(warm.run)

PLAIN: Final[Mapping[str, Any]] = {"markup": False, "highlight": False, "emoji": False, "soft_wrap": True}
"""As it is: what an error quotes may look like markup."""


def main() -> None:
    """Run the command line. An error that Milepost raises on purpose is a message for people, not a traceback.

    Neither is what the system says: a full disk, a file that went away. A closed pipe (`| head`) is no error at all.
    """
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # what is buffered fails here, where it can be said
    except BrokenPipeError:
        _give_up_output()
        sys.exit(1)
    except (MilepostError, demo.ClaimFailed, OSError) as error:
        if isinstance(error, OSError) and not isinstance(error, MilepostError):
            _give_up_output()
        # Some errors of the system, such as one of time, have nothing to say.
        Console(stderr=True).print(f"milepost: {str(error) or error.__class__.__name__}", **PLAIN, style="red")
        sys.exit(1)


def _give_up_output() -> None:
    """What could not be written is not tried again when the interpreter ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
