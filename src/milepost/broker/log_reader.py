"""Reads matching rows from the log, in the reading threads, so that a long replay does not hold up the event loop."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from milepost.batch import Batch
from milepost.batch.header import fingerprint_of, rows_of
from milepost.batch.neighbours import READ, join, join_encoded, runs
from milepost.broker.core.log.portion import Portion
from milepost.broker.core.log.reach import NO_OFFSETS, Offsets
from milepost.broker.core.topics.topic import Version
from milepost.errors import CorruptLog, QueryTooCostly
from milepost.query import Predicate
from milepost.storage.lookups import SINGLE_BYTES

if TYPE_CHECKING:
    from milepost.operations import StoredEntry
    from milepost.storage import Store

READ_BYTES: Final = 4 << 20  # of the log, at a time
ENOUGH_BYTES: Final = 2 << 20  # of matching rows, after which a read ends; another read continues later
SLICE_S: Final = 0.25  # seconds after which a read ends too: the reading threads are few
MOST_BYTES: Final = 256 << 20  # of the log, after which a read without matches ends
SINGLE: Final = 32  # consecutive entries of one row, after which more of them are expected


class Run(NamedTuple):
    """Entries that are evaluated together: small neighbours of one schema, or a larger one alone."""

    first: int
    next: int  # the offset after the last row
    datas: Sequence[bytes]
    size: int  # bytes of `datas`
    after: tuple[int, int] | None = None


class LogReader(NamedTuple):
    """One read of a log. `versions` has the topic's schemas by fingerprint, each with the predicate for its rows."""

    store: Store
    topic: int  # the store's number
    name: str
    log: int
    versions: Mapping[int, tuple[Version, Predicate | None]]
    filtered: bool

    def read(self, offset: int, stop: int | None = None) -> list[Portion]:
        """Read from an offset to before `stop`, until there are enough rows to hand out."""
        found: list[Portion] = []
        scanned = matched = 0
        until = time.monotonic() + SLICE_S
        offset = max(offset, self._start())  # an entry may begin with rows that were trimmed
        single: bool | None = False  # whether small entries of one row are expected; None: they were, and did not come
        while matched < ENOUGH_BYTES and scanned < MOST_BYTES and (stop is None or offset < stop):
            try:
                runs, single = self._runs(offset, stop, single)
            except CorruptLog:
                if found:
                    break  # return the rows before the damage; the next read raises
                raise
            if not runs:
                break
            for run in runs:
                after = run.after
                if found and after is not None:
                    return _joined(found)  # only the rest may have to wait for another log
                try:
                    for part in self._found(run, offset, stop):
                        found.append(part)
                        offset = part.next
                        matched += 0 if part.batch is None else len(part.batch.data)
                        if time.monotonic() > until:
                            return _joined(found)
                except QueryTooCostly:
                    if found:
                        return _joined(found)  # as with damage: the next read raises
                    raise
                scanned += run.size
                if after is not None:
                    return found
        if not found:
            offset = max(offset, self._start())
            found.append(Portion(self.log, offset, offset, None, NO_OFFSETS))
        return _joined(found)

    def read_only(self, wanted: Offsets) -> list[Portion]:
        """Read exactly these rows, as far as they still exist; the last `Portion.next` is where the search ended."""
        found: list[Portion] = []
        offset, last, size = max(int(wanted[0]), self._start()), int(wanted[-1]), 0
        while offset <= last and size < ENOUGH_BYTES:
            entries = self.store.read(self.topic, self.log, offset, max_bytes=READ_BYTES)
            if not entries:
                break
            for entry in entries:
                end = entry.first + entry.rows
                rows = wanted[np.searchsorted(wanted, max(offset, entry.first)) : np.searchsorted(wanted, end)]
                offset = end
                if len(rows):
                    version, _ = self._version(entry.first, entry.data)
                    places = (rows - np.uint64(entry.first)).astype(np.intp)
                    batch = Batch.trusted(entry.data, version.schema).take(places)
                    size += len(batch.data)
                    found.append(Portion(self.log, entry.first, end, batch, rows))
                if offset > last or size >= ENOUGH_BYTES:
                    break
            following = wanted[np.searchsorted(wanted, np.uint64(offset)) :]
            if not len(following):
                offset = last + 1
            elif int(following[0]) > offset:
                offset = int(following[0])  # skip offsets that are not wanted
        reached = last + 1 if not found or size < ENOUGH_BYTES else offset
        found.append(Portion(self.log, reached, reached, None, NO_OFFSETS))
        return found

    def _start(self) -> int:
        """The first offset that the log still has."""
        return self.store.resolve(self.topic, "earliest").get(self.log, 0)

    def _entries(self, offset: int, stop: int | None) -> list[StoredEntry]:
        try:
            rows = None if stop is None else stop - offset
            return self.store.read(self.topic, self.log, offset, max_bytes=READ_BYTES, max_rows=rows)
        except CorruptLog:
            return self.store.read(self.topic, self.log, offset, max_rows=1)

    def _runs(self, offset: int, stop: int | None, single: bool | None) -> tuple[list[Run], bool | None]:
        """The next runs, and whether small entries of one row are expected after them.

        None once such entries were expected and did not come: each try reads thousands of entries.
        """
        if single:
            rows = None if stop is None else stop - offset
            datas = self.store.read_single(self.topic, self.log, offset, max_rows=rows)
            if datas:
                return _single_runs(offset, datas), True
        entries = self._entries(offset, stop)
        if single is not False:
            return list(_runs(entries)), None
        last = entries[-SINGLE:]
        return list(_runs(entries)), len(last) == SINGLE and all(
            entry.rows == 1 and len(entry.data) <= SINGLE_BYTES for entry in last
        )

    def _version(self, first: int, data: bytes) -> tuple[Version, Predicate | None]:
        found = self.versions.get(fingerprint_of(data))
        if found is None:
            raise CorruptLog(
                f"offset {first} of log {self.log} of topic {self.name!r} is of a schema that the topic does not "
                "have; restore the database from a backup, or remove these rows with `milepost topic trim`"
            )
        return found

    def _found(self, run: Run, offset: int, stop: int | None) -> Iterator[Portion]:
        """The rows of a run that match, from `offset` to before `stop`."""
        version, predicate = self._version(run.first, run.datas[0])
        first, there, datas, _, after = run
        end = there if stop is None else min(stop, there)
        skip, most = max(0, offset - first), end - first
        start = first + skip
        if self.filtered and predicate is None:
            yield Portion(self.log, start, end, None, NO_OFFSETS, after)
            return
        batch = join_encoded(datas, version.schema)
        if batch is None:
            for alone in _apart(run):
                yield from self._found(alone, offset, stop)
            return
        if not self.filtered:
            rows = batch.slice(skip, most) if skip or end < there else batch
            yield Portion(self.log, start, end, rows, np.arange(start, end, dtype=np.uint64), after)
            return
        assert predicate is not None
        try:
            chosen = np.flatnonzero(predicate.mask(version.view(batch)))
        except QueryTooCostly:
            if len(datas) == 1:
                raise
            for alone in _apart(run):  # each alone may be within the budget
                yield from self._found(alone, offset, stop)
            return
        if skip or end < there:
            chosen = chosen[(chosen >= skip) & (chosen < most)]
        if not len(chosen):
            yield Portion(self.log, start, end, None, NO_OFFSETS, after)
            return
        taken = batch if len(chosen) == len(batch) else batch.take(chosen)
        yield Portion(self.log, start, end, taken, chosen.astype(np.uint64) + np.uint64(first), after)


