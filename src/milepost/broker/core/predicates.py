"""Compiled `where` texts. Subscribers often share one, also a wrong one: both are kept."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from milepost.errors import LimitExceeded, MilepostError, QueryError
from milepost.query import Predicate, compile
from milepost.schema import Schema

KEPT: Final = 10_000  # compiled texts; each takes some kilobytes and half a millisecond to make
KEPT_CHARS: Final = 4_000  # longer texts are compiled each time: a stranger could fill the memory with them


class Predicates:
    """A cache of compiled predicates, of one thread."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, int], Predicate | MilepostError] = OrderedDict()
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
            if len(text) <= KEPT_CHARS:
                self._kept[key] = found
                if len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(key)
        if isinstance(found, MilepostError):
            raise found
        return found
