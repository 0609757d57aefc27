"""Tables of other versions."""

from __future__ import annotations

import hashlib
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import make_url

from milepost.errors import ConfigError, DuplicateMessage, StoreError, UnknownSubscription
from milepost.operations import Appended, Remove
from milepost.storage import lookups, migrations
from milepost.storage.database import Database
from milepost.storage.postgresql import Postgresql
from milepost.storage.sqlite import Sqlite
from milepost.storage.url import parsed, url_of
from tests.old_stores import FOLDER
from tests.unit.storage.conftest import Rig, rows

NEXT = "ALTER TABLE topics ADD COLUMN colour TEXT; CREATE TABLE colours (name TEXT, light {integer});"


def database_of(rig: Rig) -> Database:
    url = parsed(url_of(rig.url))
    return Postgresql(url, 1.0) if rig.shared else Sqlite(url)


def test_a_newer_version_is_refused(rig: Rig) -> None:
    rig.open().close()
    rig.sql("UPDATE meta SET version = 99")
    with pytest.raises(ConfigError, match="newer Milepost"):
        rig.open()


def test_an_older_version_is_migrated_whole_or_not_at_all(rig: Rig) -> None:
    store = rig.open()
    topic = rig.topic(store)
    store.close()
    known = migrations.known()
    database = database_of(rig)
    session = database.write()
    with pytest.raises(Exception, match="nonsense"):
        migrations.migrate(database, session, [*known, NEXT, "CREATE nonsense"])
    assert rig.sql("SELECT version FROM meta") == [(len(known),)]
    assert migrations.migrate(database, session, [*known, NEXT]) == store.id
    assert rig.sql("SELECT version FROM meta") == [(len(known) + 1,)]
    assert rig.sql("SELECT name, colour FROM topics") == [("quotes", None)]
    assert migrations.migrate(database, session, [*known, NEXT]) == store.id
    session.discard()
    database.close()
    with pytest.raises(ConfigError, match=f"version {len(known) + 1}"):
        rig.open()
    assert topic


def test_a_new_database_gets_all_versions(rig: Rig) -> None:
    database = database_of(rig)
    session = database.write()
    known = migrations.known()
    identity = migrations.migrate(database, session, [*known, NEXT])
    assert rig.sql("SELECT version, store FROM meta") == [(len(known) + 1, identity)]
    assert rig.sql("SELECT * FROM colours") == []
    session.discard()
    database.close()


def test_what_the_first_version_has_written_is_read_on(rig: Rig) -> None:
    """Rows that were stored before staging was known, in tables as they were then."""
    database = database_of(rig)
    session = database.write()
    identity = migrations.migrate(database, session, migrations.known()[:1])
    data = rows(5, [1, 2, 3]).data
    session.say("INSERT INTO logs (name, broker_id, address, opening, epoch, commits, last_us, seen_us)"
                " VALUES ('one', 9, '', 0, 0, 0, 0, 0)")  # fmt: skip
    session.say("INSERT INTO topics (name, slow, hold) VALUES ('quotes', 'drop', 1)")
    session.say("INSERT INTO schemas (topic, version, text) VALUES (1, 0, 'quote: [symbol: string, number: long]')")
    session.say("INSERT INTO extents (topic, log, start, next, bytes, entries) VALUES (1, 1, 0, 3, 99, 1)")
    session.discard()
    database.close()
    rig.sql(
        "INSERT INTO entries (topic, log, first, rows, bytes, first_us, last_us, seal, data)"
        " VALUES (1, 1, 0, 3, ?, 1, 1, ?, ?)",
        len(data), lookups.seal(1, 1, 0, 3, bytes(data)), bytes(data),
    )  # fmt: skip
    store = rig.open()
    assert store.id == identity
    assert rig.contents(store, 1) == [(0, 5, 1), (1, 5, 2), (2, 5, 3)]
    publisher = rig.enrol(store, number=5)
    rig.append(store, 1, publisher, [4])
    assert rig.contents(store, 1)[3:] == [(3, 5, 4)]


