"""The examples, run: each pipeline over its events, on one small Spark, makes of them what its folder expects."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from milepost.client import Client
from milepost.pipeline.definition import Pipeline, load_pipeline
from milepost.pipeline.runner import Runner
from soak.processes import Broker

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "pipelines"
FOLDERS = sorted(each for each in EXAMPLES.iterdir() if each.is_dir())

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("broker")
    made = Broker(folder, str(folder / "store.db"))
    made.start()
    made.wait()
    yield made.address
    made.stop()


def put(client: Client, file: Path, topic: str) -> None:
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    schema = next(each.schema for each in client.topics(topic))
    timed = {field.name for field in schema.type.fields if "timestamp" in str(field.type)}  # type: ignore[union-attr]
    for row in rows:
        row |= {name: datetime.fromisoformat(row[name]) for name in timed if row.get(name) is not None}
    client.put_many(topic, rows)


def plain(value: Any) -> Any:
    """As JSON lines have it, comparable."""
    if isinstance(value, datetime):
        return value.timestamp()
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        return tuple(sorted((name, plain(each)) for name, each in value.items() if each is not None))
    if isinstance(value, list | tuple):
        return tuple(plain(each) for each in value)
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value).timestamp() if value[:4].isdigit() and "T" in value else value
        except ValueError:
            return value
    return value


def held(client: Client, topic: str) -> Counter[Any]:
    ends = {int(each["log"]): int(each["next"]) for each in client.look(topic)["logs"]}
    return Counter(plain(row) for batch in client.read(topic, {}, ends) for row in batch.to_pylist())


def run(pipeline: Pipeline, folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Spark's own Python leaves files and sockets to the collector
        with Runner(pipeline, checkpoint=folder, once=True, keep_session=True) as runner:
            runner.run()


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_an_example_makes_what_it_expects(folder: Path, broker: str, spark: Any, tmp_path: Path) -> None:
    with Client(broker) as client:
        for schema in sorted(folder.glob("*.schema")):
            client.declare_topic(schema.stem, schema.read_text(), durable=True)
        for events in sorted(folder.glob("*.jsonl")):
            if not events.name.endswith(".then.jsonl"):
                put(client, events, events.stem)
        pipelines = [replace(load_pipeline(file), broker=broker) for file in sorted(folder.glob("*.toml"))]
        pipelines.sort(key=lambda each: (bool(each.sources), each.name))
        made = {topic for each in pipelines for topic in [each.output, *(rule.to for rule in each.tier2)]}
        pipelines.sort(key=lambda each: any(name in made for name in each.input))
        for each in pipelines:
            run(each, tmp_path / each.name)
        for events in sorted(folder.glob("*.then.jsonl")):
            put(client, events, events.name.removesuffix(".then.jsonl"))
            for each in pipelines:
                run(each, tmp_path / each.name)
        for expected in sorted((folder / "expected").glob("*.jsonl")):
            wanted = Counter(plain(json.loads(line)) for line in expected.read_text().splitlines())
            got = held(client, expected.stem)
            assert got == wanted, (
                f"{expected.stem}: {sum((got - wanted).values())} too many, {sum((wanted - got).values())} missing"
            )
