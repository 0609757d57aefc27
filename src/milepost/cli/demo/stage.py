"""Where the scenes play: narration, and claims that are checked as they are made."""

from __future__ import annotations

import time

from rich.console import RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.rule import Rule

from milepost.cli.terminal import Console
from milepost.extras import install, installed

PIPE_COLUMNS = 100  # without a terminal to ask


class ClaimFailed(AssertionError):
    """The demo said something that turned out not to be so."""


class Stage:
    """What a scene talks to. Works without a terminal: then it is plain text."""

    def __init__(self) -> None:
        self.console = Console()
        if not self.console.is_terminal:
            self.console = Console(width=PIPE_COLUMNS)
        self.claims = 0
        self._started = time.monotonic()

    def has_broker(self) -> bool:
        """Whether the packages of a broker are installed. If not, the scene says so, and ends."""
        if installed("numba", "sqlalchemy"):
            return True
        self.say(f"A broker needs more packages than a client: {escape(install('server'))}")
        return False

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
