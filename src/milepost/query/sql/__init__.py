"""The SQL back end: expressions as SQL over the tables of a message type, for SQLite and PostgreSQL.

::

    tables       the tables of a type's messages
    compiler     typed AST -> SQL: `compile` for predicates and values, `order_by` for the keys of an order
    writer       values to bind, and names
    value        pieces of SQL with their kinds and forms
    paths        paths through tables                              header     the administrative attributes
    comparison   comparisons with constants, so that indexes are used
    operations   the operations that differ between databases      sqlite, postgresql
    functions    Python functions for SQLite; `install` registers them with a connection

Values from a query or a message are always bound: the text contains names of `tables`, and nothing else from outside.
"""

from milepost.query.sql.compiler import Sql, compile, order_by
from milepost.query.sql.tables import SqlColumn, SqlTable, Tables

__all__ = ["compile", "order_by", "Sql", "Tables", "SqlTable", "SqlColumn"]
