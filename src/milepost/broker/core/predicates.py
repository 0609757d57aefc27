"""Compiled `where` texts and schemas, as events need them.

Compiling a long text takes a tenth of a second, and a pattern may stand for ten thousand schemas. An event that needs
more than is at hand raises `Uncompiled` before it changes anything; `Attempts` has it compiled elsewhere and
runs the event again, with what came of it at hand. Outside of an attempt everything is compiled on the spot.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

from milepost.errors import MilepostError
from milepost.query import Predicate, parse_schema
from milepost.query.expression import compile_known
from milepost.schema import Schema

SHORT_CHARS: Final = 500  # of a text that differs from another only in its literals: it is compiled in some 100 µs
SHORT_AT_ONCE: Final = 20  # of those that one event has compiled in the event loop
SCHEMA_CHARS: Final = 1_000  # of a schema that is parsed at once, in some 4 ms

Wanted: TypeAlias = tuple[str, Schema | None]
"""A predicate and what it is about; or, with None, the text of a schema."""
Results: TypeAlias = dict[Any, Any]
"""What was compiled, by text and fingerprint, or by text; or why it could not be."""
Work: TypeAlias = Generator[None, None, Any]
"""Work in pieces: each step is short, and the value that it returns is the outcome."""


class Cache(Protocol):
    """The shell's cache of compiled predicates: threads fill it too, so it is no state of the core."""

    def compile(self, text: str, schema: Schema) -> Predicate:
        """The predicate for a schema; raises what `milepost.compile` raises."""

    def compiling(self, wanted: list[Wanted]) -> Work:
        """Compile, one text at a time, in any thread; the outcome is `Results`."""

    def found(self, key: tuple[str, int]) -> Predicate | MilepostError | None:
        """What a text was compiled to for the schema with this fingerprint, if it is kept."""

    def keep(self, key: tuple[str, int], found: Predicate | MilepostError) -> None:
        """Keep what a text was compiled to."""


class Uncompiled(Exception):
    """An event needs work that is too long for the event loop. Nothing has changed."""

    def __init__(self, work: Callable[[], Work]) -> None:
        super().__init__("to be compiled first")
        self.work = work


class Attempt:
    """A context for each request and each answer of the store: as a class it costs a third of a generator."""

    __slots__ = ("_before", "_predicates", "_results")

    def __init__(self, predicates: Predicates, results: Results) -> None:
        self._predicates = predicates
        self._results = results

    def __enter__(self) -> None:
        self._before = self._predicates.exchange(self._results)

    def __exit__(self, *_: object) -> None:
        self._predicates.exchange(self._before)


class Predicates:
    """What is at hand for the event that is run: the results of its attempt, and the shell's cache."""

    def __init__(self, cache: Cache) -> None:
        self.cache: Final = cache
        self.results: Results | None = None  # of the attempt that is under way

    def attempt(self, results: Results) -> Attempt:
        """While events are run that can be run again."""
        return Attempt(self, results)

    def exchange(self, results: Results | None) -> Results | None:
        """Let an attempt have its results at hand; those of the one around it."""
        before, self.results = self.results, results
        return before

    def require(self, wanted: Iterable[tuple[str, Schema]]) -> None:
        """Raise `Uncompiled` within an attempt, unless all these predicates are at hand."""
        if self.results is None:
            return
        missing: dict[tuple[str, int], Wanted] = {}
        short = SHORT_AT_ONCE
        for text, schema in wanted:
            key = (text, schema.fingerprint)
            if key not in missing and key not in self.results:
                found = self.cache.found(key)
                if found is None and short and (found := compile_known(text, schema, SHORT_CHARS)) is not None:
                    short -= 1
                    self.cache.keep(key, found)
                if found is None:
                    missing[key] = (text, schema)
                else:
                    self.results[key] = found
        if missing:
            raise Uncompiled(partial(self.cache.compiling, list(missing.values())))

    def require_schemas(self, texts: Iterable[str]) -> None:
        """The same for the texts of schemas."""
        if self.results is None:
            return
        missing = [text for text in dict.fromkeys(texts) if len(text) > SCHEMA_CHARS and text not in self.results]
        if missing:
            raise Uncompiled(partial(self.cache.compiling, [(text, None) for text in missing]))

    def require_done(self, work: Callable[[], Work]) -> None:
        """Raise `Uncompiled` within an attempt; otherwise do the work."""
        if self.results is not None:
            raise Uncompiled(work)
        for _ in work():
            pass

    def schema(self, text: str) -> Schema:
        """A schema; raises what `milepost.parse_schema` raises, and `Uncompiled` for a long one that is not at hand."""
        self.require_schemas([text])
        if self.results is None or text not in self.results:
            return parse_schema(text)
        found: Schema | MilepostError = self.results[text]
        if isinstance(found, MilepostError):
            raise found.with_traceback(None)
        return found

    def compile(self, text: str, schema: Schema) -> Predicate:
        """The predicate for a schema; raises what `milepost.compile` raises."""
        found: Predicate | MilepostError | None = None
        if self.results:
            found = self.results.get((text, schema.fingerprint))
        if found is None:
            return self.cache.compile(text, schema)
        if isinstance(found, MilepostError):
            raise found.with_traceback(None)  # each raise adds to the traceback, and that keeps all frames of it
        return found
