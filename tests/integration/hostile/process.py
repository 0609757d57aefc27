"""A broker in a process of its own, with limits of the system, and what it says on standard error."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

PATIENCE = 60.0  # seconds, for what hangs: nothing here waits for time to pass


class Process:
    """Started with settings, and with at most so many file descriptors."""

    def __init__(self, folder, descriptors=None, **settings):
        self.folder = folder
        self.file = folder / "broker.toml"
        chosen = {"store": str(folder / "log.db"), "http": "", "zmq": ""} | settings
        lines = [
            f'{name} = "{value}"' if isinstance(value, str) else f"{name} = {value}" for name, value in chosen.items()
        ]
        self.file.write_text("\n".join(["[broker]", *lines, ""]))
        self.errors = folder / "errors.txt"
        self._descriptors = descriptors
        self.port = 0
        self.process = None

    @property
    def address(self):
        return f"milepost://127.0.0.1:{self.port}"

    async def __aenter__(self):
        limit = f"ulimit -n {self._descriptors}; " if self._descriptors else ""
        command = [sys.executable, "-m", "milepost.cli", "up", "--listen", "127.0.0.1:0", "--config", str(self.file)]
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                ["sh", "-c", f'{limit}exec "$@"', "sh", *command], stdout=subprocess.PIPE, stderr=errors
            )
        line = await asyncio.to_thread(self.process.stdout.readline)
        found = re.search(rb"listens on \S+:(\d+)", line)
        assert found, self.errors.read_text()
        self.port = int(found[1])
        return self

    async def __aexit__(self, *_):
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGCONT)
            self.process.kill()
        await asyncio.to_thread(self.process.wait)
        self.process.stdout.close()

    def resident(self):
        """Bytes of memory that the process has had at most."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024


def run(body):
    async def limited():
        async with asyncio.timeout(PATIENCE):
            await body

    asyncio.run(limited())
