"""`milepost demo`: shows what Milepost does. Each part of Milepost adds a scene."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from milepost.cli.demo.narrator import ClaimFailed, Narrator

__all__ = ["SCENES", "ClaimFailed", "Narrator", "run"]


def _scene(name: str) -> Callable[[Narrator], None]:
    """A scene by its module, which is imported when it plays, so that other commands do not wait for it."""

    def play(narrator: Narrator) -> None:
        import_module(f"milepost.cli.demo.{name}").play(narrator)

    return play


# What Milepost does comes first, how it is built last.
SCENES = tuple(map(_scene, ("durable", "broker", "queue", "pipeline", "query", "access", "schema", "batch")))


def run() -> None:
    """Show brokers, queues and pipelines at work, then queries and the format. Ends by itself, in under two minutes."""
    narrator = Narrator()
    narrator.say(
        f"Milepost in {len(SCENES)} scenes. There is nothing to type, and it ends by itself in under two minutes."
    )
    for play in SCENES:
        play(narrator)
    narrator.finish()
