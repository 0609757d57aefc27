"""A pipeline is a file or Python objects with the same fields, and whatever is wrong with it is told at once."""

from __future__ import annotations

import pickle
import tomllib
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import ConfigError, PipelineError
from milepost.pipeline.definition import Control, Lane, Late, Pipeline, Spark, load_pipeline, toml
from milepost.pipeline.definition.quantity import MICROSECONDS, Duration, size
from milepost.pipeline.definition.rule import AbsenceRule, MonitorRule, SequenceRule, ThresholdRule, WindowRule
from milepost.pipeline.definition.step import Cleanse, Derive, Discard, Enrich, Keep, Project, Rename, Sample
from tests.example_pipelines import examples

WHOLE = """
name = "dns"
broker = "milepost://10.0.0.1:7450"
input = ["events", "more-events"]
time = "at"
disorder = "500ms"
lanes = 3
apart = true
output = "dns.clean"
rejects = "dns.bad"
starting = "2026-03-01T00:00:00Z"
checkpoint = "/var/lib/dns"

[late]
to = "dns.late"

[[lane]]
master = "local[1]"
cores = [0]

[[lane]]
cores = [1, 2]
"spark.executor.memory" = "2g"

[spark]
master = "spark://10.0.0.1:7077"
spark.sql.shuffle.partitions = 4
"spark.speculation" = true

[control]
interval = "1s"
flow = false
queue_bytes = "1MiB"
reference = "400kB"
settling = 7

[[tier1]]
discard = "kind = 'test'"

[[tier1]]
name = "some"
keep = "size > 0"

[[tier1]]
project = ["at", "host", "ms"]

[[tier1]]
rename = { host = "ip" }

[[tier1]]
derive = { seconds = "ms / 1000.0" }

[[tier1]]
sample = 0.5
by = "ip"

[[tier1]]
cleanse = "seconds >= 0"
reason = "a time below zero"

[[tier1]]
name = "hosts"
[tier1.enrich]
table = "hosts.csv"
by = "ip"
take = ["name"]
missing = "reject"

[[tier1]]
enrich = { url = "sqlite:///sites.db", query = "select * from site", by = "ip", subnet = "net", take = { at = "site" } }

[[monitor]]
name = "slow"
of = "seconds"
where = "seconds > 0"
window = "1m"
every = "10s"
quantiles = [0.5, 0.999]

[[tier2]]
name = "peaks"
to = "alerts"
window = "10s"
slide = "5s"
by = ["ip"]
compute = { peak = "max(seconds)" }
where = "seconds > 1"
having = "peak > 2"
emit = { ip = "ip", peak = "peak" }

[[tier2]]
name = "both"
to = "pairs"
first = "ms > 1"
then = "ms > 2"
within = "1h"
by = ["ip"]

[[tier2]]
name = "none"
to = "gaps"
first = "ms > 1"
without = "ms > 2"
within = "1h"

[[tier2]]
name = "single"
to = "singles"
where = "seconds > monitor.slow.p50"
"""

AS_OBJECTS = Pipeline(
    name="dns",
    broker="milepost://10.0.0.1:7450",
    input=("events", "more-events"),
    time="at",
    disorder=Duration.of("500ms"),
    lanes=3,
    apart=True,
    output="dns.clean",
    rejects="dns.bad",
    starting="2026-03-01T00:00:00Z",
    checkpoint="/var/lib/dns",
    late=Late("dns.late"),
    lane=(Lane("local[1]", (0,)), Lane(cores=(1, 2), conf={"spark.executor.memory": "2g"})),
    spark=Spark("spark://10.0.0.1:7077", {"spark.sql.shuffle.partitions": "4", "spark.speculation": "true"}),
    control=Control(Duration.of("1s"), flow=False, queue_bytes=1 << 20, reference=400_000, settling=7),
    tier1=(
        Discard("kind = 'test'"),
        Keep("size > 0", "some"),
        Project(("at", "host", "ms")),
        Rename({"host": "ip"}),
        Derive({"seconds": "ms / 1000.0"}),
        Sample(0.5, ("ip",)),
        Cleanse("seconds >= 0", "a time below zero"),
        Enrich(table="hosts.csv", by="ip", take={"name": "name"}, missing="reject", name="hosts"),
        Enrich(url="sqlite:///sites.db", query="select * from site", by="ip", subnet="net", take={"at": "site"}),
    ),
    monitor=(MonitorRule("slow", "seconds", "seconds > 0", Duration.of("60s"), Duration.of("10s"), (0.5, 0.999)),),
    tier2=(
        WindowRule(
            "peaks",
            "alerts",
            Duration.of("10s"),
            {"peak": "max(seconds)"},
            slide=Duration.of("5s"),
            by=("ip",),
            where="seconds > 1",
            having="peak > 2",
            emit={"ip": "ip", "peak": "peak"},
        ),
        SequenceRule("both", "pairs", "ms > 1", "ms > 2", Duration.of("1h"), ("ip",)),
        AbsenceRule("none", "gaps", "ms > 1", "ms > 2", Duration.of("1h")),
        ThresholdRule("single", "singles", "seconds > monitor.slow.p50"),
    ),
)
SMALL = {"name": "p", "time": "at", "input": ("events",)}


