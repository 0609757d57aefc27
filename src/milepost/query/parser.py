"""Text to AST. Absurd text is refused by a named limit, wrong text with its place and what was expected there.

The parser itself needs no stack, so depth is bounded where the tree is turned into nodes: each level of the tree,
parentheses included, counts against `QUERY_DEPTH`, and everything that walks a query later may recurse.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from functools import cache
from typing import Final, NoReturn, TypeAlias
from uuid import UUID

from lark import Lark, Token, Tree, UnexpectedInput
from lark.lark import PostLex

from milepost import limits
from milepost.query import ast
from milepost.query.expectation import explained
from milepost.query.instant import timestamp
from milepost.query.source import syntax_error

_Tree: TypeAlias = Tree[Token]
_Part: TypeAlias = Token | _Tree | None


class _Guard(PostLex):
    """Ends the parse of an absurd text while it is still cheap: no tree of it is ever built."""

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        depth = 0
        for number, token in enumerate(stream):
            depth += (token.type == "LPAR") - (token.type == "RPAR")
            limits.require("QUERY_DEPTH", depth, "depth of nesting in a query")
            limits.require("QUERY_TOKENS", number, "words and signs in a query")
            yield token


@cache
def _lark() -> Lark:
    return Lark.open(
        "query.lark",
        rel_to=__file__,
        parser="lalr",
        lexer="contextual",
        postlex=_Guard(),
        propagate_positions=True,
        maybe_placeholders=True,
    )


def parse(text: str) -> ast.Expression | ast.Select:
    """The AST of a predicate, an expression or a query.

    Raises `QuerySyntaxError`, which shows the place, or `LimitExceeded`.
    """
    limits.require("QUERY_TEXT_CHARS", len(text), "characters in the text of a query")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise syntax_error("half of a surrogate pair is no character", text, error.start) from None
    try:
        tree = _lark().parse(text)
    except UnexpectedInput as error:
        raise explained(error, text) from None
    return _Builder(text).query(tree)


class _Builder:
    """One tree on its way into nodes."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.nodes = 0

    def query(self, tree: _Tree) -> ast.Expression | ast.Select:
        return self._select(tree, 1) if tree.data == "select" else self._expression(tree, 1)

    def _enter(self, depth: int) -> None:
        self.nodes += 1
        limits.require("QUERY_NODES", self.nodes, "parts of a query")
        limits.require("QUERY_DEPTH", depth, "depth of nesting in a query")

    def _expression(self, part: _Part, depth: int) -> ast.Expression:
        self._enter(depth)
        tree = _tree(part)
        at = tree.meta.start_pos
        parts = _parts(tree)

        def below(part: _Part) -> ast.Expression:
            return self._expression(part, depth + 1)

        match tree.data, parts:
            case "literal", [token]:
                return self._literal(_token(token))
            case "path", _:
                return self._path(tree)
            case "parentheses", [inner]:
                return below(inner)
            case "negation", [_, operand]:
                return ast.Negation(below(operand), at)
            case "minus", [_, operand]:
                return self._minus(_tree(operand), below(operand), at)
            case "binary", [left, operator, right]:
                sign = _token(operator)
                return ast.Binary("<>" if sign == "!=" else str(sign), below(left), below(right), _start(sign))
            case "disjunction", terms:
                return _chain("or", [below(term) for term in terms], at)
            case "conjunction", terms:
                return _chain("and", [below(term) for term in terms], at)
            case "between", [operand, negated, low, high]:
                return ast.Between(below(operand), below(low), below(high), negated is not None, at)
            case "in_items", [operand, negated, *items]:
                return ast.In(below(operand), tuple(below(item) for item in items), negated is not None, at)
            case "in_path", [operand, negated, path]:
                self._enter(depth + 1)
                return ast.In(below(operand), self._path(_tree(path)), negated is not None, at)
            case "like", [operand, negated, pattern, escape]:
                escaped = None if escape is None else _unquoted(_token(escape))
                return ast.Like(below(operand), _unquoted(_token(pattern)), escaped, negated is not None, at)
            case "assertion", [operand, negated, word]:
                what = {"NULL": None, "TRUE": True, "FALSE": False}[_token(word).type]
                return ast.Is(below(operand), what, negated is not None, at)
            case "call", [name, select] if isinstance(select, Tree) and select.data == "select":
                return ast.Call(str(name).lower(), self._select(select, depth + 1), at)
            case "call", [name, *arguments]:
                return ast.Call(str(name).lower(), tuple(below(item) for item in arguments if item is not None), at)
        raise AssertionError(tree.data)

    def _minus(self, tree: _Tree, operand: ast.Expression, at: int) -> ast.Expression:
        # Only a number right behind the sign: `-(-9223372036854775808)` overflows, as it would in a field.
        if tree.data == "literal" and isinstance(operand, ast.Literal):
            match operand.value:
                case Decimal() as value:
                    return ast.Literal(operand.kind, value.copy_negate(), at)
                case int() | float() as value if operand.kind != "boolean":
                    return ast.Literal(operand.kind, -value, at)
        return ast.Minus(operand, at)

    def _path(self, tree: _Tree) -> ast.Path:
        first, *rest = _parts(tree)
        steps: list[str | int] = []
        places = []
        for part in rest:
            if isinstance(part, Tree):
                sign, number = _parts(part)
                if sign is not None:
                    self._fail("an index counts from 0 at the front and is not negative", _token(sign))
                token = _token(number)
                steps.append(self._integer(token))
            else:
                token = _token(part)
                steps.append(_name(token))
            places.append(_start(token))
        token = _token(first)
        return ast.Path(_name(token), tuple(steps), _start(token), tuple(places))

    def _select(self, tree: _Tree, depth: int) -> ast.Select:
        self._enter(depth)
        selected, sources, where, orders = _parts(tree)
        return ast.Select(
            tuple(self._expression(part, depth + 1) for part in _parts(selected)),
            tuple(self._source(_tree(part), depth + 1) for part in _parts(sources)),
            None if where is None else self._expression(where, depth + 1),
            tuple(self._order(_tree(part), depth + 1) for part in _parts(orders)),
            tree.meta.start_pos,
        )

    def _source(self, tree: _Tree, depth: int) -> ast.Source:
        self._enter(depth)
        path, variable = _parts(tree)
        return ast.Source(self._path(_tree(path)), _name(_token(variable)), tree.meta.start_pos)

    def _order(self, tree: _Tree, depth: int) -> ast.Order:
        expression, direction = _parts(tree)
        return ast.Order(self._expression(expression, depth), isinstance(direction, Token) and direction.type == "DESC")

    def _literal(self, token: Token) -> ast.Literal:
        kind = {"TRUE": "boolean", "FALSE": "boolean"}.get(token.type, token.type.lower())
        return ast.Literal(kind, self._value(token), _start(token))

    def _value(self, token: Token) -> ast.LiteralValue:
        match token.type:
            case "INTEGER":
                return self._integer(token)
            case "DECIMAL":
                self._bounded(token)
                return Decimal(token)
            case "DOUBLE":
                if math.isinf(value := float(token)):
                    self._fail("this number is beyond what a double can hold", token)
                return value
            case "STRING":
                return _unquoted(token)
            case "TRUE" | "FALSE":
                return token.type == "TRUE"
            case "NULL":
                return None
        written = token[token.index("'") + 1 : -1]
        try:
            match token.type:
                case "BYTES":
                    return bytes.fromhex(written)
                case "DATE":
                    if _DATE.match(written):  # `fromisoformat` also takes weeks and bare digits
                        return date.fromisoformat(written)
                case "TIMESTAMP":
                    return timestamp(written)
                case _:
                    return UUID(written)
        except ValueError:
            pass
        self._fail(_FORMS[token.type], token)

    def _integer(self, token: Token) -> int:
        self._bounded(token)
        return int(token.lstrip("0") or "0")  # Python refuses to read thousands of digits, zeros included

    def _bounded(self, token: Token) -> None:
        digits = len(token.replace(".", "").lstrip("0"))
        if digits > limits.DECIMAL_DIGITS:
            self._fail(f"a number has at most {limits.DECIMAL_DIGITS} digits, and this one has {digits}", token)
        if len(token.partition(".")[2]) > limits.DECIMAL_DIGITS:
            self._fail(f"a number has at most {limits.DECIMAL_DIGITS} digits after the point", token)

    def _fail(self, message: str, token: Token) -> NoReturn:
        raise syntax_error(message, self.text, _start(token))


