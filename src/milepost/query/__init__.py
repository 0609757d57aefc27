"""The query language: one grammar, one AST, one type checker, and several back ends.

::

    query.lark, parser          text -> AST                 ast, lexeme, printer, source
    checker, calls, clauses     AST -> typed AST            kinds, location, scope, functions, header, literal
    shape                       a fast path for texts that differ only in their literals
    typed                       the typed AST: the input of every back end
    python/                     back end: one message at a time; the reference
    mask/                       back end: all rows of a batch at once
    sql/                        back end: SQL over the tables of a queue's messages, for SQLite and PostgreSQL
    spark/                      back end: columns of a Spark DataFrame; needs pyspark, and is imported by its own name
    expression, selection       compiled predicates, expressions and queries, for callers
    ordering                    compiled orders: one or several keys, for a queue
    rules                       a schema's rules, enforced where messages enter

`docs/query.md` defines the meaning of the language. A further back end is one more walk over `typed`, tested against
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
