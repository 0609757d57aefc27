"""Whatever can be told about a pipeline before Spark starts is told, all of it, with its place."""

from __future__ import annotations

from typing import Any

import pytest

from milepost import parse_schema
from milepost.errors import PipelineError
from milepost.pipeline.definition import Late, Pipeline
from milepost.pipeline.definition.checked import REJECTS
from milepost.pipeline.definition.checker import check
from milepost.pipeline.definition.rule import AbsenceRule, MonitorRule, SequenceRule, ThresholdRule, WindowRule
from milepost.pipeline.definition.shape import type_of, with_fields
from milepost.pipeline.definition.step import Cleanse, Derive, Discard, Enrich, Keep, Project, Rename, Sample
from milepost.query import expression

EVENTS = parse_schema("""
    event: [at: timestamp, kind: string, host: string, load: double, ms: int, user: string?, total: uint64,
            tags: *(string)*, lines: *([count: int])*, pay: {cash: [] | card: [number: uint8]},
            place: spot, self: event?, box: dynamic]
    spot: [rack: int, note: string?]
""")
SLOW = MonitorRule("slow", of="ms", quantiles=(0.5, 0.999))


def made(*steps: Any, **more: Any) -> Pipeline:
    return Pipeline(**{"name": "p", "time": "at", "input": ("events",), "output": "clean", "tier1": steps} | more)


def fields(pipeline: Pipeline) -> str:
    return str(check(pipeline, EVENTS).result.type)


def problems(pipeline: Pipeline, schema: Any = EVENTS) -> list[str]:
    with pytest.raises(PipelineError) as caught:
        check(pipeline, schema)
    return [str(problem) for problem in caught.value.problems]


ALL = str(EVENTS.type)


def test_steps_change_the_schema_as_they_come() -> None:
    assert fields(made(Discard("load > 2"), Keep("kind = 'x'"), Sample(0.5, by="host"), Cleanse("ms > 0"))) == ALL
    assert fields(made(Project(["ms", "at", "place"]))) == "[ms: int, at: timestamp, place: spot]"
    assert fields(made(Project(["at", "ms"]), Rename({"at": "ms", "ms": "at"}))) == "[ms: timestamp, at: int]"
    assert fields(made(Project(["at", "ms"]), Derive({"s": "ms / 2", "ms": "ms + 1"}))) == (
        "[at: timestamp, ms: long?, s: double?]"
    )
    later = made(Derive({"fast": "ms < 10"}), Project(["at", "fast"]), Rename({"fast": "quick"}), Keep("quick"))
    assert fields(later) == "[at: timestamp, quick: bool]"


def test_the_result_keeps_what_its_fields_refer_to() -> None:
    result = check(made(Project(["at", "place"])), EVENTS).result
    assert str(result) == "event: [at: timestamp, place: spot]\nspot: [rack: int, note: string?]"
    result = check(made(Project(["at", "self"])), EVENTS).result
    assert result.name == "event_"  # `event` is what `self` refers to, and stays what it was
    assert "event: [at: timestamp, kind" in str(result)


def test_rules_of_the_input_schema_do_not_bind_results() -> None:
    strict = parse_schema("event: [at: timestamp, ms: int] check (ms > 0)")
    assert str(check(made(Derive({"ms": "0 - ms"})), strict).result) == "event: [at: timestamp, ms: long?]"
    assert not check(made(), strict).result.checks


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("ms", "int"),
        ("place.rack", "int"),
        ("place.note", "string?"),
        ("tags[0]", "string?"),
        ("lines[0].count", "int?"),
        ("pay.card.number", "uint8?"),
        ("max(lines, count)", "decimal(20,0)?"),
        ("load", "double?"),  # NaN reads as null
        ("ms + 1", "long?"),  # beyond 64 bits it is null
        ("total", "uint64"),
        ("coalesce(total, 0)", "decimal(20,0)"),
        ("max(tags, length(it))", "long?"),
        ("ms > 3", "bool"),
        ("load > 3", "bool?"),
        ("load is null", "bool"),
        ("user = 'x'", "bool?"),
        ("coalesce(user, 'nobody')", "string"),
        ("lower(kind)", "string"),
        ("lower(user)", "string?"),
        ("kind || 'x'", "string?"),
        ("1.50", "decimal(3,2)"),
        ("year(at)", "long"),
        ("seconds_between(at, at)", "double"),
        ("ms between 1 and 3 and not kind in ('a', 'b')", "bool"),
        ("in_subnet(host, '10.0.0.0/8')", "bool?"),
        ("count(tags)", "long?"),
    ],
)
def test_derived_fields_have_types(text: str, kind: str) -> None:
    assert str(type_of(expression(text, EVENTS))) == kind


