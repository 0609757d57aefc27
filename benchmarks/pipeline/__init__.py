"""`make bench NAME=pipeline`: the Spark source, tier 1, splitter and combiner, and both tiers at the paper's peak."""

from benchmarks.pipeline.run import PARTS, run

__all__ = ["PARTS", "run"]
