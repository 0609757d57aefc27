"""Where the scenes play: narration, and claims that are checked as they are made."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.rule import Rule

from milepost.cli.terminal import Console
from milepost.extras import install, installed

PIPE_COLUMNS = 100  # without a terminal to ask


class ClaimFailed(AssertionError):
    """The demo said something that turned out not to be so."""


class Narrator:
    """What a scene talks to. Works without a terminal: then it is plain text."""

    def __init__(self) -> None:
        self.console = Console()
        if not self.console.is_terminal:
            self.console = Console(width=PIPE_COLUMNS)
        self.claims = 0
        self._started = time.monotonic()

    def has_broker(self) -> bool:
        """Whether a broker is installed; if not, that is said."""
        if not installed("numba", "sqlalchemy"):
            self.say(f"A broker needs more packages than a client: {escape(install('server'))}")
            return False
        return True

    @contextmanager
    def waiting(self, what: str) -> Iterator[Callable[[str], None]]:
        """While something takes long: a line with the seconds so far on a terminal, elsewhere what is waited for.

        The line says something else when what is yielded is called with it.
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
        """Say a sentence if it holds; stop the demo if it does not."""
        if not holds:
            raise ClaimFailed(f"the demo claims that {sentence}, and that is not so")
        self.claims += 1
        self.console.print(f"  [green]✓[/] {escape(sentence)}", highlight=False)

    def finish(self) -> None:
        spent = time.monotonic() - self._started
        self.console.print()
        self.console.print(Rule())
        self.say(f"{self.claims} claims, each checked as it was made, in {spent:.1f} s.")
