"""Pipelines as they are run: through kills, on a cluster, by two at once, and with things that do not fit."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic, time
from typing import Any

import pytest

from milepost.client import Client
from milepost.errors import BrokerError, ConfigError
from milepost.pipeline.definition import Pipeline
from milepost.pipeline.definition.quantity import Duration
from milepost.pipeline.own_topics import IEP, OwnTopics, ends, last_progress
from milepost.pipeline.progress import ProgressSetting
from milepost.pipeline.runner import Runner
from milepost.pipeline.status import PipelineStatus
from milepost.pipeline.takeover import take_over
from soak.pipeline import PipelineScenario, descendants
from soak.processes import Broker
from tests.integration.spark_cluster import Cluster

pytestmark = pytest.mark.slow

SCHEMA = "event: [number: long, at: timestamp, host: string, load: double]"
START = datetime(2026, 3, 1, tzinfo=UTC)
RULES = """
name = "{name}"
broker = "{broker}"
input = "events"
time = "at"
disorder = "1s"
output = "{name}-out"

[[tier1]]
discard = "number % 7 = 0"

[[tier2]]
name = "counts"
to = "{name}-counts"
window = "1s"
by = ["host"]
compute = {{ least = "min(number)" }}
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("broker")
    made = Broker(folder, str(folder / "store.db"))
    made.start()
    made.wait()
    with Client(made.address) as client:
        client.declare_topic("events", SCHEMA, durable=True)
        client.put_many("events", rows(6_000))
    yield made.address
    made.stop()


def rows(count: int, first: int = 0) -> list[dict[str, Any]]:
    """Half a second out of order. From `first` on all are later than those before: after a silence nobody waits."""
    return [
        {
            "number": number,
            "at": START + timedelta(milliseconds=2 * number - number * 37 % 500 + 2 * first),
            "host": f"host-{number % 5}",
            "load": number % 11 / 4,
        }
        for number in range(first, count)
    ]


def run(broker: str, name: str, folder: Path, *more: str, during: Any = None) -> str:
    """`milepost pipeline run --once` in a process of its own, as a user does it; what it said."""
    file = folder / f"{name}.toml"
    file.write_text(RULES.format(name=name, broker=broker))
    log = folder / f"{name}.log"
    with log.open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "milepost.cli", "pipeline", "run", str(file), "--once",
             "--checkpoint", str(folder / f"{name}-checkpoint"), *more],
            stdout=said, stderr=said, start_new_session=True, env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        )  # fmt: skip
    try:
        if during is not None:
            during()
        code = process.wait(400)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, 9)
            process.wait()
    told = log.read_text(errors="replace")
    assert code == 0, told[-4000:]
    return told


def pause() -> None:
    """Before the next look at what others do: looking all the time would take the core that they need for it."""
    select.select([], [], [], 0.1)


def held(client: Client, topic: str) -> list[dict[str, Any]]:
    ends = {int(each["log"]): int(each["next"]) for each in client.look(topic)["logs"]}
    return [row for batch in client.read(topic, {}, ends) for row in batch.to_pylist()]


def test_kills_of_driver_worker_and_broker_lose_and_repeat_nothing(tmp_path: Path) -> None:
    seed = int.from_bytes(os.urandom(4), "big")
    # Few events, so that the end does not take longer than the kills.
    scenario = PipelineScenario(tmp_path, seed, pause_s=0.5, batch=100)
    try:
        scenario.open()
        scenario.cycles(2)
        complaints = scenario.close()  # which kills the driver, too
    finally:
        scenario.clear()
    assert not complaints, f"seed {seed}: {complaints}"
    assert set(scenario.kills) == {"driver", "worker", "broker"}


