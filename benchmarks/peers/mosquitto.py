"""Mosquitto: MQTT at quality of service 0."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.server import Server


class Mosquitto(Server):
    """Open to all clients on loopback, without persistence, and without a limit on the backlog of a subscriber."""

    name = "mosquitto"
    program = "mosquitto"
    package = "mosquitto"
    clients = (("paho", "paho-mqtt"),)

    def command(self, folder: Path) -> Sequence[str]:
        settings = folder / "mosquitto.conf"
        settings.write_text(
            f"listener {self.port} {self.host}\nallow_anonymous true\npersistence false\nset_tcp_nodelay true\n"
            "max_queued_messages 0\nmax_inflight_messages 0\nlog_dest none\n"
        )
        return [str(self.where()), "-c", str(settings)]
