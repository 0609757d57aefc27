"""Compiled `where` texts, the wrong ones too: subscribers often share one. For any thread.

It belongs to the shell: the core asks it, and so do the threads that compile and the threads that read logs.
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

KEPT_CHARS: Final = 1_000_000  # of texts in all: what is compiled from them takes some fifteen times as many bytes


class PredicateCache:
    """Predicates and errors, by text and fingerprint of the schema."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, int], Predicate | MilepostError] = OrderedDict()
        self._chars = 0
        self._lock = Lock()
        self.compiled = 0  # texts so far, each for a schema

    def compile(self, text: str, schema: Schema) -> Predicate:
        """The predicate for a schema; raises what `milepost.compile` raises."""
        key = (text, schema.fingerprint)
        found = self.found(key)
        if found is None:
            try:
                found = compile(text, schema)
            except (QueryError, LimitExceeded) as error:
                found = error.with_traceback(None)
            self.keep(key, found)
        if isinstance(found, MilepostError):
            raise found.with_traceback(None)  # each raise adds to the traceback, and that keeps all frames of it
        return found

    def reading(self, text: str, schema: Schema) -> Predicate | None:
        """The same; None when the text does not fit the schema, and so can be true of no row that is read as it."""
        try:
            return self.compile(text, schema)
        except QueryError:
            return None

    def compiling(self, wanted: list[Wanted]) -> Work:
        """Compile, one text at a time; the outcome is `Results`."""
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

    def found(self, key: tuple[str, int]) -> Predicate | MilepostError | None:
        """What a text was compiled to, if it is kept."""
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def keep(self, key: tuple[str, int], found: Predicate | MilepostError) -> None:
        """Keep what a text was compiled to; what was not asked for longest goes."""
        with self._lock:
            self.compiled += 1
            if key not in self._kept:
                self._chars += len(key[0]) + 100  # an empty one takes room too
            self._kept[key] = found
            while self._chars > KEPT_CHARS:
                (oldest, _), _ = self._kept.popitem(last=False)
                self._chars -= len(oldest) + 100
