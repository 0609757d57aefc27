"""Durable state, in SQL: the log, cursors, publishers and topics; SQLite and PostgreSQL.

`open_store` returns a `Store`, which writes `milepost.operations`; `Writer` is the thread that calls it. Beneath:
`transaction` (one attempt at a group), `execution` (the functions that carry out other parts' operations),
`memory` (state kept between attempts), `entries` (rows to entries), `holds` (cursors without a consumer),
`staging` (rows that are not visible yet), `lookups`, `upkeep` and `compaction`; `database` with its two kinds and their
`session`s (`piped` and `pipeline`: PostgreSQL in few round trips), `statements`, `faults` (the meaning of driver
errors) and `migrations`.
"""

from milepost.storage.store import Store, open_store
from milepost.storage.url import default_url, url_of
from milepost.storage.writer import Writer

__all__ = ["open_store", "Store", "Writer", "default_url", "url_of"]
