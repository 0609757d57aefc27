"""RabbitMQ: a node of its own, with a name service (epmd) of its own beside it."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.peers.server import Server, free_port

# The script behind Debian's wrapper: the wrapper insists on the system's user and the system's folders.
SCRIPT = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


class RabbitMQ(Server):
    """AMQP 0-9-1, no plugins, no management."""

    name = "rabbitmq"
    program = "rabbitmq-server"
    package = "rabbitmq-server"
    clients = (("aio_pika", "aio-pika"),)

    def __init__(self) -> None:
        super().__init__()
        self._names = free_port()

    @classmethod
    def where(cls) -> str | None:
        return str(SCRIPT) if SCRIPT.exists() else super().where()

    def command(self, folder: Path) -> Sequence[str]:
        # The node would start a name service by itself, one that outlives it and serves the whole machine. So the
        # shell starts one in the broker's own process group, where it is stopped with the broker.
        return ["sh", "-c", f"epmd -port {self._names} -address 127.0.0.1 & exec {self.where()}"]

    def environment(self, folder: Path) -> Mapping[str, str]:
        return {
            "HOME": str(folder),  # for the cookie
            "ERL_EPMD_PORT": str(self._names),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": "bench@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": self.host,
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_CONFIG_FILE": str(folder / "none"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            # Schedulers that wait must not spin on the two cores that everything here shares.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none +sbwtdcpu none +sbwtdio none",
        }

    def accepts(self) -> bool:
        """The port opens before the node can serve: an AMQP greeting that is answered says that it can."""
        try:
            with socket.create_connection((self.host, self.port), 1) as probe:
                probe.settimeout(1)
                probe.sendall(b"AMQP\x00\x00\x09\x01")
                return probe.recv(1) == b"\x01"
        except OSError:
            return False
