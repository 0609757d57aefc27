"""`like` patterns: compiled once, matched in one pass over the text without backtracking.

The matcher simulates the pattern's automaton with one bit per pattern character (bit-parallel, after Baeza-Yates and
Gonnet). Bit k is set while the first k characters of the pattern cover the text read so far; a `%` has no bit of its
own, but keeps the bit before it set. Each character of the text costs a shift, an and and an or on integers as long as
the pattern. So the time is linear in the text, whatever the pattern. A regular expression in Python would backtrack.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from milepost import limits


class WrongPattern(Exception):
    """An invalid pattern. The message is for the author of the query."""


ANY: Final = None  # in `Pattern.characters`: the `_` that matches one code point


@dataclass(frozen=True, slots=True)
class Pattern:
    """A parsed pattern: its characters, and the positions among them of `%`, which matches any text."""

    characters: tuple[str | None, ...]
    runs: frozenset[int]
    _masks: dict[str, int] = field(init=False, repr=False, compare=False)
    _any: int = field(init=False, repr=False, compare=False)
    _stay: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        masks: dict[str, int] = {}
        anything = 0
        for position, character in enumerate(self.characters):
            if character is ANY:
                anything |= 2 << position
            else:
                masks[character] = masks.get(character, 0) | 2 << position
        object.__setattr__(self, "_masks", masks)
        object.__setattr__(self, "_any", anything)
        object.__setattr__(self, "_stay", sum(1 << position for position in self.runs))

    def matches(self, text: str) -> bool:
        """Whether the whole text matches the pattern."""
        if ANY not in self.characters:
            return self._found(text)
        masks, anything, stay = self._masks, self._any, self._stay
        state = 1
        for character in text:
            state = (state << 1) & (masks.get(character, 0) | anything) | state & stay
            if not state:
                return False
        return bool(state >> len(self.characters) & 1)

    def _found(self, text: str) -> bool:
        """`matches` for a pattern without `_`: finds each piece at its first occurrence after the piece before."""
        pieces = self.pieces
        assert pieces is not None
        if len(pieces) == 1:
            return text == pieces[0]
        start, *inside, end = pieces
        if len(text) < len(start) + len(end) or not text.startswith(start) or not text.endswith(end):
            return False
        at, last = len(start), len(text) - len(end)
        for piece in inside:
            at = text.find(piece, at, last)
            if at < 0:
                return False
            at += len(piece)
        return True

    @property
    def pieces(self) -> tuple[str, ...] | None:
        """The texts between `%`s, the first and the last possibly empty; None when the pattern has a `_`."""
        if ANY in self.characters:
            return None
        cuts = [0, *sorted(self.runs), len(self.characters)]
        text = "".join(character for character in self.characters if character is not ANY)
        return tuple(text[start:end] for start, end in pairwise(cuts))


def compiled(text: str, escape: str | None) -> Pattern:
    """The pattern of a text. Raises `WrongPattern` for an invalid one."""
    limits.require("LIKE_PATTERN_CHARS", len(text), "characters in a like pattern")
    if escape is not None and len(escape) != 1:
        raise WrongPattern(f"escape takes one character, and {escape!r} has {len(escape)}")
    characters: list[str | None] = []
    runs = set()
    escaped = False
    for character in text:
        if escaped:
            if character not in ("%", "_", escape):
                raise WrongPattern(f"{escape}{character} escapes nothing: {escape} goes before %, _ and {escape}")
            characters.append(character)
            escaped = False
        elif character == escape:
            escaped = True
        elif character == "%":
            runs.add(len(characters))
        else:
            characters.append(ANY if character == "_" else character)
    if escaped:
        raise WrongPattern(f"the pattern ends with its escape character {escape}")
    return Pattern(tuple(characters), frozenset(runs))
