"""Durable state, in SQL: the log, cursors, publishers and topics; SQLite and PostgreSQL.

`open_store` gives a `Store`; `milepost.operations` are what it writes; `Writer` is the thread that does. Beneath:
`transaction` (one attempt at a group), `execution` (operations of other parts than the log: how each is carried out),
`memory` (what is known between attempts), `entries` (rows to entries), `holds` (cursors without a consumer),
`staging` (rows that are not seen yet), `lookups`, `upkeep` and `compaction`; `database` with its two kinds and their
`session`s (`piped` and `pipeline`: PostgreSQL in few round trips), `statements`, `faults` (what a driver's errors mean)
and `migrations`.
"""

from milepost.storage.store import Store, open_store
from milepost.storage.url import default_url, url_of
from milepost.storage.writer import Writer

__all__ = ["open_store", "Store", "Writer", "default_url", "url_of"]
