"""Compiles kernels in the background of a broker, which works without them until then.

Numba holds the GIL for long while it compiles, which would block an event loop in the same process. So another process
compiles into the cache folder (`python -m milepost.kernels.compiler`), and a thread loads the kernels from there. If
that folder cannot be written, a temporary one is used until they are loaded. Only if no process can compile does the
thread do so, and the event loop has to share the GIL with it.
"""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from milepost.kernels import kernel

NICE: Final = 5  # the priority is lowered by so much: the broker's own work comes first
JOIN_S: Final = 2.0  # seconds to wait for a thread that loads kernels; one that compiles is not waited for

log = logging.getLogger("milepost.kernels")
_freezes: list[bool] = []
_loading: list[bool] = []  # for each thread that loads: whether the garbage collector was enabled
_changing: Final = threading.Lock()
loads: Final[list[float]] = []  # seconds that each load of kernels took; there are few


def freeze_what_is_loaded() -> None:
    """Exclude the objects of each `loading` from garbage collection. For a process that only runs a broker."""
    _freezes.append(True)


@contextmanager
def loading() -> Iterator[None]:
    """Disable the garbage collector while kernels are loaded.

    Numba makes some hundred thousand objects that all stay; a collection of them takes tens of milliseconds.
    """
    with _changing:
        _loading.append(_loading[0] if _loading else gc.isenabled())
        gc.disable()
    began = time.perf_counter()
    try:
        yield
    finally:
        with _changing:
            loads.append(time.perf_counter() - began)
            enabled = _loading.pop()
            if not _loading:
                if _freezes:
                    gc.freeze()  # before the next collection, which would begin at once and traverse all of them
                if enabled:
                    gc.enable()


class Compiler:
    """Starts the compilation of the kernels, once, and loads them. `state` is one word:

    ::

        waiting      nothing has needed the kernels yet
        compiling    a process compiles them
        loaded       they are in use
        failed       they could not be compiled or loaded; the log has the reason
    """

    def __init__(self) -> None:
        self._state = "waiting"
        self.took = 0.0  # seconds to compile and load them
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._begun = self._closed = False

    @property
    def state(self) -> str:
        return "loaded" if self._state == "waiting" and kernel.loaded() else self._state

    def begin(self) -> None:
        """Start, unless the kernels are compiled or this was called before. Returns at once."""
        if self._begun or self._closed:
            return
        self._begun = True
        if not kernel.compiled():
            self._state = "compiling"
            self._thread = threading.Thread(target=self._run, name="milepost-kernels", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End the compiling process and wait for the thread."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.kill()
        if self._thread is not None:
            self._thread.join(JOIN_S)
            self._thread = None

    def _run(self) -> None:
        began = time.monotonic()
        try:
            with ExitStack() as stack:
                if not _writable(kernel.home()):
                    with suppress(OSError):
                        place = stack.enter_context(TemporaryDirectory(prefix="milepost-kernels-"))
                        stack.enter_context(kernel.kept_in(Path(place)))
                self._compile()
                if self._closed:
                    return
                with loading():
                    kernel.warm()
        except Exception:
            self._state = "failed"
            log.exception("the matching kernels could not be compiled: predicates are matched slowly")
            return
        self.took = time.monotonic() - began
        self._state = "loaded"  # set last: readers of `state` then find `took`
        log.info("the matching kernels are compiled (%.0f s)", self.took)

    def _compile(self) -> None:
        """Wait for a process that compiles. If it fails, `warm` compiles what is missing."""
        command = [sys.executable, "-P", "-m", "milepost.kernels.compiler"]
        environment = os.environ | {"NUMBA_CACHE_DIR": str(kernel.home())}
        with self._lock:
            if self._closed:
                return
            try:
                # A session of its own: Ctrl-C is for the broker, which then ends this process.
                self._process = subprocess.Popen(
                    command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE, start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                log.warning("the matching kernels are compiled in the broker's own process: %s", error)
                return
        _, said = self._process.communicate()
        if self._process.returncode and not self._closed:
            last = said.decode(errors="replace").strip().rpartition("\n")[2]
            log.warning("the matching kernels are compiled in the broker's own process: another one failed: %s", last)


def _writable(folder: Path) -> bool:
    """Whether kernels can be kept in a folder, which is made if it does not exist."""
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    return os.access(folder, os.W_OK | os.X_OK)


if __name__ == "__main__":
    os.nice(NICE)
    kernel.warm()
    sys.exit(None if kernel.kept() else f"the kernels could not be kept in {kernel.home()}")
