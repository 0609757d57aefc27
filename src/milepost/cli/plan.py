"""A checked pipeline drawn as a tree, in the order of the data flow."""

from __future__ import annotations

from collections.abc import Iterable

from rich.markup import escape
from rich.tree import Tree

from milepost.cli.quantity import counted
from milepost.pipeline.definition.checked import CheckedPipeline, CheckedRule, CheckedStep
from milepost.pipeline.definition.rule import AbsenceRule, MonitorRule, SequenceRule, WindowRule
from milepost.pipeline.definition.shape import fields_of
from milepost.pipeline.definition.step import Cleanse, Derive, Discard, Enrich, Keep, Project, Rename, Sample
from milepost.schema.types import Schema


def drawn(checked: CheckedPipeline) -> Tree:
    """Input, lanes, the steps of tier 1, the combiner, the rules of tier 2, and the output topics."""
    pipeline = checked.pipeline
    top = Tree(f"[bold]{escape(pipeline.name)}[/]  [dim]{escape(pipeline.broker)}[/]")
    if pipeline.sources:
        top.add(f"[cyan]from[/] the lanes of {_names(pipeline.sources)}").add(_fields(checked.input))
    else:
        place = f"[cyan]input[/] {_names(pipeline.input)}  [dim]from {escape(pipeline.starting)}[/]"
        top.add(place).add(_fields(checked.input))
        _first_tier(top, checked)
    if checked.rules or checked.monitors:
        _second_tier(top, checked)
    topics = top.add("[cyan]topics[/]")
    for topic, schema in checked.outputs.items():
        topics.add(f"{escape(topic)}  [dim]{escape(str(schema.type))}[/]")
    if not checked.outputs:
        topics.add(f"[dim]results stay in {escape(pipeline.topic('lane'))}.0 …, for pipelines that name this one[/]")
    return top


def _first_tier(top: Tree, checked: CheckedPipeline) -> None:
    pipeline = checked.pipeline
    lanes = "1 lane" if pipeline.lanes == 1 else f"{pipeline.lanes} lanes"
    where = "each in a Spark of its own" if pipeline.apart else f"in {pipeline.spark.master}"
    tier = top.add(f"[cyan]tier 1[/] {lanes}  [dim]{escape(where)}[/]")
    for step in checked.steps:
        _step(tier, step)
    if checked.rejecting:
        tier.add(f"[yellow]rejects[/] to {escape(pipeline.rejects_topic)}")
    to = ""
    if pipeline.output is not None:
        order = "in time order" if checked.rules or checked.monitors else "as lanes make them"
        to = f" to {escape(pipeline.output)}, {order}"
    tier.add(f"[green]results[/]{to}  {_fields(checked.result)}")


def _step(tier: Tree, checked: CheckedStep) -> None:
    step = checked.step
    name = f" [dim]{escape(step.name)}[/]" if step.name is not None else ""
    place = tier.add(f"[magenta]{step.verb}[/]{name}  {escape(_told(checked))}")
    made = step.fields if isinstance(step, Derive) else step.take if isinstance(step, Enrich) else {}
    for field, text in made.items():
        place.add(f"{escape(field)}: {_type(checked.after, field)} [dim]=[/] {escape(text)}")


def _told(checked: CheckedStep) -> str:
    match checked.step:
        case Discard(where) | Keep(where) | Cleanse(where):
            return where
        case Project(fields):
            return ", ".join(fields)
        case Rename(names):
            return ", ".join(f"{old} → {new}" for old, new in names.items())
        case Sample(share, by):
            return f"{share:.6g} of events by {', '.join(by) or 'the whole event'}"
        case Enrich() as step:
            assert checked.lookup is not None
            found = f"in {step.subnet}" if step.subnet else f"= {step.column}"
            missing = "" if step.missing == "null" else ", else reject"
            rows = counted(checked.lookup.rows, "row")
            return f"{checked.lookup.name} ({rows}) by {step.by} {found}{missing}"
        case _:
            return ""


def _second_tier(top: Tree, checked: CheckedPipeline) -> None:
    pipeline = checked.pipeline
    late = f"go to {pipeline.late.to}" if pipeline.late is not None else "are counted"
    top.add(
        f"[cyan]combiner[/] by {escape(str(checked.time))}, up to {pipeline.disorder} out of order; "
        f"later events {escape(late)}"
    )
    for monitor in checked.monitors:
        top.add(f"[cyan]monitor[/] {escape(_monitored(monitor.rule))}")
    if checked.rules:
        tier = top.add("[cyan]tier 2[/]")
        for rule in checked.rules:
            place = tier.add(
                f"[magenta]{rule.rule.kind}[/] {escape(rule.rule.name)}  [green]→ {escape(rule.rule.to)}[/]"
            )
            for word, text in _parts(rule):
                place.add(f"[dim]{word}[/] {escape(text)}")


def _monitored(rule: MonitorRule) -> str:
    where = f" where {rule.where}" if rule.where is not None else ""
    of = f" of {rule.of}" if rule.of is not None else ""
    return f"{rule.name}{of}{where}, over {rule.window} every {rule.every}: {', '.join(rule.statistics)}"


def _parts(checked: CheckedRule) -> Iterable[tuple[str, str]]:
    rule = checked.rule
    if rule.where is not None:
        yield "where", rule.where
    match rule:
        case WindowRule():
            yield "window", f"{rule.window}{f' every {rule.slide}' if rule.slide else ''}"
            yield from (("compute", f"{name} = {text}") for name, text in rule.compute.items())
        case SequenceRule():
            yield from (("first", rule.first), ("then", f"{rule.then}  within {rule.within}"))
        case AbsenceRule():
            yield from (("first", rule.first), ("without", f"{rule.without}  within {rule.within}"))
    if isinstance(rule, WindowRule | SequenceRule | AbsenceRule) and rule.by:
        yield "by", ", ".join(rule.by)
    if isinstance(rule, WindowRule) and rule.having is not None:
        yield "having", rule.having
    yield from (("emit", f"{name} = {text}") for name, text in rule.emit.items())


def _type(schema: Schema, name: str) -> str:
    return f"[cyan]{escape(next(str(field.type) for field in fields_of(schema) if field.name == name))}[/]"


def _fields(schema: Schema) -> str:
    return f"[dim]{escape(str(schema.type))}[/]"


def _names(names: Iterable[str]) -> str:
    return escape(", ".join(names))
