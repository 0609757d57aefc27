"""Shapes: texts that differ only in their literals are parsed once.

Ten thousand subscribers ask `symbol = 'X17' and price >= 40`, each with constants of its own. The parse of such a text
is most of the cost of compiling it, and it is the same for all of them. Here it is done for the first one, whose tree
becomes a template; a later text only has its literals read, put into the template, and type-checked.

Why that gives what the parser would give. A text is cut into literals and what is between them, its *skeleton*, which
is kept to the letter, white space included; where a literal was, the skeleton says of which terminal. A shape is
learned only when the parser's own tokens cut the text in the same places. Now take a second text with the same
skeleton, and follow the parser from token to token. It is in the same state in both texts, as its decisions depend
on the types of tokens alone. If a literal comes next, the second text has one of the same terminal there, found by
the grammar's own regular expression, and no other terminal begins as one of these and matches too. If something else
comes next, it and all that follows up to the next literal are the same in both; terminals look ahead no further
than over white space to one character, and then only ask whether it is a quote, a point, or a letter or digit, which
the first character of a literal answers alike for all literals of its terminal.

The checker is not imitated but run, on the filled template, since what it does depends on values: kinds of numbers by
their digits, constants folded, patterns compiled. Only for parts without literals its answer is kept. Positions in a
filled template are those of the first text, and only errors show positions; a text that fails anywhere here goes
the full way, which draws its error. Nothing is kept of texts that fail.
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

TEXT_CHARS: Final = 4_000  # a longer text is one of a kind, and would push many short ones out
# Strangers send shapes. One takes up to 300 bytes for each character of its skeleton, and some 2,000 in any case.
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
    """The parts of a text; None for one that has to go the full way."""
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
    """Finds the literals, each as the group of its terminal, and without a group what only looks as if it had some.

    It may be wrong about names, as what the parser says of the first text decides.
    """
    patterns = terminals()
    groups = "|".join(f"(?P<{sort}>{patterns[sort]})" for sort in lexeme.VALUES if sort != "STRING")
    index = rf"\[(?:{patterns['__IGNORE_0']})?[0-9]+"
    # The look-ahead is for speed alone: most characters begin nothing.
    return re.compile(
        rf"(?=['\"\[0-9DTUXdtux])(?:(?P<STRING>{patterns['STRING']})|(?<![A-Za-z0-9_.])(?:{groups})"
        rf"|{patterns['QUOTED']}|{index})"
    )


class Shape:
    """What predicates with one skeleton have in common, over one schema."""

    def __init__(self, reading: ParsedText) -> None:
        """Raises `Foreign` for a form that is not filled."""
        template = _Template(reading)
        self._tree = reading.tree  # keeps the nodes alive that `_fixed` knows by their identity
        self._fill = template.fill
        self._values = [lexeme.VALUES[token.type] for token in reading.literals]
        self._fixed: dict[int, Typed | None] = dict.fromkeys(template.fixed)  # None: not asked for yet

    def root(self, literals: list[str], text: str, schema: Schema) -> Typed | None:
        """The typed form of a predicate of this shape; None for one that must go the full way."""
        try:
            values = [value(literal) for value, literal in zip(self._values, literals, strict=True)]
            checker = _Checker(text, schema, self._fixed)
            return checker.boolean(self._fill(values), checker.outermost, "a predicate")
        except (WrongLexeme, QueryError, LimitExceeded):
            return None


class _Checker(Checker):
    """A checker that remembers parts without literals: what they come to depends on the schema alone.

    Only where names mean what they mean outside of all quantifiers, so that nothing else can matter.
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
            # The commonest term goes straight to where others arrive after a few more calls; it saves a sixth of all.
            # That the left side is a single value, the first text has shown.
            return folded(self.comparison(node.operator, left, constant(node.right), node.at))
        found = super().any(node, scope)
        if id(node) in self._fixed:
            self._fixed[id(node)] = found  # threads that meet here store equal nodes
        return found


_COMPARISONS: Final = frozenset({"=", "<>", "<", "<=", ">", ">="})


class Foreign(Exception):
    """A tree that is no template: one with a `select` in it."""


class _Template:
    """Turns a tree into functions that make the like of it from other values.

    Literals are counted off in the order of the text, which is also the order of the parts of every node.
    """

    def __init__(self, reading: ParsedText) -> None:
        self._tokens = enumerate(reading.literals)
        self.fixed: list[int] = []  # the largest parts without literals, by identity
        if isinstance(reading.tree, ast.Select):
            raise Foreign
        self.fill = self._filled(reading.tree) or self._kept(reading.tree)
        assert next(self._tokens, None) is None

    def _filled(self, node: ast.Expression) -> _Fill | None:
        """What makes a node from values; None when there are no literals in it."""
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
        return lambda values: ast.Literal(kind, lexeme.negated(values[number]), at)  # which begins with its sign

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
    """The parts of a node in the order of the text, and what joins others into a node like it."""
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
    """How a cache of shapes does."""

    shapes: int
    chars: int  # in their skeletons
    known: int  # texts that took the short way
    learned: int  # texts whose shape was kept


class Shapes:
    """The shapes that were used last, whatever the schema. Safe to use from several threads."""

    def __init__(self, chars: int = CACHE_CHARS, shapes: int = CACHE_SHAPES) -> None:
        self._most_chars = chars
        self._most_shapes = shapes
        self._lock = Lock()
        self._shapes: OrderedDict[tuple[int, str], Shape] = OrderedDict()
        self._chars = self._known = self._learned = 0

    def root(self, parts: SplitText, text: str, schema: Schema) -> Typed | None:
        """The typed form of a predicate of a known shape; None when it must go the full way."""
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
        """Keep the shape of a predicate that came through the full way, if it has one."""
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
        """What is held, and what was asked since the start."""
        with self._lock:
            return Statistics(len(self._shapes), self._chars, self._known, self._learned)


def _as_read(text: str, reading: ParsedText) -> SplitText:
    """How the parser cut a text."""
    pieces = []
    end = 0
    for token in reading.literals:
        start = token.start_pos or 0
        pieces += [text[end:start], _MARKS[token.type]]
        end = start + len(token)
    return SplitText("".join([*pieces, text[end:]]), [str(token) for token in reading.literals])


SHAPES: Final = Shapes()  # of all compiled predicates of the process
