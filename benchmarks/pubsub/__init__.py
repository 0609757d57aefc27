"""`make bench NAME=pubsub`: the whole broker against its peers, every process a separate one, all on this machine."""

from benchmarks.pubsub.run import PARTS, run

__all__ = ["PARTS", "run"]
