"""Limits on the length of texts that a database's functions get.

A database can end a statement only between two rows: eight megabytes of text, joined with itself nine times, took
PostgreSQL more than a minute that no timeout ended. So an expression with many passes over its texts takes only short
texts.
"""

from __future__ import annotations

from typing import Final

from milepost import limits
from milepost.query import typed
from milepost.query.kinds import BYTES, STRING
from milepost.query.typed import Const, Typed

FREE: Final = 8  # so many passes are allowed over texts of any length
PATTERN_CHARS: Final = 16  # of a text that is searched for: every so many add a pass over the text, at worst
TWO_TEXTS: Final = 2_048  # passes, for a search of one text in another where both are calculated
PRODUCT: Final = 1 << 28  # characters of a message's text times those of the text that is searched for in it


def longest(*roots: Typed) -> int | None:
    """The greatest length of texts in expressions, in characters; None means no limit."""
    passes = sum(_passes(node) for node in typed.walk(*roots))
    return None if passes <= FREE else limits.QUERY_VALUE_BYTES // passes


def short(node: typed.Like) -> bool:
    """Whether a pattern is a plain text or a prefix: then it is a comparison, which needs no pass."""
    pieces = node.pattern.pieces
    return pieces is not None and (len(pieces) == 1 or (len(pieces) == 2 and not pieces[1]))


def _passes(node: Typed) -> int:
    match node:
        case typed.Like(_, pattern):
            return 0 if short(node) else 1 + len(pattern.characters) // PATTERN_CHARS
        case typed.Call("contains" | "position" | "starts_with" | "ends_with", (_, Const(str() as part))):
            return 1 + len(part) // PATTERN_CHARS
        case typed.Call("contains" | "position", (typed.ReadPath(), typed.ReadPath())):
            return 1  # the product of their lengths is checked for each row
        case typed.Call("contains" | "position"):
            return TWO_TEXTS
        case typed.Call(_, arguments):
            return int(any(argument.kind in (STRING, BYTES) for argument in arguments))
    return 0
