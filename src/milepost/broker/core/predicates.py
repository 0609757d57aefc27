"""Compiled `where` texts. Subscribers often share one, also a wrong one: both are kept."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from milepost.errors import LimitExceeded, MilepostError, QueryError
from milepost.query import Predicate, compile
from milepost.schema import Schema

KEPT_CHARS: Final = 1_000_000  # of texts in all: what is compiled from them takes some fifteen times as many bytes
LONGEST_KEPT: Final = 4_000  # characters; longer texts are compiled each time


class Predicates:
    """A cache of compiled predicates, of one thread."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, int], Predicate | MilepostError] = OrderedDict()
        self._chars = 0
        self.compiled = 0

    def compile(self, text: str, schema: Schema) -> Predicate:
        """The predicate for a schema; raises what `milepost.compile` raises."""
        key = (text, schema.fingerprint)
        found = self._kept.get(key)
        if found is None:
            self.compiled += 1
            try:
                found = compile(text, schema)
            except (QueryError, LimitExceeded) as error:
                found = error.with_traceback(None)
            if len(text) <= LONGEST_KEPT:
                self._kept[key] = found
                self._chars += len(text) + 100  # an empty one takes room too
                while self._chars > KEPT_CHARS:
                    (oldest, _), _ = self._kept.popitem(last=False)
                    self._chars -= len(oldest) + 100
        else:
            self._kept.move_to_end(key)
        if isinstance(found, MilepostError):
            raise found.with_traceback(None)  # each raise adds to the traceback, and that keeps all frames of it
        return found
