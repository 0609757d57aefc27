"""A broker in a process of its own: started, waited for, measured through /proc, and always stopped."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

START_SECONDS = 60.0  # RabbitMQ and Java need about ten; a broker that takes longer has failed
STOP_SECONDS = 5.0  # then it is killed: no data has to be saved
LOG_LINES = 15  # of a broker that did not start, shown with the error
TICKS = os.sysconf("SC_CLK_TCK")  # /proc counts CPU time in these, mostly 100 a second


class Unavailable(Exception):
    """A broker that cannot take part; the message says why, in one sentence."""


class Server:
    """One broker. A subclass says which program it is and how that is started; `port` is where it listens."""

    name: ClassVar[str]
    program: ClassVar[str]  # looked for on the PATH and in the folders of system programs
    package: ClassVar[str]  # of Debian, for the hint how to install it
    clients: ClassVar[tuple[tuple[str, str], ...]] = ()  # modules that the load generators need, and their packages

    def __init__(self) -> None:
        self.host = "127.0.0.1"
        self.port = 0
        self.pid = 0
        self.start_seconds = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = ""

    @classmethod
    def missing(cls) -> str | None:
        """Why this broker cannot take part, as a sentence, or None when it can."""
        if cls.where() is None:
            return f"{cls.program} is not installed (Debian: apt install {cls.package}): left out"
        for module, source in cls.clients:
            if importlib.util.find_spec(module) is None:
                return f"the Python package {source} for {cls.name} is not installed (pip install {source}): left out"
        return None

    @classmethod
    def where(cls) -> str | None:
        """The path of the program. Debian keeps servers in sbin, which is not on everybody's PATH."""
        return shutil.which(cls.program) or shutil.which(cls.program, path="/usr/sbin:/usr/local/sbin:/sbin")

    def command(self, folder: Path) -> Sequence[str]:
        """The command line; it may write configuration into `folder`, which goes away with the broker."""
        raise NotImplementedError

    def environment(self, folder: Path) -> Mapping[str, str]:
        """Environment variables of the broker, in addition to the benchmark's."""
        return {}

    def __enter__(self) -> Self:
        reason = self.missing()
        if reason is not None:
            raise Unavailable(reason)
        self._folder = tempfile.mkdtemp(prefix=f"milepost-bench-{self.name}-")
        folder = Path(self._folder)
        self.port = free_port()
        try:
            command = self.command(folder)
            started = time.monotonic()
            with (folder / "output.log").open("wb") as log:
                # A session of its own: Ctrl-C reaches the benchmark alone, which then stops its processes, and the
                # process group contains all processes that the broker starts.
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=folder,
                    env={**os.environ, **self.environment(folder)}, start_new_session=True, preexec_fn=die_with_parent,
                )  # fmt: skip
            self.pid = self._process.pid
            self._wait()
            self.start_seconds = time.monotonic() - started
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def accepts(self) -> bool:
        """Whether the broker accepts clients. Called repeatedly while it starts."""
        try:
            with socket.create_connection((self.host, self.port), 1):
                return True
        except OSError:
            return False

    def stop(self) -> None:
        """End the broker and its processes, wait for it, and remove its folder. A second call has no effect."""
        if self._process is not None:
            for kind in (signal.SIGTERM, signal.SIGKILL):
                # Its process group has its id, because it was started in a session of its own.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, kind)
                try:
                    self._process.wait(STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    continue
                if not _group(self._process.pid):
                    break
            self._process = None
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = ""

    def output(self) -> str:
        """The output of the broker so far."""
        return (Path(self._folder) / "output.log").read_text(errors="replace")

    def cpu_seconds(self) -> float:
        """CPU time that the broker has used since it started, in user and system mode, all its processes."""
        return sum(_cpu_seconds(pid) for pid in _group(self.pid))

    def memory_kb(self) -> int:
        """Resident memory in kB, pages that it shares with others counted by its part (Pss)."""
        return sum(_pss_kb(pid) for pid in _group(self.pid))

    def _wait(self) -> None:
        assert self._process is not None
        limit = time.monotonic() + START_SECONDS
        while not self.accepts():
            if self._process.poll() is not None or time.monotonic() > limit:
                said = "\n".join(self.output().splitlines()[-LOG_LINES:])
                raise Unavailable(f"{self.name} did not start and is left out; its last words:\n{said}")
            time.sleep(0.02)


def free_port() -> int:
    """A free port. Another process could take it before the broker does; then that broker is left out."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def die_with_parent() -> None:
    """Let Linux end this process when its parent process ends, for any reason: PR_SET_PDEATHSIG is 1."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _group(leader: int) -> list[int]:
    """The processes of a process group, without those that are already dead."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = _stat(int(entry.name))
            if fields and int(fields[2]) == leader and fields[0] not in ("Z", "X"):
                found.append(int(entry.name))
    return found


def _stat(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat from the state on: the name before it may hold spaces and brackets."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _cpu_seconds(pid: int) -> float:
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / TICKS if fields else 0.0


def _pss_kb(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0
