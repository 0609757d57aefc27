"""`milepost demo`: what Milepost does, told on the terminal. Each part of Milepost adds a scene."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from milepost.cli.demo.stage import ClaimFailed, Stage

__all__ = ["SCENES", "ClaimFailed", "Stage", "run"]


def _scene(name: str) -> Callable[[Stage], None]:
    """A scene by its module, which is imported when it plays: other commands need not wait for it."""

    def play(stage: Stage) -> None:
        import_module(f"milepost.cli.demo.{name}").play(stage)

    return play


SCENES = tuple(map(_scene, ("schema", "batch", "query", "access", "broker", "durable", "queue", "pipeline")))


def run() -> None:
    """Show schemas, batches, queries, brokers and queues at work. Ends by itself, in seconds."""
    stage = Stage()
    for play in SCENES:
        play(stage)
    stage.finish()
