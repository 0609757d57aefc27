"""A schema drawn as a tree."""

from __future__ import annotations

from typing import Final

from rich.markup import escape
from rich.tree import Tree

from milepost.schema.types import List, Optional, Schema, Tuple, Type, Variant

LIST_CHARS: Final = 60  # of a schema in a list of topics or types; `show` prints all of it


def drawn(schema: Schema) -> Tree:
    """The schema's own tree, a tree for each definition it refers to, then its indexes and checks."""
    top = Tree(f"[bold]{escape(schema.name)}[/]  [dim]{schema.fingerprint:016x}[/]")
    _inside(top, schema.type)
    for definition in schema.definitions:
        _add(top, f"[bold]{escape(definition.name)}[/] is ", definition.type)
    for path in schema.indexes:
        top.add(f"[magenta]index[/] {escape(path)}")
    for rule in schema.checks:
        top.add(f"[magenta]check[/] {escape(rule)}")
    return top


def one_line(schema: Schema) -> str:
    """The text of a schema on one line."""
    return " ".join(schema.canonical.split())


def _add(place: Tree, label: str, kind: Type) -> None:
    shown, inner = _label(kind)
    _inside(place.add(f"{label}{shown}"), inner)


def _label(kind: Type) -> tuple[str, Type]:
    """The label of a type on one line, and the type whose parts go below it."""
    match kind:
        case Optional(inner):
            shown, below = _label(inner)
            return f"{shown}[yellow]?[/]", below
        case List(item):
            shown, below = _label(item)
            return f"[yellow]*([/]{shown}[yellow])*[/]", below
        case Tuple():
            return "[dim]tuple[/]", kind
        case Variant():
            return "[dim]one of[/]", kind
        case _:
            return f"[cyan]{escape(str(kind))}[/]", kind


def _inside(place: Tree, kind: Type) -> None:
    match kind:
        case Tuple(parts):
            for part in parts:
                _add(place, f"{escape(part.name)}: ", part.type)
        case Variant(parts):
            for part in parts:
                _add(place, f"[yellow]|[/] {escape(part.name)}: ", part.type)
