"""Tier 2: rules about several events, over rows in time order. Pure: no Spark, no broker, no clock.

Reading order: `rules` (what can be asked), `engine` (one micro-batch in, alerts out), `windows` and `panes` with
`partials`, `exact` and `sketch` (windows and monitors), `pairs` (sequences and absences), `keys` and `columns` (what
all of them stand on), `state` and `pack` (bytes).
"""

from __future__ import annotations

from milepost.pipeline.tier2.engine import LAST_TIME, STATE_BYTES, STATE_ROWS, RuleEngine
from milepost.pipeline.tier2.pack import pack, shard, unpack
from milepost.pipeline.tier2.rules import (
    FIRST,
    THEN,
    TIME,
    Absence,
    Aggregate,
    Monitor,
    Rule,
    Sequence,
    TimeWindow,
    quantile_name,
)

__all__ = [
    "RuleEngine",
    "Rule",
    "TimeWindow",
    "Aggregate",
    "Sequence",
    "Absence",
    "Monitor",
    "quantile_name",
    "TIME",
    "FIRST",
    "THEN",
    "shard",
    "pack",
    "unpack",
    "STATE_ROWS",
    "STATE_BYTES",
    "LAST_TIME",
]
