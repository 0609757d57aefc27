"""Milepost's own broker, started as a user starts it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.server import Server


class Milepost(Server):
    """`milepost up` without extras and without a store, with further options; settings are written to a file."""

    name = "milepost"
    program = sys.executable
    package = "python3"

    def __init__(self, *options: str, **settings: int) -> None:
        super().__init__()
        self._options = options
        self._settings = settings

    @property
    def url(self) -> str:
        return f"milepost://{self.host}:{self.port}"

    def command(self, folder: Path) -> Sequence[str]:
        file = folder / "broker.toml"
        lines = (f"{name} = {value}" for name, value in self._settings.items())
        file.write_text("\n".join(("[broker]", *lines)))
        listen = ("--listen", f"{self.host}:{self.port}", "--http", "", "--zmq", "", "--store", "")
        return [str(self.where()), "-m", "milepost.cli", "up", *listen, "--config", str(file), *self._options]
