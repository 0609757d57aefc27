"""A Spark standalone cluster on loopback: one master and some workers, out of the PySpark package."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyspark

from soak.processes import free_port

HOME = Path(pyspark.__file__).parent
START_S = 120.0  # only there to end what hangs


class Cluster:
    """As a context: started, and stopped with everything that it started."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self._folder = folder
        self._count = workers
        self.workers: list[subprocess.Popen[bytes]] = []
        self._master: subprocess.Popen[bytes] | None = None
        self._port = free_port()
        self.url = f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> Cluster:
        self._master = self._start("master", "Master", "--host", "127.0.0.1", "--port", str(self._port))
        self._wait("master", "I have been elected leader")
        for number in range(self._count):
            place = (
                "--host",
                "127.0.0.1",
                "--cores",
                "1",
                "--memory",
                "1g",
                "--work-dir",
                str(self._folder / f"work-{number}"),
            )
            self.workers.append(self._start(f"worker-{number}", "Worker", *place, self.url))
        for number in range(self._count):
            self._wait(f"worker-{number}", "Successfully registered with master")
        return self

    def __exit__(self, *error: object) -> None:
        for process in (*self.workers, self._master):
            if process is not None:
                stop(process)

    def kill(self, number: int) -> None:
        """A worker and its executors, without a word."""
        stop(self.workers[number])

    def _start(self, name: str, what: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self._folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [
                    str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{what.lower()}.{what}",
                    "--webui-port", "0", *arguments,
                ],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
                env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
            )  # fmt: skip

    def _wait(self, name: str, said: str) -> None:
        until = time.monotonic() + START_S
        log = self._folder / f"{name}.log"
        while said not in log.read_text(errors="replace"):
            if time.monotonic() > until:
                raise TimeoutError(f"the {name} does not start: {log.read_text(errors='replace')[-2000:]}")
            select.select([], [], [], 0.1)


def stop(process: subprocess.Popen[bytes]) -> None:
    """The whole group, at once."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
