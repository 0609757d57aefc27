"""Syntax errors: what the parser found and expected, in plain words."""

from __future__ import annotations

from typing import Final

from lark import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from milepost.errors import QuerySyntaxError
from milepost.query.ast import KEYWORDS
from milepost.query.source import syntax_error

# Descriptions of the terminals that may come next, in the order in which to mention them. A group is mentioned when its
# first terminal may come, and then stands for all of its terminals.
_EXPECTATIONS: Final = [
    (word, terminals.split())
    for word, terminals in (
        ("a value, a field or an expression in parentheses", "DATE STRING INTEGER NAME QUOTED NULL TRUE FALSE LPAR"),
        ("a name", "NAME"),
        ("a name", "WORD"),
        ("a whole number", "INTEGER"),
        ("a string such as 'abc'", "STRING"),
        ("null, true or false", "NULL TRUE FALSE"),
        ("a comparison such as = or <", "COMPARE _BETWEEN _IN _LIKE PLUS LPAR"),
        ("between, in or like", "_BETWEEN _IN _LIKE"),
        ("an operator such as + or *", "PLUS STAR"),
        ("'select'", "_SELECT"),
        ("'from'", "_FROM"),
        ("'where'", "_WHERE"),
        ("'order by'", "_ORDER"),
        ("'by'", "_BY"),
        ("'and'", "_AND"),
        ("'or'", "_OR"),
        ("'asc', 'desc'", "ASC DESC"),
        ("'('", "LPAR"),
        ("','", "COMMA"),
        ("']'", "RSQB"),
        ("')'", "RPAR"),
        ("the end of the query", "$END"),
    )
]
# Operators of other languages, and how they are written here.
_FOREIGN: Final = {
    "==": "is written = here",
    "&": "is written 'and' here",
    "|": "is written 'or' here",
    "!": "is written 'not' here",
    "`": 'is written " here',
    ";": "has no use here: a query is one expression",
}


def explained(error: UnexpectedInput, text: str) -> QuerySyntaxError:
    """The parser's error with a message about what was found and what was expected."""
    end = len(text.rstrip())
    at = end if error.pos_in_stream is None else min(error.pos_in_stream, end)
    if isinstance(error, UnexpectedToken) and error.token.type == "$END":
        at = end
    rest = text[at:]
    if rest.startswith(("'", '"')) and isinstance(error, UnexpectedCharacters):
        return syntax_error(f"this {rest[0]} is never closed", text, at)
    if text[at - 1 : at + 1] == "==":
        at, rest = at - 1, text[at - 1 :]
    for foreign, advice in _FOREIGN.items():
        if rest.startswith(foreign):
            return syntax_error(f"{foreign!r} {advice}", text, at)
    found = "the query ends too early" if at == end else f"{_shown(error, rest)} is out of place"
    return syntax_error(f"{found}: expected {_expected(error)}{_quoting(error)}", text, at)


def _shown(error: UnexpectedInput, rest: str) -> str:
    shown = str(error.token) if isinstance(error, UnexpectedToken) else rest.split(maxsplit=1)[0]
    return repr(shown if len(shown) <= _SHOWN_CHARS else f"{shown[:_SHOWN_CHARS]}...")


_SHOWN_CHARS: Final = 40  # of a wrong word in an error's message


def _quoting(error: UnexpectedInput) -> str:
    """The advice when a field has the name of a keyword."""
    word = str(error.token) if isinstance(error, UnexpectedToken) else ""
    is_name = word.lower() in KEYWORDS and "NAME" in error.interactive_parser.accepts()  # type: ignore[no-untyped-call]
    return f'; as a name it is written "{word}"' if is_name else ""


def _expected(error: UnexpectedInput) -> str:
    words = []
    left: set[str] = error.interactive_parser.accepts()  # type: ignore[no-untyped-call]
    for word, terminals in _EXPECTATIONS:
        if terminals[0] in left:
            words.append(word)
            left = left.difference(terminals)
    *most, last = words or ["something else"]
    return f"{', '.join(most)} or {last}" if most else last