_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
_FORMS: Final = {
    "BYTES": "bytes are written as pairs of hexadecimal digits: x'00ff'",
    "DATE": "a date is written date '2024-01-31', from year 0001 to 9999, and is in the calendar",
    "TIMESTAMP": "a timestamp is written timestamp '2024-01-31T12:00:00Z'; instead of Z, an offset such as +01:00",
    "UUID": "a uuid is written uuid '12345678-1234-5678-1234-567812345678'",
}


def _chain(operator: str, parts: list[ast.Expression], at: int) -> ast.Chain:
    terms: list[ast.Expression] = []
    for part in parts:
        # `a and (b and c)` is `a and b and c`: parentheses that change nothing leave no trace.
        terms.extend(part.terms if isinstance(part, ast.Chain) and part.operator == operator else (part,))
    return ast.Chain(operator, tuple(terms), at)


def _parts(part: _Part) -> list[_Part]:
    """What is inside, optional parts as None; nothing is inside a token."""
    return list(part.children) if isinstance(part, Tree) else []


def _tree(part: _Part) -> _Tree:
    assert isinstance(part, Tree)
    return part


def _token(part: _Part) -> Token:
    assert isinstance(part, Token)
    return part


def _start(token: Token) -> int:
    return token.start_pos or 0


def _name(token: Token) -> str:
    return token[1:-1] if token.type == "QUOTED" else str(token)


def _unquoted(token: Token) -> str:
    return token[1:-1].replace("''", "'")
