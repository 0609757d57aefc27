"""`milepost demo`: what Milepost does, told on the terminal. Each part of Milepost adds a scene."""

from __future__ import annotations

from milepost.cli.demo import access, batch, query, schema
from milepost.cli.demo.stage import ClaimFailed, Stage

__all__ = ["SCENES", "ClaimFailed", "Stage", "run"]

SCENES = (schema.play, batch.play, query.play, access.play)


def run() -> None:
    """Show a schema, a batch, a query and a field access. Takes seconds and ends by itself."""
    stage = Stage()
    for play in SCENES:
        play(stage)
    stage.finish()
