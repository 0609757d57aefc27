"""The state of writing one SQL expression: the bound values, and unique names."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import accumulate
from typing import Any, Final

from milepost.errors import QueryError
from milepost.query.sql.tables import Tables
from milepost.query.sql.value import Dialect, Value

ROOT: Final = "r"  # the alias of the root table, which the caller joins
_SHALLOW: Final = 12  # nested parentheses that every build of SQLite accepts
_TOO_DEEP: Final = ("parser stack overflow", "maximum depth")
_BALANCED: Final = 8  # terms in a chain: SQLite accepts 1,000 levels, and a chain has one for each term


class SqlWriter:
    """Writes one SQL expression. Names inside are `a` or `l` and a number."""

    def __init__(self, tables: Tables, dialect: Dialect, message: str, prefix: str) -> None:
        self.tables: Final = tables
        self.dialect: Final = dialect
        self.message: Final = message  # the alias of the queue's header table
        self.values: dict[str, Any] = {}
        self._prefix = prefix
        self._aliases = 0

    @property
    def sqlite(self) -> bool:
        """Whether this is for SQLite."""
        return self.dialect == "sqlite"

    def bind(self, value: Any) -> str:
        """Bind a value, and return its name in the text."""
        if isinstance(value, str) and "\0" in value:
            raise QueryError("the query has a text with the character U+0000, which strings in a queue cannot hold")
        name = f"{self._prefix}{len(self.values)}"
        self.values[name] = value
        return f":{name}"

    def alias(self, letter: str) -> str:
        """A unique alias for a table."""
        self._aliases += 1
        return f"{letter}{self._aliases}"

    def once(self, values: Sequence[Value], make: Callable[..., str]) -> str:
        """An expression that may use values several times, but calculates them once."""
        costly = [value for value in values if not value.leaf]
        if not costly:
            return make(*values)
        alias = self.alias("l")
        names = {id(value): value.as_leaf(f"{alias}.x{place}") for place, value in enumerate(costly)}
        made = make(*(names.get(id(value), value) for value in values))
        inner = ", ".join(f"{value.text} AS x{place}" for place, value in enumerate(costly))
        # LIMIT and OFFSET keep each planner from inlining the expressions again.
        fenced = f"SELECT {inner} LIMIT 1" if self.sqlite else f"SELECT {inner} OFFSET 0"
        return f"(SELECT {made} FROM ({fenced}) {alias}{' WHERE 1' if self.sqlite else ''})"

    def require_readable(self, text: str) -> None:
        """Refuse SQL that is nested too deeply for SQLite's parser, whose limit depends on the build."""
        if not self.sqlite or _depth(text) < _SHALLOW:
            return
        with closing(sqlite3.connect(":memory:")) as parser:
            try:
                parser.execute(f"SELECT 1 FROM (SELECT 1 FROM (SELECT 1 WHERE 0 AND ({text})))")
            except sqlite3.Error as error:
                if any(words in str(error) for words in _TOO_DEEP):
                    raise QueryError(
                        "the query is nested too deeply for SQLite: write it flatter, or use PostgreSQL"
                    ) from None


def _depth(text: str) -> int:
    return max(accumulate((character == "(") - (character == ")") for character in text), default=0)


def chained(terms: Sequence[str], word: str) -> str:
    """Terms joined by AND or OR, in a shallow tree."""
    if len(terms) == 1:
        return terms[0]
    if len(terms) > _BALANCED:
        middle = len(terms) // 2
        terms = (chained(terms[:middle], word), chained(terms[middle:], word))
    return f"({f' {word} '.join(terms)})"