def test_a_cluster_makes_the_same_as_one_machine_and_goes_on_without_a_worker(
    broker: str, tmp_path: Path, spark: Any
) -> None:
    alone = Pipeline.from_toml(RULES.format(name="alone", broker=broker))
    with Runner(alone, checkpoint=tmp_path / "alone", once=True, keep_session=True) as runner:
        runner.run()
    with Client(broker) as client, Cluster(tmp_path) as cluster:

        def kill_one() -> None:
            """When something has come through, and so its executors are at work."""
            until = monotonic() + 300
            while monotonic() < until:
                names = {each.name for each in client.topics("spread.marks")}
                if names and sum(int(each["next"]) for each in client.look("spread.marks")["logs"]):
                    cluster.kill(0)
                    return
                pause()

        run(broker, "spread", tmp_path, "--master", cluster.url, during=kill_one)
        assert cluster.workers[0].poll() is not None
        for what in ("out", "counts"):
            one, many = (
                Counter(tuple(sorted(row.items())) for row in held(client, f"{name}-{what}"))
                for name in ("alone", "spread")
            )
            assert one == many
        numbers = [row["number"] for row in held(client, "spread-out")]
    assert sorted(numbers) == [number for number in range(6_000) if number % 7]


def test_it_goes_on_where_it_was_and_without_its_checkpoint_too(broker: str, tmp_path: Path, spark: Any) -> None:
    pipeline = Pipeline.from_toml(RULES.format(name="again", broker=broker))

    def run(folder: str) -> None:
        with Runner(pipeline, checkpoint=tmp_path / folder, once=True, keep_session=True) as runner:
            runner.run()

    with Client(broker) as client:
        run("first")
        run("first")
        progress = held(client, "again.marks")
        run("second")
        # Whoever goes on with the first one, not knowing of the second, writes nothing.
        for sink in {each["sink"] for each in progress}:
            assert client.publish(sink, 1_000, [], {"again.marks": progress[-1:]}).repeated
        numbers = [row["number"] for row in held(client, "again-out")]
    assert sorted(numbers) == [number for number in range(6_000) if number % 7]
    with pytest.raises(ConfigError, match=r"has continued with another checkpoint than .*/first; remove that folder"):
        run("first")


def test_a_checkpoint_of_another_pipeline_is_refused(broker: str, tmp_path: Path) -> None:
    pipeline = Pipeline.from_toml(RULES.format(name="own", broker=broker))
    with Runner(pipeline, checkpoint=tmp_path / "own"):
        pass
    with pytest.raises(ConfigError, match="belongs to pipeline 'own', not to 'other'"):
        with Runner(Pipeline.from_toml(RULES.format(name="other", broker=broker)), checkpoint=tmp_path / "own"):
            pass
    with pytest.raises(ConfigError, match="has 2 lanes, and there are 3 now"):
        with Runner(replace(pipeline, lanes=3), checkpoint=tmp_path / "own"):
            pass
    (tmp_path / "junk").mkdir()
    (tmp_path / "junk" / "file").write_text("mine")
    with pytest.raises(ConfigError, match="is not empty"):
        with Runner(pipeline, checkpoint=tmp_path / "junk"):
            pass


def test_an_input_that_is_not_there_or_not_durable_is_said(broker: str, tmp_path: Path) -> None:
    pipeline = Pipeline.from_toml(RULES.format(name="own", broker=broker))
    with pytest.raises(BrokerError, match="which the broker does not have; declare it first"):
        with Runner(replace(pipeline, input=("nothing",)), checkpoint=tmp_path / "a"):
            pass
    with Client(broker) as client:
        client.declare_topic("live-events", SCHEMA)
    with pytest.raises(BrokerError, match="is live"):
        with Runner(replace(pipeline, input=("live-events",)), checkpoint=tmp_path / "b"):
            pass


def test_late_events_go_where_the_rule_says_and_are_counted(broker: str, tmp_path: Path, spark: Any) -> None:
    text = RULES.format(name="late", broker=broker).replace('input = "events"', 'input = "late-events"')
    pipeline = Pipeline.from_toml(text.replace("[[tier1]]", '[late]\nto = "late-late"\n\n[[tier1]]', 1))
    with Client(broker) as client:
        client.declare_topic("late-events", SCHEMA, durable=True)
        client.put_many("late-events", rows(1_000))
        late = 0
        for more in ([], [{"number": 5_001, "at": START, "host": "late", "load": 1.0}]):
            if more:
                client.put_many("late-events", more)
            with Runner(pipeline, checkpoint=tmp_path / "late", once=True, keep_session=True) as runner:
                runner.run()
                late = runner.totals.late
        assert [row["number"] for row in held(client, "late-late")] == [5_001]
        assert late == 1
        assert 5_001 not in [row["number"] for row in held(client, "late-out")]


