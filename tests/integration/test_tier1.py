"""Tier 1 on Spark: every verb gives what the plain evaluator of the query language gives, event by event."""

from __future__ import annotations

import ipaddress
import json
import random
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from milepost import parse_schema
from milepost.errors import ConfigError
from milepost.pipeline.definition import Pipeline
from milepost.pipeline.definition.checked import REJECTS, CheckedPipeline
from milepost.pipeline.definition.checker import check
from milepost.pipeline.definition.shape import fields_of, visible
from milepost.pipeline.definition.step import Cleanse, Derive, Discard, Enrich, Keep, Project, Rename, Sample
from tests.example_pipelines import Example, examples, in_order, through

EVENTS = parse_schema("""
    event: [at: timestamp?, kind: string, host: string, load: double, ms: int, user: string?, total: uint64,
            day: date, amount: decimal(10,2), tags: *(string)*, place: [rack: int, note: string?]]
""")
START = datetime(2026, 3, 1, tzinfo=UTC)
MONITOR = {"slow": {"count": 10, "rate": 0.5, "mean": 40.0, "min": 1.0, "max": 99.0, "p50": 50.0, "p99": 90.0}}
HOSTS = [f"92.126.{net}.{host}" for net in (10, 11, 12) for host in (1, 2, 3)]


def rows(count: int = 120) -> list[dict[str, Any]]:
    draw = random.Random(4)
    return [
        {
            "at": START + timedelta(milliseconds=number * 137) if number % 11 else None,
            "kind": draw.choice(["performance", "dns", "login"]),
            "host": draw.choice([*HOSTS, "10.0.0.1", "2001:db8::7", "not an address"]),
            "load": draw.choice([0.0, -0.0, 1.5, 2.5, float("nan"), float("inf")]),
            "ms": draw.randrange(-5, 100),
            "user": draw.choice([None, "ada", "Bob"]),
            "total": draw.choice([0, 7, 2**64 - 1]),
            "day": date(2024, 2, 28) + timedelta(days=number % 3),
            "amount": Decimal(draw.randrange(-500, 500)).scaleb(-2),
            "tags": draw.sample(["new", "old", "Öl"], draw.randrange(3)),
            "place": {"rack": draw.randrange(4), "note": draw.choice([None, "left"])},
        }
        for number in range(count)
    ]


def pipeline(*steps: Any, **more: Any) -> Pipeline:
    return Pipeline(name="p", time="at", input=("events",), output="clean", tier1=steps, **more)


def run(spark: Any, checked: CheckedPipeline, events: list[dict[str, Any]], progress: int = 2) -> list[dict[str, Any]]:
    """Events and some marks through tier 1; times come back with a zone."""
    from pyspark.sql import types as s

    from milepost.pipeline.tier1 import apply
    from milepost.pipeline.tier1.columns import PROGRESS_TYPE
    from milepost.query.spark import struct_type

    full = visible(checked.input, checked.monitor_type)
    schema = s.StructType([*struct_type(full).fields, s.StructField("_progress", PROGRESS_TYPE)])
    names = [field.name for field in fields_of(checked.input)]
    told = [] if checked.monitor_type is None else [MONITOR]
    given = [(*(_for_spark(name, event[name]) for name in names), *told, None) for event in events]
    given += [(*(None for _ in names), *told, (number, START)) for number in range(progress)]
    result = apply(spark.createDataFrame(given, schema), checked)
    assert result.columns == ["event", "reject", "_progress"]
    plan = result._jdf.queryExecution().executedPlan().toString()
    assert not re.search("EvalPython|Cartesian|NestedLoop|SortMerge|ShuffledHash", plan)
    expected = struct_type(checked.result)
    assert [(f.name, f.dataType) for f in result.schema["event"].dataType.fields] == [
        (f.name, f.dataType) for f in expected.fields
    ]
    assert [f.name for f in result.schema["reject"].dataType.fields] == [f.name for f in struct_type(REJECTS).fields]
    found = [row.asDict(recursive=True) for row in result.collect()]
    assert sorted(row["_progress"]["position"] for row in found if row["_progress"] is not None) == list(
        range(progress)
    )
    assert all(row["event"] is None and row["reject"] is None for row in found if row["_progress"] is not None)
    return [row for row in found if row["_progress"] is None]


def _for_spark(name: str, value: Any) -> Any:
    return Decimal(value) if name == "total" else value


