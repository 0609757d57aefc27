"""How a query takes over from the query that wrote its progress before: the sink of that query is closed first."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from milepost.errors import ConfigError
from milepost.pipeline.own_topics import OwnTopics, last_progress
from milepost.pipeline.progress import ProgressSetting

if TYPE_CHECKING:
    from milepost.client import Client

CLOSED: Final = 1 << 62  # epoch of a closed sink, beyond all others
CLAIM: Final = -1  # epoch of a progress row that only announces a new sink
SINK: Final = "milepost-sink"  # the file in a checkpoint with the name of its sink


def take_over(client: Client, progress: ProgressSetting, folder: Path) -> str:
    """Claim the progress of a lane for the query with its checkpoint in `folder`. Returns the name of its sink.

    Called before a query starts. A query's results are exactly-once because of its checkpoint. A query with a new
    checkpoint continues at the last progress row, so the sink that wrote this row must not write again: it is closed by
    publishing an epoch beyond all others. A progress row without results announces the new sink, so that the next query
    can close it even if it has written nothing.
    """
    topics = OwnTopics(progress.pipeline)
    own = _sink_of(folder)
    if own is not None:
        last = last_progress(client, topics, progress.lane)
        other = getattr(last, "sink", None)  # missing in rows of older versions
        if _closed(client, own) or (other not in (None, own) and not _closed(client, other)):
            raise ConfigError(
                f"pipeline {topics.pipeline!r} has continued with another checkpoint than {folder.parent}; "
                "remove that folder, and it continues at its last progress"
            )
        return own
    own = str(uuid.uuid4())
    client.put(topics.progress, _claim(progress, own, _closing(client, topics, progress.lane, own)))
    _closing(client, topics, progress.lane, own)  # a query that began at the same moment
    folder.mkdir(parents=True, exist_ok=True)
    whole = folder / f".{SINK}"
    whole.write_text(own + "\n")
    whole.replace(folder / SINK)  # atomic: a truncated name would be the name of another sink
    return own


def _closing(client: Client, topics: OwnTopics, lane: int, own: str) -> Any | None:
    """Close every sink but `own` that has written progress of a lane. Returns their last progress row."""
    while True:
        last = last_progress(client, topics, lane, other_than=own)
        sink = getattr(last, "sink", None)
        if sink is None or _closed(client, sink):
            return last
        client.publish(sink, CLOSED, [])


def _claim(progress: ProgressSetting, sink: str, last: Any | None) -> dict[str, Any]:
    nothing = dict.fromkeys(("rows", "bytes", "rejected", "dropped", "late"), 0)
    kept = {name: getattr(last, name, None) for name in ("time", "offset")}
    said = {"epoch": CLAIM, "position": getattr(last, "position", 0), "busy": 0.0, "at": datetime.now(UTC)}
    sink_of = {"lane": progress.lane, "sink": sink, "disorder": progress.disorder_us / 1e6, "elsewhere": None}
    return {**nothing, **kept, **said, **sink_of}


def _closed(client: Client, sink: str | None) -> bool:
    return sink is not None and (client.published(sink) or 0) >= CLOSED


def _sink_of(folder: Path) -> str | None:
    """The sink of a checkpoint; None before its query began. Older versions used the ID of the query."""
    try:
        if (folder / SINK).exists():
            return (folder / SINK).read_text().strip()
        file = folder / "metadata"
        return str(json.loads(file.read_text())["id"]) if file.exists() else None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"the checkpoint {folder} cannot be used: {error}") from None
