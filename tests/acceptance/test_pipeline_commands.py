"""`milepost pipeline check` as a user runs it: a plan, or everything that is wrong."""

import pytest

from .conftest import ROOT
from .process import Up

EXAMPLES = ROOT / "examples" / "pipelines"


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    folder = tmp_path_factory.mktemp("up")
    up = Up(folder / "stderr", "--listen", "127.0.0.1:0", "--http", "", "--zmq", "", "--store", folder / "milepost.db")
    assert up.address, (up.lines, up.errors.read_text())
    yield up
    up.stop()


def test_a_plan_without_a_broker(milepost):
    done = milepost(
        "pipeline",
        "check",
        EXAMPLES / "host-names/host-names.toml",
        "--schema",
        f"@{EXAMPLES}/host-names/flows.schema",
        COLUMNS="200",
    )
    assert done.returncode == 0, done.stderr
    for line in (
        "input flows  from earliest",
        "enrich hosts  hosts.csv (3 rows) by source = ip, else reject",
        "rack: long? = rack",
        "enrich sites  sites.csv (4 rows) by target in network",
        "outside: bool = target_site is null",
        "rejects to unknown-hosts",
    ):
        assert line in done.stdout


def test_problems_are_listed(milepost):
    done = milepost(
        "pipeline", "check", EXAMPLES / "rule-1/rule-1.toml", "--schema", "event: [at: timestamp, kind: string]"
    )
    assert done.returncode == 1
    assert "pipeline 'rule1' has a problem:" in done.stderr
    assert "[[tier1]] 1 'no test machines', discard: there is no 'host'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_schema_comes_from_the_broker(milepost, broker):
    from milepost.client import Client

    check = ("pipeline", "check", EXAMPLES / "rule-2/rule-2.toml", "--broker", broker.address)
    done = milepost(*check)
    assert done.returncode == 1
    assert "no topic is called 'rule2-events'" in done.stderr
    with Client(broker.address) as client:
        client.declare_topic("rule2-events", (EXAMPLES / "rule-2/rule2-events.schema").read_text(), durable=True)
    done = milepost(*check)
    assert done.returncode == 0, done.stderr
    assert "window overload  → rule2-alerts" in done.stdout
    assert "compute peak = max(load)" in done.stdout


def test_a_step_that_decides_what_its_monitor_measures_is_noted(milepost, tmp_path):
    (tmp_path / "p.toml").write_text(
        'name = "p"\ninput = "e"\ntime = "at"\n[[monitor]]\nname = "m"\n[[tier1]]\nkeep = "monitor.m.rate > 1"\n'
    )
    done = milepost("pipeline", "check", tmp_path / "p.toml", "--schema", "e: [at: timestamp]")
    assert done.returncode == 0, done.stderr
    assert "note: [[tier1]] 1: monitor.m is measured on what tier 1 lets through" in done.stderr


def test_a_file_that_is_no_pipeline(milepost, tmp_path):
    (tmp_path / "p.toml").write_text("name = 3\n")
    done = milepost("pipeline", "check", tmp_path / "p.toml", "--schema", "e: [at: timestamp]")
    assert done.returncode == 1
    assert "p.toml has 2 problems:\n  'time' is missing\n  name: 3 is not text" in done.stderr
