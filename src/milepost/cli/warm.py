"""`milepost warm`: compile the matching kernels in advance."""

from __future__ import annotations

import time

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from milepost.cli.terminal import Console, echo
from milepost.errors import ConfigError
from milepost.extras import require

EXAMPLES = """Example:
  milepost warm    [dim]# once after installation, as in building an image[/]
"""


def run() -> None:
    """Compile the matching kernels, so that the first `milepost up` need not.

    They are stored in a folder of the user; each version needs this once.
    """
    require("a broker needs", "server", "numba")
    from milepost import kernels

    if kernels.compiled():
        echo("Nothing to do: the matching kernels are compiled.")
        return
    started = time.monotonic()
    _compile(Console(stderr=True))
    took = f"The matching kernels are compiled ({time.monotonic() - started:.0f} s)"
    if kernels.kept():
        echo(f"{took}; later starts find them.")
    else:
        raise ConfigError(
            f"{took}, but could not be stored in {kernels.folder('match').parent}: is the disk full, or the folder not "
            "writable? Every start compiles them again; make room, or name another folder in XDG_CACHE_HOME"
        )


def _compile(console: Console) -> None:
    """Compile the kernels that are not compiled yet, with a bar on a terminal or a line elsewhere."""
    from milepost import kernels

    if not console.is_terminal:
        console.print("Compiling the matching kernels, once for this version; it takes up to a minute.", soft_wrap=True)
        kernels.warm()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("Compiling the matching kernels, once for this version", total=None)

        kernels.warm(lambda name, done, total: bar.update(task, completed=done, total=total))
