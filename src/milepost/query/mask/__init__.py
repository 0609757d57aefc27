"""The vector back end: a whole batch at once, column by column, in NumPy and Arrow.

::

    compiler    typed AST -> functions of a frame
    frame       the rows being evaluated, and the spots of their variables
    spot        the end of a path in the columns of a batch
    paths       columns at the end of paths
    arithmetic, exact, comparison, text, address, functions     operations on columns
    aggregates  quantifiers and aggregates
    vector      columns of values, some of them null
    batches     from a batch to a mask or a column of its rows
"""

from milepost.query.mask.batches import RowValues, column, column_of, mask

__all__ = ["RowValues", "column", "column_of", "mask"]