def test_the_event_time_is_followed() -> None:
    assert check(made(Rename({"at": "time"})), EVENTS).time == "time"
    assert check(made(Project(["ms"])), EVENTS).time is None
    assert problems(made(Project(["ms"]), output=None)) == [
        "tier1: the event time 'at' is left out, but results are merged in its order: keep it"
    ]
    assert problems(made(Derive({"at": "kind"})))[0].startswith("tier1: the event time 'at' has become a string")
    assert problems(made(time="att"))[0].startswith("time: events have no field 'att'; did you mean 'at'?")
    assert problems(made(time="ms")) == ["time: 'ms' is a int, but the event time must be a timestamp"]


def test_where_something_can_be_rejected() -> None:
    checked = check(made(), EVENTS)  # what the schema requires may be missing in messages of an older version
    assert checked.rejecting
    assert checked.outputs["p.rejects"] == REJECTS
    assert not check(made(Project(["user"])), EVENTS).rejecting
    assert check(made(Cleanse("ms > 1"), Project(["user"])), EVENTS).rejecting


def test_monitors_are_read_by_name() -> None:
    checked = check(
        made(Derive({"slow": "ms > monitor.slow.p99_9", "share": "monitor.slow.count / 2"}), monitor=[SLOW]), EVENTS
    )
    assert str(checked.monitor_type) == (
        "[slow: [count: long?, rate: double?, mean: double?, min: double?, max: double?, p50: double?, "
        "p99_9: double?]?]"
    )
    assert [field.name for field in checked.result.type.fields][-2:] == ["slow", "share"]
    counted = check(made(Keep("monitor.all.rate > 1"), monitor=[MonitorRule("all")]), EVENTS)
    assert str(counted.monitor_type) == "[all: [count: long?, rate: double?]?]"
    assert counted.warnings[0].startswith("[[tier1]] 1: monitor.all is measured on the results of tier 1")


def test_monitors_that_are_not_there() -> None:
    assert problems(made(Keep("ms > monitor.slow.p99")))[0].startswith("[[tier1]] 1, keep: there is no [[monitor]]")
    [said] = problems(made(Keep("ms > monitor.slow.p99"), monitor=[SLOW]))
    assert said.startswith("[[tier1]] 1, keep: monitor.slow has no 'p99'; did you mean")
    [said] = problems(made(monitor=[MonitorRule("m", of="kind", where="user")]))[1:]
    assert said.startswith("[[monitor]] 1 'm', where: a predicate takes true or false")
    [said] = problems(made(monitor=[MonitorRule("m", of="kind")]))
    assert said == "[[monitor]] 1 'm', of: statistics need a number, and kind is a string"


def test_a_rule_on_a_field_that_is_not_there_shows_where() -> None:
    [said] = problems(made(Discard("lod > 2", name="idle")))
    assert said == (
        "[[tier1]] 1 'idle', discard: there is no 'lod'; did you mean 'load'? There are at, kind, host, load, ms, "
        "user, total, tags, lines, pay, place, self, box\n  line 1, column 1:\n    lod > 2\n    ^"
    )


