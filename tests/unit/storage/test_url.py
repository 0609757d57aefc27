"""Where stores are."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from milepost.errors import ConfigError
from milepost.storage import default_url, open_store, url_of


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


def test_passwords_are_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        url_of("postgresql://me:secret@host:port/db")
    assert "secret" not in str(caught.value)


def test_a_folder_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="folder"):
        url_of(str(tmp_path))
    with pytest.raises(ConfigError, match="cannot be opened"):
        open_store(str(tmp_path / "no" / "x.db"), broker="a", broker_id=1, time_us=1, lease_s=1, remember_s=1)
