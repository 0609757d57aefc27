"""Parsing of a schema's text in any notation: limits before the parse, and error messages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from lark import Lark, Token, Tree, UnexpectedInput, UnexpectedToken
from lark.lark import PostLex

from milepost import limits
from milepost.errors import SchemaSyntaxError

_OPENING: Final = {"LSQB", "LBRACE", "_LIST"}
_CLOSING: Final = {"RSQB", "RBRACE", "_TSIL"}
_FOUND: Final = re.compile(r"[\w.]+|.", re.DOTALL)


class Notation:
    """A grammar that turns a text into a tree or raises `SchemaSyntaxError`.

    `words` has a description for each terminal, and `groups` for several terminals that may stand in the same place;
    the first group that fits is used. A terminal without a description is shown as it is written; one with an empty
    description is not mentioned. The tree is at most `SCHEMA_DEPTH` brackets deep, so code that walks it may recurse.
    """

    def __init__(self, grammar: str, words: Mapping[str, str], groups: Mapping[frozenset[str], str]) -> None:
        self._lark = Lark.open(
            grammar,
            rel_to=__file__,
            parser="lalr",
            lexer="contextual",
            postlex=_Guard(),
            propagate_positions=True,
            maybe_placeholders=False,
        )
        self._words = words
        self._groups = groups

    def parse(self, text: str) -> Tree[Token]:
        """The tree of a text."""
        limits.require("SCHEMA_TEXT_CHARS", len(text), "characters in the text of a schema")
        try:
            return self._lark.parse(text)
        except UnexpectedInput as error:
            raise self._explained(error, text) from None

    def _explained(self, error: UnexpectedInput, text: str) -> SchemaSyntaxError:
        accepted: set[str] = error.interactive_parser.accepts()  # type: ignore[no-untyped-call]
        if isinstance(error, UnexpectedToken) and error.token.type == "$END":
            position, found = len(text.rstrip()), "the end of the text"
        else:
            position = error.pos_in_stream or 0
            if text[position] in "'\"" and "_QUOTED" in accepted:
                return fault("this quote is never closed", text, position)
            found = repr(_FOUND.findall(text, position, position + 40)[0])
        return fault(f"expected {self._expected(accepted)}, found {found}", text, position)

    def _expected(self, terminals: set[str]) -> str:
        """The terminals as an enumeration: "',' or ']'"."""
        words = []
        for group, word in self._groups.items():
            if terminals >= group:
                terminals -= group
                words.append(word)
        words += sorted({self._words.get(name, self._sign(name)) for name in terminals - {"$END"}})
        *most, last = [word for word in words if word] or ["the end of the text"]
        return f"{', '.join(most)} or {last}" if most else last

    def _sign(self, terminal: str) -> str:
        return f"'{self._lark.get_terminal(terminal).pattern.value}'"


def fault(message: str, text: str, place: Token | int) -> SchemaSyntaxError:
    """The error at a token, or at a position, of the text."""
    position = place.start_pos or 0 if isinstance(place, Token) else place
    line = text.count("\n", 0, position) + 1
    return SchemaSyntaxError(message, text, line, position - text.rfind("\n", 0, position))


def trees(tree: Tree[Token]) -> list[Tree[Token]]:
    """The rules directly inside a rule."""
    return [child for child in tree.children if isinstance(child, Tree)]


def tokens(tree: Tree[Token]) -> list[Token]:
    """The words directly inside a rule."""
    return [child for child in tree.children if isinstance(child, Token)]


def predicate(check: Tree[Token], text: str) -> str:
    """The text between the parentheses of a check."""
    return text[text.index("(", check.meta.start_pos) + 1 : check.meta.end_pos - 1].strip()


class _Guard(PostLex):
    """Ends the parse of a text over the limits before a tree is built."""

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        depth = 0
        for number, token in enumerate(stream):
            depth += (token.type in _OPENING) - (token.type in _CLOSING)
            limits.require("SCHEMA_DEPTH", depth, f"line {token.line}: depth of brackets")
            limits.require("SCHEMA_TOKENS", number, "words and signs in the text of a schema")
            yield token
