"""The canonical text of a query, with as few parentheses as possible."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime
from typing import Final

from milepost.query import ast

# The precedence of nodes, by the grammar; a part of lower precedence goes into parentheses.
_OR, _AND, _NOT, _IS, _COMPARISON, _SUM, _PRODUCT, _SIGN, _PRIMARY = range(9)
_BINARY: Final = {
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">="), _COMPARISON),
    **dict.fromkeys(("+", "-", "||"), _SUM),
    **dict.fromkeys(("*", "/", "%"), _PRODUCT),
}
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def printed(node: ast.Expression | ast.Select) -> str:
    """Text that parses to an equal node."""
    return _select(node) if isinstance(node, ast.Select) else _at(node, _OR)


def _at(node: ast.Expression, level: int) -> str:
    """The text of a part, in parentheses if its precedence is below `level`."""
    text, own = _expression(node)
    return text if own >= level else f"({text})"


def _expression(node: ast.Expression) -> tuple[str, int]:
    match node:
        case ast.Literal():
            return literal(node.kind, node.value), _PRIMARY
        case ast.Path():
            return _path(node), _PRIMARY
        case ast.Call(name, arguments):
            inside = _select(arguments) if isinstance(arguments, ast.Select) else _listed(arguments)
            return f"{name}({inside})", _PRIMARY
        case ast.Minus(operand):
            # A number after the sign would be read as a negative literal.
            number = isinstance(operand, ast.Literal)
            return f"-({_at(operand, _OR)})" if number else f"-{_at(operand, _SIGN)}", _SIGN
        case ast.Binary(operator, left, right):
            own = _BINARY[operator]
            # Sums and products group to the left; comparisons do not chain at all.
            left_level = _SUM if own == _COMPARISON else own
            return f"{_at(left, left_level)} {operator} {_at(right, own + 1)}", own
        case ast.Chain(operator, terms):
            own = _OR if operator == "or" else _AND
            return f" {operator} ".join(_at(term, own + 1) for term in terms), own
        case ast.Negation(operand):
            return f"not {_at(operand, _NOT)}", _NOT
        case ast.Is(operand, what, negated):
            word = {None: "null", True: "true", False: "false"}[what]
            return f"{_at(operand, _IS)} is {'not ' if negated else ''}{word}", _IS
        case ast.Between(operand, low, high, negated):
            return f"{_at(operand, _SUM)} {_not(negated)}between {_at(low, _SUM)} and {_at(high, _SUM)}", _COMPARISON
        case ast.In(operand, items, negated):
            inside = _path(items) if isinstance(items, ast.Path) else f"({_listed(items)})"
            return f"{_at(operand, _SUM)} {_not(negated)}in {inside}", _COMPARISON
        case ast.Like(operand, pattern, escape, negated):
            tail = "" if escape is None else f" escape {literal('string', escape)}"
            return f"{_at(operand, _SUM)} {_not(negated)}like {literal('string', pattern)}{tail}", _COMPARISON


def _not(negated: bool) -> str:
    return "not " if negated else ""


def _listed(nodes: Iterable[ast.Expression]) -> str:
    return ", ".join(_at(node, _OR) for node in nodes)


def _select(node: ast.Select) -> str:
    text = f"select {_listed(node.selected) or '*'} from "
    text += ", ".join(f"{_path(source.path)} {name(source.variable)}" for source in node.sources)
    if node.where is not None:
        text += f" where {_at(node.where, _OR)}"
    if node.orders:
        orders = (f"{_at(item.expression, _OR)}{' desc' if item.descending else ''}" for item in node.orders)
        text += f" order by {', '.join(orders)}"
    return text


def _path(node: ast.Path) -> str:
    steps = (f"[{step}]" if isinstance(step, int) else f".{_word(step)}" for step in node.steps)
    return name(node.name) + "".join(steps)


def name(text: str) -> str:
    """A name, quoted if it is a keyword."""
    return f'"{text}"' if text.lower() in ast.KEYWORDS else _word(text)


def _word(text: str) -> str:
    return text if _PLAIN.match(text) else f'"{text}"'


def literal(kind: str, value: ast.LiteralValue) -> str:
    """The text of a literal."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float():
            text = repr(value)
            return text if "e" in text else f"{text}e0"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case bytes():
            return f"x'{value.hex()}'"
        case datetime():
            return f"timestamp '{value.astimezone(UTC).replace(tzinfo=None).isoformat()}Z'"
        case date():
            return f"date '{value.isoformat()}'"
        case _:
            return f"uuid '{value}'" if kind == "uuid" else format(value, "f") if kind == "decimal" else str(value)
