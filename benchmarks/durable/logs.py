"""Logs written directly into a store, as a broker writes them, for benchmarks that read them."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path

import numpy as np

from benchmarks.durable import disk
from benchmarks.load.payload import DISTINCT, SCHEMA, rows
from milepost.batch import Batch, Ids
from milepost.operations import Append, Enrol, MakeTopic, Part, Retention
from milepost.query import parse_schema
from milepost.storage import Store, open_store

BATCH_ROWS = 10_000  # of a log that is written in batches: about a megabyte
TOPIC = "log"
BROKER = "milepost"  # the default name, under which the broker finds its log
PUBLISHER, BROKER_ID = 5, 9
KEEP = Retention(None, None, True)
# One row in a hundred: `size` is 1 to 1,000, each as often as the others.
WHERE, MATCHING = f"size <= {DISTINCT // 100}", 100


class Log:
    """A store with one topic, open for writing."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.store: Store = open_store(
            str(file), broker=BROKER, broker_id=BROKER_ID, time_us=_now(), lease_s=10.0, remember_s=60.0
        )
        self._schema = parse_schema(SCHEMA)
        self._stamp = 0
        made, enrolled = self.store.write([MakeTopic(TOPIC, (SCHEMA,), "throttle", KEEP), Enrol("log", PUBLISHER)],
                                          _now()).outcomes  # fmt: skip
        self.topic = int(made.topic.topic)
        self._publisher = int(enrolled.number)

    def encoded(self, given: Iterable[object]) -> Batch:
        """Rows as a batch without IDs: `append` stamps it, and may be called repeatedly."""
        return Batch.encode(self._schema, list(given))

    def append(self, batch: Batch) -> None:
        """One transaction with these rows."""
        stamps = np.arange(self._stamp + 1, self._stamp + 1 + len(batch), dtype=np.uint64)
        self._stamp += len(batch)
        stamped = batch.stamped(Ids.single(self._publisher, BROKER_ID, stamps))
        (outcome,) = self.store.write([Append(self._publisher, (Part(self.topic, stamped),))], _now()).outcomes
        if isinstance(outcome, Exception):
            raise outcome

    def entries(self) -> int:
        return sum(extent.entries for extent in self.store.extents(self.topic)[self.topic].values())

    def compact(self) -> None:
        """Do all upkeep that is due."""
        while self.store.maintain(_now()):
            pass


def _now() -> int:
    return time.time_ns() // 1_000


@contextmanager
def batched(count: int) -> Iterator[Path]:
    """The file of a store whose log was written 10,000 rows at a time."""
    with tempfile.TemporaryDirectory(prefix="milepost-bench-log-") as folder:
        log = Log(Path(folder) / "milepost.db")
        batch = log.encoded(islice(cycle(rows()), min(BATCH_ROWS, count)))  # counts are multiples of it, or smaller
        for start in range(0, count, BATCH_ROWS):
            log.append(batch)
            _progress(start + BATCH_ROWS, count, "rows, in batches")
        log.store.close()
        yield log.file


@contextmanager
def one_by_one(count: int) -> Iterator[tuple[Path, int, Path, int]]:
    """Two stores of one log that was written one row at a time: as it was, and compacted; with their entries.

    It is written in memory, where a sync is free, and copied to the disk: a transaction for each row all the same.
    """
    with (
        tempfile.TemporaryDirectory(prefix="milepost-bench-log-") as folder,
        tempfile.TemporaryDirectory(prefix="milepost-bench-log-", dir=disk.memory_folder()) as memory,
    ):
        log = Log(Path(memory) / "milepost.db")
        single = [log.encoded([row]) for row in rows()]
        for number, batch in enumerate(islice(cycle(single), count), 1):
            log.append(batch)
            if number % BATCH_ROWS == 0:
                _progress(number, count, "rows, one at a time")
        before = log.entries()
        log.store.close()
        raw, compacted = (Path(folder) / name for name in ("raw.db", "compacted.db"))
        shutil.copy(log.file, raw)
        again = Log(log.file)
        again.compact()
        after = again.entries()
        again.store.close()
        shutil.copy(log.file, compacted)
        yield raw, before, compacted, after


def _progress(done: int, count: int, what: str) -> None:
    """A progress line that is rewritten on a terminal; elsewhere only the last one is printed."""
    if sys.stderr.isatty() or done >= count:
        end = "\n" if done >= count else "\r"
        print(f"writing a log: {min(done, count):,} of {count:,} {what}", end=end, file=sys.stderr, flush=True)
