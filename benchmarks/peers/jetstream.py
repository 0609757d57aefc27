"""JetStream with a file store: with its defaults, which acknowledge before a sync, and synced where it can."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.nats import Nats


class JetStream(Nats):
    """With its defaults: acknowledged messages reach the disk within two minutes."""

    name = "jetstream"
    sync = ""

    def command(self, folder: Path) -> Sequence[str]:
        settings = folder / "nats.conf"
        settings.write_text(_settings(folder, self.sync))
        return [str(self.where()), "-c", str(settings), "-a", self.host, "-p", str(self.port)]


class SyncedJetStream(JetStream):
    """`sync_interval: always`, which servers before 2.10 do not know."""

    name = "jetstream synced"
    sync = "sync_interval: always"

    @classmethod
    def missing(cls) -> str | None:
        reason = super().missing()
        if reason is not None:
            return reason
        with tempfile.TemporaryDirectory(prefix="milepost-bench-") as folder:
            file = Path(folder) / "nats.conf"
            file.write_text(_settings(Path(folder), cls.sync))
            tried = subprocess.run([str(cls.where()), "-t", "-c", str(file)], capture_output=True, check=False)
        if tried.returncode:
            return "this nats-server knows no `sync_interval: always` (2.10 and later do): JetStream runs unsynced only"
        return None


def _settings(folder: Path, sync: str) -> str:
    return f'ping_interval: "1h"\njetstream {{\n store_dir: "{folder / "data"}"\n {sync}\n}}\n'
