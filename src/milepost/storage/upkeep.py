"""Upkeep: removes old rows, joins small entries, returns disk space. In small steps, between writes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple

from milepost.batch.header import HEADER
from milepost.errors import CorruptLog, Fenced, MilepostError
from milepost.operations import Extent, Retention, StoredEntry
from milepost.query import parse_schema
from milepost.schema import Schema
from milepost.storage import compaction, faults, lookups, staging, statements
from milepost.storage.compaction import EntryHeader
from milepost.storage.database import Database, Session
from milepost.storage.memory import LogHolder, StoreMemory

STEP_TOPICS: Final = 100  # read in one step
TOPIC_STEPS: Final = 16  # most steps for one topic before the next: a topic with endless work must not block others
STEP_ENTRIES: Final = 64  # most entries removed in one step,
STEP_BYTES: Final = 16 << 20  # or until they have this size
STEP_ROWS: Final = 1_000  # most rows of small tables removed in one step
# A named publisher's high water and a sink's epoch are kept this long after the last write.
NAMED_SILENT_S: Final = 366 * 86_400
UNNAMED_SILENT_S: Final = 90 * 86_400  # a publisher without a name cannot return after its process has ended
MEMBER_SILENT_S: Final = 90 * 86_400  # the same for the members of a subscription
NUMBER_MOST: Final = (1 << 63) - 1  # the largest epoch
_STAMP_US: Final = 65.536  # stamps per microsecond: a stamp counts milliseconds in its upper 48 bits
_log: Final = logging.getLogger(__name__)


class UpkeepStep(NamedTuple):
    """The result of a step of upkeep. It is true when there is more to do."""

    more: bool  # False after a cycle that found nothing to do
    worked: bool  # the step removed, joined or returned something

    def __bool__(self) -> bool:
        return self.more


class Upkeep:
    """The upkeep of one store; it keeps its progress between steps.

    A cycle covers the whole store once, a step at a time. Each step that changes something is a transaction of its own,
    which locks the broker's log. An error of one topic is logged, and the cycle continues with the others.
    """

    def __init__(self, database: Database, memory: StoreMemory, remember_s: float, staged_s: float) -> None:
        self._database = database
        self._memory = memory
        self._remember_us = int(remember_s * 1e6)
        self._staged_us = int(staged_s * 1e6)
        self._session: Session
        self._holder: LogHolder
        self._time_us = 0
        self._cycle: Iterator[None] | None = None
        self._worked = False  # in this cycle
        self._compacted: dict[tuple[int, int], tuple[int, int]] = {}  # the offset reached, and the log's end then
        self._schemas: dict[int, dict[int, Schema]] = {}

    def step(self, session: Session, holder: LogHolder, time_us: int) -> UpkeepStep:
        """Do one step, of some milliseconds."""
        self._session, self._holder, self._time_us = session, holder, time_us
        if self._cycle is None:
            self._cycle, self._worked = self._steps(), False
        before, self._worked = self._worked, False
        try:
            next(self._cycle)
            more = True
        except StopIteration:
            self._cycle = None
            more = before or self._worked
        except BaseException:
            self._cycle = None
            raise
        worked, self._worked = self._worked, before or self._worked
        return UpkeepStep(more, worked)

    def _steps(self) -> Iterator[None]:
        yield from islice(self._dropped(), TOPIC_STEPS)
        yield from islice(self._staged(), TOPIC_STEPS)
        after = 0
        while True:
            topics = self._session.rows(statements.SOME_TOPICS, after=after, most=STEP_TOPICS)
            silent = self._session.rows(statements.SILENT_LOGS, time_us=self._time_us, lease_us=self._holder.lease_us)
            logs = {self._holder.log} | {row[0] for row in silent}
            for number, *_, age_s, size, hold in topics:
                try:
                    yield from self._topic(number, Retention(age_s, size, bool(hold)), logs)
                except faults.DRIVER_ERRORS as error:
                    if faults.kind(error) is not faults.FaultKind.CORRUPT:
                        raise
                    self._session.roll_back()
                    _log.error("upkeep of topic %d: %s", number, faults.fault(error, self._database.place))
            if len(topics) < STEP_TOPICS:
                break
            after = topics[-1][0]
            yield
        yield from self._forgotten()
        while self._database.give_back(self._session):
            self._worked = True
            yield

    def _write(self, function: Callable[[], int]) -> int:
        """Run a function in a transaction, if this process still has the log. Returns its result; 0 rolls back."""
        session, holder = self._session, self._holder
        session.say(self._database.begin)
        if session.row(statements.HOLD_LOG, log=holder.log, epoch=holder.epoch) is None:
            raise Fenced("another process has taken over this broker's log: this one must end")
        done = function()
        session.say("COMMIT" if done else "ROLLBACK")
        self._worked |= done > 0
        return done

    # Removal of rows

    def _dropped(self) -> Iterator[None]:
        while (found := self._session.row(statements.DROPPED)) is not None:
            topic = found[0]
            rows = _bounded(self._session.rows(statements.DROPPED_ENTRIES, topic=topic, most=STEP_ENTRIES), size=2)

            def remove(topic: int = topic, rows: list[Any] = rows) -> int:
                last = {log: first for log, first, _ in rows}
                for log, first in last.items():
                    self._delete_oldest(topic, log, first)
                if not rows:
                    self._session.run(statements.DROPPED_DONE, topic=topic)
                return 1

            self._write(remove)
            self._schemas.pop(topic, None)
            for place in [place for place in self._compacted if place[0] == topic]:
                del self._compacted[place]
            yield

    def _staged(self) -> Iterator[None]:
        """Remove the stages of silent sinks, and discarded stages."""
        before = self._time_us - self._staged_us
        while (found := self._session.row(statements.SILENT_STAGES, before=before)) is not None:
            self._write(partial(self._discard_silent, found[0], before))
            yield
        while (found := self._session.row(statements.DISCARDED)) is not None:
            self._write(partial(self._remove_pieces, found[0]))
            yield

    def _discard_silent(self, sink: int, before: int) -> int:
        session = self._session
        held = session.row(statements.SILENT_SINK, sink=sink, before=before)
        if held is not None:  # otherwise the sink has written meanwhile
            stages = session.rows(statements.STAGES_UP_TO, sink=sink, epoch=NUMBER_MOST)
            staging.discard(session, [number for number, _, _ in stages])
            session.run(statements.TOUCH_SINK, sink=sink, bytes=0, epoch=held[0], time_us=held[1])
        return 1

    def _remove_pieces(self, stage: int) -> int:
        session = self._session
        found = session.rows(statements.DISCARDED_PIECES, stage=stage, most=STEP_ENTRIES)
        rows = _bounded(found, size=1)
        if rows:
            session.run(statements.DELETE_FIRST_PIECES, stage=stage, last=rows[-1][0])
        if len(rows) == len(found) < STEP_ENTRIES:
            session.run(statements.DISCARDED_DONE, stage=stage)
        return 1

    def _topic(self, topic: int, retention: Retention, logs: set[int]) -> Iterator[None]:
        for _ in range(TOPIC_STEPS):
            extents = lookups.extents(self._session, topic).get(topic, {})
            if not self._looks_due(topic, retention, extents, logs):
                break
            if not self._write(lambda: self._retain(topic, retention, logs)):
                break
            yield
        for log in sorted(logs & extents.keys()):
            for _ in range(TOPIC_STEPS):
                if not self._compact(topic, log, extents[log]):
                    break
                yield

    def _looks_due(self, topic: int, retention: Retention, extents: dict[int, Extent], logs: set[int]) -> bool:
        """Whether rows may have to be removed, found out without a transaction."""
        if retention.bytes is not None and sum(extent.bytes for extent in extents.values()) > retention.bytes:
            return True
        for log in logs & extents.keys():
            oldest = self._session.row(statements.OLDEST, topic=topic, log=log, most=1)
            if oldest is not None:
                first, rows, _, last_us = oldest
                if first + rows <= extents[log].start:
                    return True
                if retention.age_s is not None and last_us + retention.age_s * 1e6 <= self._time_us:
                    return True
        return False

    def _retain(self, topic: int, retention: Retention, logs: set[int]) -> int:
        """Remove the oldest entries that may go, as many as fit into a step. Returns their number."""
        session = self._session
        if session.row(statements.CLAIM_TOPIC, topic=topic) is None:
            return 0
        extents = lookups.extents(session, topic).get(topic, {})
        total = sum(extent.bytes for extent in extents.values())
        heads: dict[int, list[Any]] = {}
        bounds: dict[int, int] = {}
        for log in sorted(logs & extents.keys()):
            heads[log] = list(session.rows(statements.OLDEST, topic=topic, log=log, most=STEP_ENTRIES))
            slowest = session.row(statements.SLOWEST, topic=topic, log=log)[0] if retention.hold else None
            bounds[log] = extents[log].next if slowest is None else slowest
        going: dict[int, list[Any]] = {log: [] for log in heads}
        size = 0
        while size < STEP_BYTES:
            # The oldest entry of all logs first, among those that no subscription still needs.
            open_ = [
                log
                for log, oldest in heads.items()
                if oldest and oldest[0][0] + oldest[0][1] <= max(extents[log].start, bounds[log])
            ]
            if not open_:
                break
            log = min(open_, key=lambda log: heads[log][0][3])
            first, rows, count, last_us = heads[log][0]
            gone = first + rows <= extents[log].start
            old = retention.age_s is not None and last_us + retention.age_s * 1e6 <= self._time_us
            if not (gone or old or (retention.bytes is not None and total > retention.bytes)):
                break
            going[log].append(heads[log].pop(0))
            total -= count
            size += count
        for log, entries in going.items():
            if entries:
                self._remove(topic, log, entries)
        return sum(map(len, going.values()))

    def _remove(self, topic: int, log: int, entries: list[Any]) -> None:
        last = entries[-1]
        self._delete_oldest(topic, log, last[0])
        self._session.run(
            statements.SHRINK, topic=topic, log=log, start=last[0] + last[1],
            bytes=sum(entry[2] for entry in entries), entries=len(entries),
        )  # fmt: skip

    def _delete_oldest(self, topic: int, log: int, last: int) -> None:
        self._session.run(statements.DELETE_PIECES, topic=topic, log=log, first=0, last=last)
        self._session.run(statements.DELETE_OLDEST, topic=topic, log=log, last=last)

    # Compaction

    def _compact(self, topic: int, log: int, extent: Extent) -> bool:
        """Join one run of small entries; False when there is none."""
        place = topic, log
        done, end = self._compacted.get(place, (0, -1))
        if end == extent.next:
            return False
        headers = self._session.rows(
            statements.HEADERS, topic=topic, log=log, first=max(done, 0), most=2 * compaction.RUN_ENTRIES
        )
        run, done = compaction.run_of([EntryHeader(row[0], row[1], row[2], bool(row[3])) for row in headers])
        if not run:
            if len(headers) < 2 * compaction.RUN_ENTRIES:
                self._compacted[place] = done, extent.next
                return False
            done = max(done, headers[-1][0])
        elif not self._write(lambda: self._join(topic, log, run)):
            done = run[0].first + run[0].rows  # the first entry has another schema or is damaged: skip it
        self._compacted[place] = done, -1
        return True

    def _join(self, topic: int, log: int, run: list[EntryHeader]) -> int:
        session = self._session
        if self._database.shared and session.row(statements.EXTENT, topic=topic, log=log) is None:
            return 0
        rows = session.rows(statements.WHOLE, topic=topic, log=log, first=run[0].first, last=run[-1].first)
        if [row[0] for row in rows] != [entry.first for entry in run]:
            return 0  # another broker has joined or removed them
        entries, fingerprints = [], []
        for first, count, first_us, last_us, times, after_log, after_offset, sealed, data in rows:
            try:
                whole = lookups.checked(topic, log, first, count, sealed, data)
            except CorruptLog as error:
                _log.error("upkeep: %s", error)  # readers get this error as well; the entry stays
                break
            after = None if after_log is None else (after_log, after_offset)
            entries.append(StoredEntry(first, count, first_us, whole, after, last_us, times and bytes(times)))
            fingerprints.append(int(HEADER.unpack_from(whole)[2]))
        if len(entries) < 2:
            return 0
        made = compaction.join(entries, self._schemas_of(topic, fingerprints), fingerprints)
        if made is None:
            return 0
        joined, count = made
        last = entries[count - 1].first
        session.run(statements.DELETE_PIECES, topic=topic, log=log, first=joined.first, last=last)
        session.run(statements.DELETE_RUN, topic=topic, log=log, first=joined.first, last=last)
        session.run(
            statements.INSERT_ENTRY, topic=topic, log=log, first=joined.first, rows=joined.rows, bytes=len(joined.data),
            first_us=joined.time_us, last_us=joined.last_us, times=joined.times,
            after_log=joined.after and joined.after[0], after_offset=joined.after and joined.after[1],
            data=joined.data, piece=None,
            seal=lookups.seal(topic, log, joined.first, joined.rows, joined.data),
        )  # fmt: skip
        grown = len(joined.data) - sum(len(entry.data) for entry in entries[:count])
        session.run(statements.JOIN, topic=topic, log=log, bytes=grown, entries=count - 1)
        return count

    def _schemas_of(self, topic: int, fingerprints: list[int]) -> dict[int, Schema]:
        known = self._schemas.get(topic, {})
        if fingerprints[0] not in known:
            known = {}
            for _, text in self._session.rows(statements.SCHEMAS_OF, topic=topic):
                try:
                    schema = parse_schema(text)
                except MilepostError as error:
                    _log.error("upkeep of topic %d: one of its schemas cannot be read: %s", topic, error)
                    continue
                known[schema.fingerprint] = schema
            self._schemas[topic] = known
        return known

    # Expiry of keys, members, sinks and publishers

    def _forgotten(self) -> Iterator[None]:
        for statement, age_us in (
            (statements.FORGET_TOKENS, self._remember_us),
            (statements.FORGET_MEMBERS, int(MEMBER_SILENT_S * 1e6)),
            (statements.FORGET_SINKS, int(NAMED_SILENT_S * 1e6)),
        ):
            count = STEP_ROWS
            while count >= STEP_ROWS:
                count = self._session.run(statement, before=self._time_us - age_us, most=STEP_ROWS)
                self._worked |= count > 0
                if count >= STEP_ROWS:
                    yield
        after = 0
        unnamed, named = self._time_us - int(UNNAMED_SILENT_S * 1e6), self._time_us - int(NAMED_SILENT_S * 1e6)
        while rows := self._session.rows(statements.OLD_PUBLISHERS, before=unnamed, after=after, most=STEP_ROWS):
            # A high water is the time of the last put by the publisher's clock: an active publisher is not silent.
            gone = [
                {"number": number, "high_water": high_water, "seen_us": seen_us}
                for number, key, high_water, seen_us in rows
                if max(seen_us, high_water / _STAMP_US) < (unnamed if key.startswith("~") else named)
            ]
            if gone:
                self._write(partial(self._forget_publishers, gone))
            after = rows[-1][3]
            yield

    def _forget_publishers(self, gone: list[dict[str, int]]) -> int:
        self._session.each(statements.FORGET_PUBLISHER, gone)
        self._session.each(statements.FORGET_TRAIL, [{"number": row["number"]} for row in gone])
        for row in gone:
            self._memory.publishers.pop(row["number"], None)
        return len(gone)


def _bounded(rows: Any, size: int) -> list[Any]:
    """The first rows, as many as a step may remove, at least one. `size` is the column of their bytes."""
    kept: list[Any] = []
    total = 0
    for row in rows:
        if kept and total + row[size] > STEP_BYTES:
            break
        kept.append(row)
        total += row[size]
    return kept