def test_draining_closes_each_open_window_once_also_when_it_is_interrupted(
    broker: str, tmp_path: Path, spark: Any
) -> None:
    text = RULES.format(name="drained", broker=broker).replace('input = "events"', 'input = "drained-events"')
    text += """
[[tier2]]
name = "silent"
to = "drained-silent"
first = "number % 7 = 1"
without = "number % 7 = 1"
within = "1h"
by = ["host"]
"""
    text = text.replace("[[tier1]]", 'lanes = 1\n\n[late]\nto = "drained-late"\n\n[[tier1]]', 1)
    pipeline = Pipeline.from_toml(text)
    made = rows(1_000)
    last = START + timedelta(hours=1, seconds=2)  # after which nothing of these events is open
    offsets = tmp_path / "drained" / "tier-2" / "offsets"

    def planned() -> bool:
        """Whether the micro-batch that drains is in Spark's log, and so is done or repeated whatever happens."""
        found = sorted((each for each in offsets.glob("*") if each.name.isdigit()), key=lambda each: int(each.name))
        times = [json.loads(each.read_text().splitlines()[-1])["time"] for each in found[-1:]]
        return any(time >= (last.timestamp() - 3) * 1e6 for time in times)

    def drain(until: Any = lambda: False) -> Runner:
        with Runner(pipeline, checkpoint=tmp_path / "drained", once=True, drain=True, keep_session=True) as runner:
            runner.run(until)
        return runner

    with Client(broker) as client:
        client.declare_topic("drained-events", SCHEMA, durable=True)
        client.put_many("drained-events", made)
        expected = Counter(
            (row["host"], row["at"].replace(microsecond=0)) for row in made if row["number"] % 7
        )  # a row for each window and host
        drain(until=planned)
        drain()
        told = PipelineStatus(client, "drained")
        told.refresh()
        assert not told.running(time())  # it has just ended
        counts = held(client, "drained-counts")
        assert Counter({(row["host"], row["window_start"]): row["count"] for row in counts}) == expected
        assert len(counts) == len(expected)
        for host in {row["host"] for row in made}:
            starts = [row["window_start"] for row in counts if row["host"] == host]
            assert starts == sorted(starts)
        silent = sorted(row["host"] for row in held(client, "drained-silent"))
        assert silent == [f"host-{number}" for number in range(5)]
        late = {"number": 5_001, "at": START + timedelta(minutes=59), "host": "late", "load": 1.0}
        client.put_many("drained-events", [late, {**late, "number": 5_002, "at": last + timedelta(hours=1)}])
        assert drain().totals.late == 1
        assert [row["number"] for row in held(client, "drained-late")] == [5_001]
        assert [row["number"] for row in held(client, "drained-out")][-1] == 5_002
        assert [row["host"] for row in held(client, "drained-counts")[len(counts) :]] == ["late"]


def test_draining_needs_an_end_of_the_input(broker: str, tmp_path: Path) -> None:
    pipeline = Pipeline.from_toml(RULES.format(name="own", broker=broker))
    with pytest.raises(ConfigError, match="it needs once as well"):
        Runner(pipeline, checkpoint=tmp_path / "a", drain=True)


def test_more_results_than_the_queue_holds_may_have_to_wait_for_their_order(
    broker: str, tmp_path: Path, spark: Any
) -> None:
    """None of these can be merged before all are there, and the result queue has room for a few of them."""
    text = RULES.format(name="held", broker=broker).replace('input = "events"', 'input = "held-events"')
    pipeline = Pipeline.from_toml(
        text.replace('disorder = "1s"', 'disorder = "1h"\nlanes = 1') + "\n[control]\nqueue_bytes = 65536\n"
    )
    count = 100_000  # more than are admitted before it is known how large they are
    with Client(broker) as client:
        client.declare_topic("held-events", SCHEMA, durable=True)
        earlier = timedelta(days=60 * 365)  # there were events before 1970, too
        client.put_many("held-events", [{**row, "at": row["at"] - earlier} for row in rows(count)])
        ended = monotonic() + 600  # of a hang; the cores may be busy
        with Runner(pipeline, checkpoint=tmp_path / "held", once=True, keep_session=True) as runner:
            runner.run(until=lambda: monotonic() > ended)
            assert runner.totals.done == [count]
        made = held(client, "held-out")
    assert sorted(row["number"] for row in made) == [number for number in range(count) if number % 7]
    assert [row["at"] for row in made] == sorted(row["at"] for row in made)


