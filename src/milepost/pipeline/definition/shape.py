"""The schema of an event along the steps of a pipeline: fields are added and removed, and expressions give types."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from milepost.pipeline.definition.rule import MonitorRule
from milepost.query import typed
from milepost.query.expression import Expression
from milepost.query.kinds import DOUBLE as DOUBLE_KIND
from milepost.query.kinds import Scalar
from milepost.query.typed import ROOT, CaseStep, ElementStep, FieldStep, ReadPath, Typed
from milepost.schema import types as t
from milepost.schema.types import Atom, Field, List, Optional, Ref, Schema, Tuple, Type, Variant

MONITOR: Final = "monitor"  # the field through which rules read statistics; not a field of an event
PROGRESS: Final = "_progress"  # the column that marks the rows of a lane's source that are not events
RESERVED: Final = (MONITOR, PROGRESS)

UINT64_DIGITS: Final = 20

# Functions that return a value whenever all their arguments have one.
_TOTAL: Final = frozenset({
    "length", "lower", "upper", "trim", "ltrim", "rtrim", "starts_with", "ends_with", "contains", "position",
    "year", "month", "day", "weekday", "hour", "minute", "second", "date", "days_between", "seconds_between",
})  # fmt: skip


def fields_of(schema: Schema) -> tuple[Field, ...]:
    """The fields of a message."""
    assert isinstance(schema.type, Tuple)
    return schema.type.fields


def with_fields(schema: Schema, fields: Iterable[Field]) -> Schema:
    """A schema with other fields, which may refer to the same definitions. The checks of the old schema are not kept.

    A schema that refers to itself stays under its name as a definition, and the new one gets another name.
    """
    own = Tuple(tuple(fields))
    known = {item.name: item.type for item in schema.definitions} | {schema.name: schema.type}
    needed: dict[str, Type] = {}
    waiting = t.references(own)
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed[name] = known[name]
            waiting |= t.references(known[name])
    name = schema.name
    while name in needed:
        name += "_"
    return Schema(name, own, tuple(Field(name, kind) for name, kind in needed.items()))


def monitor_type(monitors: Iterable[MonitorRule]) -> Tuple | None:
    """The type of the statistics that rules read; None where there are no monitors.

    All its fields are optional: a monitor has no values until the first ones are published.
    """
    parts = []
    for rule in monitors:
        kinds = {name: Optional(t.INT64 if name == "count" else t.DOUBLE) for name in rule.statistics}
        parts.append(Field(rule.name, Optional(Tuple(tuple(Field(*each) for each in kinds.items())))))
    return Tuple(tuple(parts)) if parts else None


def visible(schema: Schema, monitors: Tuple | None) -> Schema:
    """The schema that a rule sees: the fields of an event and, where there are monitors, the field `monitor`."""
    if monitors is None:
        return schema if not schema.checks else with_fields(schema, fields_of(schema))
    return with_fields(schema, (*fields_of(schema), Field(MONITOR, Optional(monitors))))


def type_of(found: Expression) -> Type:
    """The type of a field for the values of an expression. It is optional unless the expression always has a value."""
    atom = _atom(found.root, found.type, found.schema)
    return atom if _certain(found.root, found.schema) else Optional(atom)


_OF_KIND: Final = {
    "boolean": t.BOOL, "integer": t.INT64, "double": t.DOUBLE, "string": t.STRING, "bytes": t.BYTES, "date": t.DATE,
    "timestamp": t.TIMESTAMP, "uuid": t.UUID, "ident": t.IDENT,
}  # fmt: skip


def of_kind(kind: Scalar) -> Atom:
    """The type of a field for values of a kind. Integers get 64 bits."""
    return t.decimal(kind.precision, kind.scale) if kind.name == "decimal" else _OF_KIND[kind.name]


def _atom(root: Typed, kind: Scalar, schema: Schema) -> Atom:
    if isinstance(root, ReadPath) and (end := _end(root, schema)) is not None:
        return end[0]
    if kind.name == "integer" and _may_be_uint64(root, schema):
        return t.decimal(UINT64_DIGITS, 0)
    return of_kind(kind)


def _end(read: ReadPath, schema: Schema) -> tuple[Atom, bool] | None:
    """The type at the end of a path from the event, and whether something is always there."""
    if read.variable != ROOT:
        return None
    here, always = resolved(schema.type, schema)
    for step in read.steps:
        match here, step:
            case Tuple(fields), FieldStep(name):
                below = next(item.type for item in fields if item.name == name)
            case Variant(cases), CaseStep(name):
                below, always = next(item.type for item in cases if item.name == name), False
            case List(item), ElementStep():
                below, always = item, False
            case _:
                return None  # through a recursive reference, which Spark cannot follow
        here, there = resolved(below, schema)
        always &= there
    return (here, always) if isinstance(here, Atom) else None


def resolved(kind: Type, schema: Schema) -> tuple[Type, bool]:
    """The type without references and `?`, and whether there was no `?`."""
    required = True
    while isinstance(kind, Optional | Ref):
        required &= isinstance(kind, Ref)
        kind = kind.type if isinstance(kind, Optional) else schema.resolve(kind)
    return kind, required


def _may_be_uint64(root: Typed, schema: Schema) -> bool:
    """Whether the value may exceed 63 bits. Arithmetic gives null there, but these expressions pass the value on."""
    match root:
        case ReadPath():
            end = _end(root, schema)
            known = (schema.type, *(item.type for item in schema.definitions))
            return any(t.UINT64 in t.walk(kind) for kind in known) if end is None else end[0] == t.UINT64
        case typed.Convert(operand):
            return _may_be_uint64(operand, schema)
        case typed.Call("coalesce", arguments):
            return any(_may_be_uint64(argument, schema) for argument in arguments)
        case typed.Fold("min" | "max", _, _, body) if body is not None:
            return _may_be_uint64(body, schema)
        case _:
            return False


def _certain(root: Typed, schema: Schema) -> bool:
    """Whether an expression has a value for every event. False is always safe."""
    match root:
        case typed.Const(value):
            return value is not None
        case ReadPath():
            end = _end(root, schema)
            # NaN reads as null, so a required double may have no value.
            return end is not None and end[1] and end[0] not in (t.FLOAT, t.DOUBLE)
        case typed.IsNull() | typed.IsTrue():
            return True
        case typed.Not() | typed.And() | typed.Or() | typed.Compare() | typed.Between() | typed.In() | typed.Like():
            return all(_certain(child, schema) for child in typed.children(root))
        case typed.Call("coalesce", arguments):
            return any(_certain(argument, schema) for argument in arguments)
        case typed.Call(name, arguments):
            return name in _TOTAL and all(_certain(argument, schema) for argument in arguments)
        case typed.Convert(operand, kind):
            return kind == DOUBLE_KIND and _certain(operand, schema)
        case _:
            return False
