"""Kills under a running pipeline: the Spark driver, a Python worker of Spark, the broker. Then events are counted.

A publisher numbers its events. Tier 1 discards every seventh and keeps the rest; tier 2 counts them in windows. At the
end the output must have exactly the expected numbers, once each, and each event must be counted once, in a window or as
late. Events are late after a silence, which a kill may make as long as it likes.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from milepost.client import Client
from milepost.pipeline.own_topics import OwnTopics, newest
from soak.processes import Broker, Stuck

SCHEMA = "event: [number: long, at: timestamp, host: string, load: double]"
START = datetime(2026, 3, 1, tzinfo=UTC)
STEP_US = 2_000  # of event time between two events
BATCH = 500  # events of one put by default
AHEAD = 100_000  # events that may wait, so that the end does not take longer than the kills
DISCARDED = 7  # one event in so many is discarded
VICTIMS = ("worker", "broker", "driver")
PROGRESS_S = 240.0  # within which there must be progress; ends a run that hangs

DEFINITION = """
name = "soak"
broker = "{broker}"
input = "soak-events"
time = "at"
disorder = "1s"
output = "soak-out"
{apart}

[late]
to = "soak-late"

[[tier1]]
discard = "number % {discarded} = 0"

[[tier2]]
name = "counts"
to = "soak-counts"
window = "1s"
by = ["host"]
compute = {{ least = "min(number)" }}
"""


class PipelineScenario:
    """One run: a broker, a publisher in this process, and `milepost pipeline run` with its processes."""

    def __init__(
        self,
        folder: Path,
        seed: int,
        *,
        apart: bool = False,
        master: str = "local[2]",
        show: Callable[[str], None] = print,
        conf: str = "",
        pause_s: float = 0.05,
        batch: int = BATCH,
    ) -> None:
        """`batch` is the number of events of one put, `pause_s` the pause between two puts."""
        self._random = random.Random(seed)
        self._folder = folder
        self._show = show
        self._master = master
        self._pause_s = pause_s
        self._batch = batch
        self.broker = Broker(folder, str(folder / "store.db"))
        self._file = folder / "soak.toml"
        self._file.write_text(
            DEFINITION.format(broker=self.broker.address, apart="apart = true" if apart else "", discarded=DISCARDED)
            + (f"\n[spark]\n{conf}\n" if conf else "")
        )
        self._runner: subprocess.Popen[bytes] | None = None
        self._client: Client | None = None
        self.sent = 0
        self.kills: Counter[str] = Counter()

    @property
    def client(self) -> Client:
        assert self._client is not None
        return self._client

    def open(self) -> None:
        self.broker.start()
        self.broker.wait()
        self._client = Client(self.broker.address, name="soak publisher", timeout=60.0).connect()
        self.client.declare_topic("soak-events", SCHEMA, durable=True)
        self._start()

    def _start(self, *more: str) -> None:
        with (self._folder / "pipeline.log").open("ab") as log:
            self._runner = subprocess.Popen(
                [
                    sys.executable, "-m", "milepost.cli", "pipeline", "run", str(self._file),
                    "--checkpoint", str(self._folder / "checkpoint"), "--master", self._master, *more,
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def _put(self) -> None:
        numbers = range(self.sent, self.sent + self._batch)
        self.client.put_many(
            "soak-events",
            [
                {
                    "number": number,
                    "at": START + timedelta(microseconds=number * STEP_US + self._random.randrange(500_000)),
                    "host": f"host-{number % 5}",
                    "load": number % 11 / 4,
                }
                for number in numbers
            ],
        )
        self.sent += self._batch

    def cycles(self, count: int) -> None:
        """Kill a process, wait until results come again, and kill another."""
        for cycle in range(count):
            done = self._results()
            self._progress(done, self._batch)
            self._wait(self._random.uniform(0.0, 2.0))
            victim = VICTIMS[cycle % len(VICTIMS)] if cycle < len(VICTIMS) else self._random.choice(VICTIMS)
            self._kill(victim)
            self._show(f"  {cycle + 1}: killed the {victim} after {self.sent:,} events, {done:,} results")

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.sent - self.sent // DISCARDED < self._results() + AHEAD:
                self._put()
            time.sleep(self._pause_s)

    def _progress(self, before: int, more: int) -> None:
        """Put until there are so many more results."""
        until = time.monotonic() + PROGRESS_S
        while self._results() < before + more:
            if time.monotonic() > until:
                raise Stuck(f"no results for {PROGRESS_S:.0f} s; the last words:\n{self.last_words()}")
            if self._runner is not None and self._runner.poll() is not None:
                raise Stuck(f"the pipeline ended with {self._runner.returncode}:\n{self.last_words()}")
            self._wait(0.2)

    def _results(self) -> int:
        if not any(each.name == "soak-out" for each in self.client.topics("soak-out")):
            return 0
        return sum(int(each["next"]) for each in self.client.look("soak-out")["logs"])

    def _kill(self, victim: str) -> None:
        self.kills[victim] += 1
        assert self._runner is not None
        match victim:
            case "broker":
                self.broker.kill()
                self.broker.start()
                self.broker.wait()
            case "worker":
                _signal(self._random.choice(self._workers()))
            case _:
                self._end_runner()
                self._start()

    def _workers(self) -> list[int]:
        """Spark's Python workers. They come and go, so it waits for some."""
        assert self._runner is not None
        until = time.monotonic() + PROGRESS_S
        while time.monotonic() < until:
            found = [pid for pid in descendants(self._runner.pid) if "pyspark.worker" in _command(pid)]
            if found:
                return found
            self._wait(0.2)
        raise Stuck(f"no worker of Spark for {PROGRESS_S:.0f} s; the last words:\n{self.last_words()}")

    def _end_runner(self) -> None:
        """Kill the driver and all its processes at once."""
        assert self._runner is not None
        family = [self._runner.pid, *descendants(self._runner.pid)]
        for pid in family:
            _signal(pid)
        self._runner.wait()

    def close(self, *, draining: bool = False) -> list[str]:
        """Kill the driver, let its successor finish, and count. Returns complaints; none when all is well.

        `draining` also kills the successor, at about the time when it closes the open windows.
        """
        numbers = self.sent
        self.kills["driver"] += 1
        self._end_runner()
        self._start("--once", "--drain")
        assert self._runner is not None
        if draining:
            until = time.monotonic() + PROGRESS_S
            while all(row.lane >= 0 for row in newest(self.client, OwnTopics("soak").splits)):
                if time.monotonic() > until:
                    raise Stuck(f"the pipeline does not come to its end:\n{self.last_words()}")
                time.sleep(self._pause_s)
            time.sleep(self._random.uniform(0.0, 4.0))
            self.kills["driver"] += 1
            self._end_runner()
            self._start("--once", "--drain")
        try:
            code = self._runner.wait(PROGRESS_S)
        except subprocess.TimeoutExpired:
            raise Stuck(f"the pipeline does not come to its end:\n{self.last_words()}") from None
        complaints = [] if code == 0 else [f"the last run ended with {code}:\n{self.last_words()}"]
        expected = {number for number in range(numbers) if number % DISCARDED}
        got = Counter(row.number for row in self._rows("soak-out"))
        complaints += _compared("output", expected, got)
        counted: Counter[tuple[str, Any]] = Counter()
        total = 0
        for row in self._rows("soak-counts"):
            counted[row.host, row.window_start] += 1
            total += row.count
        twice = [key for key, times in counted.items() if times > 1]
        if twice:
            complaints.append(f"{len(twice)} windows came more than once, {twice[0]} among them")
        late = Counter(row.number for row in self._rows("soak-late"))
        if total + len(late) != len(expected) or late.total() != len(late):
            complaints.append(
                f"windows count {total} events, {late.total()} of {len(late)} numbers were late, "
                f"and there are {len(expected)}"
            )
        return complaints

    def _rows(self, topic: str) -> list[Any]:
        ends = {int(each["log"]): int(each["next"]) for each in self.client.look(topic)["logs"]}
        return [row for batch in self.client.read(topic, {}, ends) for row in batch]

    def clear(self) -> None:
        if self._runner is not None and self._runner.poll() is None:
            self._end_runner()
        if self._client is not None:
            try:
                self._client.close()
            except Exception as error:
                self._show(f"closing the publisher: {error}")
        self.broker.kill()

    def last_words(self) -> str:
        log = self._folder / "pipeline.log"
        return log.read_text(errors="replace")[-4000:] if log.exists() else ""


