"""Columns that tier 1 adds on the way. Their names hold a #, which no field of a message can."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql import types as s

PROGRESS_TYPE: Final = s.StructType(
    [s.StructField("position", s.LongType()), s.StructField("time", s.TimestampType())]
)  # of `_progress`: not null in rows that are no events
REJECT: Final = "#reject"  # null until a step rejects the event
HIDDEN: Final = "#in/"  # and a field of the event as it came in, which results do not have


def named(name: str) -> Column:
    """A column of the frame by its whole name: dots and signs in it mean nothing."""
    return f.col(f"`{name}`")
