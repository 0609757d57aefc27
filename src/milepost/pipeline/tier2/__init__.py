"""Tier 2: rules about several events, over rows in time order. Pure, except for `plan` and `packed`, which use Spark.

Reading order: `rules` (the kinds of rules), `engine` (one micro-batch in, emitted rows out), `windows` and `panes` with
`partials`, `exact` and `sketch` (windows and monitors), `pairs` (sequences and absences), `keys` and `columns` (shared
basics), `state` and `pack` (bytes), `plan` and `packed` (tier 2 as a Spark query).
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
