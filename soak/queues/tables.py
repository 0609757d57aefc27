"""Checks that the store of empty queues is really empty, by reading its tables without the broker."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

Rows = Callable[[str], list[tuple[Any, ...]]]


def left_over(url: str) -> list[str]:
    """Complaints about remaining messages, transactions and reservations; none when all are gone."""
    if url.startswith("sqlite:///"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as store:
            return _looked(lambda text: store.execute(text).fetchall(), "SELECT name FROM sqlite_master")
    import psycopg

    with psycopg.connect(url, autocommit=True) as server:
        server.execute("SET search_path TO milepost")

        def rows(text: str) -> list[tuple[Any, ...]]:
            return server.execute(text.encode()).fetchall()

        return _looked(rows, "SELECT tablename FROM pg_tables WHERE schemaname = 'milepost'")


def _looked(rows: Rows, names: str) -> list[str]:
    tables = sorted(name for (name,) in rows(names) if re.fullmatch(r"q\d+|mt\d+_\d+_\w+", name))
    if not tables:
        return ["there are no tables of messages"]
    asked = {f"rows in {table}": f"FROM {table}" for table in tables} | {
        "entries in the log of transactions": "FROM queue_log",
        "groups that are reserved": "FROM queue_groups WHERE owner <> 0",
        "transactions that are under way": "FROM queue_transactions WHERE state = 'a'",
    }
    counted = {what: rows(f"SELECT count(*) {where}")[0][0] for what, where in asked.items()}
    return [f"{count:,} {what}" for what, count in counted.items() if count]
