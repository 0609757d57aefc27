"""A process that makes load: it runs one coroutine, and talks with the benchmark through a pipe."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import traceback
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

import uvloop

from benchmarks.peers.server import die_with_parent

ANSWER_SECONDS = 120.0  # for the answer of a worker: requests take seconds, so a worker that takes longer has failed
STOP_SECONDS = 5.0

# A load generator must not inherit sockets, loops or memory of the benchmark, so none is forked from it; but dozens are
# started, and imports take half a second each time. So they are forked from a process that has only imported modules,
# and that ends with the benchmark. It leaves out modules that are not installed.
_fresh = multiprocessing.get_context("forkserver")
_fresh.set_forkserver_preload(
    [f"benchmarks.load.{name}" for name in ("latency", "milepost", "nats", "redis", "wire", "fleet", "feeders")]
)


class WorkerFailed(Exception):
    """A load generator ended with an error, or gave no answer."""


class Commands:
    """The worker's end of the pipe. It waits in a thread, so that clients can answer pings meanwhile."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    async def next(self) -> Any:
        """The benchmark's next command; None when the worker must end."""
        return await asyncio.get_running_loop().run_in_executor(None, self._next)

    def wait(self) -> Any:
        """As `next`, for workers without a loop."""
        return self._next()

    def poll(self) -> bool:
        """Whether there is a command, without waiting."""
        return self._pipe.poll()

    def say(self, answer: Any) -> None:
        self._pipe.send(answer)

    def fileno(self) -> int:
        return self._pipe.fileno()

    def _next(self) -> Any:
        try:
            return self._pipe.recv()
        except (EOFError, OSError):
            return None


Task = Callable[..., Awaitable[None]]


class Worker:
    """A running load generator, seen from the benchmark: `tell` it something, `hear` its answer."""

    def __init__(self, loop: str, task: Task, *arguments: Any) -> None:
        """Start `task(commands, *arguments)` on a loop of the kind "asyncio" or "uvloop"; both must be picklable."""
        self._pipe, theirs = _fresh.Pipe()
        self._process = _fresh.Process(target=_run, args=(loop, task, theirs, arguments), daemon=True)
        self._process.start()
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def tell(self, word: Any) -> None:
        with contextlib.suppress(BrokenPipeError):  # it died: the next `hear` says why
            self._pipe.send(word)

    def hear(self, seconds: float = ANSWER_SECONDS) -> Any:
        if not self._pipe.poll(seconds):
            raise WorkerFailed(f"no answer from a load generator in {seconds:.0f} s")
        try:
            answer = self._pipe.recv()
        except (EOFError, ConnectionResetError):
            raise WorkerFailed("a load generator is gone without a word") from None
        if isinstance(answer, _Failure):
            raise WorkerFailed(answer.text)
        return answer

    def ask(self, word: Any, seconds: float = ANSWER_SECONDS) -> Any:
        self.tell(word)
        return self.hear(seconds)

    def stop(self) -> None:
        self._pipe.close()
        self._process.join(STOP_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


class _Failure:
    def __init__(self, text: str) -> None:
        self.text = text


def _run(loop: str, task: Task, pipe: Connection, arguments: tuple[Any, ...]) -> None:
    die_with_parent()
    commands = Commands(pipe)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop if loop == "uvloop" else None) as runner:
            runner.run(task(commands, *arguments))  # type: ignore[arg-type]
    except KeyboardInterrupt:
        pass  # the benchmark gets the interrupt too, and reports it
    except BaseException:
        with contextlib.suppress(OSError):
            pipe.send(_Failure(traceback.format_exc()))
