"""The versions of the tables, each a file of SQL: `0001_name.sql` makes version 1 out of nothing.

A file is never changed once it was committed; the next version is a file of its own, which begins with what the one
before it has left. All that are missing run in one transaction.
"""

from __future__ import annotations

import re
import uuid
from importlib.resources import files
from typing import Final

from milepost.errors import ConfigError
from milepost.storage import statements
from milepost.storage.database import Database, Session
from milepost.storage.statement import Statement, worded

_NAME: Final = re.compile(r"(\d{4})_\w+\.sql")
_COMMENT: Final = re.compile(r"--[^\n]*")
_SET_VERSION: Final = Statement("UPDATE meta SET version = :version")
_FIRST: Final = Statement("INSERT INTO meta (version, store) VALUES (0, :store)")
# Tables of batches, by the version that makes them: those hardly compress, and are kept as they are.
_BATCHES: Final = {1: "entries", 2: "pieces"}
# What only a shared store has: numbers of messages that are enqueued without a broker (`queues.outbox`).
_SHARED: Final = {3: "CREATE SEQUENCE queue_outbox"}


def known() -> list[str]:
    """The texts of all versions, the first one first."""
    found = sorted(item.name for item in files(__name__).iterdir() if _NAME.fullmatch(item.name))
    assert [int(name[:4]) for name in found] == list(range(1, len(found) + 1))
    return [files(__name__).joinpath(name).read_text("utf-8") for name in found]


def migrate(database: Database, session: Session, versions: list[str] | None = None) -> str:
    """Bring the tables to the newest version; the identity of the database. One transaction, all or nothing."""
    versions = known() if versions is None else versions
    session.say(database.begin)
    try:
        version, store = _migrated(database, session, versions)
        session.say("COMMIT")
    except BaseException:
        _give_up(session)
        raise
    if version > len(versions):
        raise ConfigError(
            f"the store {database.place} was written by a newer Milepost (version {version} of its tables, this one "
            f"knows {len(versions)}): upgrade this broker, or give it another store"
        )
    return store


def _migrated(database: Database, session: Session, versions: list[str]) -> tuple[int, str]:
    database.lock_schema(session)
    version, store = 0, uuid.uuid4().hex
    if database.has_tables(session):
        version, store = session.row(statements.META)
    with database.patience():
        for number in range(version + 1, len(versions) + 1):
            source = worded(_COMMENT.sub("", versions[number - 1]), session.connection.dialect.name)
            for text in source.split(";"):
                if text.strip():
                    session.say(text)
            if number == 1:
                session.run(_FIRST, store=store)
            if database.shared and number in _BATCHES:
                session.say(f"ALTER TABLE {_BATCHES[number]} ALTER COLUMN data SET STORAGE EXTERNAL")
            if database.shared and number in _SHARED:
                session.say(_SHARED[number])
            session.run(_SET_VERSION, version=number)
    return max(version, len(versions)), store


def _give_up(session: Session) -> None:
    try:
        session.say("ROLLBACK")
    except Exception:  # the connection is broken as well; what broke it is the news
        session.connection.invalidate()
