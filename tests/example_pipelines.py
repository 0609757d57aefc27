"""The pipelines of examples/, with their data and what is expected of them, and a plain evaluator of all of it.

A folder has pipelines (`*.toml`), input topics (`<topic>.schema`, `<topic>.jsonl`, and in `<topic>.then.jsonl` what is
put when everything before is through), and `expected/<topic>.jsonl`, in any order.

The evaluator takes events one by one through the Python back end of the query language. It is slow, knows nothing of
Spark, batches or lanes, and sees the whole stream at once; the last event's time is the watermark.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from milepost import parse_schema
from milepost.pipeline.definition import Pipeline, load_pipeline
from milepost.pipeline.definition.checked import CheckedPipeline, CheckedRule, CheckedStep
from milepost.pipeline.definition.checker import check
from milepost.pipeline.definition.rule import AbsenceRule, SequenceRule, ThresholdRule, WindowRule
from milepost.pipeline.definition.shape import fields_of
from milepost.pipeline.definition.step import Cleanse, Derive, Discard, Enrich, Keep, Project, Rename, Sample
from milepost.schema import Schema
from milepost.schema import types as t

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "pipelines"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Row = dict[str, Any]


@dataclass(frozen=True)
class Example:
    """One folder."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def schemas(self) -> dict[str, Schema]:
        """Of the input topics that are given."""
        return {path.stem: parse_schema(path.read_text()) for path in sorted(self.folder.glob("*.schema"))}

    def events(self, topic: str, suffix: str = "") -> list[Row]:
        """What is put into a topic, at first or (`.then`) afterwards."""
        return rows(self.folder / f"{topic}{suffix}.jsonl", self.schemas[topic])

    def expected(self, outputs: Mapping[str, Schema]) -> dict[str, list[Row]]:
        """By topic: what is there in the end."""
        found = sorted((self.folder / "expected").glob("*.jsonl"))
        return {path.stem: rows(path, outputs[path.stem]) for path in found}

    def pipelines(self) -> list[Pipeline]:
        """In an order in which each finds what it reads."""
        waiting = [load_pipeline(path) for path in sorted(self.folder.glob("*.toml"))]
        made = set(self.schemas)
        ordered = []
        while waiting:
            ready = next(each for each in waiting if {*each.input, *each.sources} <= made)
            waiting.remove(ready)
            ordered.append(ready)
            made |= {ready.name, *(rule.to for rule in ready.tier2), *([ready.output] if ready.output else [])}
        return ordered


def examples() -> list[Example]:
    return [Example(path) for path in sorted(FOLDER.iterdir()) if path.is_dir()]


def rows(path: Path, schema: Schema) -> list[Row]:
    """JSON lines as plain values of a schema; a file that is not there has none."""
    if not path.exists():
        return []
    return [_typed(json.loads(line), schema) for line in path.read_text().splitlines()]


def _typed(row: Row, schema: Schema) -> Row:
    times = {field.name for field in fields_of(schema) if field.type in (t.TIMESTAMP, t.Optional(t.TIMESTAMP))}
    return {
        name: datetime.fromisoformat(value) if name in times and value is not None else value
        for name, value in row.items()
    }


def in_order(found: Iterable[Mapping[str, Any]]) -> list[str]:
    """Rows in an order of their own, as texts: equal lists are equal sets of rows, each as often."""
    return sorted(json.dumps(row, default=_text, sort_keys=True) for row in found)


def _text(value: Any) -> str:
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else str(value)


# The plain evaluator


def evaluated(example: Example) -> tuple[dict[str, list[Row]], dict[str, Schema]]:
    """What each output topic holds in the end, and its schema."""
    events = {topic: example.events(topic) for topic in example.schemas}
    later = {topic: example.events(topic, ".then") for topic in example.schemas}
    schemas = example.schemas
    results: dict[str, list[Row]] = {}  # of tier 1, by pipeline
    inputs: dict[str, list[Row]] = {}
    checks: dict[str, CheckedPipeline] = {}
    outputs: dict[str, list[Row]] = {}
    for pipeline in example.pipelines():
        schema = schemas[pipeline.input[0]] if pipeline.input else checks[pipeline.sources[0]].result
        checked = checks[pipeline.name] = check(pipeline, schema)
        schemas = schemas | dict(checked.outputs)
        outputs |= {topic: [] for topic in checked.outputs}
        given = [row for topic in pipeline.input for row in [*events.get(topic, []), *later.get(topic, [])]]
        inputs[pipeline.name] = given or [row for each in pipeline.sources for row in inputs[each]]
        made = [row for each in pipeline.sources for row in results[each]]
        for event in given:
            result, reject = through(checked, event)
            if result is not None:
                made.append(result)
            elif reject is not None:
                outputs[pipeline.rejects_topic].append(reject)
        results[pipeline.name] = made
        if pipeline.output is not None:
            outputs[pipeline.output] += made
        monitor = _measured(checked, [row for topic in pipeline.input for row in events.get(topic, [])])
        times = [row[pipeline.time] for row in inputs[pipeline.name] if row[pipeline.time] is not None]
        for rule in checked.rules:
            assert checked.time is not None
            outputs[rule.rule.to] += list(fired(rule, checked.time, made, monitor, max(times)))
        events = events | outputs
    return outputs, schemas


