"""The time of one scan of a queue's tables, with which a selective dequeue without an index is compared."""

from __future__ import annotations

import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from benchmarks.load import queues
from milepost.query import parse_schema
from milepost.query.sql import Tables
from milepost.storage.sqlite import CACHE_KIB

WARM = 3  # scans that are not counted

# PostgreSQL: no index, and no second process, because a dequeue, which locks its rows, has none either.
_PLAIN = (
    *(f"enable_{way} = off" for way in ("indexscan", "indexonlyscan", "bitmapscan")),
    "max_parallel_workers_per_gather = 0",
    "search_path = milepost",
)
_FREE = "q.lsf = 'c' AND q.owner = 0 AND q.due_us <= {now} AND q.ends_us > {now}"


def scan_ms(store: str, queue: str, times: int) -> float:
    """The median of some scans, in ms: each table of a queue of `queues.backlog` once, by predicate and order.

    The join is left out: its plan depends on the database's statistics, and every plan takes longer than this.
    `store` is the URL of PostgreSQL, or the path of SQLite's file; its broker is idle.
    """
    with _opened(store) as run:
        header, root, values = _tables(run, queue)
        bare = "" if store.startswith("postgresql") else " NOT INDEXED"
        texts = [
            f"SELECT count(*) FROM {header} q{bare} WHERE {_FREE.format(now=time.time_ns() // 1_000)}",
            f"SELECT r.mid FROM {root} r{bare} WHERE r.{values['venue']} = '{queues.WANTED}' "
            f"ORDER BY r.{values['size']} DESC, r.mid LIMIT 1",
        ]
        return statistics.median([_timed(run, texts) for _ in range(WARM + times)][WARM:]) / 1e6


def _timed(run: Callable[[str], Sequence[Any]], texts: list[str]) -> int:
    began = time.monotonic_ns()
    for text in texts:
        if not run(text):
            raise LookupError("a scan found nothing")
    return time.monotonic_ns() - began


def _tables(run: Callable[[str], Sequence[Any]], queue: str) -> tuple[str, str, dict[str, str]]:
    """The queue's table, the root table of its type, and there the columns by attribute."""
    ((number,),) = run(f"SELECT number FROM queues WHERE name = '{queue}'")
    ((kind, source),) = run(f"SELECT number, source FROM queue_types WHERE name = '{queues.type_of(queue)}'")
    root = Tables(parse_schema(source), kind).root
    return f"q{number}", root.name, {path[-1]: column.name for path, column in root.by_path.items()}


@contextmanager
def _opened(store: str) -> Iterator[Callable[[str], Sequence[Any]]]:
    if not store.startswith("postgresql"):
        with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as file:
            file.execute(f"PRAGMA cache_size = -{CACHE_KIB}")  # as the broker has it
            yield lambda text: file.execute(text).fetchall()
        return
    import psycopg

    with psycopg.connect(store, autocommit=True) as server:
        for setting in _PLAIN:
            server.execute(f"SET {setting}".encode())
        yield lambda text: server.execute(text.encode()).fetchall()
