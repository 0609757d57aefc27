"""Divides a batch among connections, by the matches of its rows.

Connections that get the same rows with the same tags share one batch and one frame. A connection gets its rows in the
batch's order, each once, even if several of its subscriptions match.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from milepost.batch import Batch
from milepost.broker.core.topics.backlog import row_by_row
from milepost.broker.core.topics.topic import NOBODY, Topic
from milepost.wire import Tags

if TYPE_CHECKING:
    from milepost.broker.core.sessions.connection import Connection
    from milepost.match import Deliveries, Matches

AnyTags: TypeAlias = tuple[int, ...] | Tags


class Share(NamedTuple):
    """Rows for some connections."""

    batch: Batch
    tags: AnyTags
    connections: list[Connection]
    rows: npt.NDArray[np.integer] | None = None  # their places in the whole batch; None: all rows


def shares(topic: Topic, batch: Batch, matches: Matches, connections: Mapping[int, Connection]) -> list[Share]:
    """Which connections get which rows of a batch."""
    if not len(matches.keys):
        return [Share(batch, tags, members) for tags, members in topic.audience()]
    if len(batch) == 1:
        return _of_one_row(topic, batch, matches, connections)
    return _of_rows(topic, batch, matches.by_owner(topic.owners), connections)


def _of_one_row(topic: Topic, batch: Batch, matches: Matches, connections: Mapping[int, Connection]) -> list[Share]:
    keys = matches.keys
    topic.counts[keys] += 1
    wanted: dict[int, list[int]] = {}
    for number, tag in zip(topic.owners[keys].tolist(), topic.tags[keys].tolist(), strict=True):
        wanted.setdefault(number, []).append(tag)
    wanted.pop(NOBODY, None)  # unsubscribed while the batch was being matched
    groups: dict[tuple[int, ...], list[Connection]] = {}
    for number, tags in wanted.items():
        told = tuple([*topic.everything[number], *tags] if number in topic.everything else tags)
        groups.setdefault(told, []).append(connections[number])
    made = [Share(batch, tags, members) for tags, members in groups.items()]
    return made + _others(topic, batch, wanted)


def _of_rows(topic: Topic, batch: Batch, found: Deliveries, connections: Mapping[int, Connection]) -> list[Share]:
    np.add.at(topic.counts, found.marks, 1)
    tags = topic.tags[found.marks]
    starts = found.starts.tolist()
    edges = found.mark_offsets[found.starts].tolist()
    taken: dict[bytes, Batch] = {}
    groups: dict[tuple[int, object], Share] = {}
    served: dict[int, object] = {}
    for place, number in enumerate(found.owners.tolist()):
        if number == NOBODY:
            continue  # unsubscribed while the batch was being matched
        rows = found.rows[starts[place] : starts[place + 1]]
        mine = tags[edges[place] : edges[place + 1]]
        offsets = found.mark_offsets[starts[place] : starts[place + 1] + 1] - edges[place]
        served[number] = None
        told: AnyTags
        if number in topic.everything:
            part, told = batch, _with_all(topic.everything[number], len(batch), rows, offsets, mine)
        else:
            part, told = _taken(batch, rows, taken), _plain(offsets, mine)
        key = (id(part), (told.offsets.tobytes(), told.subscriptions.tobytes()) if isinstance(told, Tags) else told)
        if key in groups:
            groups[key].connections.append(connections[number])
        else:
            groups[key] = Share(part, told, [connections[number]], None if part is batch else rows)
    return list(groups.values()) + _others(topic, batch, served)


def _others(topic: Topic, batch: Batch, served: Mapping[int, object]) -> list[Share]:
    """Shares for the connections that want every row and have none yet."""
    if not topic.everything.keys() & served.keys():
        return [Share(batch, tags, members) for tags, members in topic.audience()]
    made = []
    for tags, members in topic.audience():
        rest = [member for member in members if member.number not in served]
        if rest:
            made.append(Share(batch, tags, rest))
    return made


def _taken(batch: Batch, rows: np.ndarray, taken: dict[bytes, Batch]) -> Batch:
    if len(rows) == len(batch):
        return batch  # the publisher's bytes, untouched
    key = rows.tobytes()
    if key not in taken:
        taken[key] = batch.take(rows)
    return taken[key]


def _plain(offsets: np.ndarray, tags: np.ndarray) -> AnyTags:
    """Tags in their short form, if they are the same for every row."""
    width = len(tags) // (len(offsets) - 1)
    if width * (len(offsets) - 1) == len(tags):
        table = tags.reshape(-1, width)
        if (table == table[0]).all() and (np.diff(offsets) == width).all():
            return tuple(table[0].tolist())
    return Tags(offsets.astype(np.uint32), tags)


def _with_all(always: list[int], count: int, rows: np.ndarray, offsets: np.ndarray, tags: np.ndarray) -> AnyTags:
    """The tags of a connection that wants every row, and some rows for other subscriptions too."""
    base = row_by_row(tuple(always), count)
    more = np.zeros(count, np.int64)
    more[rows] = np.diff(offsets)
    places = np.repeat(base.offsets[1:].astype(np.int64)[rows], np.diff(offsets))
    subscriptions = np.insert(base.subscriptions, places, tags)
    return _plain(base.offsets + np.concatenate([[0], np.cumsum(more)]), subscriptions)