def through(checked: CheckedPipeline, event: Row) -> tuple[Row | None, Row | None]:
    """One event through tier 1: the result, or what the rejects get, or neither."""
    now = dict(event)
    for each in checked.steps:
        reason: str | None = None
        step = each.step
        match step:
            case Discard():
                if each.queries["where"].value(now) is True:
                    return None, None
            case Keep():
                if each.queries["where"].value(now) is not True:
                    return None, None
            case Cleanse():
                if each.queries["where"].value(now) is not True:
                    reason = step.reason or f"not true: {step.where}"
            case Project():
                now = {name: now[name] for name in step.fields}
            case Rename():
                now = {step.names.get(name, name): value for name, value in now.items()}
            case Derive():
                now = now | {name: made.value(now) for name, made in each.queries.items()}
            case Sample():
                if not drawn(step.share, [now[name] for name in step.by]):
                    return None, None
            case Enrich():
                now, reason = _enriched(each, now)
        if reason is not None:
            return None, _reject(checked, event, each.label, reason)
    if checked.time is not None and now[checked.time] is None:
        return None, _reject(checked, event, "time", f"the event has no time: {checked.time} is null")
    for field in fields_of(checked.result):
        if now[field.name] is None and not isinstance(field.type, t.Optional):
            return None, _reject(checked, event, "schema", f"results need a value, and there is none: {field.name}")
    return now, None


def _reject(checked: CheckedPipeline, event: Row, rule: str, reason: str) -> Row:
    told = {
        name: value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ") if isinstance(value, datetime) else value
        for name, value in event.items()
        if value is not None
    }
    told = {field.name: told[field.name] for field in fields_of(checked.input) if field.name in told}
    event_text = json.dumps(told, separators=(",", ":"), ensure_ascii=False)
    return {"at": event[checked.pipeline.time], "rule": rule, "reason": reason, "event": event_text}


def _enriched(each: CheckedStep, now: Row) -> tuple[Row, str | None]:
    step, lookup = each.step, each.lookup
    assert isinstance(step, Enrich)
    assert lookup is not None
    by = each.queries["by"].value(now)
    place: int | None = None
    if lookup.networks is None:
        assert lookup.keys is not None
        place = {key: row for row, key in enumerate(lookup.keys.to_pylist())}.get(by)
    else:
        inside = [row for row, network in enumerate(lookup.networks) if ip_address(by) in network]
        place = max(inside, key=lambda row: lookup.networks[row].prefixlen, default=None)  # type: ignore[index]
    if place is None and step.missing == "reject":
        return now, f"{lookup.name} has no {'network' if step.subnet else 'row'} for {step.by} = {by}"
    found = {} if place is None else lookup.values.slice(place, 1).to_pylist()[0]
    return now | {name: found.get(name) for name in step.take}, None


def _measured(checked: CheckedPipeline, events: list[Row]) -> Row:
    """What monitors say when everything before `.then` is through: here, of all of it and exactly."""
    told: Row = {}
    for each in checked.monitors:
        values = sorted(each.of.value(event) for event in events) if each.of is not None else []
        told[each.rule.name] = dict.fromkeys(each.rule.statistics)
        for quantile in each.rule.wanted:
            name = f"p{round(quantile * 100)}"
            told[each.rule.name][name] = values[min(len(values) - 1, int(quantile * len(values)))]
    return told


def fired(rule: CheckedRule, time: str, events: list[Row], monitor: Row, watermark: datetime) -> Iterator[Row]:
    """What a rule of tier 2 sends, over all events."""
    seen = [event | {"monitor": monitor} for event in sorted(events, key=lambda event: event[time])]
    seen = [event for event in seen if rule.where is None or rule.where.test(event) is True]
    for context in _contexts(rule, time, seen, watermark):
        told = context | {"monitor": monitor}
        if rule.having is not None and rule.having.test(told) is not True:
            continue
        if rule.emit is None:
            yield {field.name: told[field.name] for field in fields_of(rule.output)}
        else:
            yield {name: made.value(told) for name, made in rule.emit.items()}


