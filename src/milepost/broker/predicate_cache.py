"""A cache of compiled `where` texts, including the errors of invalid ones: subscribers often share a text.

It belongs to the shell. The core uses it, and so do the threads that compile and those that read logs.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Final

from milepost import kernels
from milepost.broker.core.predicates import Results, Wanted, Work
from milepost.errors import LimitExceeded, MilepostError, QueryError
from milepost.kernels.compiler import loading
from milepost.query import Predicate, compile, parse_schema
from milepost.schema import Schema

KEPT_CHARS: Final = 1_000_000  # of all texts together: the compiled predicates take about fifteen times as many bytes


class PredicateCache:
    """Predicates and errors, by text and fingerprint of the schema. Any thread may use it."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, int], Predicate | MilepostError] = OrderedDict()
        self._chars = 0
        self._lock = Lock()
        self.compiled = 0  # compilations so far, each of a text for a schema

    def compile(self, text: str, schema: Schema) -> Predicate:
        """The predicate for a schema; raises as `milepost.compile` does."""
        key = (text, schema.fingerprint)
        found = self.found(key)
        if found is None:
            try:
                found = compile(text, schema)
            except (QueryError, LimitExceeded) as error:
                found = error.with_traceback(None)
            self.keep(key, found)
        if isinstance(found, MilepostError):
            raise found.with_traceback(None)  # each raise extends the traceback, which keeps its stack frames alive
        return found

    def reading(self, text: str, schema: Schema) -> Predicate | None:
        """As `compile`, but None when the text does not fit the schema: then it matches no row of it."""
        try:
            return self.compile(text, schema)
        except QueryError:
            return None

    def compiling(self, wanted: list[Wanted]) -> Work:
        """Compile, one text at a time; the outcome is `Results`."""
        if not kernels.loaded() and kernels.compiled():
            with loading():
                kernels.warm()  # in this thread, since importing Numba takes a second

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

    def found(self, key: tuple[str, int]) -> Predicate | MilepostError | None:
        """The cached predicate or error, if there is one."""
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def keep(self, key: tuple[str, int], found: Predicate | MilepostError) -> None:
        """Add a predicate or error; the least recently used ones are removed."""
        with self._lock:
            self.compiled += 1
            if key not in self._kept:
                self._chars += len(key[0]) + 100  # an empty text takes memory too
            self._kept[key] = found
            while self._chars > KEPT_CHARS:
                (oldest, _), _ = self._kept.popitem(last=False)
                self._chars -= len(oldest) + 100