def test_a_schema_that_evolves_while_it_runs_and_a_time_that_tier_1_makes(
    broker: str, tmp_path: Path, spark: Any
) -> None:
    text = RULES.format(name="evolving", broker=broker).replace('input = "events"', 'input = "evolving-events"')
    pipeline = Pipeline.from_toml(text.replace("[[tier1]]", "[[tier1]]\nderive = { at = 'seen' }\n\n[[tier1]]", 1))
    schema = SCHEMA.replace("]", ", seen: timestamp]")

    def seen(made: list[dict[str, Any]], **more: Any) -> list[dict[str, Any]]:
        return [{**row, "seen": row["at"] + timedelta(hours=1), **more} for row in made]

    with Client(broker) as client:
        client.declare_topic("evolving-events", schema, durable=True)
        client.put_many("evolving-events", seen(rows(500)))
        with Runner(pipeline, checkpoint=tmp_path / "evolving", keep_session=True) as runner:
            runner.run(until=lambda: sum(runner.totals.done) == 500)
            client.declare_topic("evolving-events", schema.replace("]", ", more: string?]"))
            client.put_many("evolving-events", seen(rows(1_000, first=500), more="x"))
            runner.run_on(until=lambda: sum(runner.totals.done) == 1_000)
        client.put_many("evolving-events", seen(rows(1_200, first=1_000), more=None))
        with Runner(pipeline, checkpoint=tmp_path / "evolving", once=True, keep_session=True) as runner:
            runner.run()
            assert (runner.totals.rejected, runner.totals.late) == (0, 0)
        made = sorted(row["number"] for row in held(client, "evolving-out"))
    assert made == [number for number in range(1_200) if number % 7]


def test_a_lane_apart_that_is_killed_is_started_again_and_ctrl_c_ends_all_in_order(
    broker: str, tmp_path: Path, spark: Any
) -> None:
    text = RULES.format(name="apart", broker=broker).replace('input = "events"', 'input = "apart-events"')
    text = text.replace("[[tier1]]", 'apart = true\n\n[spark]\nmaster = "local[1]"\n\n[[tier1]]', 1)
    (tmp_path / "apart.toml").write_text(text)
    with Client(broker) as client:
        client.declare_topic("apart-events", SCHEMA, durable=True)
        client.put_many("apart-events", rows(1_000))
    with (tmp_path / "log").open("wb") as log:  # as a shell does: a process and all that it starts, for one terminal
        process = subprocess.Popen(
            [sys.executable, "-m", "milepost.cli", "pipeline", "run", str(tmp_path / "apart.toml"),
             "--checkpoint", str(tmp_path / "apart")],
            stdout=log, stderr=log, start_new_session=True, env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        )  # fmt: skip

    def said() -> str:
        return (tmp_path / "log").read_text(errors="replace")

    def until_done(events: int) -> None:
        while events != sum(
            max((row["position"] for row in held(client, "apart.marks") if row["lane"] == lane), default=0)
            for lane in (0, 1)
        ):
            assert process.poll() is None, said()
            pause()

    with Client(broker) as client:
        try:
            while not any(each.name == "apart.marks" for each in client.topics("apart.*")):
                assert process.poll() is None, said()
                pause()
            until_done(1_000)
            lanes = [each for each in descendants(process.pid) if b"pipeline.iap\0" in command(each)]
            assert len(lanes) == 2
            os.killpg(lanes[0], signal.SIGKILL)
            client.put_many("apart-events", rows(2_000, first=1_000))
            until_done(2_000)
            assert "is started again" in said()
            os.killpg(process.pid, signal.SIGINT)
            assert process.wait(200) == 0, said()
            assert "Traceback" not in said()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, 9)
                process.wait()
        # Together they go on where they were apart.
        pipeline = replace(Pipeline.from_toml(text), apart=False)
        with Runner(pipeline, checkpoint=tmp_path / "apart", once=True, keep_session=True) as runner:
            runner.run()
        made = sorted(row["number"] for row in held(client, "apart-out"))
    assert made == [number for number in range(2_000) if number % 7]


