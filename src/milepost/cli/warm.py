"""`milepost warm`: compile the matching kernels before somebody waits for them."""

from __future__ import annotations

import time

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from milepost.cli.terminal import Console, echo
from milepost.errors import ConfigError
from milepost.extras import require

EXAMPLES = """Example:
  milepost warm    [dim]# once after installing, as in the making of an image[/]
"""


def run() -> None:
    """Compile the matching kernels, so that the first `milepost up` need not.

    They are kept in a folder of yours; this is needed once for each version.
    """
    require("a broker needs", "server", "numba")
    from milepost import kernels

    if kernels.compiled():
        echo("Nothing left to do: the matching kernels are compiled.")
        return
    started = time.monotonic()
    compile_kernels(Console(stderr=True))
    took = f"The matching kernels are compiled ({time.monotonic() - started:.0f} s)"
    if kernels.kept():
        echo(f"{took}; later starts find them.")
    else:
        raise ConfigError(
            f"{took}, but could not be kept in {kernels.folder('match').parent}: is the disk full, or the folder not "
            "yours? Every start compiles them again; make room, or name another folder in XDG_CACHE_HOME"
        )


def compile_kernels(console: Console) -> None:
    """Compile what is not compiled yet, and say so: a bar on a terminal, a line elsewhere."""
    from milepost import kernels

    if not console.is_terminal:
        console.print("Compiling the matching kernels, once for this version; it takes up to a minute.", soft_wrap=True)
        kernels.warm()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("Compiling the matching kernels, once for this version", total=None)

        def progress(name: str, done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        kernels.warm(progress)
