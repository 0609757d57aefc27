"""Compiled `where` texts and schemas, as events need them.

Compiling a long text takes a tenth of a second, and a pattern may match ten thousand schemas. An event that needs a
predicate that is not compiled yet raises `Uncompiled` before it changes anything. `Predicates.run` has a thread compile
it, and runs the event again with the results: the event sees everything that has changed in the meantime. Outside of
such an attempt, everything is compiled at once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

from milepost.broker.core.effects import Compile, Effect
from milepost.broker.core.sessions.connection import Connection
from milepost.errors import MilepostError
from milepost.query import Predicate, parse_schema
from milepost.query.expression import compile_known
from milepost.schema import Schema

SHORT_CHARS: Final = 500  # of a text that differs from a known one only in its literals: compiled in about 100 µs
SHORT_AT_ONCE: Final = 20  # such texts that one event may compile in the event loop
SCHEMA_CHARS: Final = 1_000  # of a schema that is parsed in the event loop, in about 4 ms

Wanted: TypeAlias = tuple[str, Schema | None]
"""A predicate and the schema that it is for; or, with None, the text of a schema."""
Results: TypeAlias = dict[Any, Any]
"""Predicates by text and fingerprint, and schemas by text; or the error of each."""
Work: TypeAlias = Generator[None, None, Any]
"""Work in pieces: each step is short, and the return value is the outcome."""
Event: TypeAlias = Callable[[], list[Effect]]


class Cache(Protocol):
    """The shell's cache of compiled predicates. Threads fill it too, so it is not part of the core's state."""

    def compile(self, text: str, schema: Schema) -> Predicate:
        """The predicate for a schema; raises as `milepost.compile` does."""

    def compiling(self, wanted: list[Wanted]) -> Work:
        """Compile, one text at a time, in any thread; the outcome is `Results`."""

    def found(self, key: tuple[str, int]) -> Predicate | MilepostError | None:
        """The predicate or error of a text and a schema's fingerprint, if the cache has it."""

    def keep(self, key: tuple[str, int], found: Predicate | MilepostError) -> None:
        """Add a predicate or error."""


class Uncompiled(Exception):
    """An event needs work that is too long for the event loop. Nothing has changed."""

    def __init__(self, work: Callable[[], Work]) -> None:
        super().__init__("to be compiled first")
        self.work = work


class Predicates:
    """Compiled predicates and schemas for the current event: the results of its attempt, and the shell's cache."""

    def __init__(self, cache: Cache) -> None:
        self.cache: Final = cache
        self.results: Results | None = None  # of the attempt that is under way; None: there is none

    def run(self, event: Event, connection: Connection | None = None, known: Results | None = None) -> list[Effect]:
        """Run an event. If it is a request of a `connection`, the connection's later frames wait for it."""
        results: Results = {} if known is None else known
        before, self.results = self.results, results
        try:
            return event()
        except Uncompiled as missing:
            return self.put_off(missing, event, connection, results)
        finally:
            self.results = before

    def put_off(
        self, missing: Uncompiled, event: Event, connection: Connection | None = None, known: Results | None = None
    ) -> list[Effect]:
        """Have a thread compile what an event needs, then run the event."""
        if connection is not None:
            connection.busy = True
        return [Compile(connection, missing.work, partial(self._compiled, event, connection, known or {}))]

    def _compiled(self, event: Event, connection: Connection | None, known: Results, outcome: Any) -> list[Effect]:
        if connection is not None:
            connection.busy = False
            if not connection.open:
                return []
        if isinstance(outcome, MilepostError):
            return event()  # a broker fault, which is logged: without an attempt, the event compiles at once
        return self.run(event, connection, known | outcome)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Compile at once within an attempt, where the event has changed something and cannot be put off."""
        before, self.results = self.results, None
        try:
            yield
        finally:
            self.results = before

    def require(self, wanted: Iterable[tuple[str, Schema]]) -> None:
        """Raise `Uncompiled` within an attempt, unless all these predicates are compiled."""
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
        """Raise `Uncompiled` within an attempt, unless all long texts of schemas are parsed."""
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
        """A schema; raises as `milepost.parse_schema` does, and `Uncompiled` for a long one that is not parsed."""
        self.require_schemas([text])
        if self.results is None or text not in self.results:
            return parse_schema(text)
        found: Schema | MilepostError = self.results[text]
        if isinstance(found, MilepostError):
            raise found.with_traceback(None)
        return found

    def compile(self, text: str, schema: Schema) -> Predicate:
        """The predicate for a schema; raises as `milepost.compile` does."""
        found: Predicate | MilepostError | None = None
        if self.results:
            found = self.results.get((text, schema.fingerprint))
        if found is None:
            return self.cache.compile(text, schema)
        if isinstance(found, MilepostError):
            raise found.with_traceback(None)  # each raise extends the traceback, which keeps its stack frames alive
        return found