def test_rules_follow_a_monitor_while_it_runs(broker: str, tmp_path: Path, spark: Any) -> None:
    pipeline = Pipeline.from_toml(f"""
        name = "monitored"
        broker = "{broker}"
        input = "monitored-events"
        time = "at"
        disorder = "1s"
        output = "monitored-out"
        [[tier1]]
        derive = {{ high = "load > monitor.usual.p50" }}
        [[monitor]]
        name = "usual"
        of = "load"
        window = "1s"
        every = "1s"
        quantiles = [0.5]
    """)
    with Client(broker) as client:
        client.declare_topic("monitored-events", SCHEMA, durable=True)
        client.put_many("monitored-events", rows(2_000))
    with Client(broker) as client, Runner(pipeline, checkpoint=tmp_path / "monitored", keep_session=True) as runner:
        runner.run(until=lambda: len(held(client, "monitored-out")) == 2_000)
        # Of the last window that is known by then; no later one ends with these.
        known = held(client, "monitored.monitor")[-1]["quantiles"][0]["value"]
        client.put_many("monitored-events", rows(2_100, first=2_000))
        runner.run_on(until=lambda: len(held(client, "monitored-out")) == 2_100)
        made = {row["number"]: row for row in held(client, "monitored-out")}
    assert [made[number]["high"] for number in range(100)] == [None] * 100  # nothing was measured yet
    assert all(made[number]["high"] == (made[number]["load"] > known) for number in range(2_000, 2_100))


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended
        return b""


def test_a_second_runner_takes_over(broker: str, tmp_path: Path) -> None:
    pipeline = Pipeline.from_toml(RULES.format(name="two", broker=broker))
    with Runner(pipeline, checkpoint=tmp_path / "a") as first:
        with Runner(pipeline, checkpoint=tmp_path / "b") as second:
            assert second.splitter is not None
            second.splitter.assign()
            with pytest.raises(BrokerError):
                assert first.splitter is not None
                first.splitter.assign()
    with Client(broker) as client:
        runs = held(client, OwnTopics("two").splits)
    taken = [offset for run in runs for offset in range(run["start"], run["stop"])]
    assert sorted(taken) == list(range(6_000))


def test_a_probe_is_a_few_events_at_once_and_a_lane_that_is_late_gets_none(broker: str, tmp_path: Path) -> None:
    text = RULES.format(name="probed", broker=broker).replace('input = "events"', 'input = "probed-events"')
    with Client(broker) as client:
        client.declare_topic("probed-events", SCHEMA, durable=True)
        with Runner(Pipeline.from_toml(text), checkpoint=tmp_path / "a") as runner:
            splitter = runner.splitter
            assert splitter is not None
            assert splitter.age(0) == 0.0
            splitter.weights, splitter.probes = [0.0, 1.0], {0}
            for assigned in ([100, 900], [100, 1_900]):  # the second time it is no probe any more
                client.put_many("probed-events", rows(1_000))
                splitter.assign()
                assert [each.assigned for each in splitter.runs] == assigned
            splitter.weights, splitter.late = [0.5, 0.5], [1]
            client.put_many("probed-events", rows(1_000))
            splitter.assign()
            assert [each.assigned for each in splitter.runs] == [1_100, 1_900]
            assert splitter.age(0) > 0.0
        runs = held(client, OwnTopics("probed").splits)
    assert sorted(offset for run in runs for offset in range(run["start"], run["stop"])) == list(range(3_000))


