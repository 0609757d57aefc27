"""Compiled `where` texts, and schemas. Subscribers often share one, also a wrong one: both are kept.

Compiling a long text takes a tenth of a second, and a pattern may stand for ten thousand schemas. An event that needs
more than is at hand raises `Uncompiled` before it changes anything; `Attempts` has it compiled elsewhere and
runs the event again, with what came of it at hand. Outside of an attempt everything is compiled on the spot.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable
from threading import Lock
from typing import Any, Final, TypeAlias

from milepost import kernels
from milepost.errors import LimitExceeded, MilepostError, QueryError
from milepost.kernels.compiler import loading
from milepost.query import Predicate, compile, parse_schema
from milepost.query.expression import compile_known
from milepost.schema import Schema

KEPT_CHARS: Final = 1_000_000  # of texts in all: what is compiled from them takes some fifteen times as many bytes
SHORT_CHARS: Final = 500  # of a text that differs from another only in its literals: it is compiled in some 100 µs
SHORT_AT_ONCE: Final = 20  # of those that one event has compiled in the event loop
SCHEMA_CHARS: Final = 1_000  # of a schema that is parsed at once, in some 4 ms

Wanted: TypeAlias = tuple[str, Schema | None]
"""A predicate and what it is about; or, with None, the text of a schema."""
Results: TypeAlias = dict[Any, Any]
"""What was compiled, by text and fingerprint, or by text; or why it could not be."""
Work: TypeAlias = Generator[None, None, Any]
"""Work in pieces: each step is short, and the value that it returns is the outcome."""


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
    """A cache of compiled predicates. `compile` and `compiling` are for any thread, everything else for the core's."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, int], Predicate | MilepostError] = OrderedDict()
        self._chars = 0
        self._lock = Lock()
        self._results: Results | None = None  # of the attempt that is under way
        self.compiled = 0

    def attempt(self, results: Results) -> Attempt:
        """While events are run that can be run again."""
        return Attempt(self, results)

    def exchange(self, results: Results | None) -> Results | None:
        """Let an attempt have its results at hand; those of the one around it."""
        before, self._results = self._results, results
        return before

    def require(self, wanted: Iterable[tuple[str, Schema]]) -> None:
        """Raise `Uncompiled` within an attempt, unless all these predicates are at hand."""
        if self._results is None:
            return
        missing = {}
        short = SHORT_AT_ONCE
        for text, schema in wanted:
            key = (text, schema.fingerprint)
            if key not in missing and key not in self._results:
                found = self._found(key)
                if found is None and short and (found := compile_known(text, schema, SHORT_CHARS)) is not None:
                    short -= 1
                    self._keep(key, found)
                if found is None:
                    missing[key] = (text, schema)
                else:
                    self._results[key] = found
        if missing:
            raise Uncompiled(lambda: self.compiling(list(missing.values())))

    def require_schemas(self, texts: Iterable[str]) -> None:
        """The same for the texts of schemas."""
        if self._results is None:
            return
        missing = [text for text in dict.fromkeys(texts) if len(text) > SCHEMA_CHARS and text not in self._results]
        if missing:
            raise Uncompiled(lambda: self.compiling([(text, None) for text in missing]))

    def require_done(self, work: Callable[[], Work]) -> None:
        """Raise `Uncompiled` within an attempt; otherwise do the work."""
        if self._results is not None:
            raise Uncompiled(work)
        for _ in work():
            pass

    def compiling(self, wanted: list[Wanted]) -> Work:
        """Compile, one text at a time. In any thread."""
        if not kernels.loaded() and kernels.compiled():
            with loading():
                kernels.warm()  # here, since Numba takes a second to import

        results: Results = {}
        for text, schema in wanted:
            try:
                if schema is None:
                    results[text] = parse_schema(text)
                else:
                    results[text, schema.fingerprint] = self.compile(text, schema)
            except MilepostError as error:
                results[text if schema is None else (text, schema.fingerprint)] = error
            yield
        return results

    def schema(self, text: str) -> Schema:
        """A schema; raises what `milepost.parse_schema` raises, and `Uncompiled` for a long one that is not at hand."""
        self.require_schemas([text])
        if self._results is None or text not in self._results:
            return parse_schema(text)
        found: Schema | MilepostError = self._results[text]
        if isinstance(found, MilepostError):
            raise found.with_traceback(None)
        return found

    def compile(self, text: str, schema: Schema) -> Predicate:
        """The predicate for a schema; raises what `milepost.compile` raises."""
        key = (text, schema.fingerprint)
        found: Predicate | MilepostError | None = self._results.get(key) if self._results else None
        if found is None:
            found = self._found(key)
        if found is None:
            try:
                found = compile(text, schema)
            except (QueryError, LimitExceeded) as error:
                found = error.with_traceback(None)
            self._keep(key, found)
        if isinstance(found, MilepostError):
            raise found.with_traceback(None)  # each raise adds to the traceback, and that keeps all frames of it
        return found

    def _found(self, key: tuple[str, int]) -> Predicate | MilepostError | None:
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def _keep(self, key: tuple[str, int], found: Predicate | MilepostError) -> None:
        with self._lock:
            self.compiled += 1
            if key not in self._kept:
                self._chars += len(key[0]) + 100  # an empty one takes room too
            self._kept[key] = found
            while self._chars > KEPT_CHARS:
                (oldest, _), _ = self._kept.popitem(last=False)
                self._chars -= len(oldest) + 100