def plain(value: Any) -> Any:
    """A value as a text that is the same for equal ones, however Python holds them."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, float):
        return repr(value + 0.0)  # -0.0 is 0.0
    return str(value)


def reference(checked: CheckedPipeline, event: dict[str, Any]) -> tuple[dict[str, Any] | None, tuple[str, str] | None]:
    """One event through tier 1 in plain Python: the result, or the rule and the reason of a reject, or neither."""
    now = dict(event)
    for each in checked.steps:
        step, seen = each.step, now | {"monitor": MONITOR}
        match step:
            case Discard():
                if each.queries["where"].value(seen) is True:
                    return None, None
            case Keep():
                if each.queries["where"].value(seen) is not True:
                    return None, None
            case Cleanse():
                if each.queries["where"].value(seen) is not True:
                    return None, (each.label, step.reason or f"not true: {step.where}")
            case Project():
                now = {name: now[name] for name in step.fields}
            case Rename():
                now = {step.names.get(name, name): value for name, value in now.items()}
            case Derive():
                now = now | {name: made.value(seen) for name, made in each.queries.items()}
            case _:
                raise AssertionError(step)
    if checked.time is not None and now[checked.time] is None:
        return None, ("time", f"the event has no time: {checked.time} is null")
    return now, None


CASES = {
    "discard": [Discard("kind = 'performance' and in_subnet(host, '92.126.10.0/24')")],
    "discard null": [Discard("user = 'ada'"), Discard("load > 2")],
    "keep": [Keep("load > 1 or user like 'a%'"), Keep("'new' in tags or place.note is null")],
    "project": [Project(["ms", "place", "at", "total"])],
    "rename": [Rename({"ms": "load", "load": "ms", "at": "time"}), Keep("ms > 1")],
    "derive": [
        Derive(
            {
                "seconds": "ms / 1000.0",
                "ms": "ms + 1",
                "same": "ms",
                "rack": "place.rack",
                "wide": "total",
                "either": "coalesce(total, 1)",
                "net": "in_subnet(host, '92.126.0.0/16')",
                "who": "lower(coalesce(user, 'nobody'))",
                "money": "amount * 2",
                "weekday": "weekday(day)",
                "tagged": "count(tags)",
                "copy": "load",
                "limit": "1.50",
            }
        ),
        Keep("ms > 3 and same >= 3"),
    ],
    "cleanse": [
        Cleanse("ms >= 0", name="range", reason="a time below zero"),
        Cleanse("user <> ''"),
        Discard("kind = 'dns'"),
    ],
    "cleanse after changes": [
        Derive({"ms": "ms * 2"}),
        Project(["at", "host", "ms"]),
        Cleanse("ms < 100"),
        Rename({"ms": "double_ms"}),
        Cleanse("not starts_with(host, '10.')", name="inner"),
    ],
    "time away": [Project(["host", "ms"])],
}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES.keys())
def test_a_verb_does_what_the_plain_evaluator_does(spark: Any, steps: list[Any]) -> None:
    checked = check(pipeline(*steps), EVENTS)
    events = rows()
    found = run(spark, checked, events)
    wanted = [(event, *reference(checked, event)) for event in events]
    assert sorted(str(plain(row["event"])) for row in found if row["event"] is not None) == sorted(
        str(plain(result)) for _, result, _ in wanted if result is not None
    )
    rejected = [row["reject"] for row in found if row["reject"] is not None]
    assert sorted((r["rule"], r["reason"], plain(r["at"]), json.loads(r["event"])["ms"]) for r in rejected) == sorted(
        (*reject, plain(event["at"]), event["ms"]) for event, _, reject in wanted if reject is not None
    )
    assert all(set(json.loads(r["event"])) <= set(events[0]) for r in rejected)
    assert checked.rejecting or not rejected


def test_rules_read_the_monitor_and_so_do_derived_fields(spark: Any) -> None:
    from milepost.pipeline.definition.rule import MonitorRule

    steps = [Derive({"slow": "ms > monitor.slow.p50"}), Discard("ms > monitor.slow.p99")]
    checked = check(pipeline(*steps, monitor=[MonitorRule("slow", of="ms", quantiles=(0.5, 0.99))]), EVENTS)
    events = [row for row in rows() if row["at"] is not None]
    found = run(spark, checked, events)
    assert sorted(row["event"]["slow"] for row in found) == sorted(row["ms"] > 50 for row in events if row["ms"] <= 90)


def test_a_rejected_event_is_told_as_it_came_in(spark: Any) -> None:
    checked = check(pipeline(Rename({"host": "source"}), Cleanse("ms > 1000", name="slow")), EVENTS)
    event = rows(2)[1]
    [found] = run(spark, checked, [event])
    assert found["event"] is None
    told = json.loads(found["reject"]["event"])
    assert told["host"] == event["host"]
    assert told["at"] == "2026-03-01T00:00:00.137000Z"
    assert told["place"]["rack"] == event["place"]["rack"]


def test_messages_of_an_older_version_are_rejected_when_results_need_what_they_lack(spark: Any) -> None:
    checked = check(pipeline(Derive({"fast": "ms < 10"}), Project(["at", "fast", "user", "kind"])), EVENTS)
    event = rows(2)[1]
    old = [event | {"kind": None}, event | {"ms": None}, event | {"user": None}, event | {"at": None, "kind": None}]
    found = run(spark, checked, old)
    assert sum(row["event"] is not None for row in found) == 1  # a user may be missing
    assert sorted((row["reject"]["rule"], row["reject"]["reason"]) for row in found if row["reject"] is not None) == [
        ("schema", "results need a value, but there is none: fast"),
        ("schema", "results need a value, but there is none: kind"),
        ("time", "the event has no time: at is null"),
    ]


def test_a_sample_is_drawn_by_the_event_alone(spark: Any) -> None:
    events = [row | {"at": START, "ms": number} for number, row in enumerate(rows(2000))]
    shares = {}
    for share in (0.1, 0.5, 1.0):
        checked = check(pipeline(Sample(share)), EVENTS)
        shares[share] = {row["event"]["ms"] for row in run(spark, checked, events)}
    shuffled = random.Random(1).sample(events, len(events))
    assert shares[0.5] == {row["event"]["ms"] for row in run(spark, check(pipeline(Sample(0.5)), EVENTS), shuffled)}
    assert shares[0.1] < shares[0.5] < shares[1.0]
    assert len(shares[1.0]) == 2000
    assert 130 < len(shares[0.1]) < 270  # five standard deviations and more
    assert 880 < len(shares[0.5]) < 1120


def test_a_sample_by_a_field_takes_all_or_nothing(spark: Any) -> None:
    events = [row | {"at": START} for row in rows(300)]
    checked = check(pipeline(Sample(0.5, by="host")), EVENTS)
    found = run(spark, checked, events)
    hosts = {row["event"]["host"] for row in found}
    assert len(found) == sum(event["host"] in hosts for event in events)
    assert 0 < len(hosts) < len({event["host"] for event in events})


def hosts_table(folder: Any) -> str:
    table = pa.table(
        {
            "ip": [*HOSTS[:5], None, "unused"],
            "name": ["a", "b", None, "d", "e", "lost", "unused"],
            "floor": pa.array([1, 2, 3, None, 5, 6, 7], pa.uint8()),
            "since": pa.array([START] * 7, pa.timestamp("ms", "UTC")),
        }
    )
    pq.write_table(table, folder / "hosts.parquet")
    return str(folder / "hosts.parquet")


@pytest.mark.parametrize("missing", ["null", "reject"])
def test_a_table_enriches_by_key(spark: Any, tmp_path: Any, missing: str) -> None:
    step = Enrich(
        table=hosts_table(tmp_path), by="host", key="ip", take={"name": "name", "level": "floor", "since": "since"},
        missing=missing, name="hosts",
    )  # fmt: skip
    checked = check(pipeline(step, Keep("level > 0 or name is null")), EVENTS)
    known = dict(zip(HOSTS[:5], zip(["a", "b", None, "d", "e"], [1, 2, 3, None, 5], strict=True), strict=True))
    events = [row | {"at": START, "ms": number} for number, row in enumerate(rows())]
    found = run(spark, checked, events)
    results = {row["event"]["ms"]: row["event"] for row in found if row["event"] is not None}
    rejects = {json.loads(row["reject"]["event"])["ms"]: row["reject"] for row in found if row["reject"] is not None}
    for event in events:
        name, level = known.get(event["host"], (None, None))
        if missing == "reject" and event["host"] not in known:
            assert rejects.pop(event["ms"])["reason"] == (f"hosts.parquet has no row for host = {event['host']}")
        elif level is None and name is not None:
            assert event["ms"] not in results
        else:
            result = results.pop(event["ms"])
            assert (result["name"], result["level"]) == (name, level)
            assert plain(result["since"]) == (plain(START) if event["host"] in known else "None")
    assert not results
    assert not rejects


NETWORKS = [
    "0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "10.1.2.3/32", "10.1.2.128/25", "128.0.0.0/1",
    "::/0", "2001:db8::/32", "2001:db8:8000::/33", "2001:db8::/61", "2001:db8::1/128", "fe80::/10",
]  # fmt: skip
ADDRESSES = [
    "10.1.2.3", "10.1.2.4", "10.1.2.200", "10.1.9.9", "10.200.0.1", "9.9.9.9", "200.1.1.1", "255.255.255.255",
    "0.0.0.0", "2001:db8::1", "2001:db8::2", "2001:db8:8000::1", "2001:db8:0:7::1", "2001:db8:0:8::1", "fe80::1",
    "febf::1", "fec0::1", "::", "::1", "::ffff:10.1.2.3", "2001:DB8:0:0:0:0:0:1",
    "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "010.1.2.3", "10.1.2", "10.1.2.3.4", "10.1.2.256", " 10.1.2.3",
    "fe80::1%eth0", "1::2::3", "", "x",
]  # fmt: skip


@pytest.mark.parametrize("networks", [NETWORKS, NETWORKS[1:5], NETWORKS[8:]], ids=["all", "four", "six"])
def test_a_table_enriches_by_the_longest_prefix(spark: Any, tmp_path: Any, networks: list[str]) -> None:
    draw = random.Random(7)
    addresses = ADDRESSES + [str(ipaddress.IPv4Address(draw.getrandbits(32) & 0x8FFFFFFF)) for _ in range(30)]
    addresses += [str(ipaddress.IPv6Address((0x20010DB8 << 96) | draw.getrandbits(70))) for _ in range(30)]
    (tmp_path / "nets.csv").write_text("network,site\n" + "".join(f"{net},site {net}\n" for net in networks))
    step = Enrich(table=str(tmp_path / "nets.csv"), by="host", subnet="network", take=["site", "network"])
    checked = check(pipeline(step), EVENTS)
    base = rows(2)[1]
    found = run(spark, checked, [base | {"host": address} for address in addresses])
    assert sorted((row["event"]["host"], row["event"]["network"] or "") for row in found) == sorted(
        (address, longest(address, networks)) for address in addresses
    )
    assert all(row["event"]["site"] == (row["event"]["network"] and f"site {row['event']['network']}") for row in found)


def longest(text: str, networks: list[str]) -> str:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return ""
    if "%" in text:
        return ""
    inside = [net for net in networks if address in ipaddress.ip_network(net)]
    return max(inside, key=lambda net: ipaddress.ip_network(net).prefixlen, default="")


def test_two_tables_one_after_the_other(spark: Any, tmp_path: Any) -> None:
    (tmp_path / "kinds.csv").write_text("kind,owner\ndns,net\nlogin,sec\n")
    (tmp_path / "owners.csv").write_text("owner,phone\nnet,007\nsec,0815\n")
    steps = [
        Enrich(table=str(tmp_path / "kinds.csv"), by="kind", take=["owner"]),
        Enrich(
            table=str(tmp_path / "owners.csv"),
            by="upper(owner)",
            key="owner",
            take=["phone"],
            schema="o: [phone: string]",
        ),
        Enrich(table=str(tmp_path / "owners.csv"), by="owner", take={"tel": "phone"}, schema="o: [phone: string]"),
    ]
    found = run(spark, check(pipeline(*steps), EVENTS), [row | {"at": START} for row in rows()])
    assert {(row["event"]["kind"], row["event"]["tel"], row["event"]["phone"]) for row in found} == {
        ("dns", "007", None),
        ("login", "0815", None),
        ("performance", None, None),
    }


def test_missing_columns_are_named(spark: Any) -> None:
    from milepost.pipeline.tier1 import apply

    with pytest.raises(ConfigError, match="lack the columns at, kind"):
        apply(spark.range(1).withColumnRenamed("id", "host"), check(pipeline(), EVENTS))


FIRST_TIERS = [(each, made) for each in examples() for made in each.pipelines() if made.tier1]


@pytest.mark.parametrize(("example", "made"), FIRST_TIERS, ids=[made.name for _, made in FIRST_TIERS])
def test_the_first_tiers_of_the_examples(spark: Any, example: Example, made: Pipeline) -> None:
    checked = check(made, example.schemas[made.input[0]])
    events = [row for topic in made.input for row in example.events(topic)]
    wanted = [through(checked, event) for event in events]
    found = run(spark, checked, events)
    for number, column in enumerate(("event", "reject")):
        there = [row[column] for row in found if row[column] is not None]
        assert in_order(there) == in_order(row[number] for row in wanted if row[number] is not None)
