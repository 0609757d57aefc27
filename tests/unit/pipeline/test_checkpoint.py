"""Whose a checkpoint is, and what it remembers."""

from __future__ import annotations

from pathlib import Path

from milepost.pipeline.checkpoint import Checkpoint
from milepost.pipeline.definition import Pipeline


def test_the_shards_of_a_state_stay_as_many(tmp_path: Path) -> None:
    pipeline = Pipeline.from_toml('name = "p"\ninput = "events"\ntime = "at"\noutput = "out"')
    for shards in (3, 5):
        checkpoint = Checkpoint(tmp_path / "checkpoint")
        checkpoint.claim(pipeline, "a broker", shards)
        checkpoint.keep()
        assert checkpoint.shards == 3
