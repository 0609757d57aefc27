"""The schema's types along paths, and the queries that Spark cannot express.

No column is made here, so a query is checked, and the type of its result known, without a running Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from milepost.errors import QueryTypeError
from milepost.query import kinds, typed
from milepost.query.spark.types import UINT64_DIGITS
from milepost.query.typed import ROOT, CaseStep, ElementStep, FieldStep, ReadPath, Step, Typed, UnfoldStep
from milepost.schema.messagetype import Reference
from milepost.schema.types import UINT64, List, Optional, Ref, Schema, Tuple, Type, Variant

Stop: TypeAlias = Type | kinds.NodeKind | kinds.Nodes

Routes: TypeAlias = Mapping[int, Stop]  # the type of each variable


@dataclass(frozen=True, slots=True)
class Route:
    """The types of one schema along paths."""

    schema: Schema

    def start(self) -> Routes:
        """The variable of the message."""
        message_type = self.schema.message_type
        return {ROOT: self.schema.type if message_type is None else kinds.NodeKind(message_type.root)}

    def resolved(self, stop: Stop) -> Stop:
        """The type without optionals and references, which are no steps. Recursive references stay."""
        while isinstance(stop, Optional) or (isinstance(stop, Ref) and stop.name not in self.schema.recursive):
            stop = stop.type if isinstance(stop, Optional) else self.schema.resolve(stop)
        return stop

    def step(self, stop: Stop, step: Step) -> Stop:
        """The type after a step, resolved."""
        match stop, step:
            case kinds.NodeKind(name), FieldStep(member_name):
                assert self.schema.message_type is not None
                member = self.schema.message_type.node(name).member(member_name)
                return kinds.Nodes(member.target) if isinstance(member, Reference) else self.resolved(member.type)
            case Tuple(fields) | Variant(fields), FieldStep(name) | CaseStep(name):
                return self.resolved(next(item.type for item in fields if item.name == name))
            case List(item), ElementStep():
                return self.resolved(item)
        raise AssertionError((stop, step))

    def end(self, read: ReadPath, variables: Routes) -> Stop:
        """The type at the end of a path."""
        stop = self.resolved(variables[read.variable])
        for step in read.steps:
            if not isinstance(step, UnfoldStep):
                stop = self.step(stop, step)
        return stop

    def bound(self, bindings: Iterable[typed.Binding], variables: Routes) -> Routes:
        """The variables together with those of a fold."""
        found = dict(variables)
        for binding in bindings:
            match self.end(binding.source, found):
                case kinds.Nodes(target):
                    found[binding.variable] = kinds.NodeKind(target)
                case List(item):
                    found[binding.variable] = item
        return found


def digits(route: Route, node: Typed, variables: Routes) -> int:
    """The digits of an integer expression: 20 if its value may be a uint64, else 19."""
    match node:
        case ReadPath():
            return UINT64_DIGITS if route.end(node, variables) == UINT64 else UINT64_DIGITS - 1
        case typed.Call("coalesce", arguments):
            return max(digits(route, argument, variables) for argument in arguments)
        case typed.Fold("min" | "max", bindings, _, body) if body is not None:
            return digits(route, body, route.bound(bindings, variables))
        case _:
            return UINT64_DIGITS - 1


def require(text: str, schema: Schema, root: Typed, under: str | None) -> None:
    """Raise `QueryTypeError` for a query that Spark cannot express."""
    _Judge(text, Route(schema), under).visit(root, Route(schema).start())


@dataclass(frozen=True, slots=True)
class _Judge:
    text: str
    route: Route
    under: str | None

    def visit(self, node: Typed, variables: Routes) -> None:
        match node:
            case typed.HeaderField(name):
                self.refuse(f"{name} is an administrative attribute, which the rows of a DataFrame do not have")
            case ReadPath():
                self.path(node, variables)
            case typed.CaseName(read):
                self.path(read, variables)
                if isinstance(stop := self.route.end(read, variables), Ref):
                    self.refuse(self.recursive(read, stop.name))
            case typed.Fold(_, bindings, where, body):
                for binding in bindings:
                    self.path(binding.source, variables)
                    variables = self.route.bound((binding,), variables)
                for part in (where, body):
                    if part is not None:
                        self.visit(part, variables)
            case _:
                for child in typed.children(node):
                    self.visit(child, variables)

    def path(self, read: ReadPath, variables: Routes) -> None:
        stop = self.route.resolved(variables[read.variable])
        for step in read.steps:
            if isinstance(step, UnfoldStep):
                assert isinstance(stop, Ref)
                self.refuse(self.recursive(read, stop.name))
            if read.variable == ROOT and self.under is None:
                self.top(stop, step)
            stop = self.route.step(stop, step)

    def recursive(self, read: ReadPath, name: str) -> str:
        path = "".join(map(str, read.steps)).removeprefix(".") or "it"
        return f"{path} goes through {name}, which is recursive, and a DataFrame holds it as JSON text"

    def top(self, stop: Stop, step: Step) -> None:
        """Refuse columns of a DataFrame that differ only in case; fields of a struct are read by position."""
        if stop is not self.route.schema.type or not isinstance(step, FieldStep):
            return
        names = [item.name for item in self.route.schema.type.fields if item.name.lower() == step.name.lower()]  # type: ignore[union-attr]
        if len(names) > 1:
            self.refuse(
                f"the columns {' and '.join(names)} differ only in the case of their letters, which Spark ignores "
                "by default; put them into a struct and name it with under="
            )

    def refuse(self, why: str) -> None:
        raise QueryTypeError(f"Spark cannot evaluate {self.text!r}: {why}")