def test_problems_are_collected_and_their_consequences_are_not() -> None:
    told = problems(
        made(
            Derive({"seconds": "mss / 1000.0", "fine": "ms"}),
            Keep("seconds > 2"),
            Rename({"seconds": "s", "hots": "h"}),
            Keep("s > 2 and fine > 1"),
            Project(["at", "lod"]),
            Sample(0.5, by="hst"),
            Keep("kind ="),
            tier2=[
                WindowRule("w", "t", "10s", {"peak": "max(at)", "low": "mni(at)"}, by=["hst"], having="pek > at"),
                ThresholdRule("x", "u", "monitor.m.count > 1"),
            ],
        )
    )
    assert [said.partition(": ")[0] for said in told] == [
        "[[tier1]] 1, derive, seconds",
        "[[tier1]] 3, rename",
        "[[tier1]] 5, project",
        "[[tier1]] 6, by",
        "[[tier1]] 7, keep",
        "[[tier2]] 1 'w', compute, low",
        "[[tier2]] 1 'w', by",
        "[[tier2]] 1 'w', having",
        "[[tier2]] 2 'x', where",
    ]
    assert "did you mean 'min'?" in told[5]


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (Rename({"ms": "load"}), "rename: there is already a field 'load'"),
        (Rename({"ms": "monitor"}), "rename: 'monitor' is a name that pipelines reserve"),
        (Rename({"ms": "m s"}), "rename: 'm s' is not a field name"),
        (Derive({"_progress": "1"}), "derive: '_progress' is a name that pipelines reserve"),
        (Derive({"Host": "1"}), "derive: the fields 'host' and 'Host' differ only in case"),
        (Derive({"x": "null"}), "derive, x: null alone has no type"),
        (Derive({"x": "tags"}), "derive, x: tags is a list"),
        (Keep("ms"), "keep: a predicate takes true or false"),
        (Keep("self.ms > 1"), "keep: "),
        (Sample(0.5, by="nobody"), "by: there is no field 'nobody'"),
    ],
)
def test_steps_that_cannot_be(step: Any, said: str) -> None:
    found = problems(made(step))
    assert f"[[tier1]] 1, {said}" in found[0]


def test_inputs_that_cannot_be() -> None:
    assert problems(made(), parse_schema("e: [at: timestamp, monitor: int]"))[0].startswith(
        "input: events have a field 'mon"
    )
    assert "differ only in case" in problems(made(), parse_schema("e: [at: timestamp, a: int, A: int]"))[0]
    graph = parse_schema("DEFINE MESSAGETYPE M; NODE n; at: TIMESTAMP; END; ROOT n; END;")
    assert problems(made(), graph)[0].startswith("input: a pipeline reads plain tuples")


# Tier 2


def only(rule: Any, **more: Any) -> Any:
    return check(made(output=None, tier2=[rule], **more), EVENTS).rules[0]


def test_a_threshold_sends_the_event() -> None:
    rule = only(ThresholdRule("t", "alerts", "load > monitor.slow.p50"), monitor=[SLOW])
    assert rule.output.type == EVENTS.type
    assert str(only(ThresholdRule("t", "alerts", "load > 2", emit={"h": "host"})).output) == "t: [h: string]"


def test_a_window_sends_keys_times_and_aggregates() -> None:
    compute = {
        "n": "count(user)", "count": "count()", "total_ms": "sum(ms)", "peak": "max(load)", "low": "min(ms)",
        "mean": "avg(ms)", "p": "quantile(load, 0.9)", "who": "last(user)", "users": "distinct(user)",
        "money": "sum(ms * 1.50)",
    }  # fmt: skip
    rule = only(WindowRule("w-1", "alerts", "10s", compute, by=["host", "user"], having="peak > 2 and count > 1"))
    assert str(rule.output) == (
        "w_1: [host: string, user: string?, window_start: timestamp, window_end: timestamp, count: long, n: long, "
        "total_ms: long?, peak: double?, low: int?, mean: double?, p: double?, who: string?, users: long, "
        "money: decimal(38,2)?]"
    )
    assert [(each.name, each.function, each.quantile) for each in rule.aggregates][:2] == [
        ("n", "count", None),
        ("total_ms", "sum", None),
    ]
    assert next(each for each in rule.aggregates if each.name == "p").quantile == 0.9


def test_a_sequence_sees_both_events() -> None:
    emit = {
        "host": "host",
        "who": "first_user",
        "ms": "then_ms - first_ms",
        "wait": "seconds_between(first_time, then_time)",
    }
    rule = only(SequenceRule("s", "alerts", "kind = 'a'", "kind = 'b'", "1m", by=["host"], emit=emit))
    assert str(rule.output) == "s: [host: string, who: string?, ms: long?, wait: double]"
    assert rule.payload == ("ms", "user")
    plain = only(SequenceRule("s", "alerts", "kind = 'a'", "kind = 'b'", "1m", by=["host"]))
    assert str(plain.output) == "s: [host: string, first_time: timestamp, then_time: timestamp]"
    assert plain.payload == ()