def test_a_file_and_objects_say_the_same() -> None:
    assert Pipeline.from_toml(WHOLE) == AS_OBJECTS


def test_what_is_printed_reads_back() -> None:
    assert Pipeline.from_toml(str(AS_OBJECTS)) == AS_OBJECTS
    assert AS_OBJECTS.fingerprint == Pipeline.from_toml(WHOLE).fingerprint
    assert Pipeline(**SMALL).fingerprint != AS_OBJECTS.fingerprint


def test_defaults_are_left_out_of_what_is_printed() -> None:
    assert str(Pipeline(**SMALL)) == 'name = "p"\ntime = "at"\ninput = ["events"]\n'


@pytest.mark.parametrize("example", examples(), ids=lambda each: each.name)
def test_examples_read_back(example) -> None:
    for pipeline in example.pipelines():
        assert Pipeline.from_toml(str(pipeline)) == pipeline


def test_a_pipeline_goes_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(AS_OBJECTS)) == AS_OBJECTS


def test_python_takes_what_the_file_takes() -> None:
    made = Pipeline(**SMALL, disorder="3s", tier1=[Sample(1, by="host"), Project("at")], control=Control(interval="1s"))
    assert made.disorder == Duration(3_000_000)
    assert made.tier1 == (Sample(1.0, ("host",)), Project(("at",)))
    assert made.control.interval.seconds == 1
    assert Pipeline(**SMALL, disorder=timedelta(seconds=3)).disorder == made.disorder


