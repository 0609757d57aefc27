"""Redis: its publish/subscribe, nothing kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.server import Server


class Redis(Server):
    """No snapshots and no log, and no limit on the backlog of a subscriber: by default it is disconnected at 32 MB."""

    name = "redis"
    program = "redis-server"
    package = "redis-server"
    clients = (("redis", "redis"), ("hiredis", "hiredis"))

    def command(self, folder: Path) -> Sequence[str]:
        return [
            str(self.where()), "--bind", self.host, "--port", str(self.port), "--dir", str(folder), "--save", "",
            "--appendonly", "no", "--client-output-buffer-limit", "pubsub 0 0 0",
        ]  # fmt: skip
