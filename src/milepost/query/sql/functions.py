"""Two Python functions for SQLite that call the reference, where SQL cannot express an operation exactly.

The first argument of each specifies the operation, with the kinds and forms of the others: "% double:plain
double:plain > double:plain". It is parsed once, and cached.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from milepost.query import like
from milepost.query.kinds import Scalar
from milepost.query.number import bounded
from milepost.query.python.arithmetic import calculation, comparison, converted, negation
from milepost.query.python.functions import function
from milepost.query.sql.value import Value, decoded, encoded

CALL: Final = "milepost_call"
SUM: Final = "milepost_sum"
ESCAPE: Final = "\\"  # in the patterns of `like`, as they are passed to SQLite
_KEPT: Final = 1_000  # parsed specifications that are kept
_KIND: Final = re.compile(r"(\w+)(?:\((\d+),(\d+)\))?:(\w+)")
_SIGNS: Final = frozenset("+-*/%")


def install(connection: Any) -> None:
    """Register the functions with a connection of Python's `sqlite3`. `storage` does so for each connection."""
    connection.create_function(CALL, -1, _call, deterministic=True)
    connection.create_aggregate(SUM, 2, _Sum)


def specification(name: str, arguments: tuple[Value, ...], result: Value) -> str:
    """The specification of an operation, for the first argument."""
    return " ".join((name, *map(_said, arguments), ">", _said(result)))


def _said(value: Value) -> str:
    return f"{value.kind}:{value.form}"


def pattern_text(pattern: like.Pattern) -> str:
    """A pattern in one notation, whatever its escape character was: `ESCAPE` precedes characters meant literally."""
    parts = []
    for place, character in enumerate((*pattern.characters, "")):
        parts.append("%" if place in pattern.runs else "")
        if character is like.ANY:
            parts.append("_")
        else:
            parts.append(f"{ESCAPE}{character}" if character and character in "%_\\" else character)
    return "".join(parts)


def _call(what: str, *arguments: Any) -> Any:
    return None if None in arguments else _operation(what)(*arguments)


@lru_cache(_KEPT)
def _operation(what: str) -> Callable[..., Any]:
    name, *rest = what.split(" ")
    of, result = [_read(word) for word in rest[:-2]], _read(rest[-1])
    meant = _meant(name, tuple(kind for kind, _ in of), result[0])

    def operation(*arguments: Any) -> Any:
        values = (decoded(value, *how) for value, how in zip(arguments, of, strict=True))
        return encoded(meant(*values), *result)

    return operation


def _read(word: str) -> tuple[Scalar, Any]:
    found = _KIND.fullmatch(word)
    assert found is not None, word
    name, precision, scale, form = found.groups()
    return Scalar(name, int(precision or 0), int(scale or 0)), form


def _meant(name: str, kinds: tuple[Scalar, ...], result: Scalar) -> Callable[..., Any]:
    match name:
        case "like":
            return lambda text, pattern: _pattern(pattern).matches(text)
        case "compare":
            less, equal = comparison("<", *kinds), comparison("=", *kinds)
            return lambda a, b: -1 if less(a, b) else int(not equal(a, b))
        case "negate":
            return negation(kinds[0])
        case "convert":
            return converted(kinds[0], result)
        case _ if name in _SIGNS:
            left, right = kinds
            return calculation(name, left, right, result)
    return function(name, kinds)


@lru_cache(_KEPT)
def _pattern(text: str) -> like.Pattern:
    characters: list[str | None] = []
    runs = set()
    rest = iter(text)
    for character in rest:
        if character == "%":
            runs.add(len(characters))
        else:
            characters.append(like.ANY if character == "_" else next(rest) if character == ESCAPE else character)
    return like.Pattern(tuple(characters), frozenset(runs))


class _Sum:
    """The sum of exact numbers; null for no values. Only the final sum has to fit."""

    def __init__(self) -> None:
        self._total: int | None = None
        self._how: tuple[tuple[Scalar, Any], tuple[Scalar, Any]] | None = None

    def step(self, what: str, value: Any) -> None:
        if value is not None:
            self._how = self._how or _summed(what)
            self._total = (self._total or 0) + decoded(value, *self._how[0])

    def finalize(self) -> Any:
        if self._total is None or self._how is None:
            return None
        return encoded(bounded(self._total, self._how[1][0]), *self._how[1])


@lru_cache(_KEPT)
def _summed(what: str) -> tuple[tuple[Scalar, Any], tuple[Scalar, Any]]:
    _, of, _, result = what.split(" ")
    return _read(of), _read(result)
