"""`like` in Spark.

Spark's own `like` escapes with a backslash and hands the rest to a backtracking regular expression. Here the commonest
patterns become the string functions that they are. The others become a regular expression that cannot backtrack from
one piece into another: between two runs of anything the pattern has a fixed length, and the leftmost place where such
a piece fits is as good as any later one, so it is taken for good by an atomic group. Only the last piece is looked for
from the end. That makes the time linear in the text.
"""

from __future__ import annotations

from itertools import pairwise

from pyspark.sql import Column
from pyspark.sql import functions as f

from milepost.query.like import ANY, Pattern
from milepost.query.spark.value import BOOLEAN, Value


def like(text: Value, pattern: Pattern) -> Value:
    """Whether a text is an instance of a pattern."""
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
    # Java takes a backslash before anything that is no letter or digit as the character itself.
    return character if character.isalnum() or not character.isascii() else f"\\{character}"
