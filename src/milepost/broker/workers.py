"""Input queues: threads that check and match batches, each publisher always in the same one.

Gryphon's input queues gave each processor its own. Here, matching leaves the GIL and everything else needs it; see
the decision record on input queues for what that leaves of the gain.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final, Generic, TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")

log = logging.getLogger("milepost.broker")

_MULTIPLIER: Final = 0x9E3779B1  # 2**32 over the golden ratio: neighbouring publisher numbers spread evenly


class Workers(Generic[Job, Result]):
    """`count` threads. Each takes everything that waits for it at once: `work` on the lot, then `done` with the result.

    Both are called in the worker's thread. Jobs given to one place are worked on in the order they were given.
    """

    def __init__(self, count: int, work: Callable[[list[Job]], Result], done: Callable[[Result], None]) -> None:
        self._queues: list[SimpleQueue[Job | None]] = [SimpleQueue() for _ in range(count)]
        self._work = work
        self._done = done
        self._threads = [
            threading.Thread(target=self._serve, args=(queue,), name=f"milepost-input-{place}", daemon=True)
            for place, queue in enumerate(self._queues)
        ]
        for thread in self._threads:
            thread.start()

    def place(self, publisher: int) -> int:
        """The worker of a publisher."""
        return ((publisher * _MULTIPLIER & 0xFFFFFFFF) * len(self._queues)) >> 32

    def give(self, place: int, job: Job) -> None:
        """Hand a job to a worker. How much can wait is bounded by what its publishers may have under way."""
        self._queues[place].put(job)

    def close(self, within_s: float) -> None:
        """Finish what was given, and end; what is not finished in time is left."""
        until = time.monotonic() + within_s
        for queue in self._queues:
            queue.put(None)
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _serve(self, queue: SimpleQueue[Job | None]) -> None:
        last = False
        while not last and (job := queue.get()) is not None:
            jobs = [job]
            try:
                while (more := queue.get_nowait()) is not None:
                    jobs.append(more)
                last = True
            except Empty:
                pass
            try:
                self._done(self._work(jobs))
            except Exception:  # a fault of ours, or the end of the event loop: those who come later are still served
                log.exception("an input queue failed on %d jobs", len(jobs))
