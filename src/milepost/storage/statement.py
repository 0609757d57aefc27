"""A statement: SQL with named values, for both dialects."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Final

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
    """SQL for both dialects, converted to each form when that is first used.

    `postgresql` replaces the whole text on PostgreSQL, for the few statements that take many rows: SQLite runs a
    prepared statement for each row in C, PostgreSQL takes arrays in a single statement.
    """

    def __init__(self, source: str, *, postgresql: str | None = None) -> None:
        self._source = source
        self._postgresql = postgresql or source
        self.arrays: Final = postgresql is not None

    @cached_property
    def sqlite(self) -> str:
        """The text for SQLite, with values `:name`."""
        return worded(self._source, "sqlite")

    @cached_property
    def named(self) -> str:
        """The text for psycopg, with values `%(name)s`."""
        return _VALUE.sub(r"%(\1)s", worded(self._postgresql, "postgresql").replace("%", "%%"))

    @cached_property
    def numbered(self) -> tuple[str, tuple[str, ...]]:
        """The text for PostgreSQL with `$1` and so on, and the names of these values in order."""
        names: dict[str, int] = {}
        text = _VALUE.sub(
            lambda match: f"${names.setdefault(match[1], len(names) + 1)}", worded(self._postgresql, "postgresql")
        )
        return text, tuple(names)
