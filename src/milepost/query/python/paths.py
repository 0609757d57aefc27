"""The values at the end of paths, from one message."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, Final

from milepost.query.kinds import Kind, Nodes, Scalar
from milepost.query.number import unscaled
from milepost.query.python.moment import Evaluate, Moment
from milepost.query.typed import CaseName, CaseStep, ElementStep, FieldStep, HeaderField, ReadPath, UnfoldStep
from milepost.schema.flat import field_of

_SINGLE: Final = struct.Struct("<f")


def read(node: ReadPath) -> Evaluate:
    """The value at the end of a path; None if a part of the path is absent."""
    variable = node.variable
    steps = tuple(_step(step) for step in node.steps if not isinstance(step, UnfoldStep))
    value_of = _value(node.kind, node.single)

    def evaluate(moment: Moment) -> Any:
        value = moment.variables[variable]
        for step in steps:
            if value is None:
                return None
            value = step(value)
        return None if value is None else value_of(value)

    return evaluate


def header(node: HeaderField) -> Evaluate:
    """An administrative attribute."""
    value_of = _value(node.kind, False)

    def evaluate(moment: Moment) -> Any:
        value = moment.header.get(node.name)
        return None if value is None else value_of(value)

    return evaluate


def case_name(node: CaseName) -> Evaluate:
    """The case of a variant: its only key, or the class name of an object."""
    variant = read(node.variant)

    def evaluate(moment: Moment) -> str | None:
        value = variant(moment)
        if value is None:
            return None
        return str(next(iter(value))) if isinstance(value, Mapping) else type(value).__name__

    return evaluate


def _step(step: FieldStep | CaseStep | ElementStep) -> Callable[[Any], Any]:
    match step:
        case FieldStep(name):
            return partial(_field, name)
        case CaseStep(name):
            return partial(_in_case, name)
        case ElementStep(index):
            return lambda value: value[index] if index < len(value) else None


def _field(name: str, value: Any) -> Any:
    # Plain values and views of rows are mappings. Nodes have items too; dataclasses have attributes.
    if isinstance(value, Mapping):
        return field_of(value, name)
    return value[name] if hasattr(value, "__getitem__") else getattr(value, name, None)


def _in_case(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return field_of(value, name)
    return value if type(value).__name__ == name else None


def _value(kind: Kind, single: bool) -> Callable[[Any], Any]:
    """A function from a field's plain value to a value of the language."""
    match kind:
        case Scalar("decimal", _, scale):
            return lambda value: unscaled(Decimal(value), scale)
        case Scalar("double"):
            return _widened if single else number
        case Scalar("integer" | "ident"):
            return int  # a comparison with a NumPy scalar would return a NumPy bool, not True or False
        case Scalar("boolean"):
            return bool
        case Nodes():
            return _nodes
        case _:
            return lambda value: value


def number(value: float) -> float | None:
    """A double; NaN is null."""
    return None if math.isnan(value) else float(value)


def _widened(value: float) -> float | None:
    try:
        return number(_SINGLE.unpack(_SINGLE.pack(value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _nodes(value: Any) -> Any:
    # A reference to one node may be written without the brackets.
    return value if isinstance(value, Sequence) else (value,)
