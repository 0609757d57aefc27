"""A CPU hog: processes that only occupy a core. `python -I hog.py CORE`."""

from __future__ import annotations

import os
import subprocess
import sys

STEPS = 200_000  # between two checks whether the parent process still exists: some milliseconds


def main() -> None:
    """Occupy the core until stopped, or until the parent is gone."""
    os.sched_setaffinity(0, {int(sys.argv[1])})
    parent = os.getppid()
    while os.getppid() == parent:
        for _ in range(STEPS):
            pass


class Hog:
    """Some processes on one core. n processes leave about 1/(n+1) of the core's time."""

    def __init__(self, core: int, processes: int) -> None:
        self._core = core
        self._wanted = processes
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        # As a file, and bound to its core from the start: importing the package would load every core.
        command = [sys.executable, "-I", "-S", __file__, str(self._core)]
        everywhere = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {self._core})
        try:
            self._running = [
                subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True) for _ in range(self._wanted)
            ]
        finally:
            os.sched_setaffinity(0, everywhere)

    def stop(self) -> None:
        running, self._running = self._running, []
        for each in running:
            each.kill()
        for each in running:
            each.wait()

    def __enter__(self) -> Hog:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


if __name__ == "__main__":
    main()
