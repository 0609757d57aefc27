"""A scene: the two rules of the paper on Spark, with a broker in a process of its own, and a controller."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.markup import escape

from milepost.cli.demo.durable import broker_process
from milepost.cli.demo.narrator import Narrator
from milepost.errors import ConfigError

if TYPE_CHECKING:
    from milepost.client import Client

EVENTS: Final = 20_000
START: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)
STEP: Final = timedelta(milliseconds=5)
PATIENCE_S: Final = 100.0  # ends a scene that hangs
SCHEMA: Final = "event: [number: int, at: timestamp, kind: string, host: string, load: double]"
DEFINITION: Final = """
name = "hosts"
broker = "{broker}"
input = "events"
time = "at"
disorder = "1s"
output = "clean"

[[tier1]]
discard = "kind = 'performance' and in_subnet(host, '92.126.10.0/24')"

[[tier2]]
name = "overload"
to = "alerts"
where = "kind = 'performance' and in_subnet(host, '92.126.11.0/24')"
window = "10s"
compute = {{ peak = "max(load)" }}
having = "peak > 2"
"""


def play(narrator: Narrator) -> None:
    narrator.scene("Events in two tiers, on Spark")
    if not narrator.has_broker():
        return
    from milepost.pipeline.session import require_spark

    try:
        require_spark()
    except ConfigError as error:
        narrator.say(f"Without Spark there is nothing to see here: {escape(str(error))}")
        return
    with broker_process(narrator) as broker, _silent():
        _scene(narrator, broker.address, broker.folder)
    _controlled(narrator)


def events() -> list[dict[str, Any]]:
    """Performance events and tickets of three subnets, each up to half a second out of order."""
    return [
        {
            "number": number,
            "at": START + number * STEP - timedelta(milliseconds=number * 37 % 500),
            "kind": "ticket" if number % 10 == 3 else "performance",
            "host": f"92.126.{10 + number % 3}.{number % 40 + 1}",
            "load": 2.5 if number % 1013 == 1 else number % 19 / 10,
        }
        for number in range(EVENTS)
    ]


def _scene(narrator: Narrator, address: str, folder: Path) -> None:
    from milepost.client import Client
    from milepost.pipeline.definition import Pipeline
    from milepost.pipeline.runner import Runner

    rows = events()
    with Client(address, timeout=PATIENCE_S) as client:
        client.declare_topic("events", SCHEMA, durable=True)
        client.put_many("events", rows)
        narrator.say(
            f"{EVENTS:,} events wait in the durable topic `events`. Rule 1 discards what one subnet reports about its "
            "performance; rule 2 sends an alert when the largest load of another exceeds 2 in ten seconds. Two lanes "
            "apply rule 1, a combiner puts their results into time order, and tier 2 applies rule 2."
        )
        pipeline = Pipeline.from_toml(DEFINITION.format(broker=address))
        with (
            narrator.waiting("Spark starts, which takes a while") as told,
            Runner(pipeline, checkpoint=folder / "checkpoint", once=True, drain=True) as runner,
        ):

            def look() -> bool:
                told(f"Spark works: {sum(runner.totals.done):,} of {EVENTS:,} events went through tier 1")
                return False

            runner.run(until=look)
            done = list(runner.totals.done)
        clean, alerts = _rows(client, "clean"), _rows(client, "alerts")
    narrator.say(f"Lane 0 took {done[0]:,} events and lane 1 {done[1]:,}.")
    kept = [row for row in rows if not (row["kind"] == "performance" and row["host"].startswith("92.126.10."))]
    narrator.claim(
        f"of {EVENTS:,} events, the {len(kept):,} that rule 1 leaves are in `clean`, each once",
        sorted(row["number"] for row in clean) == sorted(row["number"] for row in kept),
    )
    times = [row["at"] for row in clean]
    narrator.claim("and in the order of time, although they came out of order and in two lanes", times == sorted(times))
    expected = _overloads(rows)
    narrator.claim(
        f"rule 2 sent {len(expected)} alerts, for just the windows with a load above 2, the last one included",
        sorted((row["window_start"], row["peak"]) for row in alerts) == expected,
    )


def _overloads(rows: list[dict[str, Any]]) -> list[tuple[datetime, float]]:
    """The same rule in Python."""
    peaks: dict[datetime, float] = {}
    for row in rows:
        if row["kind"] == "performance" and row["host"].startswith("92.126.11."):
            at = row["at"]
            window = at.replace(second=at.second // 10 * 10, microsecond=0)
            peaks[window] = max(peaks.get(window, 0.0), row["load"])
    return sorted((start, peak) for start, peak in peaks.items() if peak > 2)


def _rows(client: Client, topic: str) -> list[dict[str, Any]]:
    ends = {int(each["log"]): int(each["next"]) for each in client.look(topic)["logs"]}
    return [row for batch in client.read(topic, {}, ends) for row in batch.to_pylist()]


def _controlled(narrator: Narrator) -> None:
    """The control loop in the simulation, because a real run takes minutes (`milepost bench control`)."""
    from milepost.pipeline.control.report import sparkline
    from milepost.pipeline.experiments.simulation import flow_control

    run = flow_control()
    free = run.trace.lane(0).column("measurement")
    reference = run.trace.lane(0).column("set_point")[-1]
    narrator.say(
        "How many events a lane admits is decided by feedback: a PI controller holds the free space of its queue. "
        "Simulated, with a CPU hog in the middle:"
    )
    narrator.show(f"free space  {sparkline(free)}")
    narrator.claim(
        "the free space is back at its set point, and stays there", bool(abs(free[-1] - reference) <= 0.05 * reference)
    )


@contextmanager
def _silent() -> Iterator[None]:
    """Hide the standard error of Spark, which it writes to in spite of its settings."""
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
