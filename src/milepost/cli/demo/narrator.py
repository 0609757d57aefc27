"""The output of the scenes: narration, and claims that are checked as they are made."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.rule import Rule

from milepost.cli.terminal import console
from milepost.extras import install, installed

PIPE_COLUMNS = 100  # width where the output is not a terminal


class ClaimFailed(AssertionError):
    """A claim of the demo is false."""


class Narrator:
    """Prints the text of scenes, in colours on a terminal."""

    def __init__(self) -> None:
        self.console = console(PIPE_COLUMNS)
        self.claims = 0
        self._started = time.monotonic()

    def has_broker(self) -> bool:
        """Whether a broker is installed; if not, says so."""
        if not installed("numba", "sqlalchemy"):
            self.say(f"A broker needs more packages than a client: {escape(install('server'))}")
            return False
        return True

    @contextmanager
    def waiting(self, what: str) -> Iterator[Callable[[str], None]]:
        """A line with the elapsed seconds while something takes long; without a terminal, only what it waits for.

        Calling the yielded function changes the line.
        """
        if not self.console.is_terminal:
            self.say(f"{what} …")
            yield lambda text: None
            return
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=self.console, transient=True) as progress:
            task = progress.add_task(what, total=None)
            yield lambda text: progress.update(task, description=text)

    def scene(self, title: str) -> None:
        self.console.print()
        self.console.print(Rule(f"[bold]{escape(title)}[/]", align="left"))

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False)

    def show(self, drawing: RenderableType) -> None:
        self.console.print(Padding(drawing, (0, 0, 0, 2)))

    def claim(self, sentence: str, holds: bool) -> None:
        """Print a sentence that holds. Stop the demo if it does not."""
        if not holds:
            raise ClaimFailed(f"the demo claims that {sentence}, but it is not true")
        self.claims += 1
        self.console.print(f"  [green]✓[/] {escape(sentence)}", highlight=False)

    def finish(self) -> None:
        spent = time.monotonic() - self._started
        self.console.print()
        self.console.print(Rule())
        self.say(f"{self.claims} claims, each checked as it was made, in {spent:.1f} s.")
