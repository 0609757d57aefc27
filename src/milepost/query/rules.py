"""A schema's rules, enforced where messages enter.

A rule is a predicate after `check`. As in SQL, a message breaks it only by making it *false*: where a rule comes to
null, because what it speaks of is absent, it has nothing to say.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np

from milepost.batch import Batch, Ids
from milepost.errors import CheckFailed, QueryError, SchemaError
from milepost.query import typed
from milepost.query.expression import Predicate, compile
from milepost.query.kinds import BOOLEAN
from milepost.schema.types import Schema

RULE_SETS: Final = 512  # schemas whose rules are kept compiled, as many as there are formats kept derived
ROWS_NAMED: Final = 5  # of the rows that break a rule, in the message


def encode(schema: Schema, rows: Any, ids: Ids | None = None) -> Batch:
    """A batch of messages that keep the rules of their schema: `Batch.encode`, then `enforce`."""
    batch = Batch.encode(schema, rows, ids)
    enforce(batch)
    return batch


def decode(data: bytes | bytearray | memoryview, schema: Schema) -> Batch:
    """A batch from bytes of unknown origin, with messages that keep the rules: `Batch.decode`, then `enforce`."""
    batch = Batch.decode(data, schema)
    enforce(batch)
    return batch


def enforce(batch: Batch) -> None:
    """Raise `CheckFailed` when a message breaks a rule of its schema."""
    if not batch.schema.checks:
        return
    for rule, broken in rules(batch.schema):
        rows = np.flatnonzero(broken.mask(batch))
        if len(rows):
            named = tuple(rows[:ROWS_NAMED].tolist())
            more = ", …" if len(rows) > ROWS_NAMED else ""
            raise CheckFailed(
                f"{len(rows)} of {len(batch)} messages break the rule of {batch.schema.name}: {rule} "
                f"(rows {', '.join(map(str, named))}{more}); correct them, or leave them out",
                rule,
                named,
            )


@lru_cache(maxsize=RULE_SETS)
def rules(schema: Schema) -> tuple[tuple[str, Predicate], ...]:
    """Each rule of a schema as it is written, and the predicate that it is broken.

    Raises `SchemaError` for a rule that does not fit its schema: call this where a schema is declared.
    """
    found = []
    for rule in schema.checks:
        try:
            kept = compile(rule, schema)
        except QueryError as error:
            raise SchemaError(f"{schema.name}: a rule cannot be: {error}") from error
        broken = typed.IsTrue(kept.root, False)
        assert broken.kind == BOOLEAN
        found.append((rule, Predicate(rule, schema, kept.tree, broken)))
    return tuple(found)
