"""Columns that tier 1 adds. Their names contain a #, which no field of a message can."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql import types as s

PROGRESS_TYPE: Final = s.StructType(
    [s.StructField("position", s.LongType()), s.StructField("time", s.TimestampType())]
)  # of `_progress`: not null in rows that are not events
REJECT: Final = "#reject"  # null until a step rejects the event
HIDDEN: Final = "#in/"  # prefix of a field of the original event that results do not have


def named(name: str) -> Column:
    """A column of the frame by its whole name, in which dots and signs have no meaning."""
    return f.col(f"`{name}`")
