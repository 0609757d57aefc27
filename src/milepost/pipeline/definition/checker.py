"""Checks a pipeline against the schema of its input, without Spark, and reports all problems before it starts.

Every rule is compiled against the event as the steps before it leave it. Problems that only follow from another problem
are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from milepost import query
from milepost.errors import ConfigError, MilepostError, QueryError
from milepost.pipeline.definition.checked import REJECTS, CheckedMonitor, CheckedPipeline, CheckedRule, CheckedStep
from milepost.pipeline.definition.lookup import Lookup, load
from milepost.pipeline.definition.pipeline import Pipeline
from milepost.pipeline.definition.problem import Problems
from milepost.pipeline.definition.rule_checker import RuleChecker
from milepost.pipeline.definition.shape import (
    MONITOR,
    RESERVED,
    fields_of,
    monitor_type,
    resolved,
    type_of,
    visible,
    with_fields,
)
from milepost.pipeline.definition.step import Cleanse, Derive, Discard, Enrich, Keep, Project, Rename, Sample, Step
from milepost.pipeline.definition.table import joined
from milepost.query.expression import Expression, Predicate
from milepost.query.location import unknown
from milepost.schema import types as t
from milepost.schema.types import FIELD_NAME, Field, Optional, Schema, Type

Found = TypeVar("Found")

ROOT_ONLY: Final = "a pipeline reads plain tuples, and {} is a message type, whose messages are graphs of nodes"


def check(pipeline: Pipeline, schema: Schema) -> CheckedPipeline:
    """Check the pipeline for events of a schema: the schema of its input topics, or of the results of `from`.

    Reads the tables of enrich steps. Raises `PipelineError` with all problems.
    """
    return _Checker(pipeline, schema).run()


class _Checker:
    def __init__(self, pipeline: Pipeline, schema: Schema) -> None:
        self.pipeline = pipeline
        self.input = schema
        self.problems = Problems()
        self.warnings: list[str] = []
        self.monitors = monitor_type(pipeline.monitor)
        self.events = schema
        self.time: str | None = pipeline.time
        self.retimed = False
        self.failed: set[str] = set()  # fields whose derivation failed: that they are missing is not reported again
        self.place = ""

    def run(self) -> CheckedPipeline:
        pipeline = self.pipeline
        if self.input.message_type is not None:
            self.problems.add("input", ROOT_ONLY.format(self.input.name))
            self.problems.require_none(pipeline.called())
        self._names("input", fields_of(self.input))
        self._time_of(self.input)
        self.problems.require_none(pipeline.called())  # without these, later checks make no sense
        steps = [self._step(number, step) for number, step in enumerate(pipeline.tier1, 1)]
        result = self.events if self.events is not self.input else visible(self.input, None)
        self._time_of_result(result)
        monitors = tuple(self._monitor(number, result) for number in range(len(pipeline.monitor)))
        sees = visible(result, self.monitors)
        rules: list[CheckedRule] = []
        for number, rule in enumerate(pipeline.tier2, 1):
            self.place = f"[[tier2]] {number} {rule.name!r}"
            made = RuleChecker(rule, result, sees, self.monitors, self._compiled, self._note).run()
            if made is not None:
                rules.append(made)
        rejecting = self._rejecting(result)
        outputs = self._outputs(result, rules, rejecting)
        self.problems.require_none(pipeline.called())
        return CheckedPipeline(
            pipeline=pipeline,
            input=self.input,
            monitors=monitors,
            monitor_type=self.monitors,
            steps=tuple(step for step in steps if step is not None),
            result=result,
            time=self.time,
            retimed=self.retimed,
            rejecting=rejecting,
            rules=tuple(rules),
            outputs=outputs,
            warnings=tuple(self.warnings),
        )

    # Shared by all parts

    def _note(self, key: str, text: object) -> None:
        self.problems.add(joined(self.place, key), text)

    def _compiled(self, key: str, make: Callable[[str, Schema], Found], text: str, schema: Schema) -> Found | None:
        """A compiled query; None when it has a problem, which is noted with its place in the text."""
        try:
            found = make(text, schema)
            _require_spark_can(found)
            return found
        except QueryError as error:
            said = str(error)
            if any(said.startswith(f"there is no {name!r}") for name in self.failed):
                return None
            if said.startswith(f"there is no {MONITOR!r}"):
                said = said.replace(f"there is no {MONITOR!r}", f"there is no [[{MONITOR}]]", 1)
            self._note(key, said)
        except MilepostError as error:  # a limit was exceeded
            self._note(key, error)
        return None

    def _names(self, place: str, fields: Iterable[Field]) -> None:
        """Note names that Spark cannot tell apart, or that pipelines reserve."""
        seen: dict[str, str] = {}
        for field in fields:
            other = seen.setdefault(field.name.lower(), field.name)
            if field.name in RESERVED:
                self.problems.add(place, f"events have a field {field.name!r}, a name that pipelines reserve")
            elif other != field.name:
                self.problems.add(
                    place,
                    f"the fields {other!r} and {field.name!r} differ only in case, which Spark ignores",
                )

    # Time

    def _time_of(self, schema: Schema) -> None:
        kinds = {field.name: field.type for field in fields_of(schema)}
        name = self.pipeline.time
        if name not in kinds:
            self.problems.add("time", unknown(name, kinds, f"events have no field {name!r}"))
        elif resolved(kinds[name], schema)[0] != t.TIMESTAMP:
            self.problems.add("time", f"{name!r} is a {kinds[name]}, but the event time must be a timestamp")

    def _time_of_result(self, result: Schema) -> None:
        pipeline = self.pipeline
        if self.time is None:
            if pipeline.tier2 or pipeline.monitor or pipeline.output is None:
                self.problems.add(
                    "tier1",
                    f"the event time {pipeline.time!r} is left out, but results are merged in its order: keep it",
                )
            return
        kind = next(field.type for field in fields_of(result) if field.name == self.time)
        if resolved(kind, result)[0] != t.TIMESTAMP:
            self.problems.add("tier1", f"the event time {self.time!r} has become a {kind}, but must stay a timestamp")

    def _rejecting(self, result: Schema) -> bool:
        """Whether any event can be rejected. A field that results require may be missing in older messages."""
        if self.pipeline.sources:
            return False
        for step in self.pipeline.tier1:
            if isinstance(step, Cleanse) or (isinstance(step, Enrich) and step.missing == "reject"):
                return True
        return self.time is not None or any(not isinstance(field.type, Optional) for field in fields_of(result))

    # Tier 1

    def _step(self, number: int, step: Step) -> CheckedStep | None:
        self.place = f"[[tier1]] {number}" + (f" {step.name!r}" if step.name is not None else "")
        label = self.pipeline.labels()[number - 1]
        sees = visible(self.events, self.monitors)
        queries: dict[str, Expression] = {}
        lookup: Lookup | None = None
        match step:
            case Discard() | Keep() | Cleanse():
                self._filter(step, sees, queries)
            case Project():
                self._project(step)
            case Rename():
                self._rename(step)
            case Derive():
                self._derive(step, sees, queries)
            case Sample():
                for name in step.by:
                    self._known(name, "by")
            case Enrich():
                lookup = self._enrich(step, sees, queries)
        return CheckedStep(step, label, sees, self.events, queries, lookup)

    def _filter(self, step: Discard | Keep | Cleanse, sees: Schema, queries: dict[str, Expression]) -> None:
        found = self._compiled(step.verb, query.compile, step.where, sees)
        if found is None:
            return
        queries["where"] = found
        read = sorted({path.split(".")[1] for path in found.fields if path.startswith(f"{MONITOR}.")})
        if read and not isinstance(step, Cleanse):
            names = ", ".join(f"monitor.{name}" for name in read)
            self.warnings.append(
                f"{self.place}: {names} is measured on the results of tier 1, which this step filters by it; "
                "to keep the measurement unbiased, derive a field here and filter in tier 2"
            )

    def _known(self, name: str, key: str) -> Field | None:
        found = next((field for field in fields_of(self.events) if field.name == name), None)
        if found is None and name not in self.failed:
            names = [field.name for field in fields_of(self.events)]
            self._note(key, unknown(name, names, f"there is no field {name!r}"))
        return found

    def _project(self, step: Project) -> None:
        found = [self._known(name, "project") for name in step.fields]
        self._become("project", [field for field in found if field is not None])
        if self.time not in step.fields:
            self.time = None

    def _rename(self, step: Rename) -> None:
        for old in step.names:
            self._known(old, "rename")
        kept = {field.name for field in fields_of(self.events)} - set(step.names)
        for new in step.names.values():
            self._usable(new, "rename")
            if new in kept:
                self._note("rename", f"there is already a field {new!r}")
                return
        self._become(
            "rename", [Field(step.names.get(field.name, field.name), field.type) for field in fields_of(self.events)]
        )
        self.failed |= {step.names[name] for name in self.failed if name in step.names}
        if self.time is not None:
            self.time = step.names.get(self.time, self.time)

    def _derive(self, step: Derive, sees: Schema, queries: dict[str, Expression]) -> None:
        made: dict[str, Type] = {}
        for name, text in step.fields.items():
            if not self._usable(name, "derive"):
                continue
            found = self._compiled(f"derive, {name}", query.expression, text, sees)
            if found is None:
                self.failed.add(name)
            else:
                queries[name] = found
                made[name] = type_of(found)
        self.retimed |= self.time in made
        self._become("derive", _merged(fields_of(self.events), made))

    def _enrich(self, step: Enrich, sees: Schema, queries: dict[str, Expression]) -> Lookup | None:
        by = self._compiled("enrich, by", query.expression, step.by, sees)
        names = {field.name for field in fields_of(self.events)}
        for field in step.take:
            if self._usable(field, "enrich, take") and field in names:
                self._note(
                    "enrich, take",
                    f"{field!r} is already a field of the event; use another name, as in take = {{ table_{field} = "
                    f'"{step.take[field]}" }}',
                )
        if by is None:
            self.failed |= set(step.take)
            return None
        queries["by"] = by
        try:
            lookup = load(step, by.type)
        except ConfigError as error:
            self._note("enrich", error)
            self.failed |= set(step.take)
            return None
        added = {name: Optional(kind) for name, kind in lookup.types.items()}
        self._become("enrich", _merged(fields_of(self.events), added))
        return lookup

    def _usable(self, name: str, key: str) -> bool:
        if name in RESERVED:
            self._note(key, f"{name!r} is a name that pipelines reserve; choose another")
        elif not FIELD_NAME.match(name):
            self._note(key, f"{name!r} is not a field name: use letters, digits and _")
        else:
            return True
        return False

    def _become(self, key: str, fields: Iterable[Field]) -> None:
        fields = tuple(fields)
        self._names(joined(self.place, key), fields)
        try:
            self.events = with_fields(self.events, fields)
        except MilepostError as error:
            self._note(key, error)

    # Monitors and topics

    def _monitor(self, number: int, result: Schema) -> CheckedMonitor:
        """Monitors see only events: a statistic that depends on another monitor would feed back on itself."""
        rule = self.pipeline.monitor[number]
        self.place = f"[[monitor]] {number + 1} {rule.name!r}"
        of: Expression | None = None
        where: Predicate | None = None
        if rule.of is not None:
            of = self._compiled("of", query.expression, rule.of, result)
            if of is not None and of.type.name not in ("integer", "double", "decimal"):
                self._note("of", f"statistics need a number, and {rule.of} is a {of.type}")
        if rule.where is not None:
            where = self._compiled("where", query.compile, rule.where, result)
        return CheckedMonitor(rule, of, where)

    def _outputs(self, result: Schema, rules: Iterable[CheckedRule], rejecting: bool) -> Mapping[str, Schema]:
        pipeline = self.pipeline
        found: dict[str, Schema] = {}
        if pipeline.output is not None:
            found[pipeline.output] = result
        if rejecting:
            found[pipeline.rejects_topic] = REJECTS
        if pipeline.late is not None:
            found[pipeline.late.to] = result
        for made in rules:
            topic = made.rule.to
            before = found.setdefault(topic, made.output)
            if before.type != made.output.type:
                self.problems.add(
                    f"tier2 {made.rule.name!r}, to",
                    f"{topic!r} gets {before.type} from another rule, and {made.output.type} from this one; "
                    "emit the same fields from both, or use two topics",
                )
        return found


def _require_spark_can(found: object) -> None:
    """Refuse expressions that Spark cannot evaluate. Raises `QueryTypeError`. Without PySpark this is not checked."""
    try:
        from milepost.query.spark.route import require
    except ImportError:
        return
    meant = found if isinstance(found, Expression) else getattr(found, "argument", None)
    if meant is not None:
        require(meant.text, meant.schema, meant.root, None)


def _merged(fields: Iterable[Field], made: Mapping[str, Type]) -> list[Field]:
    """New fields go to the end, in their order. Existing fields keep their places."""
    fields = list(fields)
    there = {field.name for field in fields}
    replaced = [Field(field.name, made.get(field.name, field.type)) for field in fields]
    return replaced + [Field(name, kind) for name, kind in made.items() if name not in there]