WRONG = {
    'inptu = ["events"]': "'inptu' is not a known key; did you mean 'input'?",
    "time = 3": "time: 3 is not text",
    'lanes = "two"': "lanes: 'two' is not a whole number",
    "lanes = true": "lanes: True is not a whole number",
    "lanes = 0": "lanes: 0: takes 1 to 64",
    'disorder = "2 weeks"': "disorder: '2 weeks' is not a duration",
    "disorder = 2": "disorder: 2 is not a duration",
    'starting = "yesterday"': "starting: 'yesterday' is neither earliest nor latest",
    'starting = "2026-03-01T00:00:00"': "nor a time such as",
    'output = "events"': "output: is 'events', which is already the input",
    'output = "p.lane.0"': "'p.lane.0' is one of the pipeline's own topics",
    'rejects = "a b"': "rejects: 'a b' is not a name of a topic",
    'from = ["q"]': "from: cannot be combined with 'input'",
    "late = 3": "late: 3 is not a table; write it under [late]",
    "[late]\nto = 3": "[late], to: 3 is not text",
    "[late]": "[late]: 'to' is missing",
    "[spark]\nmastre = 'x'": "[spark], mastre: is not a setting of Spark: the names of settings begin with 'spark.'",
    "[spark]\n'spark.x' = [1]": "[spark]: spark.x = [1] is not a setting",
    "[[lane]]\n[[lane]]\n[[lane]]": "lane: there are 3 [[lane]] tables and 2 lanes",
    "[[lane]]\ncores = [-1]": "[[lane]] 1, cores: -1 is not a processor",
    "[control]\nintervall = '2s'": "[control]: 'intervall' is not a known key; did you mean 'interval'?",
    "[control]\ninterval = '0s'": "[control], interval: has no length",
    "[control]\nreference = 1.5": "[control], reference: 1.5 is not a fraction",
    "[control]\nreference = '1GB'": "[control], reference: 1000000000 bytes are not inside the queue of 64000000",
    "[control]\nqueue_bytes = '1XB'": "[control], queue_bytes: '1XB' is not a number of bytes",
    "[control]\nsettling = 0": "[control], settling: 0 intervals: takes 1 to 1,000",
    "tier1 = ['x']": "tier1: each one is a table; write it under [[tier1]]",
    "[[tier1]]\nkepe = 'x'": "[[tier1]] 1: does nothing: it needs one of discard, keep",
    "[[tier1]]\nkeep = 'x'\ndiscard = 'y'": "[[tier1]] 1: has keep and discard: write a [[tier1]] for each",
    "[[tier1]]\nkeep = 'x'\nnmae = 'y'": "[[tier1]] 1: 'nmae' is not a known key; did you mean 'name'?",
    "[[tier1]]\nname = 'n'\nkeep = 3": "[[tier1]] 1 'n', keep: 3 is not text",
    "[[tier1]]\nproject = []": "[[tier1]] 1, project: names no field",
    "[[tier1]]\nproject = ['a', 'a']": "[[tier1]] 1, project: names 'a' twice",
    "[[tier1]]\nrename = { a = 'c', b = 'c' }": "[[tier1]] 1, rename: gives two fields the name 'c'",
    "[[tier1]]\nderive = 'a'": "[[tier1]] 1, derive: 'a' is not a table",
    "[[tier1]]\nsample = 0": "[[tier1]] 1, sample: 0 is not a share",
    "[[tier1]]\nsample = 1.5": "[[tier1]] 1, sample: 1.5 is not a share",
    "[[tier1]]\nenrich = 'hosts.csv'": "[[tier1]] 1, enrich: 'hosts.csv' is not a table; write enrich = {",
    "[[tier1]]\nenrich = { table = 'h.csv', by = 'a' }": "[[tier1]] 1, enrich: 'take' is missing",
    "[[tier1]]\nenrich = { by = 'a', take = ['b'] }": "[[tier1]] 1, enrich, table: is missing",
    "[[tier1]]\nenrich = { table = 'h.txt', by = 'a', take = ['b'] }": "enrich, format: does not follow from the name",
    "[[tier1]]\nenrich = { table = 'h.csv', by = 'a', take = ['b', 'b'] }": "enrich, take: names 'b' twice",
    "[[tier1]]\nenrich = { table = 'h.csv', by = 'a', key = 'k', subnet = 's', take = ['b'] }": "combined with 'key'",
    "[[tier1]]\nenrich = { table = 'h.csv', by = 'a', take = ['b'], missing = 'drop' }": "'drop' is none of 'null'",
    "[[tier1]]\nenrich = { url = 'sqlite:///x', by = 'a', take = ['b'] }": "enrich, query: is missing",
    "[[tier1]]\nkeep = 'x'\nname = 'n'\n[[tier1]]\nkeep = 'x'\nname = 'n'": "tier1: two have the name 'n'",
    "[[monitor]]\nname = 'a-b'": "monitor: 'a-b' cannot be used as monitor.a-b",
    "[[monitor]]\nname = 'm'\nquantiles = [0.5]": "[[monitor]] 1 'm', quantiles: need a value",
    "[[monitor]]\nname = 'm'\nof = 'x'\nquantiles = [1.0]": "[[monitor]] 1 'm', quantiles: 1 is not a quantile",
    "[[monitor]]\nname = 'm'\nevery = '2m'": "[[monitor]] 1 'm', every: is more than 0 and at most the window, 1m",
    "[[tier2]]\nname = 'r'\nwhere = 'x'": "[[tier2]] 1 'r': 'to' is missing",
    "[[tier2]]\nname = 'r'\nto = 't'\nwindow = '0s'": "[[tier2]] 1 'r', window: has no length",
    "[[tier2]]\nname = 'r'\nto = 't'\nwindow = '1s'\nslide = '2s'": "[[tier2]] 1 'r', slide: is more than 0",
    "[[tier2]]\nname = 'r'\nto = 't'\nwindow = '1h'\nslide = '1ms'": "puts each event into 3,600,000 windows",
    "[[tier2]]\nname = 'r'\nto = 't'\nfirst = 'x'": "has 'first', but neither 'then' (a sequence) nor 'without'",
    "[[tier2]]\nname = 'r'\nto = 't'\nfirst = 'x'\nthen = 'y'\nwithout = 'z'": "and 'without': a rule has one kind",
    "[[tier2]]\nname = 'r'\nto = 't'\nwhere = 'x'\nhaving = 'y'": "[[tier2]] 1 'r': 'having' is not a known key",
    "[[tier2]]\nname = 'r'\nto = 'events'\nwhere = 'x'": "tier2 'r', to: is 'events', which is already the input",
}


