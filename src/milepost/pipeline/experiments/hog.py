"""A CPU hog: processes that do nothing but take a core. `python -I hog.py CORE`."""

from __future__ import annotations

import os
import subprocess
import sys

STEPS = 200_000  # between two looks at whether whoever started it is still there: some milliseconds


def main() -> None:
    """Take the core until asked to stop, or left alone."""
    os.sched_setaffinity(0, {int(sys.argv[1])})
    parent = os.getppid()
    while os.getppid() == parent:
        for _ in range(STEPS):
            pass


class Hog:
    """Some processes on one core. Each of n takes one part of the core's time, so that n leave about 1/(n+1)."""

    def __init__(self, core: int, processes: int) -> None:
        self._core = core
        self._wanted = processes
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        # As a file, and on its core from the first moment: importing the package would be a hog on every core.
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
