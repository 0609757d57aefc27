"""Input queues: threads that check and match batches; a publisher's batches always go to the same thread.

In Gryphon, each processor had its own input queue. Here, matching releases the GIL and all other work needs it; the
decision record on input queues says how much of the gain is left.
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
    """`count` threads. Each takes all its waiting jobs at once, calls `work` with them, and `done` with the result.

    Both are called in the worker's thread. Jobs given to one place are handled in order.
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
        """Give a job to a worker. The put windows of its publishers limit how many jobs can wait."""
        self._queues[place].put(job)

    def close(self, within_s: float) -> None:
        """Finish the waiting jobs, and end; jobs that are not finished in time are abandoned."""
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
            except Exception:  # a broker fault, or the event loop has ended: later jobs are still done
                log.exception("an input queue failed on %d jobs", len(jobs))
