r"""Output to the terminal. All commands print through this module, which escapes control characters.

Names, filters, values and errors come from other clients, and may have escape sequences with which a terminal moves
its cursor, sets its title or sends input. They are shown as `\u001b`, which JSON reads as well.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import rich.console
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table

PIPE_COLUMNS: Final = 200  # width where the output is not a terminal, so that lines are not wrapped

# Control characters of both ranges except line feed and tab; characters that reorder text or are invisible; lone
# surrogates.
_OBEYED: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


def escaped(text: str) -> str:
    """A text for the terminal, with control characters spelt out."""
    return _OBEYED.sub(_spelt, text)


def escaped_json(data: bytes) -> bytes:
    """The same for JSON in UTF-8, which keeps its meaning. Most JSON is ASCII, and needs no more escapes."""
    return data if data.isascii() and b"\x7f" not in data else escaped(data.decode()).encode()


def _spelt(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def cut(text: str, chars: int) -> str:
    """A text of at most so many characters."""
    return text if len(text) <= chars else f"{text[: chars - 1]}…"


def echo(text: str = "", *, err: bool = False, end: str = "\n", flush: bool = False) -> None:
    """Print a text, to standard output or to standard error."""
    print(escaped(text), file=sys.stderr if err else sys.stdout, end=end, flush=flush)


class Console(rich.console.Console):
    """A console of rich. Only its own colours and cursor movements reach the terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of something to print, each with its text escaped."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            plain = control or text == "\r" or _OBEYED.search(text) is None  # a carriage return may rewrite a line
            yield segment if plain else Segment(escaped(text), style, control)


def console(columns: int = PIPE_COLUMNS) -> Console:
    """A console with the width of the terminal; elsewhere with so many columns."""
    made = Console()
    return made if made.is_terminal else Console(width=columns)


def table(*columns: str, right: Iterable[str] = (), wrapped: Iterable[str] = ()) -> Table:
    """An empty table in the style of all commands. Columns are aligned to the left unless they are in `right`."""
    made = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", no_wrap=column not in wrapped)
    return made


def warn(text: str, style: str = "yellow") -> None:
    """Print a warning or an error verbatim on standard error: text that it quotes may look like markup."""
    Console(stderr=True).print(text, style=style, markup=False, highlight=False, emoji=False, soft_wrap=True)


class Formatter(logging.Formatter):
    """Formats log lines with escaped values. A traceback keeps its lines."""

    def format(self, record: logging.LogRecord) -> str:
        """One record."""
        return escaped(super().format(record))


@contextmanager
def logged(name: str = "milepost", *, shown: bool = True) -> Iterator[None]:
    """Print what Milepost logs (with the name "" all logs) on standard error meanwhile, or hide it."""
    handler = logging.StreamHandler() if shown else logging.NullHandler()
    handler.setFormatter(Formatter("milepost: %(message)s"))
    log = logging.getLogger(name)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


def write(data: bytes) -> None:
    """Write to standard output, without Python's buffer."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(1, rest) :]
