"""Tier 1 on Spark: one event at a time, all of it in columns of built-in functions.

::

    steps        the steps of a checked pipeline, one after the other, on a DataFrame
    enrichment   the join with a table, by key or by the longest prefix
    prefix       addresses and networks as keys of equi-joins
"""

from milepost.pipeline.tier1.steps import apply, reject_type

__all__ = ["apply", "reject_type"]
