"""The URL of a store, from the text in a setting."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from milepost.address import masked
from milepost.errors import ConfigError

FORMS: Final = "take 'sqlite', the path of a file, sqlite:///file, or postgresql://user@host/database"
_DRIVERS: Final = {"sqlite": "sqlite+pysqlite", "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}


def default_url() -> str:
    """The file in the user's data folder; makes the folder, which only the user may read."""
    home = os.environ.get("XDG_DATA_HOME") or ""
    folder = (Path(home) if Path(home).is_absolute() else Path.home() / ".local" / "share") / "milepost"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"the folder {folder} cannot be made: {error.strerror}; set XDG_DATA_HOME, or give the store's path"
        ) from None
    return _file(folder / "milepost.db")


def url_of(text: str) -> str:
    """The URL that a setting means: "sqlite" is the default file, a path a file, anything with "://" a URL."""
    if text == "sqlite":
        return default_url()
    if not text.strip() or "\0" in text:
        raise ConfigError(f"an empty store cannot be opened; {FORMS}")
    if "://" not in text:
        if text.partition(":")[0] in _DRIVERS:
            raise ConfigError(f"{masked(text)[:80]!r} lacks '//' after the colon; {FORMS}")
        return _file(Path(text).expanduser())
    return parsed(text).render_as_string(hide_password=False)


def parsed(text: str) -> URL:
    """A URL with its driver, checked."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise ConfigError(f"a store's URL cannot be read; {FORMS}") from None  # not shown: it may contain a password
    name = url.drivername
    if name not in _DRIVERS and name not in _DRIVERS.values():
        raise ConfigError(f"a store cannot be of the kind {name[:40]!r}; {FORMS}")
    url = url.set(drivername=_DRIVERS.get(name, name))
    if url.drivername == "sqlite+pysqlite":
        if url.host or url.username:
            raise ConfigError("sqlite:// takes three slashes before a path, and four before one from the root")
        if not url.database or url.database == ":memory:" or url.query:
            raise ConfigError("a store in memory keeps nothing: give SQLite a file, with nothing behind it")
    elif not url.database:
        raise ConfigError(f"a PostgreSQL URL ends with the name of a database; {FORMS}")
    elif "@" in f"{url.host}{url.database}":  # part of a password, which errors would show as a host
        raise ConfigError(f"a PostgreSQL URL has more than one '@': write %40 in a name or a password; {FORMS}")
    return url


def shown(url: URL) -> str:
    """The URL as logs and clients may see it: no password, and no query, which may contain one."""
    return url.set(drivername=url.get_backend_name(), query={}).render_as_string(hide_password=True)


def _file(path: Path) -> str:
    if path.is_dir():
        raise ConfigError(f"{path} is a folder; a store is a file in it, as {path / 'milepost.db'}")
    return URL.create("sqlite+pysqlite", database=str(path.absolute())).render_as_string()
