"""A broker with events in it, and Spark beside it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.pipeline import events
from milepost.client import Client
from milepost.pipeline.definition import Pipeline
from soak.processes import Broker

MASTER = "local[2]"
# A short run ends before Java could optimise its code, so Java does not try.
SHORT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class World:
    """What the parts share: a broker on SQLite, a folder, and a session of Spark."""

    def __init__(self, folder: Path, quick: bool) -> None:
        self.folder = folder
        self.quick = quick
        self.broker = Broker(folder, str(folder / "store.db"))
        self._spark: Any = None
        self._filled: dict[str, int] = {}
        self.broker.start()
        try:
            self.spark  # noqa: B018, Java starts while the broker does
            self.broker.wait()
            self.client = Client(self.broker.address, timeout=60.0).connect()
        except BaseException:
            self.broker.kill()
            raise
        self.hosts = events.hosts(folder / "hosts.csv")

    @property
    def spark(self) -> Any:
        """A session with the settings that `milepost pipeline run` has."""
        if self._spark is None:
            from milepost.pipeline import queries
            from milepost.pipeline.session import make_session
            from milepost.pipeline.source.datasource import register

            short = {"spark.driver.extraJavaOptions": SHORT} if self.quick else {}
            self._spark = make_session("benchmark", MASTER, {"spark.driver.memory": "2g"} | short)
            register(self._spark)
            queries.register(self._spark)
        return self._spark

    def filled(self, topic: str, count: int) -> str:
        """A durable topic with so many events."""
        if self._filled.get(topic, 0) < count:
            self.client.declare_topic(topic, events.SCHEMA, durable=True, retain={"age_s": None})
            for piece in events.tables(count):
                self.client.put_many(topic, piece)
            self._filled[topic] = count
        return topic

    def pipeline(self, name: str, source: str, rules: str, **fields: Any) -> Pipeline:
        """A pipeline over a topic."""
        head = {"name": name, "broker": self.broker.address, "input": source, "time": "at", **fields}
        lines = [f"{key} = {_toml(value)}" for key, value in head.items()]
        return Pipeline.from_toml("\n".join(lines) + "\n" + rules.format(hosts=self.hosts))

    def close(self) -> None:
        if self._spark is not None:
            self._spark.stop()
        self.client.close()
        self.broker.stop()


def _toml(value: Any) -> str:
    return (
        ("true" if value else "false")
        if isinstance(value, bool)
        else repr(value)
        if not isinstance(value, str)
        else f'"{value}"'
    )


@contextmanager
def world(quick: bool) -> Iterator[World]:
    """One, that goes away."""
    with tempfile.TemporaryDirectory(prefix="milepost-bench-", ignore_cleanup_errors=True) as folder:
        made = World(Path(folder), quick)
        try:
            yield made
        finally:
            made.close()


def rows_in(client: Client, topic: str) -> int:
    """How many rows a topic has had."""
    return sum(int(each["next"]) for each in client.look(topic)["logs"])


def clock() -> float:
    """Seconds, for differences."""
    return time.perf_counter()
