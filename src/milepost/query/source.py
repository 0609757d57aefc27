"""Errors that point at a position in the text of a query."""

from __future__ import annotations

from milepost.errors import QuerySyntaxError, QueryTypeError


def syntax_error(message: str, text: str, at: int) -> QuerySyntaxError:
    """The error for text that does not parse at position `at`."""
    return QuerySyntaxError(message, text, *_place(text, at))


def type_error(message: str, text: str, at: int) -> QueryTypeError:
    """The error for text that parses, but does not fit the schema, at position `at`."""
    return QueryTypeError(message, text, *_place(text, at))


def _place(text: str, at: int) -> tuple[int, int]:
    """Line and column, from 1; lines end as in `SourceError`."""
    lines = (text[:at] + "|").splitlines()
    return len(lines), len(lines[-1])