@pytest.mark.parametrize("before", [0, 10])
def test_what_came_while_nobody_ran_it_is_not_passed_over(broker: str, tmp_path: Path, before: int) -> None:
    name = f"latest-{before}"
    text = RULES.format(name=name, broker=broker).replace('input = "events"', f'input = "{name}-events"')
    pipeline = Pipeline.from_toml(f'starting = "latest"\n{text}')
    with Client(broker) as client:
        client.declare_topic(f"{name}-events", SCHEMA, durable=True)
        client.put_many(f"{name}-events", rows(before))
        with Runner(pipeline, checkpoint=tmp_path / "a") as runner:
            assert runner.splitter is not None
            assert runner.splitter.assign() == 0
        client.put_many(f"{name}-events", rows(7))
        with Runner(pipeline, checkpoint=tmp_path / "a") as runner:
            assert runner.splitter is not None
            assert runner.splitter.assign() == 7


def test_fewer_lanes_are_refused_while_one_has_something_to_do(broker: str, tmp_path: Path) -> None:
    pipeline = Pipeline.from_toml(RULES.format(name="fewer", broker=broker))
    with Runner(pipeline, checkpoint=tmp_path / "a") as runner:
        assert runner.splitter is not None
        runner.splitter.assign()
    with pytest.raises(
        ConfigError, match="lane 1 of pipeline 'fewer' has 3,000 unfinished events, and there is 1 lane now"
    ):
        with Runner(replace(pipeline, lanes=1), checkpoint=tmp_path / "b"):
            pass
    with Runner(pipeline, checkpoint=tmp_path / "b"):  # as the error says
        pass


def test_a_query_that_takes_over_closes_its_forerunners_sink(broker: str, tmp_path: Path) -> None:
    pipeline = Pipeline.from_toml(RULES.format(name="taken", broker=broker))
    lane, tier2 = (ProgressSetting("taken", each, disorder_us=5) for each in (0, IEP))

    def publish(sink: str, epoch: int, lane: int, position: int, offset: str | None = None) -> bool:
        progress = {"lane": lane, "epoch": epoch, "position": position, "sink": sink, "offset": offset}
        progress |= {
            "rows": 0,
            "bytes": 0,
            "rejected": 0,
            "dropped": 0,
            "late": 0,
            "busy": 0.1,
            "at": datetime.now(UTC),
        }
        return client.publish(sink, epoch, [], {"taken.marks": [progress]}).repeated

    def last(lane: int) -> Any:
        return last_progress(client, OwnTopics("taken"), lane)

    with Runner(pipeline, checkpoint=tmp_path / "a"), Client(broker) as client:
        first = take_over(client, lane, tmp_path / "a" / "lane-0")
        assert (last(0).sink, last(0).position, last(0).disorder) == (first, 0, 5e-6)
        assert take_over(client, lane, tmp_path / "a" / "lane-0") == first  # it goes on, also before its first mark
        second = take_over(client, lane, tmp_path / "b" / "lane-0")
        assert publish(first, 0, 0, 10)  # as a repeated one: nothing changes
        assert not publish(second, 0, 0, 20)
        assert take_over(client, lane, tmp_path / "b" / "lane-0") == second
        third = take_over(client, lane, tmp_path / "c" / "lane-0")
        assert (last(0).sink, last(0).position) == (third, 20)
        assert publish(second, 1, 0, 30)
        for folder in ("a", "b"):
            with pytest.raises(ConfigError, match="has continued with another checkpoint"):
                take_over(client, lane, tmp_path / folder / "lane-0")
        assert last(IEP) is None
        iep = take_over(client, tier2, tmp_path / "a" / "tier-2")
        for epoch, told in enumerate(("x", "y")):  # later in time, and no results more
            assert not publish(iep, epoch, IEP, 7, told)
        assert last(IEP).offset == "y"
        assert take_over(client, tier2, tmp_path / "b" / "tier-2") == last(IEP).sink != iep
        assert (last(IEP).offset, last(IEP).position) == ("y", 7)


