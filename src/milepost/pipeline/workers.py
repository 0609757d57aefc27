"""The queries of a pipeline, run by this process's Spark or by processes with a Spark of their own.

A query that fails is started again, with growing delays: its broker was away for too long, or its Spark process was
killed. A query that keeps failing soon after its start is given up, with its error.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from milepost.errors import PipelineFailed
from milepost.pipeline.combined import Feeding
from milepost.pipeline.definition.checked import CheckedPipeline
from milepost.pipeline.session import make_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAILURES: Final = 5  # failures in a row, each within `STEADY_S` of its start, before a query is given up
STEADY_S: Final = 60.0  # a query that ran for so long failed for an external reason
DELAY_S: Final = (0.0, 1.0, 2.0, 5.0, 10.0)  # before a restart, by the number of failures
TIER2: Final = "tier 2"
LEAVE_S: Final = 20.0  # for a process to end after it was asked to

log = logging.getLogger("milepost.pipeline")


class PipelineWorkers:
    """The queries of one pipeline, as a context."""

    def __init__(
        self,
        checked: CheckedPipeline,
        feeding: tuple[Feeding, ...],
        master: str,
        checkpoint: Path,
        *,
        shards: int,
        drops: int = 0,
        keep_session: bool = False,
    ) -> None:
        self._checked = checked
        self._feeding = feeding
        self._master = master
        self._checkpoint = checkpoint
        self._shards = shards
        self._drain = False
        self._drops = drops
        self._keep_session = keep_session
        self._stack = ExitStack()
        self._spark: SparkSession | None = None
        self._jobs: list[Job] = []

    def __enter__(self) -> PipelineWorkers:
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self.stop()
        finally:
            self._stack.close()

    def stop(self) -> None:
        """Stop all queries. What they have not committed is done again when they are started."""
        jobs, self._jobs = self._jobs, []
        for job in jobs:
            job.leave()
        for job in jobs:
            job.stop()

    def start(self) -> None:
        """Start all queries."""
        pipeline = self._checked.pipeline
        if pipeline.input:
            for lane in range(pipeline.lanes):
                self._jobs.append(Job(f"lane {lane}", partial(self._process if pipeline.apart else self._lane, lane)))
        if self._checked.combines:
            self._jobs.append(Job(TIER2, self._tier2))
        for job in self._jobs:
            job.start()

    def drain(self) -> None:
        """Let tier 2 close its open windows once the input has ended.

        Tier 2 is restarted for that: how far a micro-batch goes is then in Spark's offset log as usual, and the same
        when it is repeated.
        """
        self._drain = True
        for job in self._jobs:
            if job.name == TIER2:
                job.stop()
                job.start()

    def tend(self) -> None:
        """Restart queries that have failed. Raises `PipelineFailed` for a query that is given up."""
        for job in self._jobs:
            job.tend()

    @property
    def spark(self) -> SparkSession:
        """The session of this process, made on first use."""
        if self._spark is None or self._spark.sparkContext._jsc is None:
            from milepost.pipeline import queries

            pipeline = self._checked.pipeline
            self._spark = make_session(pipeline.name, self._master, pipeline.spark.conf)
            if not self._keep_session:
                self._stack.callback(self._spark.stop)
            queries.register(self._spark)
        return self._spark

    def _lane(self, lane: int) -> LocalQuery:
        from milepost.pipeline import queries

        return LocalQuery(queries.start_lane(self.spark, self._checked, lane, self._checkpoint, drops=self._drops))

    def _tier2(self) -> LocalQuery:
        from milepost.pipeline import queries

        return LocalQuery(
            queries.start_tier2(
                self.spark,
                self._checked,
                self._feeding,
                self._checkpoint,
                shards=self._shards,
                drain=self._drain,
            )
        )

    def _process(self, lane: int) -> LaneProcess:
        return LaneProcess(self._checked, lane, self._master, self._checkpoint, self._drops)


class Job:
    """Something that runs until it is stopped, and is started again when it fails."""

    def __init__(self, name: str, begin: Callable[[], Any]) -> None:
        self.name: Final = name
        self._begin = begin
        self._running: Any = None
        self._failures = 0
        self._begun = 0.0
        self._again: float | None = None

    def start(self) -> None:
        self._begun = time.monotonic()
        self._again = None
        self._running = self._begin()

    def tend(self) -> None:
        now = time.monotonic()
        if self._again is not None:
            if now >= self._again:
                log.warning("%s is started again", self.name)
                self.start()
            return
        failure = self._running.failure()
        if failure is None:
            return
        self._failures = self._failures + 1 if now - self._begun < STEADY_S else 1
        if self._failures >= FAILURES:
            raise PipelineFailed(f"{self.name} failed {self._failures} times in a row, last with: {failure}")
        log.warning("%s has failed: %s", self.name, failure)
        self._running.stop()
        self._again = now + DELAY_S[self._failures - 1]

    def leave(self) -> None:
        """Ask it to end, without waiting."""
        if self._running is not None and self._again is None:
            self._running.leave()

    def stop(self) -> None:
        if self._running is not None and self._again is None:
            self._running.stop()


class LocalQuery:
    """A streaming query of this process's Spark."""

    def __init__(self, query: Any) -> None:
        self._query = query

    def failure(self) -> str | None:
        """Why it has ended; None while it runs."""
        try:
            if self._query.isActive:
                return None
            error = self._query.exception()
        except Exception as gone:  # Py4J raises many kinds of errors for it
            raise PipelineFailed(f"Spark's Java process is gone ({gone!s:.200}); start the pipeline again") from None
        return "it was stopped" if error is None else shortened(str(error))

    def leave(self) -> None:
        """Nothing to do: `stop` stops the query and waits."""

    def stop(self) -> None:
        try:
            self._query.stop()
        except Exception as error:  # Spark may be gone already, and the query with it
            log.debug("stopping a query: %s", error)


class LaneProcess:
    """A lane in a process of its own, with its own Spark: for other cores or another master."""

    def __init__(self, checked: CheckedPipeline, lane: int, master: str, checkpoint: Path, drops: int) -> None:
        pipeline = checked.pipeline
        own = pipeline.lane[lane] if lane < len(pipeline.lane) else None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115, lives as long as the process
        file = checkpoint / f"lane-{lane}.toml"
        file.write_text(pipeline.to_toml())
        cores = ",".join(map(str, own.cores)) if own is not None else ""
        command = [sys.executable, "-m", "milepost.pipeline.iap", str(file), str(lane), str(checkpoint)]
        command += ["--master", (own.master if own is not None and own.master else master)]
        command += ["--drops", str(drops), *(["--cores", cores] if cores else [])]
        self._process = subprocess.Popen(command, stderr=self._errors, start_new_session=True)
        self.pid: Final = self._process.pid

    def failure(self) -> str | None:
        """Why it has ended; None while it runs."""
        code = self._process.poll()
        if code is None:
            return None
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - 4_000))
        said = self._errors.read().decode(errors="replace").strip()
        return f"its process ended with {code}: {shortened(said)}"

    def leave(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()

    def stop(self) -> None:
        self.leave()
        try:
            self._process.wait(LEAVE_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._errors.close()


def shortened(text: str) -> str:
    """The telling lines of an error of Spark, without its Java and Python traces."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("at ", "File "))]
    said = [line for line in lines if "milepost.errors" in line or "Error" in line or "Exception" in line]
    return (said[-1] if said else lines[-1] if lines else "it said nothing").strip()[:1_000]
