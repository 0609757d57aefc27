"""Work that is too long for the event loop: a thread does it in slices, round robin.

Python code in a thread keeps the GIL from the event loop for five milliseconds at a time. So the thread sleeps briefly
after each slice of one millisecond, and the event loop runs between two slices.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Generator
from typing import Any, Final, TypeAlias

from milepost.errors import BrokerError, MilepostError

SLICE_S: Final = 0.001  # seconds of work at a time
PAUSE_S: Final = 0.00005  # seconds between two slices

Work: TypeAlias = Generator[None, None, Any]
"""Work in short pieces; the return value is the outcome."""

log = logging.getLogger("milepost.broker")


class Scheduler:
    """One thread, which is started with the first work.

    Works of one key are done in order, one at a time; keys alternate, slice by slice.
    """

    def __init__(self, name: str, call: Callable[[Callable[[], None]], object]) -> None:
        """`call` makes the event loop call a function; it works from any thread."""
        self._name = name
        self._call = call
        self._lines: OrderedDict[object, deque[tuple[Work, Callable[[Any], None]]]] = OrderedDict()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._since = 0.0  # when this slice began

    def give(self, key: object, work: Work, done: Callable[[Any], None]) -> None:
        """Queue work. `done` is called in the event loop with its outcome, or the error."""
        with self._changed:
            if self._closed:
                return
            self._lines.setdefault(key, deque()).append((work, done))
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify()

    def pause(self) -> None:
        """Let other threads run, if the slice is over. Work calls it, in this thread, within a long piece."""
        if self._closed:
            raise BrokerError("the broker is stopping")
        if time.perf_counter() - self._since > SLICE_S:
            time.sleep(PAUSE_S)
            self._since = time.perf_counter()

    @property
    def closed(self) -> bool:
        """Whether `close` was called: outcomes are no longer reported."""
        return self._closed

    def close(self) -> None:
        """End the thread after the current piece, and drop work that is not done."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
        self._lines.clear()

    def __len__(self) -> int:
        with self._changed:
            return sum(map(len, self._lines.values()))

    def _serve(self) -> None:
        while True:
            with self._changed:
                while not self._lines and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
                key, line = next(iter(self._lines.items()))
                self._lines.move_to_end(key)
                work, done = line[0]
            over, outcome = self._slice(work)
            if over:
                with self._changed:
                    line.popleft()
                    if not line:
                        del self._lines[key]
                    if self.closed:
                        return
                self._call(lambda done=done, outcome=outcome: done(outcome))  # type: ignore[misc]
            time.sleep(PAUSE_S)

    def _slice(self, work: Work) -> tuple[bool, Any]:
        self._since = start = time.perf_counter()
        try:
            while time.perf_counter() - start < SLICE_S:
                next(work)
        except StopIteration as stop:
            return True, stop.value
        except MilepostError as error:
            return True, error
        except Exception as error:  # a broker fault: only this request is affected
            log.exception("work outside of the event loop failed")
            return True, BrokerError(f"the broker failed: {type(error).__name__}; its log says more")
        return False, None