@pytest.mark.parametrize("text", WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_is_told_with_its_place(text: str) -> None:
    found = tomllib.loads(text)
    head = "".join(f'{key} = "{value}"\n' for key, value in {"name": "p", "time": "at"}.items() if key not in found)
    head += 'input = ["events"]\n' if not {"inptu"} & set(found) else ""
    with pytest.raises(PipelineError) as caught:
        Pipeline.from_toml(head + text)
    assert WRONG[text] in str(caught.value)
    assert len(caught.value.problems) == (2 if "inptu" in text else 1)  # then the input is missing as well


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(PipelineError) as caught:
        Pipeline.from_toml('lanes = "x"\n[[tier1]]\nkeep = 3\n[[tier2]]\nname = "r"\n[control]\nflow = 1\n', "bad.toml")
    assert str(caught.value) == (
        "bad.toml has 7 problems:\n"
        "  [control], flow: 1 is not true or false\n"
        "  [[tier1]] 1, keep: 3 is not text\n"
        "  [[tier2]] 1 'r': 'to' is missing\n"
        "  [[tier2]] 1 'r': 'where' is missing\n"
        "  'name' is missing\n"
        "  'time' is missing\n"
        "  lanes: 'x' is not a whole number"
    )
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    assert again.problems == caught.value.problems


def test_a_second_tier_of_others_has_no_first() -> None:
    rule = ThresholdRule("r", "t", "x")
    assert Pipeline(name="c", time="at", sources=["a", "b"], tier2=[rule]).sources == ("a", "b")
    for more, said in (
        ({"tier1": [Keep("x")], "tier2": [rule]}, "tier1: cannot be combined with 'from'"),
        ({"output": "o", "tier2": [rule]}, "output: cannot be combined with 'from'"),
        ({}, "tier2: is missing"),
        ({"sources": ["c"], "tier2": [rule]}, "from: names the pipeline itself"),
    ):
        with pytest.raises(PipelineError, match=said):
            Pipeline(**{"name": "c", "time": "at", "sources": ["a"]} | more)


def test_python_objects_of_another_kind_are_refused() -> None:
    with pytest.raises(PipelineError, match="is not a step: steps are Discard, Keep"):
        Pipeline(**SMALL, tier1=["discard"])
    with pytest.raises(PipelineError, match="is not a rule of tier 2: rules are ThresholdRule"):
        Pipeline(**SMALL, tier2=[Keep("x")])
    with pytest.raises(PipelineError, match="Discard has a problem"):
        Discard(3)


def test_files_that_cannot_be_read(tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*none\.toml: No such file"):
        load_pipeline(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("name = \n")
    with pytest.raises(ConfigError, match=r"bad\.toml is not TOML: Invalid value"):
        load_pipeline(tmp_path / "bad.toml")
    (tmp_path / "bad.toml").write_bytes(b"name = '\xff'\n")
    with pytest.raises(ConfigError, match="not text in UTF-8"):
        load_pipeline(tmp_path / "bad.toml")


def test_tables_are_beside_the_file(tmp_path) -> None:
    (tmp_path / "p.toml").write_text(WHOLE)
    hosts, sites = load_pipeline(tmp_path / "p.toml").tier1[-2:]
    assert hosts.table == str(tmp_path / "hosts.csv")
    assert sites.url == f"sqlite:///{tmp_path}/sites.db"


@given(st.integers(0, 366 * 86_400 * 10**6))
def test_durations_read_back(us: int) -> None:
    assert Duration.of(str(Duration(us))) == Duration(us)


@pytest.mark.parametrize(
    ("text", "us"), [("1.5s", 1_500_000), ("10us", 10), ("0s", 0), (" 2 h ", 7_200_000_000), ("0.25m", 15_000_000)]
)
def test_durations(text: str, us: int) -> None:
    assert Duration.of(text).us == us


@pytest.mark.parametrize("text", ["", "s", "1", "-1s", "1.5us", "1e3s", "1 S", "2y", "1000d", None, 1.0, "１s"])
def test_no_durations(text: object) -> None:
    with pytest.raises(ConfigError):
        Duration.of(text)
    assert len(MICROSECONDS) == 6


def test_sizes() -> None:
    assert [size(given) for given in (5, "5B", "64MB", "2GiB", "1.5kB")] == [5, 5, 64_000_000, 2 << 30, 1500]
    for given_ in ("5", "5 XB", 1.5, True, None):
        with pytest.raises(ConfigError):
            size(given_)


PLAIN = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), PLAIN, max_size=4))
def test_printed_toml_reads_back(table: dict) -> None:
    mixed = [value for value in table.values() if isinstance(value, list) and len({type(v) for v in value}) > 1]
    if not mixed:  # a list of tables and something else has no heading to stand under
        assert tomllib.loads(toml.printed(table)) == table
