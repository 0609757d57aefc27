"""The environment of the experiments: their own broker with its store in a temporary folder, and the cores."""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from milepost.errors import BrokerError, ConfigError

START_S: Final = 120.0  # for the broker to listen, including its first compilation; ends a start that hangs
END_S: Final = 30.0


class Environment:
    """A broker and a folder, as a context. `cores` are two cores of this machine."""

    def __init__(self) -> None:
        if not hasattr(os, "sched_setaffinity"):
            raise ConfigError("the experiments bind processes to cores, which only Linux supports")
        self.all_cores: Final = frozenset(os.sched_getaffinity(0))
        if len(self.all_cores) < 2:
            raise ConfigError("the experiments need two cores: one for the hog, and one without it")
        self.cores: Final = tuple(sorted(self.all_cores))[:2]
        self.folder: Path
        self.address = ""
        self._broker: subprocess.Popen[str] | None = None

    def __enter__(self) -> Environment:
        self.folder = Path(tempfile.mkdtemp(prefix="milepost-control-"))
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        os.sched_setaffinity(0, self.all_cores)
        broker = self._broker
        if broker is not None:
            broker.terminate()
            try:
                broker.wait(END_S)
            except subprocess.TimeoutExpired:
                broker.kill()
                broker.wait()
            assert broker.stdout is not None
            broker.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self) -> None:
        command = [sys.executable, "-m", "milepost.cli", "up", "--listen", "127.0.0.1:0", "--http", "", "--zmq", ""]
        command += ["--store", str(self.folder / "store.db")]
        log = self.folder / "broker.log"
        with log.open("w") as errors:
            # In a session of its own: Ctrl-C is for the experiments, which stop the broker after its clients.
            self._broker = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True,
                start_new_session=True,
            )  # fmt: skip
        assert self._broker.stdout is not None
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            ready, _, _ = select.select([self._broker.stdout], [], [], 0.5)
            if not ready:
                continue
            line = self._broker.stdout.readline()
            found = re.search(r"listens on (milepost://\S+:\d+)[,;]", line)
            if found:
                self.address = found[1]
                return
            if not line:
                break
        raise BrokerError(f"the broker of the experiments does not start:\n{log.read_text()[-2_000:]}")

    def pin_broker(self, cores: set[int]) -> None:
        """Let the broker run on these cores only."""
        assert self._broker is not None
        pin(self._broker.pid, cores)


def pin(pid: int, cores: set[int]) -> None:
    """Bind a process, its threads and all its descendants to these cores."""
    for each in (pid, *_below(pid)):
        try:
            for thread in Path(f"/proc/{each}/task").iterdir():
                os.sched_setaffinity(int(thread.name), cores)
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended meanwhile


def _below(pid: int) -> list[int]:
    """The descendants of a process."""
    parents: dict[int, list[int]] = {}
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                # The second field is a name in brackets with arbitrary characters; the parent is the fourth field.
                told = (each / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents.setdefault(int(told[1]), []).append(int(each.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        below = parents.get(waiting.pop(), [])
        found += below
        waiting += below
    return found
