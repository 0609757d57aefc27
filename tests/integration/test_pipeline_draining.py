"""A pipeline that others feed is drained when they have come to their end."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from milepost import parse_schema, testing
from milepost.client import Client
from milepost.errors import ConfigError
from milepost.pipeline.control_loop import beat
from milepost.pipeline.definition import Pipeline
from milepost.pipeline.definition.rule import ThresholdRule
from milepost.pipeline.own_topics import STOPPED, OwnTopics
from milepost.pipeline.runner import Runner
from milepost.pipeline.status import PipelineStatus

NOW = 1_700_000_000.0
RULE = ThresholdRule("high", "alerts", "load > 2")


def test_draining_is_refused_while_a_pipeline_that_feeds_it_has_not_ended(tmp_path: Path) -> None:
    async def test() -> None:
        async with testing.broker(store=str(tmp_path / "s.db"), listen="milepost://127.0.0.1:0") as broker:
            await asyncio.to_thread(_drain, broker.uri, tmp_path)

    asyncio.run(test())


def _drain(broker: str, folder: Path) -> None:
    pipeline = Pipeline(name="c", time="at", sources=["a", "b"], tier2=[RULE], broker=broker)
    with Client(broker) as client:
        a, b = OwnTopics("a"), OwnTopics("b")
        for each in (a, b):
            each.declare(client)
            each.declare_lanes(client, 1, parse_schema("event: [at: timestamp, load: double]"), combined=False)

        def refused(why: str) -> None:
            with pytest.raises(ConfigError, match=why):
                Runner(pipeline, checkpoint=folder / "c", once=True, drain=True, now=lambda: NOW).__enter__()

        def unfinished() -> list[str]:
            found = [PipelineStatus(client, name) for name in pipeline.sources]
            for each in found:
                each.refresh()
            return [each.unfinished(NOW) for each in found]

        def steered(**more: Any) -> dict[str, Any]:
            return beat(1, NOW - 0.5, pipeline.control) | more

        assert unfinished() == ["", ""]
        client.put(b.control, steered())
        refused(r"pipeline 'b', which feeds it, still runs; run that pipeline with --once")
        stopped = {"order": STOPPED, "at": datetime.fromtimestamp(NOW, UTC)}
        client.put(b.orders, stopped)
        assert unfinished() == ["", ""]
        client.put(a.control, steered(lane=0, assigned=5))
        client.put(a.orders, stopped)
        refused(r"pipeline 'a', which feeds it, was stopped with 5 unfinished events")
        assert not (folder / "c").exists(), "nothing was begun"
