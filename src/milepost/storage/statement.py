"""A statement: SQL with named values, for both dialects."""

from __future__ import annotations

import re
from typing import Final

from sqlalchemy import Dialect, text

# Keywords that differ between the two dialects. All other SQL is written once.
_WORDS: Final[dict[str, dict[str, str]]] = {
    "sqlite": {
        "integer": "INTEGER", "real": "REAL", "blob": "BLOB", "identity": "INTEGER PRIMARY KEY AUTOINCREMENT",
        "loose": "WITHOUT ROWID", "now": ":time_us",  # only one process has the file, so its clock counts
        "for_update": "", "for_share": "", "skip_locked": "",
    },
    "postgresql": {
        "integer": "BIGINT", "real": "DOUBLE PRECISION", "blob": "BYTEA",
        "identity": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "loose": "",
        "now": "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
        "for_update": "FOR UPDATE", "for_share": "FOR SHARE", "skip_locked": "FOR UPDATE SKIP LOCKED",
    },
}  # fmt: skip
_WORD: Final = re.compile(r"\{(\w+)\}")
_IN: Final = re.compile(r"\{in (\w+)\}")  # "number {in numbers}": is the number in a list?
_VALUE: Final = re.compile(r"(?<!:):([A-Za-z_]\w*)")  # but not the type after `::`
_EACH: Final = re.compile(r"\{each (\w+)\}")  # "FROM {each numbers} n": the same list as a table of one column, `value`
_EACH_WORDS: Final = {"sqlite": r"json_each(:\1)", "postgresql": r"(SELECT unnest(CAST(:\1 AS bigint[])) AS value)"}
_IN_WORDS: Final = {"sqlite": r"IN (SELECT value FROM json_each(:\1))", "postgresql": r"= ANY(CAST(:\1 AS bigint[]))"}


def worded(source: str, dialect: str) -> str:
    """SQL with the keywords of one dialect filled in."""
    source = _EACH.sub(_EACH_WORDS[dialect], _IN.sub(_IN_WORDS[dialect], source))
    return _WORD.sub(lambda match: _WORDS[dialect][match[1]], source)


class Statement:
    """SQL for both dialects, converted to each driver's form once.

    `postgresql` replaces the whole text on PostgreSQL, for the few statements that take many rows: SQLite runs a
    prepared statement for each row in C, PostgreSQL takes arrays in a single statement.
    """

    def __init__(self, source: str, *, postgresql: str | None = None) -> None:
        self._sources = {"sqlite": source, "postgresql": postgresql or source}
        self.arrays: Final = postgresql is not None
        self._made: dict[str, str] = {}
        self._numbered: tuple[str, tuple[str, ...]] | None = None

    def of(self, dialect: Dialect) -> str:
        """The text for `exec_driver_sql`, with the driver's own placeholders."""
        made = self._made.get(dialect.name)
        if made is None:
            written = text(worded(self._sources[dialect.name], dialect.name).replace("::", r"\:\:"))
            made = self._made[dialect.name] = str(written.compile(dialect=dialect))
        return made

    def numbered(self) -> tuple[str, tuple[str, ...]]:
        """The text for PostgreSQL with `$1` and so on, and the names of these values in order."""
        if self._numbered is None:
            names: dict[str, int] = {}
            text = _VALUE.sub(
                lambda match: f"${names.setdefault(match[1], len(names) + 1)}",
                worded(self._sources["postgresql"], "postgresql"),
            )
            self._numbered = text, tuple(names)
        return self._numbered