def test_keys_that_version_3_remembered_are_recognised(rig: Rig) -> None:
    """It did not know their topics, so they are taken in all topics until they are forgotten."""
    database = database_of(rig)
    session = database.write()
    migrations.migrate(database, session, migrations.known()[:3])
    session.discard()
    database.close()
    for token in (b"k" * 16, b"-" + b"t" * 16):
        rig.sql("INSERT INTO tokens (token, seen_us) VALUES (?, 1000000)", token)
    store = rig.open(remember_s=10.0)
    one, two = rig.topic(store), rig.topic(store, "two")
    publisher = rig.enrol(store)
    for topic in (one, two):
        with pytest.raises(DuplicateMessage):
            rig.append(store, topic, publisher, [1], token=b"k" * 16)
    assert rig.do(store, Remove("desk", b"t" * 16)) is True  # a repetition
    rig.append(store, one, publisher, [2], token=b"n" * 16)
    rig.maintain(store, 11_000_001)
    assert [rig.append(store, topic, publisher, [stamp], token=b"k" * 16) for topic, stamp in ((one, 3), (two, 4))] == [
        Appended(1, 0)
    ] * 2
    with pytest.raises(UnknownSubscription):
        rig.do(store, Remove("desk", b"t" * 16))


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE things (name TEXT)")
    connection.commit()
    connection.close()
    with pytest.raises(ConfigError, match="another program"):
        Rig(str(path)).open()
    text = tmp_path / "text.db"
    text.write_text("This is a letter, and no database at all. " * 100)
    with pytest.raises(StoreError, match=r"text\.db is no SQLite database"):
        Rig(str(text)).open()
    assert text.read_text().startswith("This is a letter")
    assert make_url(url_of(str(text))).database == str(text)


def test_one_broker_for_a_file(sqlite_rig: Rig) -> None:
    store = sqlite_rig.open()
    with pytest.raises(ConfigError, match="another broker"):
        sqlite_rig.open("two")
    store.close()
    other = sqlite_rig.open("two")
    assert other.id == store.id
    assert other.log != store.log


def test_one_broker_of_a_name_for_a_database(postgresql_rig: Rig) -> None:
    store = postgresql_rig.open("one", address="milepost://a:1")
    with pytest.raises(ConfigError, match=r"'one' is alive.*milepost://a:1"):
        postgresql_rig.open("one")
    assert postgresql_rig.open("two").log != store.log
    store.close()
    assert postgresql_rig.open("one").log == store.log


# SHA-256 of each file, as it was first committed to users' stores. A file that changes afterwards makes stores that
# differ under one version: write a migration of its own, and keep a store of the version before (`tests.old_stores`).
RELEASED = {
    1: "914e9d61a8e6c5f444a1836b39963d61130d9dd65eee3f7a7ad31ad0f7ce9b61",
    2: "d40ea50f05a4b062322ee98a3227bd1e7861c155e5a46b43816ea50c5d423274",
    3: "2d182bf4b77ae0efceb8b0a57d17f3ede75ccf35b64b73da4f1bec3ab33a9a74",
    4: "34bb122494a9c6b028c0fb4b2ac22ac0b9270a44c5dad57e7335e80c15056c01",
    5: "4efdd57f515c871f51a606a6418848a74fcc1a27caf55c9c5a9f44bfa3c24921",
}


def test_a_migration_never_changes() -> None:
    found = [hashlib.sha256(text.encode()).hexdigest() for text in migrations.known()]
    assert found[: len(RELEASED)] == list(RELEASED.values())
    assert len(RELEASED) == len(found), "a new migration: add its digest"


def test_a_store_of_every_earlier_version_is_kept() -> None:
    kept = {path.name for path in FOLDER.iterdir()}
    for version in range(1, len(migrations.known())):
        assert {f"version-{version}.db.gz", f"version-{version}.sql.gz"} <= kept
