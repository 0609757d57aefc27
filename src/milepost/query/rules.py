"""A schema's rules, enforced where messages enter.

A rule is a predicate after `check`. As in SQL, a message breaks it only by making it *false*: a rule that is null,
because a value is absent, is not broken.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np

from milepost.batch import Batch, Ids
from milepost.batch.header import fingerprint_of
from milepost.errors import CheckFailed, QueryError, SchemaError
from milepost.query import typed
from milepost.query.expression import Predicate, compile
from milepost.schema.registry import Registry
from milepost.schema.text import parse
from milepost.schema.types import Schema

RULE_SETS: Final = 512  # schemas whose rules are kept compiled, as many as formats are kept
ROWS_NAMED: Final = 5  # of the rows that break a rule, in the message


def parse_schema(text: str, registry: Registry | None = None) -> Schema:
    """The schema that a text defines, in Gryphon's notation or as a `DEFINE MESSAGETYPE` statement; see docs/schema.md.

    >>> parse_schema("quote: [symbol: string, price: double?, tags: *(string)*] check (price > 0)").name
    'quote'

    Names that the text does not define come from the registry. The rules are checked against the schema at once.
    Raises `SchemaSyntaxError`, which shows the place, or another `SchemaError`.
    """
    schema = parse(text, registry)
    rules(schema)
    return schema


def encode(schema: Schema, rows: Any, ids: Ids | None = None) -> Batch:
    """A batch of messages that keep the rules of their schema.

    `rows` may be a list or any iterable of dicts, dataclasses or nodes; a dict of columns (lists, NumPy or Arrow
    arrays); or a frame: pandas, Polars, Arrow. Raises `InvalidValue`, with row and path, for a value that does not
    fit the schema, and `CheckFailed` for a message that breaks a rule. Then nothing is encoded.
    """
    batch = Batch.encode(schema, rows, ids)
    enforce(batch)
    return batch


def decode(data: bytes | bytearray | memoryview, schema: Schema | Registry) -> Batch:
    """A batch from bytes of unknown origin, checked completely, including the rules of the schema.

    Given a registry, the schema is looked up there by the fingerprint in the bytes. Raises `MalformedBatch`,
    `UnknownSchema` or `CheckFailed`.
    """
    if isinstance(schema, Registry):
        schema = schema.by_fingerprint(fingerprint_of(data))
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
    """Each rule of a schema as it is written, and the predicate "the rule is broken".

    Raises `SchemaError` for a rule that does not fit its schema. Called where a schema is declared.
    """
    found = []
    for rule in schema.checks:
        try:
            kept = compile(rule, schema)
        except QueryError as error:
            raise SchemaError(f"{schema.name}: invalid rule: {error}") from error
        found.append((rule, Predicate(rule, schema, kept.tree, typed.IsTrue(kept.root, False))))
    return tuple(found)