def _compared(what: str, expected: set[int], got: Counter[int]) -> list[str]:
    missing, extra = expected - got.keys(), got.keys() - expected
    twice = [number for number, times in got.items() if times > 1]
    told = []
    for numbers, how in ((missing, "missing from"), (extra, "too much in"), (twice, "more than once in")):
        if numbers:
            told.append(f"{len(numbers)} events are {how} the {what}, {min(numbers)} the first")
    return told


def descendants(pid: int) -> list[int]:
    """All descendants of a process; for the leader of a session, also the remaining processes of the session.

    When the process that forks Spark's workers is killed, its workers lose their parent and continue.
    """
    children: dict[int, list[int]] = {}
    found: list[int] = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                stat = (each / "stat").read_text()
            except OSError:
                continue
            parent, _, session = map(int, stat.rpartition(")")[2].split()[1:4])
            children.setdefault(parent, []).append(int(each.name))
            if session == pid != int(each.name):
                found.append(int(each.name))
    waiting = [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return list(dict.fromkeys(found))


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _signal(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def soak_pipeline(seed: int, cycles: int, keep: bool = False, *, apart: bool = False) -> int:
    """Run for the command line. Returns 0 when all is well."""
    print(f"pipeline{' (lanes apart)' if apart else ''}: {cycles} kills, seed {seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="milepost-soak-pipeline-"))
    began, complaints = time.monotonic(), ["it did not come to its end"]
    scenario = PipelineScenario(folder, seed, apart=apart, show=lambda line: print(line, flush=True))
    try:
        scenario.open()
        scenario.cycles(cycles)
        complaints = scenario.close(draining=True)
        kills = ", ".join(f"{count} {what}" for what, count in sorted(scenario.kills.items()))
        print(f"{scenario.sent:,} events, {sum(scenario.kills.values())} kills ({kills})")
    except Stuck as error:
        complaints = [str(error)]
    finally:
        scenario.clear()
        if complaints or keep:
            print(f"the records are in {folder}")
        else:
            import shutil

            shutil.rmtree(folder, ignore_errors=True)
    for complaint in complaints:
        print(f"complaint: {complaint}")
    print(f"verdict: {'BAD' if complaints else 'good, every event once'}; {time.monotonic() - began:.0f} s", flush=True)
    return 1 if complaints else 0
