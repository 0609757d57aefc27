"""Lookups of entries, positions, topics and subscriptions. Every entry is checked before it is returned."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from itertools import pairwise, repeat
from typing import Any, Final

import numpy as np

from milepost import limits
from milepost.batch.checksum import crc32
from milepost.batch.header import HEADER
from milepost.errors import CorruptLog, UnknownTopic
from milepost.operations import (
    Cursor,
    Extent,
    Lag,
    Lags,
    Position,
    Retention,
    Start,
    StoredEntry,
    SubscriptionRecord,
    TopicRecord,
)
from milepost.storage import statements
from milepost.storage.database import Session

READ_ENTRIES: Final = 512  # most entries of one read: small ones that are not compacted yet must not make it slow
SINGLE_ENTRIES: Final = 4_096  # the same for entries of one row each, which are read together,
SINGLE_BYTES: Final = 1_024  # if each is at most this large
_HEADS: Final = np.dtype([("checksum", "<u4"), ("word", "<u4"), ("fingerprint", "<u8")])  # the layout of HEADER
_PLACE: Final = struct.Struct("<qqqqI")
TIMES: Final = np.dtype([("row", "<u4"), ("time_us", "<u8")])  # the same as a table
TIME: Final = struct.Struct("<IQ")  # of a joined entry: a row, and the time it and the next rows were stored


def read(
    session: Session, topic: int, log: int, offset: int, max_bytes: int, max_rows: int | None
) -> list[StoredEntry]:
    """Entries from the one that contains `offset`; from the first retained entry if `offset` was trimmed."""
    most = READ_ENTRIES if max_rows is None else min(max_rows, READ_ENTRIES)  # each has at least one wanted row
    result = session.stream(statements.READ, topic=topic, log=log, offset=offset, most=most, max_bytes=max_bytes)
    made: list[StoredEntry] = []
    size = rows = 0
    try:
        row: Any
        for row in result:
            start, end, first, count, _, time_us, times, after_log, after_offset, sealed, data, piece = row
            wanted = made[-1].first + made[-1].rows if made else max(offset, start)
            if wanted >= end:
                break
            if first is None or (not made and not first <= wanted < first + count) or (made and first != wanted):
                raise _corrupt(topic, log, wanted, "the rows are missing")
            whole = checked(topic, log, first, count, sealed, piece if piece is not None else data)
            time_us = _time(times, wanted - first) or time_us
            made.append(
                StoredEntry(first, count, time_us, whole, None if after_log is None else (after_log, after_offset))
            )
            size += len(whole)
            rows += first + count - wanted
            if size >= max_bytes or (max_rows is not None and rows >= max_rows):
                break
    finally:
        result.close()
    return made


def read_single(session: Session, topic: int, log: int, offset: int, max_rows: int | None) -> list[bytes]:
    """The data of entries from `offset` on, if all of them have one row and one schema; an empty list otherwise.

    Also empty when an entry is damaged or rows were trimmed: then `read` reports that. A log that is written row by row
    is read several times as fast in this way, until it is compacted.
    """
    most = SINGLE_ENTRIES if max_rows is None else min(max_rows, SINGLE_ENTRIES)
    count, first, last, sizes, seals, data = session.row(
        statements.READ_SINGLE, topic=topic, log=log, offset=offset, stop=offset + most, small=SINGLE_BYTES
    )
    if not count or first != offset or last != offset + count - 1:
        return []
    whole = bytes(data)
    ends = np.cumsum([int(size) for size in sizes.split(",")]).tolist()
    datas = [whole[start:end] for start, end in pairwise([0, *ends])]
    packed = b"".join([data[: HEADER.size] for data in datas])
    if len(whole) != ends[-1] or len(packed) != count * HEADER.size:
        return []
    heads = np.frombuffer(packed, _HEADS)
    checksums = heads["checksum"].tolist()
    sealed = map(crc32, map(_PLACE.pack, repeat(topic), repeat(log), range(offset, last + 1), repeat(1), checksums))
    right = (
        ((heads["word"] & limits.BATCH_ROWS) == 1).all()
        and (heads["fingerprint"] == heads["fingerprint"][0]).all()
        and list(map(crc32, [data[4:] for data in datas])) == checksums
        and list(sealed) == [int(each) for each in seals.split(",")]
    )
    return datas if right else []


def seal(topic: int, log: int, first: int, rows: int, data: bytes) -> int:
    """The checksum that ties an entry to its place in the log. It covers the checksum in the header of `data`."""
    return crc32(_PLACE.pack(topic, log, first, rows, *HEADER.unpack_from(data)[:1]))


def checked(topic: int, log: int, first: int, rows: int, sealed: int, data: Any) -> bytes:
    """The bytes of an entry; `CorruptLog` when they are damaged. The reader checks that they fit a schema."""
    whole = data if type(data) is bytes else bytes(data or b"")
    if len(whole) < HEADER.size:
        raise _corrupt(topic, log, first, f"an entry of {len(whole)} bytes is cut off")
    checksum, word, _ = HEADER.unpack_from(whole)
    if word & limits.BATCH_ROWS != rows:
        raise _corrupt(topic, log, first, f"an entry of {rows} rows holds {word & limits.BATCH_ROWS}")
    if crc32(memoryview(whole)[4:]) != checksum or seal(topic, log, first, rows, whole) != sealed:
        raise _corrupt(topic, log, first, "the checksum of an entry does not match")
    return whole


def intact(rows: int, data: Any) -> bytes | None:
    """The bytes of a batch that has no place in a log yet; None when they are damaged."""
    whole = data if type(data) is bytes else bytes(data or b"")
    if len(whole) < HEADER.size:
        return None
    checksum, word, _ = HEADER.unpack_from(whole)
    if word & limits.BATCH_ROWS != rows or crc32(memoryview(whole)[4:]) != checksum:
        return None
    return whole


def _corrupt(topic: int, log: int, offset: int, what: str) -> CorruptLog:
    return CorruptLog(
        f"topic {topic}, log {log}, offset {offset}: {what}. Restore the store from a backup, or give up the rows up "
        "to the damage with `milepost topic trim`; other topics are not concerned"
    )


def _time(times: bytes | None, row: int) -> int:
    """The time when a row of a joined entry was stored; 0 if the entry was not joined."""
    found = 0
    if times:
        for begins, time_us in TIME.iter_unpack(times):
            if begins > row:
                break
            found = time_us
    return found


# Positions


def resolve(session: Session, topic: int, start: Start) -> Position:
    """The position that a start means now, in all logs that have rows of the topic."""
    if isinstance(start, tuple) and start[0] == "position":
        return dict(start[1])
    found = extents(session, topic).get(topic, {})
    if start == "new":
        return {log: extent.next for log, extent in found.items()}
    if start == "earliest":
        return {log: extent.start for log, extent in found.items()}
    assert isinstance(start, tuple)
    return {log: _at(session, topic, log, extent, int(start[1])) for log, extent in found.items()}


def _at(session: Session, topic: int, log: int, extent: Extent, time_us: int) -> int:
    """The offset of the first row that was stored at `time_us` or later.

    Times never decrease within a log, so a binary search finds it, without an index that would slow down every write.
    """
    low, high = extent.start, extent.next  # the answer is in low..high
    while low < high:
        middle = (low + high) // 2
        row = session.row(statements.PROBE, topic=topic, log=log, offset=middle)
        if row is None:
            raise _corrupt(topic, log, middle, "the rows are missing")
        first, rows, first_us, last_us, times = row
        if not first <= middle < first + rows:
            raise _corrupt(topic, log, middle, "the rows are missing")
        if last_us < time_us:
            low = min(first + rows, high)
        elif first_us >= time_us:
            high = max(first, low)
        else:
            begins = next(at for at, since in TIME.iter_unpack(times or b"") if since >= time_us)
            return int(min(max(first + begins, extent.start), extent.next))
    return low


def extents(session: Session, topic: int | None = None) -> dict[int, dict[int, Extent]]:
    """The extents of topics, by topic and log."""
    found: dict[int, dict[int, Extent]] = {}
    rows = session.rows(statements.EXTENTS) if topic is None else session.rows(statements.EXTENTS_OF, topic=topic)
    for number, log, start, end, size, entries in rows:
        found.setdefault(number, {})[log] = Extent(start, end, end - start, size, entries)
    return found


# Topics and subscriptions


def topics(session: Session) -> list[TopicRecord]:
    """All topics."""
    schemas: dict[int, list[str]] = {}
    for number, text in session.rows(statements.SCHEMAS):
        schemas.setdefault(number, []).append(text)
    known = extents(session)
    return [_record(row, schemas.get(row[0], ()), known.get(row[0], {})) for row in session.rows(statements.TOPICS)]


def topic(session: Session, row: Any) -> TopicRecord:
    """One topic, from its row."""
    schemas = [text for _, text in session.rows(statements.SCHEMAS_OF, topic=row[0])]
    return _record(row, schemas, extents(session, row[0]).get(row[0], {}))


def _record(row: Any, schemas: Iterable[str], extents: dict[int, Extent]) -> TopicRecord:
    number, name, slow, age_s, size, hold = row
    return TopicRecord(number, name, tuple(schemas), slow, Retention(age_s, size, bool(hold)), extents)


def subscriptions(session: Session, topic: int) -> list[SubscriptionRecord]:
    """The named subscriptions to a topic."""
    if session.row(statements.TOPIC, topic=topic) is None:
        raise UnknownTopic(f"no durable topic has the number {topic}; it was deleted")
    cursors: dict[int, dict[int, Cursor]] = {}
    for number, log, consumed, state in session.rows(statements.CURSORS_OF, topic=topic):
        cursors.setdefault(number, {})[log] = Cursor(consumed, bytes(state))
    return [
        SubscriptionRecord(name, number_of, where, json.loads(options), cursors.get(number, {}), created_us)
        for number, name, number_of, where, options, created_us in session.rows(
            statements.SUBSCRIPTIONS_OF, topic=topic
        )
    ]


def lags(session: Session, most: int) -> Lags:
    """The lags of all named subscriptions, without holds.

    `QueryTooCostly` when the query takes too long.
    """
    found = session.bounded(statements.LAGS, hold=statements.HOLD_OPTIONS, most=most)
    total, rows = (int(found[0][3]), int(found[0][4])) if found else (0, 0)
    return Lags([Lag(topic, name, int(lag)) for topic, name, lag, _, _ in found], total, rows)
