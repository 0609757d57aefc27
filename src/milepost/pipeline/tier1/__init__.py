"""Tier 1 on Spark: one event at a time, all of it in columns of built-in functions.

::

    applying     the steps of a checked pipeline, one after the other, on a DataFrame
    enriching    the join with a table, by key or by the longest prefix
    prefix       addresses and networks as keys of equal joins
"""

from milepost.pipeline.tier1.steps import apply, reject_type

__all__ = ["apply", "reject_type"]
