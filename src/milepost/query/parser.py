"""Text to AST. Errors name the limit exceeded, or the position of the error and what was expected there.

The parser itself needs no stack, so depth is bounded where the tree is turned into nodes: each level of the tree,
parentheses included, counts against `QUERY_DEPTH`, so that code that walks a query may recurse.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any, NoReturn, TypeAlias

from lark import Lark, Token, Tree, UnexpectedInput
from lark.lark import PostLex

from milepost import limits
from milepost.query import ast, lexeme
from milepost.query.expectation import explained
from milepost.query.lexeme import WrongLexeme
from milepost.query.source import syntax_error

_Tree: TypeAlias = Tree[Token]
_Part: TypeAlias = Token | _Tree | None


class _Guard(PostLex):
    """Ends the parse of a text over the limits before a tree is built."""

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
        start=["start", "ordering"],
        parser="lalr",
        lexer="contextual",
        postlex=_Guard(),
        propagate_positions=True,
        maybe_placeholders=True,
    )


@dataclass(frozen=True, slots=True)
class ParsedText:
    """The AST of a text, with its literals."""

    tree: ast.Expression | ast.Select
    literals: tuple[Token, ...]  # in the order of the text, without true, false, null and indexes


def parse(text: str) -> ast.Expression | ast.Select:
    """The AST of a predicate, an expression or a query.

    Raises `QuerySyntaxError`, which shows the place, or `LimitExceeded`.
    """
    return read(text).tree


def terminals() -> Mapping[str, str]:
    """The regular expressions of the grammar's terminals, by name, exactly as the lexer uses them."""
    return {terminal.name: terminal.pattern.to_regexp() for terminal in _lark().terminals}


def read(text: str) -> ParsedText:
    """The result of `parse`, with the tokens of the literals; raises the same errors."""
    tree = _parsed(text, "start")
    builder = _Builder(text)
    return ParsedText(builder.query(tree), tuple(sorted(builder.literals, key=_start)))


def parse_ordering(text: str) -> tuple[ast.OrderItem, ...] | ast.Select:
    """The criteria of an order, as after `order by`, or a query that has them; raises the same errors as `parse`."""
    return _Builder(text).ordering(_parsed(text, "ordering"))


def _parsed(text: str, start: str) -> _Tree:
    limits.require("QUERY_TEXT_CHARS", len(text), "characters in the text of a query")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise syntax_error("half of a surrogate pair is not a character", text, error.start) from None
    try:
        return _lark().parse(text, start)
    except UnexpectedInput as error:
        raise explained(error, text) from None


class _Builder:
    """Turns one tree into nodes."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.nodes = 0
        self.literals: list[Token] = []

    def query(self, tree: _Tree) -> ast.Expression | ast.Select:
        return self._select(tree, 1) if tree.data == "select" else self._expression(tree, 1)

    def ordering(self, tree: _Tree) -> tuple[ast.OrderItem, ...] | ast.Select:
        if tree.data == "select":
            return self._select(tree, 1)
        return tuple(self._order(_tree(part), 1) for part in _parts(tree))

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
                escaped = None if escape is None else self._string(_token(escape))
                return ast.Like(below(operand), self._string(_token(pattern)), escaped, negated is not None, at)
            case "assertion", [operand, negated, word]:
                what = {"NULL": None, "TRUE": True, "FALSE": False}[_token(word).type]
                return ast.Is(below(operand), what, negated is not None, at)
            case "call", [name, select] if isinstance(select, Tree) and select.data == "select":
                return ast.Call(str(name).lower(), self._select(select, depth + 1), at)
            case "call", [name, *arguments]:
                return ast.Call(str(name).lower(), tuple(below(item) for item in arguments if item is not None), at)
        raise AssertionError(tree.data)

    def _minus(self, tree: _Tree, operand: ast.Expression, at: int) -> ast.Expression:
        # Only a number directly after the sign: `-(-9223372036854775808)` overflows, as it would in a field.
        if tree.data == "literal" and isinstance(operand, ast.Literal):
            match operand.value:
                case int() | float() | Decimal() as value if operand.kind != "boolean":
                    return ast.Literal(operand.kind, lexeme.negated(value), at)
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
                steps.append(self._value(token))
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

    def _source(self, tree: _Tree, depth: int) -> ast.FromItem:
        self._enter(depth)
        path, variable = _parts(tree)
        return ast.FromItem(self._path(_tree(path)), _name(_token(variable)), tree.meta.start_pos)

    def _order(self, tree: _Tree, depth: int) -> ast.OrderItem:
        expression, direction = _parts(tree)
        return ast.OrderItem(
            self._expression(expression, depth), isinstance(direction, Token) and direction.type == "DESC"
        )

    def _literal(self, token: Token) -> ast.Literal:
        match token.type:
            case "TRUE" | "FALSE":
                return ast.Literal("boolean", token.type == "TRUE", _start(token))
            case "NULL":
                return ast.Literal("null", None, _start(token))
        self.literals.append(token)
        return ast.Literal(token.type.lower(), self._value(token), _start(token))

    def _string(self, token: Token) -> str:
        self.literals.append(token)
        return lexeme.string(token)

    def _value(self, token: Token) -> Any:
        try:
            return lexeme.VALUES[token.type](token)
        except WrongLexeme as error:
            self._fail(str(error), token)

    def _fail(self, message: str, token: Token) -> NoReturn:
        raise syntax_error(message, self.text, _start(token))


def _chain(operator: str, parts: list[ast.Expression], at: int) -> ast.Chain:
    terms: list[ast.Expression] = []
    for part in parts:
        # `a and (b and c)` becomes `a and b and c`: parentheses that change nothing are dropped.
        terms.extend(part.terms if isinstance(part, ast.Chain) and part.operator == operator else (part,))
    return ast.Chain(operator, tuple(terms), at)


def _parts(part: _Part) -> list[_Part]:
    """The children of a tree, with None for missing optional ones; a token has none."""
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
