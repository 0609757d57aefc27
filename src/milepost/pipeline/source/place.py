"""Resolves the start or end of a read, as an option gives it, to offsets."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from milepost.client import Client
from milepost.errors import ConfigError
from milepost.pipeline.source.options import Place
from milepost.pipeline.source.position import extents


def resolved(client: Client, topic: str, place: Place, option: str, *, fail: bool = True) -> dict[int, int]:
    """The offset in each log for a place. `ConfigError` names the option when the place does not exist.

    A log that a position does not name is read from its beginning, like a log that a broker adds later. An offset whose
    row was removed is an error or, without `fail`, means the first row that exists.
    """
    if place == "latest":
        return {log: extent.next for log, extent in extents(client.look(topic)).items()}
    looked = client.look(topic, place if isinstance(place, datetime) else "earliest")
    position = {int(log): int(offset) for log, offset in looked["position"].items()}
    if not isinstance(place, Mapping):
        return position
    there = extents(looked)
    for log, offset in place.items():
        if log not in there:
            known = ", ".join(map(str, sorted(there))) or "none yet"
            raise ConfigError(f"option {option!r}: topic {topic!r} has no log {log}; there is {known}")
        if offset > there[log].next or (fail and offset < there[log].start):
            raise ConfigError(
                f"option {option!r}: log {log} of topic {topic!r} has offsets from {there[log].start} to "
                f"{there[log].next}, so {offset} does not exist"
            )
        position[log] = max(offset, there[log].start)
    return position