def test_a_pipeline_that_others_feed_knows_their_disorder_and_is_seen_to_run(broker: str, tmp_path: Path) -> None:
    text = RULES.format(name="feeder", broker=broker)
    feeder = Pipeline.from_toml(text[: text.index("[[tier2]]")].replace('output = "feeder-out"', ""))
    reader = Pipeline.from_toml(
        RULES.format(name="reader", broker=broker)
        .replace('input = "events"', 'from = ["feeder"]\ncontrol = { interval = "60s" }')
        .replace('[[tier1]]\ndiscard = "number % 7 = 0"', "")
        .replace('disorder = "1s"\noutput = "reader-out"', 'disorder = "1h"')
    )
    with Runner(feeder, checkpoint=tmp_path / "a"), Client(broker) as client:
        for disorder in ("1h", "1s"):  # while nobody has run the feeder, the reader's own
            with Runner(reader, checkpoint=tmp_path / "b") as runner:
                assert [each.disorder_us for each in runner.feeding] == [Duration.of(disorder).us]
                runner.steer()
                told = PipelineStatus(client, "reader")
                told.refresh()
                assert told.running(time() + 100)
                assert not told.running(time() + 1_000)
                assert (len(told.lanes), len(told.trace)) == (0, 0)
            told.refresh()
            assert not told.running(time())  # it has said that it ends
            take_over(client, ProgressSetting("feeder", 0, disorder_us=feeder.disorder.us), tmp_path / "a" / "lane-0")


def test_old_splits_go_and_what_a_new_start_needs_stays(broker: str, tmp_path: Path) -> None:
    now = [datetime.now(UTC).timestamp()]
    text = RULES.format(name="tidy", broker=broker).replace('input = "events"', 'input = "tidy-events"')
    pipeline, splits = Pipeline.from_toml(text), OwnTopics("tidy").splits
    with Client(broker) as client:
        client.declare_topic("tidy-events", SCHEMA, durable=True)
        with Runner(pipeline, checkpoint=tmp_path / "a", now=lambda: now[0]) as runner:
            assert runner.splitter is not None
            for _ in range(5):
                client.put_many("tidy-events", rows(100))
                runner.splitter.assign()
            assigned = [runs.assigned for runs in runner.splitter.runs]
            for lane in range(2):  # as lanes do when they have come that far
                client.hold(splits, OwnTopics("tidy").hold(f"lane {lane}"), ends(client, splits))
            now[0] += 2 * 86_400
            runner._tidy()
            (log,) = client.look(splits)["logs"]
            assert (log["start"], log["next"]) == (8, 10)
        with Runner(pipeline, checkpoint=tmp_path / "a") as again:
            assert again.splitter is not None
            assert [runs.assigned for runs in again.splitter.runs] == assigned
            assert again.splitter.assign() == 0


def test_a_pipeline_is_looked_at_drawn_and_stopped_from_the_command_line(
    broker: str, tmp_path: Path, spark: Any
) -> None:
    text = RULES.format(name="watched", broker=broker).replace('input = "events"', 'input = "watched-events"')

    def ask(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "milepost.cli", "pipeline", *arguments, "--broker", broker]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def operator() -> Iterator[None]:
        """Waits for each command while the pipeline goes on."""
        while sum(runner.totals.done) < 500:
            yield
        for arguments in (("status",), ("status", "--report", str(tmp_path / "report.svg")), ("stop",)):
            while True:  # on busy cores it may be silent for so long that it seems not to run
                asked.append(ask(arguments[0], "watched", *arguments[1:]))
                while asked[-1].poll() is None:
                    yield
                told.append(asked[-1].communicate()[0])
                assert asked[-1].returncode == 0
                if "does not run" not in told[-1]:
                    break

    unknown = ask("status", "watchd")
    assert "no pipeline 'watchd' has run at this broker" in unknown.communicate()[1]
    assert unknown.returncode == 1
    asked: list[subprocess.Popen[str]] = []
    told: list[str] = []
    with Client(broker) as client:
        client.declare_topic("watched-events", SCHEMA, durable=True)
        client.put_many("watched-events", rows(500))
    with Runner(Pipeline.from_toml(text), checkpoint=tmp_path / "watched", keep_session=True) as runner:
        script = operator()
        runner.run(until=lambda: next(script, True) is True)
    assert "watched  runs" in " ".join(told)
    assert (tmp_path / "report.svg").read_text().lstrip().startswith("<?xml")
    assert "watched has stopped" in asked[-1].communicate(timeout=200)[0]