def _runs(entries: list[StoredEntry]) -> Iterator[Run]:
    """Group entries into runs: a predicate costs as much for one row as for a thousand."""
    for _, group in groupby(entries, key=_kind):
        alike = list(group)
        sizes, rows = [len(entry.data) for entry in alike], [entry.rows for entry in alike]
        yield from map(_run, runs(alike, sizes, rows, READ))


def _kind(entry: StoredEntry) -> int | tuple[int, int]:
    """Neighbours of one kind form a run. An entry that waits for another log has its own kind."""
    found = fingerprint_of(entry.data)
    return found if entry.after is None else (found, entry.first)


def _run(entries: list[StoredEntry]) -> Run:
    datas = [entry.data for entry in entries]
    last = entries[-1]
    return Run(entries[0].first, last.first + last.rows, datas, sum(map(len, datas)), entries[0].after)


def _single_runs(first: int, datas: list[bytes]) -> list[Run]:
    """Runs of entries of one row and one schema: each has as many as may be joined."""
    each = max(1, READ.bytes // max(map(len, datas)))
    parts = [(at, datas[at : at + each]) for at in range(0, len(datas), each)]
    return [Run(first + at, first + at + len(part), part, sum(map(len, part))) for at, part in parts]


def _apart(run: Run) -> Iterator[Run]:
    """Each entry of a run as its own run."""
    first = run.first
    for data in run.datas:
        end = first + rows_of(data)
        yield Run(first, end, [data], len(data), run.after)
        first = end


def _joined(found: list[Portion]) -> list[Portion]:
    """Join small neighbours of one schema, and parts without rows with the part before them."""
    sizes = [0 if part.batch is None else len(part.batch.data) for part in found]
    rows = [len(part.offsets) for part in found]
    return [one for run in runs(found, sizes, rows, READ, _follows) for one in _one(run)]


def _follows(run: list[Portion], part: Portion) -> bool:
    if run[-1].next != part.start or part.after is not None:
        return False
    if part.batch is None:
        return True
    before = run[-1].batch or next((other.batch for other in reversed(run) if other.batch is not None), part.batch)
    return before.schema is part.batch.schema


def _one(run: list[Portion]) -> list[Portion]:
    """Join the parts of a run into one, or return them unchanged when that exceeds a limit of batches."""
    if len(run) == 1:
        return run
    full = [part for part in run if part.batch is not None]
    batch = join([part.batch for part in full]) if full else None
    if full and batch is None:
        return run
    offsets = np.concatenate([part.offsets for part in full]) if full else NO_OFFSETS
    return [Portion(run[0].log, run[0].start, run[-1].next, batch, offsets, run[0].after)]
