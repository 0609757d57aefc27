"""How a query takes over from whoever wrote its marks before: he must have written his last one."""

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

CLOSED: Final = 1 << 62  # the epoch of a sink that has written its last one
CLAIM: Final = -1  # … of a mark that only says whose marks follow
SINK: Final = "milepost-sink"  # the file in a checkpoint with the name of its sink


def take_over(client: Client, progress: ProgressSetting, folder: Path) -> str:
    """Before a query begins, with its checkpoint in a folder: the name of its sink. Nobody else's marks follow its own.

    Results are exactly once by a query's checkpoint. A query with a new one goes on at the last mark; so whoever wrote
    that must have written his last one. His sink is closed, by an epoch that is beyond all others. A mark of nothing
    names the new sink, so that it can be closed in its turn however little it has done.
    """
    topics = OwnTopics(progress.pipeline)
    own = _sink_of(folder)
    if own is not None:
        last = last_progress(client, topics, progress.lane)
        other = getattr(last, "sink", None)  # which marks of older versions do not say
        if _closed(client, own) or (other not in (None, own) and not _closed(client, other)):
            raise ConfigError(
                f"pipeline {topics.pipeline!r} has gone on with another checkpoint than {folder.parent}; "
                "remove that folder, and it goes on at the last mark"
            )
        return own
    own = str(uuid.uuid4())
    client.put(topics.progress, _claim(progress, own, _closing(client, topics, progress.lane, own)))
    _closing(client, topics, progress.lane, own)  # of somebody who has begun at the same moment
    folder.mkdir(parents=True, exist_ok=True)
    whole = folder / f".{SINK}"
    whole.write_text(own + "\n")
    whole.replace(folder / SINK)  # a name that is cut off would be another one's
    return own


def _closing(client: Client, topics: OwnTopics, lane: int, own: str) -> Any | None:
    """Close whatever sink has marks of a lane but our own; the last mark."""
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
    who = {"lane": progress.lane, "sink": sink, "disorder": progress.disorder_us / 1e6, "elsewhere": None}
    return {**nothing, **kept, **said, **who}


def _closed(client: Client, sink: str | None) -> bool:
    return sink is not None and (client.published(sink) or 0) >= CLOSED


def _sink_of(folder: Path) -> str | None:
    """The sink of the query that a checkpoint is of; None before it began. It was the query's ID once."""
    try:
        if (folder / SINK).exists():
            return (folder / SINK).read_text().strip()
        file = folder / "metadata"
        return str(json.loads(file.read_text())["id"]) if file.exists() else None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"the checkpoint {folder} cannot be used: {error}") from None
