"""NATS: core publish/subscribe, no JetStream."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.server import Server


class Nats(Server):
    """The server with its defaults, except that a subscriber may lag by a whole run without being disconnected."""

    name = "nats"
    program = "nats-server"
    package = "nats-server"
    clients = (("nats", "nats-py"),)

    def command(self, folder: Path) -> Sequence[str]:
        settings = folder / "nats.conf"
        settings.write_text('max_pending: 1073741824\nwrite_deadline: "60s"\nping_interval: "1h"\n')
        return [str(self.where()), "-c", str(settings), "-a", self.host, "-p", str(self.port)]
