"""The fields that a query reads: a projection must hold them, and an index must know them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from milepost.query import typed
from milepost.query.kinds import Nodes
from milepost.query.typed import ROOT, Typed
from milepost.schema.types import Schema


def fields(schema: Schema, root: Typed | typed.Selection) -> tuple[str, ...]:
    """The paths of the fields read, sorted: `price`, `lines[].price`, or `order_line.price` in a message type.

    A list that a quantifier iterates over counts as read.
    """
    message_type = schema.message_type
    reading = _Reading({ROOT: "" if message_type is None else message_type.root})
    if isinstance(root, typed.Selection):
        reading = reading.within(root.bindings)
        nodes = [root.where, *root.columns, *(item.key for item in root.order)]
    else:
        nodes = [root]
    for node in nodes:
        reading.visit(node)
    return tuple(sorted(reading.found))


@dataclass(frozen=True, slots=True)
class _Reading:
    names: dict[int, str]  # the path of each variable
    found: set[str] = field(default_factory=set)

    def within(self, bindings: Iterable[typed.Binding]) -> _Reading:
        inner = replace(self, names=dict(self.names))
        for binding in bindings:
            source = inner.path(binding.source)
            self.found.add(source)
            kind = binding.source.kind
            inner.names[binding.variable] = kind.target if isinstance(kind, Nodes) else f"{source}[]"
        return inner

    def visit(self, node: Typed | None) -> None:
        match node:
            case None:
                pass
            case typed.ReadPath():
                if node.steps or node.variable != ROOT:
                    self.found.add(self.path(node))
            case typed.Fold(_, bindings, where, body):
                inner = self.within(bindings)
                inner.visit(where)
                inner.visit(body)
            case _:
                for child in typed.children(node):
                    self.visit(child)

    def path(self, node: typed.ReadPath) -> str:
        return (self.names[node.variable] + "".join(str(step) for step in node.steps)).removeprefix(".")
