"""Starts and kills the processes of the soak."""

from __future__ import annotations

import random
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from soak.roles import Role
from soak.worker import Orders

SPARES = 2  # workers that have imported everything and wait
START_S = 60.0  # for a broker to listen; ends a start that hangs
END_S = 60.0


class Stuck(Exception):
    """Something did not recover."""


class Broker:
    """`milepost up`, with one address for all its processes."""

    def __init__(
        self, folder: Path, store: str, *, before: tuple[str, ...] = (), settings: str = "", zeromq: bool = False
    ) -> None:
        self.port = free_port()
        self.address = f"milepost://127.0.0.1:{self.port}"
        self.zeromq = f"tcp://127.0.0.1:{free_port()}" if zeromq else ""
        self.log = folder / "broker.log"
        self.starts = 0
        self.failures: list[int] = []  # exit codes of processes that ended by themselves
        self._config = folder / "broker.toml"
        self._config.write_text(f'[broker]\nstore = "{store}"\nhttp = ""\nzmq = "{self.zeromq}"\n{settings}')
        self._before = before  # a command that runs the broker, such as strace
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = [
            *self._before, sys.executable, "-X", "faulthandler", "-m", "milepost.cli", "up",
            "--listen", f"127.0.0.1:{self.port}", "--config", str(self._config),
        ]  # fmt: skip
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self.starts += 1

    def wait(self) -> None:
        """Wait until it listens."""
        process = self._process
        assert process is not None
        assert process.stdout is not None
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            ready, _, _ = select.select([process.stdout], [], [], 0.5)
            if ready:
                line = process.stdout.readline()
                if re.search(r"milepost://", line):
                    return
                if not line:
                    break
        raise Stuck(f"the broker does not listen; its last words:\n{self.last_words()}")

    def alive(self) -> bool:
        """Whether it still runs. A process that ended by itself is counted."""
        if self._process is not None and self._process.poll() is not None:
            self.failures.append(self._process.returncode)
            _reap(self._process)
            self._process = None
        return self._process is not None

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            _reap(self._process)
            self._process = None

    def mend(self) -> None:
        """Kill it, and start it without the command that ran it."""
        self._before = ()
        self.kill()
        self.start()
        self.wait()

    def stop(self) -> int:
        """Stop it in order. Returns its exit code."""
        if self._process is None:
            return 0
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Stuck(f"the broker did not end within {END_S} s") from None
        _reap(self._process)
        self._process = None
        return code

    def stuck_at(self) -> str:
        """End it, and return the stacks of its threads, which are at the end of its log."""
        if self._process is not None:
            self._process.send_signal(signal.SIGABRT)  # Python's fault handler responds with all stacks
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(END_S)
            self.kill()
        return self.last_words()

    def last_words(self) -> str:
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""


class WorkerProcesses:
    """The worker processes."""

    def __init__(
        self, folder: Path, broker: str, seed: int, pause_s: float, *, module: str = "soak.worker",
        elsewhere: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """`elsewhere`: by name, the addresses of workers that do not use `broker`."""
        self._folder = folder
        self._broker = broker
        self._elsewhere = elsewhere or {}
        self._seed = seed
        self._pause_s = pause_s
        self._module = module  # the module that a worker runs
        self._spares: deque[subprocess.Popen[str]] = deque()
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._lives: dict[str, int] = {}
        self.failures: list[str] = []  # workers that ended by themselves

    def records(self, role: Role) -> Path:
        return self._folder / f"{role.name}.records"

    def _spare(self) -> subprocess.Popen[str]:
        with (self._folder / "workers.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", self._module],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip

    def start(self, role: Role) -> None:
        """Give a spare process the role, and prepare another spare."""
        life = self._lives[role.name] = self._lives.get(role.name, 0) + 1
        while len(self._spares) <= SPARES:
            self._spares.append(self._spare())
        process = self._spares.popleft()
        assert process.stdin is not None
        address = self._elsewhere.get(role.name, self._broker)
        orders = Orders(role, address, str(self.records(role)), f"{self._seed} {role.name} {life}", self._pause_s)
        process.stdin.write(msgspec.json.encode(orders).decode() + "\n")
        process.stdin.close()
        self._running[role.name] = process

    def kill(self, role: Role) -> None:
        process = self._running.pop(role.name)
        process.kill()
        _reap(process)

    def revive(self, roles: tuple[Role, ...]) -> None:
        """Restart workers that ended by themselves, and record it."""
        for role in roles:
            process = self._running.get(role.name)
            if process is not None and process.poll() is not None:
                self.failures.append(f"{role.name} ended with code {process.returncode}")
                _reap(process)
                self.start(role)

    def stop(self, roles: tuple[Role, ...]) -> None:
        """Stop workers in order: each finishes its current work."""
        leaving = [self._running.pop(role.name) for role in roles if role.name in self._running]
        for process in leaving:
            process.send_signal(signal.SIGTERM)
        for process in leaving:
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                self.failures.append("a worker did not end when told to")
            _reap(process)

    def clear(self) -> None:
        """Kill the remaining processes."""
        for process in (*self._spares, *self._running.values()):
            process.kill()
            if process.stdin is not None and not process.stdin.closed:
                process.stdin.close()
            _reap(process)
        self._spares.clear()
        self._running.clear()

    def last_words(self) -> str:
        path = self._folder / "workers.log"
        return path.read_text(errors="replace")[-3000:] if path.exists() else ""


def _reap(process: subprocess.Popen[str]) -> None:
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def free_port() -> int:
    """A port that a server may leave and come back to.

    Not one that the system chooses: it would give the same port to the next connection of any process, while the
    server is away. Ports below 32,768 go to nobody who has not asked for them.
    """
    while True:
        port = random.randrange(16_384, 32_768)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:  # somebody has it
                continue
            return port
