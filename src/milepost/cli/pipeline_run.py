"""`milepost pipeline run | status | stop`: run a pipeline, watch it, stop it."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from milepost.cli import top
from milepost.cli.pipeline import Broker, File
from milepost.cli.quantity import short
from milepost.cli.session import ANSWER_S, DEFAULT_BROKER, connected
from milepost.cli.session import Broker as Address
from milepost.cli.terminal import Console, echo, logged, table
from milepost.errors import ConfigError, TimedOut
from milepost.extras import require

if TYPE_CHECKING:
    from milepost.pipeline.runner import Runner
    from milepost.pipeline.status import PipelineStatus

RUN_EXAMPLES: Final = """Examples:
  milepost pipeline run dns.toml
  milepost pipeline run dns.toml --once    [dim]# process the current events, and stop[/]
  milepost pipeline run dns.toml --once --drain    [dim]# and emit the open windows[/]
  milepost pipeline run dns.toml --master spark://10.0.0.1:7077 --checkpoint /shared/dns
"""
STATUS_EXAMPLES: Final = """Examples:
  milepost pipeline status dns
  milepost pipeline status dns --watch
  milepost pipeline status dns --report dns.svg
"""
TWICE_S: Final = 0.5  # least time between two Ctrl-C: terminal and shell may both send the first one
INTERRUPTED: Final = 130  # exit code of a process that Ctrl-C ended
STOP_S: Final = 120.0  # for a runner to end its queries, which finish their current micro-batch

Name = Annotated[str, typer.Argument(metavar="NAME", help="the name of a pipeline, as its file has it")]


def run(
    file: File,
    once: Annotated[bool, typer.Option("--once", help="process what the input has now, and stop")] = False,
    drain: Annotated[
        bool, typer.Option("--drain", help="with --once: also close the open windows, and emit them")
    ] = False,
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="where Spark runs: local[4], spark://HOST:7077, yarn, …")
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="the folder for Spark's checkpoints; on a cluster, a shared one"),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE.svg", help="draw the controllers' measurements and decisions at the end"),
    ] = None,
    broker: Broker = None,
) -> None:
    """Run a pipeline until it is stopped by Ctrl-C or by `milepost pipeline stop`.

    When it is started again, it continues where it was, and every event counts
    once. A second runner with the same name takes over from the first.
    """
    if drain and not once:
        raise ConfigError("--drain closes windows at the end of the input, so it needs --once")
    from milepost.pipeline import Runner
    from milepost.pipeline.definition import load_pipeline
    from milepost.pipeline.session import require_spark

    pipeline = load_pipeline(file)
    if broker is not None:
        pipeline = replace(pipeline, broker=broker)
    require_spark()
    if report is not None and report.suffix not in (".svg", ".png", ".pdf"):
        raise ConfigError(f"a report is drawn as .svg, .png or .pdf, not as {report}")
    if report is not None:  # it is drawn at the end, but a missing package should be reported now
        require("a report that is drawn needs", "spark", "matplotlib")
    console = Console(stderr=True)
    with (
        logged(),
        _leaving() as leaving,
        Runner(pipeline, master=master, checkpoint=checkpoint, once=once, drain=drain) as runner,
    ):
        console.print(f"{pipeline.name} runs on {master or pipeline.spark.master}; Ctrl-C stops it")
        view = _Progress(console, runner)

        def look() -> bool:
            leaving.starting = False
            return view.look() or bool(leaving.signals)

        runner.run(until=look)
        view.last()
        if report is not None:
            from milepost.pipeline.control.report import overview
            from milepost.pipeline.status import PipelineStatus

            told = PipelineStatus(runner.client, pipeline.name)
            told.refresh()
            console.print(f"drawn: {overview(told.trace, report)}")


class _Progress:
    """One line that is rewritten on a terminal; elsewhere a line a minute."""

    def __init__(self, console: Console, runner: Runner) -> None:
        self._console = console
        self._runner = runner
        self._every = 1.0 if console.is_terminal else 60.0
        self._due = time.monotonic() + self._every
        self._done = sum(runner.totals.done)

    def look(self) -> bool:
        now = time.monotonic()
        if now >= self._due:
            done = sum(self._runner.totals.done)
            rate = max(0, done - self._done) / (now - self._due + self._every)
            self._done, self._due = done, now + self._every
            self._console.print(self._line(rate), end="\r" if self._console.is_terminal else "\n", highlight=False)
        return False

    def last(self) -> None:
        self._console.print(self._line(None), highlight=False)

    def _line(self, rate: float | None) -> str:
        totals, splitter = self._runner.totals, self._runner.splitter
        waiting = sum(splitter.ahead(lane) for lane in range(len(totals.done))) if splitter is not None else 0
        parts = [f"{sum(totals.done):,} events", f"{sum(totals.rows):,} results"]
        parts += [f"{count:,} {what}" for count, what in _counts(totals)]
        parts.append(f"{waiting:,} wait")
        if rate is not None:
            parts.append(f"{short(rate)}/s")
        return ", ".join(parts) + " " * 8


def _counts(told: Any) -> Iterator[tuple[int, str]]:
    for count, what in ((told.rejected, "rejected"), (told.late, "late"), (told.dropped, "dropped")):
        if count:
            yield count, what


def status(
    name: Name,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="refresh until Ctrl-C")] = False,
    interval: Annotated[
        float, typer.Option(min=0.1, max=3600.0, metavar="SECONDS", help="between two refreshes")
    ] = 2.0,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE.svg", help="draw set point, measurement, input and weights over time")
    ] = None,
    broker: Address = DEFAULT_BROKER,
) -> None:
    """Show how a pipeline is doing: its lanes, backlogs, controllers and monitors."""
    from milepost.pipeline.status import PipelineStatus

    console = Console()
    with connected(broker, reconnect=watch, say=False, timeout=top.AWAY_S if watch else ANSWER_S) as client:
        told = PipelineStatus(client, name)
        told.refresh()
        if report is not None:
            from milepost.pipeline.control.report import overview

            console.print(f"drawn: {overview(told.trace, report)}")
            return
        if not watch:
            console.print(drawn(told))
            return
        top.watch(console, interval, told.refresh, lambda: drawn(told))


def drawn(told: PipelineStatus) -> RenderableType:
    """The status of a pipeline, for the terminal."""
    from milepost.pipeline.control import report

    running = told.running(time.time())
    head = Text()
    head.append(told.name, "bold")
    head.append("  runs" if running else "  does not run", "green" if running else "yellow")
    if told.last is not None and not running:
        head.append(f", last controlled {told.last:%Y-%m-%d %H:%M:%S} UTC")
    if told.watermark is not None:
        head.append(f"  tier 2 is at {told.watermark:%Y-%m-%d %H:%M:%S} of event time")
    columns = ("done", "results", "waiting", "epoch", "weight", "response", "result queue", "free", "set point")
    lanes = table("lane", *columns, right=columns, wrapped=columns)
    for number, lane in sorted(told.lanes.items()):
        counts = (f"{count:,}" for count in (lane.done, lane.results, lane.waiting, lane.epoch))
        response = "-" if lane.response is None else f"{lane.response:.2f} s"
        sizes = (f"{short(size)}B" for size in (lane.queued, lane.free, lane.reference))
        lanes.add_row(str(number), *counts, f"{lane.weight:.2f}", response, *sizes)
    sums = ", ".join([f"{told.sent:,} sent by tier 2", *(f"{count:,} {what}" for count, what in _counts(told))])
    parts: list[RenderableType] = [head, Text(), lanes, Text(sums)]
    if len(told.trace) > 1:
        parts += [Text(), report.table(told.trace)]
    if told.monitors:
        parts += [Text(), _monitors(told.monitors)]
    return Group(*parts)


def _monitors(rows: dict[str, Any]) -> Table:
    from milepost.pipeline.own_topics import statistics

    known = {monitor: statistics(row) for monitor, row in sorted(rows.items())}
    names = list(dict.fromkeys(name for told in known.values() for name, value in told.items() if value is not None))
    shown = table("monitor", *names, right=names, wrapped=names)
    for monitor, told in known.items():
        shown.add_row(monitor, *("-" if told.get(name) is None else f"{told[name]:,.6g}" for name in names))
    return shown


def stop(
    name: Name,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="wait until it has stopped")] = True,
    broker: Address = DEFAULT_BROKER,
) -> None:
    """Stop a running pipeline in order. Unprocessed events stay in their topics."""
    from milepost.pipeline.own_topics import STOP, STOPPED, OwnTopics, Tail
    from milepost.pipeline.status import PipelineStatus

    with connected(broker) as client:
        told = PipelineStatus(client, name)
        told.refresh()
        if not told.running(time.time()):
            echo(f"{name} does not run")
            return
        orders = Tail(client, OwnTopics(name).orders)
        orders.news()
        client.put(OwnTopics(name).orders, {"order": STOP, "at": datetime.now(UTC)})
        until = time.monotonic() + STOP_S
        while wait:
            if any(row.order == STOPPED for _, _, row in orders.news()):
                break
            if time.monotonic() > until:
                raise TimedOut(f"{name} was ordered to stop {STOP_S:.0f} s ago, and has not stopped yet")
            time.sleep(0.1)
        echo(f"{name} has stopped" if wait else f"{name} was ordered to stop")


class _Leaving:
    """Signals that ask to end. They are collected, and the pipeline ends in order. A second Ctrl-C ends it at once."""

    def __init__(self) -> None:
        self.signals: list[int] = []
        self.starting = True  # Spark starts: there is nothing to end in order
        self._since = 0.0

    def take(self, number: int, frame: object) -> None:
        """The signal handler."""
        if number == signal.SIGINT:
            if self.starting:
                _give_up()
            if self.signals and time.monotonic() > self._since + TWICE_S:
                raise KeyboardInterrupt
        self.signals.append(number)
        self._since = time.monotonic()
        if number == signal.SIGINT and sys.stderr.isatty():
            os.write(sys.stderr.fileno(), b"\nstopping in order; press Ctrl-C again to stop at once\n")


def _give_up() -> None:
    """End this process while Spark starts, and the Java process that it has started.

    An exception would pass through Py4J, which prints it with its traceback. A pipeline survives a kill at any moment,
    so nothing is lost.
    """
    said = "milepost: interrupted while Spark started; when started again, it continues where it was\n"
    os.write(sys.stderr.fileno(), (("\n" if sys.stderr.isatty() else "") + said).encode())
    for task in Path("/proc/self/task").iterdir():
        for child in (task / "children").read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGTERM)
    os._exit(INTERRUPTED)


@contextmanager
def _leaving() -> Iterator[_Leaving]:
    leaving = _Leaving()
    before = {number: signal.signal(number, leaving.take) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield leaving
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