def test_an_absence_sees_the_first_event() -> None:
    rule = only(AbsenceRule("a", "alerts", "kind = 'a'", "kind = 'b'", "1m", by=["host"]))
    assert str(rule.output) == "a: [host: string, first_time: timestamp, deadline: timestamp]"
    assert rule.first.text == "kind = 'a'"
    assert rule.then.text == "kind = 'b'"
    [said] = problems(made(tier2=[AbsenceRule("a", "t", "ms > 1", "ms > 2", "1m", emit={"x": "then_ms"})]))
    assert said.startswith("[[tier2]] 1 'a', emit, x: there is no 'then_ms'")


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (WindowRule("w", "t", "1s", by=["tags"]), "by: 'tags' is *(string)*, but events are grouped by single values"),
        (WindowRule("w", "t", "1s", {"x": "max(load) - 1"}), "compute, x: this is no aggregate"),
        (WindowRule("w", "t", "1s", {"x": "sum(kind)"}), "compute, x: sum takes a number, and kind is a string"),
        (WindowRule("w", "t", "1s", {"x": "max()"}), "compute, x: it is written max(x)"),
        (WindowRule("w", "t", "1s", {"x": "quantile(ms, 2)"}), "compute, x: the quantile is a number from 0 to 1"),
        (WindowRule("w", "t", "1s", {"host": "max(ms)"}, by=["host"]), "compute, host: a window already has 'host'"),
        (WindowRule("w", "t", "1s", {"count": "max(ms)"}), "compute, count: a window already has 'count'"),
        (WindowRule("w", "t", "1s", having="count"), "having: a predicate takes true or false"),
        (WindowRule("w", "t", "1s", emit={"a b": "count"}), "emit: 'a b' is not a valid field name"),
        (SequenceRule("w", "t", "ms", "ms > 1", "1s"), "first: a predicate takes true or false"),
        (ThresholdRule("w", "t", "box.x > 1"), "where: the type of the dynamic value box"),
    ],
)
def test_rules_that_cannot_be(rule: Any, said: str) -> None:
    assert f"[[tier2]] 1 'w', {said}" in problems(made(tier2=[rule]))[0]


def test_rules_may_share_a_topic_when_they_send_the_same() -> None:
    one = ThresholdRule("one", "alerts", "load > 2", emit={"h": "host"})
    checked = check(made(tier2=[one, ThresholdRule("two", "alerts", "ms > 2", emit={"h": "kind"})]), EVENTS)
    assert str(checked.outputs["alerts"].type) == "[h: string]"
    [said] = problems(made(tier2=[one, ThresholdRule("two", "alerts", "ms > 2")]))
    assert said.startswith("tier2 'two', to: 'alerts' gets [h: string] from another rule")


def test_outputs_by_topic() -> None:
    checked = check(
        made(Cleanse("ms > 0"), late=Late("late"), tier2=[ThresholdRule("t", "alerts", "load > 2")]), EVENTS
    )
    assert list(checked.outputs) == ["clean", "p.rejects", "late", "alerts"]
    assert checked.outputs["late"] == checked.result


def test_a_second_tier_of_others() -> None:
    pipeline = Pipeline(name="c", time="at", sources=["a"], tier2=[ThresholdRule("t", "alerts", "load > 2")])
    checked = check(pipeline, EVENTS)
    assert checked.result.type == EVENTS.type
    assert not checked.rejecting


def test_a_schema_of_other_fields_stands_alone() -> None:
    spot = next(field for field in EVENTS.type.fields if field.name == "place")
    assert str(with_fields(EVENTS, [spot])) == "event: [place: spot]\nspot: [rack: int, note: string?]"


def test_tables_are_read_when_a_pipeline_is_checked(tmp_path) -> None:
    (tmp_path / "hosts.csv").write_text("ip,name,floor\n1.1.1.1,one,1\n2.2.2.2,two,\n")
    step = Enrich(table=str(tmp_path / "hosts.csv"), by="host", key="ip", take=["name", "floor"])
    checked = check(made(Project(["at", "host"]), step), EVENTS)
    assert str(checked.result.type) == "[at: timestamp, host: string, name: string?, floor: long?]"
    assert checked.steps[1].lookup.rows == 2
    [said] = problems(made(step, Enrich(table="none.csv", by="host", take=["x"]), Keep("x > 1 and floor > 1")))
    assert said.startswith("[[tier1]] 2, enrich: there is no file none.csv")
    [said] = problems(made(Enrich(table=str(tmp_path / "hosts.csv"), by="host", key="ip", take={"kind": "name"})))
    assert said.startswith("[[tier1]] 1, enrich, take: 'kind' is already a field of the event; use another name")
