"""The query language: one grammar, one AST, one type checker, and a back end for each place that asks.

::

    query.lark, parser          text -> AST                 ast, lexeme, printer, source
    checker, calls, clauses     AST -> typed AST            kinds, location, scope, functions, aggregate, header,
                                                            literal
    shape                       the short way through both for texts that differ only in their literals
    typed                       the typed AST: what every back end walks over
    python/                     back end: one message at a time; the reference
    mask/                       back end: all rows of a batch at once
    sql/                        back end: SQL over the tables of a queue's messages, for SQLite and PostgreSQL
    spark/                      back end: columns of a Spark DataFrame; needs pyspark, and is imported by its own name
    expression, selection       compiled predicates, expressions and queries, as callers hold them
    ordering                    compiled orders: one or several keys, for a queue
    rules                       a schema's rules, enforced where messages enter

What the language means is fixed in `docs/query.md`. A further back end is one more walk over `typed`, tested against
`python` on the same generated queries.
"""

from milepost.query.expression import Expression, Predicate, compile, expression
from milepost.query.functions import AGGREGATES, FUNCTIONS, SPECIAL
from milepost.query.header import ATTRIBUTES
from milepost.query.ordering import Ordering, ordering
from milepost.query.rules import decode, encode, enforce, parse_schema, rules
from milepost.query.selection import CompiledQuery, parse_query

__all__ = [
    "compile",
    "expression",
    "parse_query",
    "ordering",
    "Predicate",
    "Expression",
    "CompiledQuery",
    "Ordering",
    "encode",
    "decode",
    "enforce",
    "parse_schema",
    "rules",
    "FUNCTIONS",
    "AGGREGATES",
    "SPECIAL",
    "ATTRIBUTES",
]
