"""Milepost's broker with a store of its own: a file in its folder, or one that outlives it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.milepost import Milepost


class MilepostWithStore(Milepost):
    """`milepost up` on SQLite or PostgreSQL, without metrics and without the ZeroMQ port."""

    def __init__(self, store: str = "") -> None:
        """`store` is a path or a URL. By default it is a file that is removed with the broker."""
        super().__init__()
        self._store = store

    def command(self, folder: Path) -> Sequence[str]:
        file = folder / "broker.toml"
        settings = {
            "listen": self.url,
            "http": "",
            "zmq": "",
            "store": self._store or str(folder / "milepost.db"),
        }
        # A string of JSON is one of TOML as well.
        file.write_text("\n".join(("[broker]", *(f"{name} = {json.dumps(text)}" for name, text in settings.items()))))
        return [str(self.where()), "-m", "milepost.cli", "up", "--config", str(file)]

    def rss_mb(self) -> float:
        """Resident memory in MB, including memory shared with other processes."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        return 0.0
