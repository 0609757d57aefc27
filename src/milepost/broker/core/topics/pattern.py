"""Names of topics, and patterns of them.

A name is words joined by dots: `orders.eu.new`. In a pattern, `*` stands for one word and `>`, at the end, for one or
more: `orders.*.new`, `orders.>`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from milepost import limits
from milepost.errors import BrokerError

_WORD: Final = re.compile(r"[A-Za-z0-9_\-]+")


def require_name(name: str) -> None:
    """Raise `BrokerError` for an invalid topic name."""
    _require(name, wild=False)


def require_pattern(pattern: str) -> None:
    """Raise `BrokerError` for a text that is neither a topic name nor a pattern."""
    _require(pattern, wild=True)


def is_pattern(text: str) -> bool:
    """Whether a text has wildcards."""
    return "*" in text or ">" in text


def covers(pattern: str, name: str) -> bool:
    """Whether a pattern, or a plain name, matches the name of a topic."""
    return _expression(pattern).fullmatch(name) is not None


@lru_cache(maxsize=1_000)
def _expression(pattern: str) -> re.Pattern[str]:
    """The regular expression of a pattern: a broker may match it with 100,000 topic names."""
    parts = {"*": r"[^.]+", ">": r".+"}
    return re.compile(r"\.".join(parts.get(word) or re.escape(word) for word in pattern.split(".")))


def _require(text: str, wild: bool) -> None:
    limits.require("NAME_CHARS", len(text), "the characters of a topic's name")
    words = text.split(".")
    for place, word in enumerate(words):
        last = place == len(words) - 1
        if _WORD.fullmatch(word) or (wild and (word == "*" or (word == ">" and last))):
            continue
        what = "a topic pattern" if wild else "a topic's name"
        rule = "words of letters, digits, _ and -, joined by dots"
        more = "; * stands for one word, > at the end for all that follow" if wild else ""
        raise BrokerError(f"{text!r} is not {what}: it takes {rule}{more}")