def _contexts(checked: CheckedRule, time: str, events: list[Row], watermark: datetime) -> Iterator[Row]:
    match checked.rule:
        case ThresholdRule():
            yield from events
        case WindowRule():
            yield from _windows(checked, checked.rule, time, events, watermark)
        case SequenceRule() | AbsenceRule() as rule:
            yield from _pairs(checked, rule, time, events, watermark)


def _windows(
    checked: CheckedRule, rule: WindowRule, time: str, events: list[Row], watermark: datetime
) -> Iterator[Row]:
    size, slide = timedelta(microseconds=rule.window.us), timedelta(microseconds=(rule.slide or rule.window).us)
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for event in events:
        last = (event[time] - EPOCH) // slide
        for number in range(last - (size // slide) - 1, last + 1):
            start = EPOCH + number * slide
            if start <= event[time] < start + size:
                groups.setdefault((start, *(event[key] for key in rule.by)), []).append(event)
    for (start, *keys), inside in groups.items():
        if start + size - timedelta(microseconds=1) > watermark:
            continue
        context = dict(zip(rule.by, keys, strict=True))
        context |= {"window_start": start, "window_end": start + size, "count": len(inside)}
        for each in checked.aggregates:
            values = [1 if each.argument is None else each.argument.value(event) for event in inside]
            context[each.name] = _aggregate(each.function, [value for value in values if value is not None])
        yield context


def _aggregate(function: str, values: list[Any]) -> Any:
    if function in ("count", "distinct"):
        return len(values) if function == "count" else len(set(values))
    if not values:
        return None
    known = {
        "min": min, "max": max, "sum": sum, "first": lambda all: all[0], "last": lambda all: all[-1],
        "avg": lambda all: sum(all) / len(all),
    }  # fmt: skip
    return known[function](values)


def _pairs(
    checked: CheckedRule, rule: SequenceRule | AbsenceRule, time: str, events: list[Row], watermark: datetime
) -> Iterator[Row]:
    assert checked.first is not None
    assert checked.then is not None
    within = timedelta(microseconds=rule.within.us)
    for first in events:
        if checked.first.test(first) is not True:
            continue
        later = [
            event
            for event in events
            if checked.then.test(event) is True
            and all(event[key] == first[key] for key in rule.by)
            and first[time] < event[time] <= first[time] + within
        ]
        context = {key: first[key] for key in rule.by} | {"first_time": first[time]}
        context |= {f"first_{name}": value for name, value in first.items() if name not in (*rule.by, "time")}
        if isinstance(rule, AbsenceRule):
            if not later and first[time] + within <= watermark:
                yield context | {"deadline": first[time] + within}
        elif later:
            then = {f"then_{name}": value for name, value in later[0].items() if name not in (*rule.by, "time")}
            yield context | then | {"then_time": later[0][time]}


# Samples


def drawn(share: float, values: list[str]) -> bool:
    """Whether a sample takes an event with these texts: XXH64, the seed 42, each text on top of the one before."""
    state = 42
    for value in values:
        state = xxh64(value.encode(), state)
    signed = state - (1 << 64) if state >> 63 else state
    return signed < int(share * (1 << 64)) - (1 << 63)


def xxh64(data: bytes, seed: int) -> int:
    """XXH64, by its specification."""
    whole = (1 << 64) - 1
    one, two, three, four, five = (
        0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5,
    )  # fmt: skip

    def left(value: int, bits: int) -> int:
        return ((value << bits) | (value >> (64 - bits))) & whole

    def mixed(value: int, lane: int) -> int:
        return (left((value + lane * two) & whole, 31) * one) & whole

    length, place = len(data), 0
    if length >= 32:
        lanes = [(seed + one + two) & whole, (seed + two) & whole, seed, (seed - one) & whole]
        while place <= length - 32:
            for number in range(4):
                lane = int.from_bytes(data[place + 8 * number : place + 8 * number + 8], "little")
                lanes[number] = mixed(lanes[number], lane)
            place += 32
        found = sum(left(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & whole
        for lane in lanes:
            found = ((found ^ mixed(0, lane)) * one + four) & whole
    else:
        found = (seed + five) & whole
    found = (found + length) & whole
    while place + 8 <= length:
        found ^= mixed(0, int.from_bytes(data[place : place + 8], "little"))
        found, place = (left(found, 27) * one + four) & whole, place + 8
    if place + 4 <= length:
        found ^= (int.from_bytes(data[place : place + 4], "little") * one) & whole
        found, place = (left(found, 23) * two + three) & whole, place + 4
    for byte in data[place:]:
        found = (left(found ^ ((byte * five) & whole), 11) * one) & whole
    found = ((found ^ (found >> 33)) * two) & whole
    found = ((found ^ (found >> 29)) * three) & whole
    return found ^ (found >> 32)
