"""`like` in Spark.

Spark's own `like` escapes with a backslash and uses a backtracking regular expression. Here the most common patterns
become string functions. The others become a regular expression that cannot backtrack from one piece into another:
between two `%`s the pattern has a fixed length, and the leftmost match of such a piece is as good as any later one, so
an atomic group keeps it. Only the last piece is matched at the end of the text. So the time is linear in the text.
"""

from __future__ import annotations

from itertools import pairwise

from pyspark.sql import Column
from pyspark.sql import functions as f

from milepost.query.like import ANY, Pattern
from milepost.query.spark.value import BOOLEAN, Value


def like(text: Value, pattern: Pattern) -> Value:
    """Whether a text matches a pattern."""
    simple = _simple(text.column, pattern.pieces)
    return Value(text.column.rlike(regular(pattern)) if simple is None else simple, BOOLEAN)


def _simple(text: Column, pieces: tuple[str, ...] | None) -> Column | None:
    match pieces:
        case (alone,):
            return text == f.lit(alone)
        case (start, ""):
            return f.startswith(text, f.lit(start))
        case ("", end):
            return f.endswith(text, f.lit(end))
        case ("", middle, ""):
            return f.contains(text, f.lit(middle))
    return None


def regular(pattern: Pattern) -> str:
    """The regular expression, in Java's notation, of a pattern."""
    cuts = [0, *sorted(pattern.runs), len(pattern.characters)]
    pieces = ["".join(map(_quoted, pattern.characters[start:end])) for start, end in pairwise(cuts)]
    if len(pieces) == 1:
        return rf"(?s)\A{pieces[0]}\z"
    first, *middle, last = pieces
    runs = "".join(f"(?>.*?{piece})" for piece in middle)
    return rf"(?s)\A{first}{runs}.*{last}\z"


def _quoted(character: str | None) -> str:
    if character is ANY:
        return "."
    # In Java, a backslash before a character that is not a letter or digit means the character itself.
    return character if character.isalnum() or not character.isascii() else f"\\{character}"
