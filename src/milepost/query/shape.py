"""Shapes: texts that differ only in their literals are parsed once.

Ten thousand subscribers ask `symbol = 'X17' and price >= 40`, each with its own constants. Parsing is most of the cost
of compiling such a text, and it is the same for all of them. Here only the first text is parsed, and its tree becomes a
template; of a later text only the literals are read, put into the template, and type-checked.

Why the result is the parser's. A text is split into literals and the rest, its *skeleton*, which is kept exactly, white
space included; in place of a literal it has the name of the terminal. A shape is learned only when the parser's own
tokens split the text in the same places. Now take a second text with the same skeleton, and follow the parser from
token to token. It is in the same state in both texts, as its decisions depend only on the types of tokens. If a literal
comes next, the second text has one of the same terminal there, found by the grammar's own regular expression, and no
other terminal has the same beginning and matches too. If something else comes next, it and everything up to the next
literal are the same in both. Terminals look ahead over white space to one character at most, and only test whether it
is a quote, a point, or a letter or digit: that is the same for all literals of one terminal.

The checker runs on the filled template, since its results depend on values: kinds of numbers by their digits, constants
folded, patterns compiled. Its results are kept only for parts without literals. Positions in a filled template are
those of the first text, and only errors show positions; a text that fails here is parsed in full, which makes the right
error. Texts that fail are not kept.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Any, Final, TypeAlias

from milepost.errors import LimitExceeded, QueryError
from milepost.query import ast, lexeme
from milepost.query.checker import Checker
from milepost.query.lexeme import WrongLexeme
from milepost.query.literal import constant, folded
from milepost.query.parser import ParsedText, terminals
from milepost.query.scope import Scope
from milepost.query.typed import Typed
from milepost.schema.types import Schema

TEXT_CHARS: Final = 4_000  # a longer text is probably unique, and would evict many short ones
# Untrusted clients send shapes. One takes up to 300 bytes for each character of its skeleton, and at least some 2,000.
CACHE_CHARS: Final = 200_000  # in all skeletons together
CACHE_SHAPES: Final = 4_096

_Values: TypeAlias = list[Any]  # one for each literal
_Fill: TypeAlias = Callable[[_Values], ast.Expression]


@dataclass(frozen=True, slots=True)
class SplitText:
    """A text as skeleton and literals."""

    skeleton: str
    literals: list[str]


def split_text(text: str) -> SplitText | None:
    """The parts of a text; None for one that has to be parsed."""
    if len(text) > TEXT_CHARS or _MARK in text:
        return None
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return None
    literals: list[str] = []

    def mark(match: re.Match[str]) -> str:
        sort = match.lastgroup
        if sort is None:
            return match[0]
        literals.append(match[0])
        return _MARKS[sort]

    return SplitText(_literals().sub(mark, text), literals)


_MARK: Final = "\0"  # opens and closes the name of a terminal in a skeleton
_MARKS: Final = {sort: f"{_MARK}{sort}{_MARK}" for sort in lexeme.VALUES}


@cache
def _literals() -> re.Pattern[str]:
    """Matches literals, each as the group of its terminal, and without a group quoted names and indexes.

    It may be wrong about names: the parser's tokens of the first text decide.
    """
    patterns = terminals()
    groups = "|".join(f"(?P<{sort}>{patterns[sort]})" for sort in lexeme.VALUES if sort != "STRING")
    index = rf"\[(?:{patterns['__IGNORE_0']})?[0-9]+"
    # The look-ahead is only for speed: most characters begin nothing.
    return re.compile(
        rf"(?=['\"\[0-9DTUXdtux])(?:(?P<STRING>{patterns['STRING']})|(?<![A-Za-z0-9_.])(?:{groups})"
        rf"|{patterns['QUOTED']}|{index})"
    )


class Shape:
    """The template of predicates with one skeleton, over one schema."""

    def __init__(self, reading: ParsedText) -> None:
        """Raises `Foreign` for a tree that cannot be a template."""
        template = _Template(reading)
        self._tree = reading.tree  # keeps the nodes alive whose `id()` is a key of `_fixed`
        self._fill = template.fill
        self._values = [lexeme.VALUES[token.type] for token in reading.literals]
        self._fixed: dict[int, Typed | None] = dict.fromkeys(template.fixed)  # None: not checked yet

    def root(self, literals: list[str], text: str, schema: Schema) -> Typed | None:
        """The typed form of a predicate of this shape; None for one that has to be parsed."""
        try:
            values = [value(literal) for value, literal in zip(self._values, literals, strict=True)]
            checker = _Checker(text, schema, self._fixed)
            return checker.boolean(self._fill(values), checker.outermost, "a predicate")
        except (WrongLexeme, QueryError, LimitExceeded):
            return None


class _Checker(Checker):
    """A checker that caches the parts without literals: their typed form depends only on the schema.

    Only outside all quantifiers, so that the meaning of names does not depend on anything else.
    """

    def __init__(self, text: str, schema: Schema, fixed: dict[int, Typed | None]) -> None:
        super().__init__(text, schema)
        self.outermost = self.scope()
        self._fixed = fixed

    def any(self, node: ast.Expression, scope: Scope) -> Typed:
        if scope is not self.outermost:
            return super().any(node, scope)
        if (known := self._fixed.get(id(node))) is not None:
            return known
        if (
            isinstance(node, ast.Binary)
            and isinstance(node.right, ast.Literal)
            and node.operator in _COMPARISONS
            and (left := self._fixed.get(id(node.left))) is not None
        ):
            # A shortcut for the most common term, which saves a sixth of the time. The first text has shown that the
            # left side is a single value.
            return folded(self.comparison(node.operator, left, constant(node.right), node.at))
        found = super().any(node, scope)
        if id(node) in self._fixed:
            self._fixed[id(node)] = found  # other threads may store an equal node
        return found


_COMPARISONS: Final = frozenset({"=", "<>", "<", "<=", ">", ">="})


class Foreign(Exception):
    """A tree that cannot be a template, since it has a `select`."""


class _Template:
    """Turns a tree into functions that make a similar tree from other values.

    Literals are numbered in the order of the text, which is also the order of the parts of every node.
    """

    def __init__(self, reading: ParsedText) -> None:
        self._tokens = enumerate(reading.literals)
        self.fixed: list[int] = []  # `id()`s of the largest parts without literals
        if isinstance(reading.tree, ast.Select):
            raise Foreign
        self.fill = self._filled(reading.tree) or self._kept(reading.tree)
        assert next(self._tokens, None) is None

    def _filled(self, node: ast.Expression) -> _Fill | None:
        """A function that makes a node from values; None when it has no literals."""
        match node:
            case ast.Path() | ast.Literal("boolean" | "null"):
                return None
            case ast.Literal():
                return self._literal(node)
            case ast.Like():
                return self._like(node)
        parts, joined = _taken_apart(node)
        fills = [self._filled(part) for part in parts]
        if not any(fills):
            return None
        makers = [fill or self._kept(part) for part, fill in zip(parts, fills, strict=True)]
        return lambda values: joined([make(values) for make in makers])

    def _kept(self, node: ast.Expression) -> _Fill:
        self.fixed.append(id(node))
        return lambda values: node

    def _literal(self, node: ast.Literal) -> _Fill:
        number, token = next(self._tokens)
        kind, at = node.kind, node.at
        assert token.type.lower() == kind
        if at == token.start_pos:
            return lambda values: ast.Literal(kind, values[number], at)
        return lambda values: ast.Literal(kind, lexeme.negated(values[number]), at)  # the literal begins with its sign

    def _like(self, node: ast.Like) -> _Fill:
        operand = self._filled(node.operand) or self._kept(node.operand)
        pattern, _ = next(self._tokens)
        negated, at = node.negated, node.at
        if node.escape is None:
            return lambda values: ast.Like(operand(values), values[pattern], None, negated, at)
        escape, _ = next(self._tokens)
        return lambda values: ast.Like(operand(values), values[pattern], values[escape], negated, at)


_Parts: TypeAlias = list[ast.Expression]


def _taken_apart(node: ast.Expression) -> tuple[Sequence[ast.Expression], Callable[[_Parts], ast.Expression]]:
    """The parts of a node in the order of the text, and a function that makes such a node from other parts."""
    match node:
        case ast.Negation(operand, at):
            return (operand,), lambda parts: ast.Negation(parts[0], at)
        case ast.Minus(operand, at):
            return (operand,), lambda parts: ast.Minus(parts[0], at)
        case ast.Is(operand, what, negated, at):
            return (operand,), lambda parts: ast.Is(parts[0], what, negated, at)
        case ast.Binary(operator, left, right, at):
            return (left, right), lambda parts: ast.Binary(operator, parts[0], parts[1], at)
        case ast.Chain(operator, terms, at):
            return terms, lambda parts: ast.Chain(operator, tuple(parts), at)
        case ast.Between(operand, low, high, negated, at):
            return (operand, low, high), lambda parts: ast.Between(parts[0], parts[1], parts[2], negated, at)
        case ast.In(operand, ast.Path() as path, negated, at):
            return (operand,), lambda parts: ast.In(parts[0], path, negated, at)
        case ast.In(operand, tuple() as items, negated, at):
            return (operand, *items), lambda parts: ast.In(parts[0], tuple(parts[1:]), negated, at)
        case ast.Call(name, tuple() as arguments, at):
            return arguments, lambda parts: ast.Call(name, tuple(parts), at)
    raise Foreign


@dataclass(frozen=True, slots=True)
class Statistics:
    """The use of a cache of shapes."""

    shapes: int
    chars: int  # in their skeletons
    known: int  # texts that needed no parse
    learned: int  # texts whose shape was kept


class Shapes:
    """The shapes that were used last, of all schemas. Thread-safe."""

    def __init__(self, chars: int = CACHE_CHARS, shapes: int = CACHE_SHAPES) -> None:
        self._most_chars = chars
        self._most_shapes = shapes
        self._lock = Lock()
        self._shapes: OrderedDict[tuple[int, str], Shape] = OrderedDict()
        self._chars = self._known = self._learned = 0

    def root(self, parts: SplitText, text: str, schema: Schema) -> Typed | None:
        """The typed form of a predicate of a known shape; None when it has to be parsed."""
        key = (schema.fingerprint, parts.skeleton)
        with self._lock:
            shape = self._shapes.get(key)
            if shape is None:
                return None
            self._shapes.move_to_end(key)
        found = shape.root(parts.literals, text, schema)
        with self._lock:
            self._known += found is not None
        return found

    def learn(self, parts: SplitText, text: str, schema: Schema, reading: ParsedText) -> None:
        """Keep the shape of a predicate that was parsed, if it has one."""
        if parts != _as_read(text, reading):
            return
        try:
            shape = Shape(reading)
        except Foreign:
            return
        key = (schema.fingerprint, parts.skeleton)
        with self._lock:
            if key in self._shapes:
                return
            self._shapes[key] = shape
            self._chars += len(parts.skeleton)
            self._learned += 1
            while self._chars > self._most_chars or len(self._shapes) > self._most_shapes:
                (_, skeleton), _ = self._shapes.popitem(last=False)
                self._chars -= len(skeleton)

    def statistics(self) -> Statistics:
        """The size of the cache, and its use since the start."""
        with self._lock:
            return Statistics(len(self._shapes), self._chars, self._known, self._learned)


def _as_read(text: str, reading: ParsedText) -> SplitText:
    """A text as the parser split it."""
    pieces = []
    end = 0
    for token in reading.literals:
        start = token.start_pos or 0
        pieces += [text[end:start], _MARKS[token.type]]
        end = start + len(token)
    return SplitText("".join([*pieces, text[end:]]), [str(token) for token in reading.literals])


SHAPES: Final = Shapes()  # of all compiled predicates of the process
