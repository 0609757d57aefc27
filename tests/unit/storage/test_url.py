"""Where stores are."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from milepost.errors import ConfigError
from milepost.storage import default_url, open_store, url_of
from milepost.storage.url import parsed, shown


def test_the_default_is_a_file_in_the_users_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert default_url() == url_of("sqlite") == f"sqlite+pysqlite:///{tmp_path}/data/milepost/milepost.db"
    assert stat.S_IMODE((tmp_path / "data" / "milepost").stat().st_mode) == 0o700
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_url() == f"sqlite+pysqlite:///{tmp_path}/.local/share/milepost/milepost.db"
    monkeypatch.setenv("XDG_DATA_HOME", "/proc/nowhere")
    with pytest.raises(ConfigError, match="XDG_DATA_HOME"):
        default_url()


def test_paths_and_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert url_of("some file.db") == f"sqlite+pysqlite:///{tmp_path}/some file.db"
    assert url_of("sqlite:////tmp/x.db") == "sqlite+pysqlite:////tmp/x.db"
    assert url_of("postgresql://me:secret@host/db") == "postgresql+psycopg://me:secret@host/db"
    assert url_of("postgresql+psycopg://host/db") == "postgresql+psycopg://host/db"
    assert url_of(url_of("x.db")) == url_of("x.db")


@pytest.mark.parametrize(
    "text",
    ["", "  ", "mysql://host/db", "sqlite://", "sqlite:///:memory:", "sqlite://x.db", "sqlite:///x.db?mode=ro",
     "postgresql://host", "postgresql:host", "sqlite:x.db", "postgresql://host:port/db", "a\0b"],
)  # fmt: skip
def test_what_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        url_of(text)


@pytest.mark.parametrize(
    "text",
    ["postgresql://me:secret@host:port/db", "postgresql:/me:secret@host/db", "postgresql:me:secret@host/db",
     "postgresql://me:x@secret@host/db", "postgresql://me:x@secret/@host/db", "mysql://me:secret@host/db"],
)  # fmt: skip
def test_passwords_are_not_shown_by_what_refuses_a_url(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        url_of(text)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("text", ["postgresql://me:secret@host/db", "postgresql://me@host/db?password=secret&x=y"])
def test_passwords_are_not_shown_of_a_store(text: str) -> None:
    assert shown(parsed(url_of(text))).replace(":***", "") == "postgresql://me@host/db"


def test_an_at_sign_in_a_password_is_escaped() -> None:
    assert parsed(url_of("postgresql://me:x%40y@host/db")).password == "x@y"
    with pytest.raises(ConfigError, match="%40"):
        url_of("postgresql://me:x@y@host/db")


def test_a_new_store_is_for_its_owner_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "x.db"
    before = os.umask(0o022)
    try:
        store = open_store(str(path), broker="a", broker_id=1, time_us=1, lease_s=1, remember_s=1)
        try:
            modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()}
        finally:
            store.close()
        assert modes == dict.fromkeys(("x.db", "x.db-shm", "x.db-wal", "x.db.lock"), 0o600)
        assert not caplog.records
        path.chmod(0o644)
        open_store(str(path), broker="a", broker_id=1, time_us=1, lease_s=1, remember_s=1).close()
    finally:
        os.umask(before)
    assert "other users may read" in caplog.text
    assert stat.S_IMODE(path.stat().st_mode) == 0o644  # which somebody may have meant


def test_a_folder_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="folder"):
        url_of(str(tmp_path))
    with pytest.raises(ConfigError, match="cannot be opened"):
        open_store(str(tmp_path / "no" / "x.db"), broker="a", broker_id=1, time_us=1, lease_s=1, remember_s=1)
