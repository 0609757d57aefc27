"""`milepost pipeline check` as a user runs it: a plan, or everything that is wrong."""

import signal
import subprocess

import pytest

from milepost.client import Client
from milepost.pipeline.own_topics import OwnTopics

from .conftest import ROOT
from .process import PATIENCE, Up, started

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
    check = ("pipeline", "check", EXAMPLES / "rule-2/rule-2.toml", "--broker", broker.address)
    done = milepost(*check)
    assert done.returncode == 1
    assert "there is no topic 'rule2-events'" in done.stderr
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
    assert "note: [[tier1]] 1: monitor.m is measured on the results of tier 1" in done.stderr


def test_a_file_that_is_no_pipeline(milepost, tmp_path):
    (tmp_path / "p.toml").write_text("name = 3\n")
    done = milepost("pipeline", "check", tmp_path / "p.toml", "--schema", "e: [at: timestamp]")
    assert done.returncode == 1
    assert "p.toml has 2 problems:\n  'time' is missing\n  name: 3 is not text" in done.stderr


def test_ctrl_c_while_spark_starts_ends_in_one_line(broker, tmp_path):
    (tmp_path / "p.toml").write_text('name = "early"\ninput = "early-events"\ntime = "at"\noutput = "early-out"\n')
    with Client(broker.address) as client:
        client.declare_topic("early-events", "e: [at: timestamp]", durable=True)
    options = ("--broker", broker.address, "--checkpoint", tmp_path / "checkpoint")
    process = started("pipeline", "run", tmp_path / "p.toml", *options, stderr=subprocess.PIPE, text=True)
    said = process.stderr.readline()  # the last before Spark is started
    process.send_signal(signal.SIGINT)
    said += process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == 130
    lines = [line for line in said.splitlines() if "incubator" not in line]  # which Java says when it is quick enough
    assert len(lines) == 2
    assert lines[1].startswith("milepost: interrupted")


def test_draining_without_an_end_of_the_input_is_refused(milepost, tmp_path):
    done = milepost("pipeline", "run", tmp_path / "p.toml", "--drain")
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("milepost: --drain closes windows at the end of the input, so it needs --once")


def test_topics_that_pipelines_made_for_themselves_are_counted_and_not_listed(broker, ask):
    with Client(broker.address) as client:
        OwnTopics("dns").declare(client)
        clean = client.declare_topic("dns.clean", "e: [at: timestamp]", durable=True)
        OwnTopics("dns").declare_lanes(client, 2, clean.schema)
        client.declare_topic("traffic.control", "e: [at: timestamp]")

    def listed(*arguments):
        done = ask("topic", "list", *arguments)
        assert done.returncode == 0, done.stderr
        return [line.split()[0] for line in done.stdout.splitlines()[1:]], done.stderr

    hidden = "topics of pipelines hidden; --all shows them"
    names, said = listed()
    assert {"dns.clean", "traffic.control"} <= set(names)
    assert not {"dns.marks", "dns.lane.0"} & set(names)
    assert hidden in said
    assert listed("dns.>") == (["dns.clean"], f"7 {hidden}\n")
    assert listed("dns.lane.*") == ([], f"2 {hidden}\n")
    assert listed("dns.lane.*", "--all") == (["dns.lane.0", "dns.lane.1"], "")
