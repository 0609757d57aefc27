"""The SQL back end: expressions as SQL over the tables of a message type, for SQLite and PostgreSQL.

::

    tables       where messages of a type are in a database
"""

from milepost.query.sql.tables import Column, Table, Tables

__all__ = ["Tables", "Table", "Column"]
