r"""The way to the terminal: everything that commands print goes through here, and nothing in it is obeyed.

Names, filters, values and errors come from other clients, and may hold the escape sequences by which a terminal moves
its cursor, sets its title or answers as if somebody had typed. They are shown as `\u001b`, which JSON reads as well.
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

# Control characters of both ranges but line feed and tab; what reorders text, or is not seen; lone surrogates.
_OBEYED: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


def escaped(text: str) -> str:
    """A text as it may be printed: what a terminal would obey is spelt out."""
    return _OBEYED.sub(_spelt, text)


def escaped_json(data: bytes) -> bytes:
    """The same for JSON in UTF-8, which keeps its meaning. Most of it is ASCII, and has all escapes that it needs."""
    return data if data.isascii() and b"\x7f" not in data else escaped(data.decode()).encode()


def _spelt(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def echo(text: str = "", *, err: bool = False, end: str = "\n", flush: bool = False) -> None:
    """Print a text, to standard output or to standard error."""
    print(escaped(text), file=sys.stderr if err else sys.stdout, end=end, flush=flush)


class Console(rich.console.Console):
    """A console of rich: its own colours and cursor movements are obeyed, and no others."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of something that is printed, each with its text escaped."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            plain = control or text == "\r" or _OBEYED.search(text) is None  # a line may be printed over itself
            yield segment if plain else Segment(escaped(text), style, control)


class Formatter(logging.Formatter):
    """Lines of a log: what they quote is escaped as well. A traceback keeps its lines."""

    def __init__(self, form: str = "milepost: %(message)s") -> None:
        super().__init__(form)

    def format(self, record: logging.LogRecord) -> str:
        """One record."""
        return escaped(super().format(record))


@contextmanager
def logged(name: str = "milepost") -> Iterator[None]:
    """What Milepost logs, or with the name "" whatever is logged, is printed on standard error meanwhile."""
    handler = logging.StreamHandler()
    handler.setFormatter(Formatter())
    log = logging.getLogger(name)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


def write(data: bytes) -> None:
    """Write to standard output, past Python's own buffer."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(1, rest) :]
