"""The Spark back end: expressions as columns of built-in functions, which Spark plans; no Python runs for a row.

::

    compiler     typed AST -> columns: `column`, `check`, `result_type`
    types        schemas and kinds -> Spark types
    route        the types along paths, and refusals; needs no running Spark
    paths        columns at the end of paths
    arithmetic, comparison, functions, pattern, address     operations on columns
    aggregates   quantifiers and aggregates
    value        columns with their types

No row makes a column raise, and no setting of the session changes its value (ANSI mode, time zone, case of names): it
uses `try_` functions, times as numbers, and fields by position where names clash.
"""

from milepost.extras import extra

with extra("columns of Spark need", "spark"):
    from milepost.query.spark.compiler import check, column, result_type
    from milepost.query.spark.types import CASE, carries, case_field, field_type, spark_type, struct_type

__all__ = [
    "column",
    "check",
    "result_type",
    "struct_type",
    "field_type",
    "spark_type",
    "CASE",
    "case_field",
    "carries",
]
