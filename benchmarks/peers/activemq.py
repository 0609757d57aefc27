"""ActiveMQ: its broker embedded in a small Java program, reached through STOMP."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.server import Server

JARS = Path("/usr/share/java")
# The libraries of an embedded broker with a STOMP connector. The logger is the silent one.
NEEDED = (
    "activemq-broker", "activemq-client", "activemq-stomp", "activemq-openwire-legacy", "geronimo-jms_1.1_spec",
    "geronimo-j2ee-management-1.1-spec", "hawtbuf", "slf4j-api", "slf4j-nop",
)  # fmt: skip
SOURCE = Path(__file__).with_name("EmbeddedActiveMQ.java")


class ActiveMQ(Server):
    """No disk, no JMX, no advisories; 2 GB of heap, so that garbage collection does not decide the result."""

    name = "activemq"
    program = "java"
    package = "activemq default-jdk-headless"

    @classmethod
    def missing(cls) -> str | None:
        if cls.where() is None or not (JARS / "activemq-broker.jar").exists():
            return f"activemq with java is not installed (Debian: apt install {cls.package}): left out"
        return None

    def command(self, folder: Path) -> Sequence[str]:
        jars = ":".join(str(JARS / f"{name}.jar") for name in NEEDED)
        return [str(self.where()), "-Xms1g", "-Xmx2g", "-cp", jars, str(SOURCE), str(self.port), str(folder)]
