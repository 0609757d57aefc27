"""Redis Streams: every command in the log, and the log synced before its answer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.redis import Redis


class RedisStreams(Redis):
    """`appendfsync always`, no snapshots, and no rewriting of the log in the middle of a run."""

    def command(self, folder: Path) -> Sequence[str]:
        return [
            str(self.where()), "--bind", self.host, "--port", str(self.port), "--dir", str(folder), "--save", "",
            "--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0",
        ]  # fmt: skip
