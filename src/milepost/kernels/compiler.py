"""Kernels compiled beside a broker, which answers meanwhile by other means.

Numba holds the GIL for long while it compiles, and an event loop in the same process would stand still. So a process of
its own compiles into the folder where kernels are kept (`python -m milepost.kernels.compiler`), and a thread loads
them from there. Where that folder cannot be written, a folder is made that lasts until they are loaded. Only when no
process can do it does the thread compile, and the event loop has to share the GIL with it.
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

NICE: Final = 5  # the priority is lowered by so much: a broker that is at work comes first
JOIN_S: Final = 2.0  # seconds that a thread has to end which loads kernels; one that compiles is left behind

log = logging.getLogger("milepost.kernels")
_freezes: list[bool] = []
_loading: list[bool] = []  # of each thread that loads: whether the collector was enabled
_changing: Final = threading.Lock()
loads: Final[list[float]] = []  # seconds of each time that kernels were loaded; there are few


def freeze_what_is_loaded() -> None:
    """For a process that is a broker and nothing else: no collection ever looks at what came while `loading`."""
    _freezes.append(True)


@contextmanager
def loading() -> Iterator[None]:
    """While kernels are loaded no collection runs.

    Numba comes as some hundred thousand objects, which all stay; to look at them takes tens of milliseconds each time.
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
                    gc.freeze()  # before the next collection, which would begin at once and look at all of it
                if enabled:
                    gc.enable()


class Compiler:
    """Has the kernels compiled, once, and loads them. `state` says how far that is, in a word.

    ::

        waiting      they are compiled, and nothing has needed them yet; or nothing has asked for them
        compiling    a process is at it
        loaded       they are in use
        failed       they will not come; the log says why
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
        """Begin, unless they are compiled or this was called before. Returns at once."""
        if self._begun or self._closed:
            return
        self._begun = True
        if not kernel.compiled():
            self._state = "compiling"
            self._thread = threading.Thread(target=self._run, name="milepost-kernels", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End what is under way."""
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
    """Whether kernels can be kept in a folder, which is made if it is not there."""
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    return os.access(folder, os.W_OK | os.X_OK)


if __name__ == "__main__":
    os.nice(NICE)
    kernel.warm()
    sys.exit(None if kernel.kept() else f"they could not be kept in {kernel.home()}")
