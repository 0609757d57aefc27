"""Checks one rule of tier 2: what it sees, what the engine emits for it, and what goes to its topic."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from milepost import query
from milepost.errors import SchemaError
from milepost.pipeline.definition.aggregate import WindowAggregate, read_aggregate
from milepost.pipeline.definition.checked import CheckedRule
from milepost.pipeline.definition.rule import AbsenceRule, Rule, SequenceRule, ThresholdRule, WindowRule
from milepost.pipeline.definition.shape import RESERVED, fields_of, type_of, visible, with_fields
from milepost.query.expression import Expression, Predicate
from milepost.query.location import unknown
from milepost.schema import types as t
from milepost.schema.types import FIELD_NAME, Atom, Field, Optional, Schema, Tuple

COUNT = "count"


class RuleChecker:
    """Checks one rule. `compiled` and `note` belong to the caller, which knows the place and collects problems."""

    def __init__(
        self,
        rule: Rule,
        result: Schema,
        sees: Schema,
        monitors: Tuple | None,
        compiled: Callable[..., Any],
        note: Callable[[str, object], None],
    ) -> None:
        self.rule = rule
        self.result = result
        self.sees = sees
        self.monitors = monitors
        self.compiled = compiled
        self.noted = False
        self._note = note

    def note(self, key: str, text: object) -> None:
        self.noted = True
        self._note(key, text)

    def run(self) -> CheckedRule | None:
        """The checked rule; None when it has problems, which are noted."""
        rule = self.rule
        where = None if rule.where is None else self._predicate("where", rule.where, self.sees)
        first = then = None
        aggregates: tuple[WindowAggregate, ...] = ()
        match rule:
            case ThresholdRule():
                context: list[Field] = list(fields_of(self.result))
                output = context
            case WindowRule():
                aggregates = tuple(self._aggregates(rule))
                context = output = [
                    *self._keys(rule.by),
                    Field("window_start", t.TIMESTAMP),
                    Field("window_end", t.TIMESTAMP),
                    Field(COUNT, t.INT64),
                    *(Field(each.name, each.type) for each in aggregates),
                ]
            case SequenceRule() | AbsenceRule():
                first = self._predicate("first", rule.first, self.sees)
                if isinstance(rule, SequenceRule):
                    then, end, carried = self._predicate("then", rule.then, self.sees), "then_time", ["first", "then"]
                else:
                    then, end, carried = self._predicate("without", rule.without, self.sees), "deadline", ["first"]
                output = [*self._keys(rule.by), Field("first_time", t.TIMESTAMP), Field(end, t.TIMESTAMP)]
                context = [*output, *(field for prefix in carried for field in self._carried(prefix, rule.by))]
        known = self._schema("by", context)
        if known is None:
            return None
        full = visible(known, self.monitors)
        having = None
        if isinstance(rule, WindowRule) and rule.having is not None:
            having = self._predicate("having", rule.having, full)
        emit = self._emit(rule.emit, full)
        sent = self._schema(
            "emit", output if emit is None else [Field(name, type_of(each)) for name, each in emit.items()]
        )
        if sent is None or self.noted:
            return None
        return CheckedRule(
            rule=rule,
            sees=self.sees,
            context=full,
            output=sent,
            where=where,
            first=first,
            then=then,
            aggregates=aggregates,
            having=having,
            emit=emit,
            payload=self._payload(emit),
        )

    def _schema(self, key: str, fields: Iterable[Field]) -> Schema | None:
        """A schema for what the rule emits, named after the rule as far as the rules for names allow."""
        name = re.sub(r"[^A-Za-z0-9_]", "_", self.rule.name)
        if not FIELD_NAME.match(name) or name in t.ATOMS or name in t.ALIASES or name in ("dynamic", "decimal"):
            name = f"rule_{name}"
        # Fields may refer to any of these, including the event itself; `with_fields` takes what it needs.
        known = (*self.result.definitions, Field(self.result.name, self.result.type))
        while any(item.name == name for item in known):
            name += "_"
        try:
            return with_fields(Schema(name, Tuple(()), known), fields)
        except SchemaError as error:
            self.note(key, error)
            return None

    def _predicate(self, key: str, text: str, schema: Schema) -> Predicate | None:
        found: Predicate | None = self._tried(key, query.compile, text, schema)
        return found

    def _tried(self, key: str, make: Callable[[str, Schema], Any], text: str, schema: Schema) -> Any:
        found = self.compiled(key, make, text, schema)
        self.noted |= found is None
        return found

    def _keys(self, names: Iterable[str]) -> Iterable[Field]:
        known = {field.name: field for field in fields_of(self.result)}
        for name in names:
            if name not in known:
                self.note("by", unknown(name, known, f"there is no field {name!r}"))
                continue
            kind = known[name].type
            inner = kind.type if isinstance(kind, Optional) else kind
            if not isinstance(inner, Atom):
                self.note("by", f"{name!r} is {inner}, but events are grouped by single values")
            yield known[name]

    def _carried(self, prefix: str, keys: Iterable[str]) -> Iterable[Field]:
        taken = {*keys, "time"}  # first_time and then_time are the event times, however fields of events are called
        for field in fields_of(self.result):
            if field.name not in taken:
                yield Field(f"{prefix}_{field.name}", field.type)

    def _aggregates(self, rule: WindowRule) -> Iterable[WindowAggregate]:
        for name, text in rule.compute.items():
            key = f"compute, {name}"
            made = self._tried(key, partial(read_aggregate, name), text, self.sees)
            if made is None or (name == COUNT and made.function == COUNT and made.argument is None):
                continue  # every window has a count
            if name in ("window_start", "window_end", COUNT, *rule.by):
                self.note(key, f"a window already has {name!r}; choose another name")
            elif not FIELD_NAME.match(name) or name in RESERVED:
                self.note(key, f"{name!r} is not a valid name: use letters, digits and _")
            else:
                yield made

    def _emit(self, wanted: Mapping[str, str], context: Schema) -> dict[str, Expression] | None:
        if not wanted:
            return None
        found: dict[str, Expression] = {}
        for name, text in wanted.items():
            if not FIELD_NAME.match(name) or name in RESERVED:
                self.note("emit", f"{name!r} is not a valid field name: use letters, digits and _")
                continue
            made = self._tried(f"emit, {name}", query.expression, text, context)
            if made is not None:
                found[name] = made
        return found

    def _payload(self, emit: Mapping[str, Expression] | None) -> tuple[str, ...]:
        """The fields of events that `emit` reads as first_… or then_…, without the prefix."""
        if emit is None or not isinstance(self.rule, SequenceRule | AbsenceRule):
            return ()
        known = {
            f"{prefix}_{field.name}": field.name
            for prefix in ("first", "then")
            for field in fields_of(self.result)
            if field.name not in (*self.rule.by, "time")
        }
        reads = {re.split(r"[.\[]", path)[0] for each in emit.values() for path in each.fields}
        return tuple(dict.fromkeys(known[name] for name in sorted(reads) if name in known))
