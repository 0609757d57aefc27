"""A disk that fails or is full, under load: strace makes syncs and writes fail, and a small file system fills up.

Every put must be answered with a success that holds, or with an error; the ledger decides. Only a store in a file is
tested: the disk of a PostgreSQL server is that server's own concern.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from soak.processes import Stuck
from soak.roles import PUBLISHERS
from soak.scenario import Scenario

FAULT_S = 15.0  # of load while calls fail
FULL_S = 5.0  # of load on a full disk
DISK_BYTES = 24 << 20
ROOM_BYTES = 1 << 20  # left when the disk counts as full: they are used within seconds


class Fault(NamedTuple):
    """The calls of the broker that fail, in strace's notation. The first calls succeed, so that the broker starts."""

    calls: str
    error: str
    when: str  # "first+step"


INJECTED = {
    "sync fails": Fault("fdatasync,fsync", "EIO", "40+29"),
    "write fails": Fault("pwrite64,write", "EIO", "400+211"),
    "write says full": Fault("pwrite64", "ENOSPC", "200+97"),
}
FAULTS = (*INJECTED, "disk full")


def run_fault(name: str, seed: int, seconds: float = FAULT_S) -> int:
    """Run one fault. Returns 0 when all is well, or when this machine cannot produce the fault, which is printed."""
    why = cannot(name)
    if why:
        print(f"{name}: left out, {why}", flush=True)
        return 0
    print(f"{name}: seed {seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="milepost-soak-"))
    well = False
    try:
        scenario = (
            disk_full(folder, seed, min(seconds, FULL_S))
            if name == "disk full"
            else failing_calls(folder, seed, INJECTED[name], seconds)
        )
        verdict = scenario.verdict()
        print(verdict)
        for complaint in scenario.complaints:
            print(f"complaint: {complaint}")
        if scenario.broker.failures:
            print(f"the broker ended by itself {len(scenario.broker.failures)} times, and was started again")
        well = bool(verdict) and not scenario.complaints
    except Stuck as error:
        print(f"verdict: BAD, stuck: {error}")
    finally:
        if well:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            print(f"the records are in {folder}")
    print(f"the same choices: python -m soak --faults only --seed {seed}", flush=True)
    return 0 if well else 1


def cannot(name: str) -> str:
    """Why a fault cannot be produced here; empty when it can."""
    if name == "disk full":
        return "" if os.geteuid() == 0 and shutil.which("mount") else "mounting a small file system takes root"
    strace = shutil.which("strace")
    if strace is None:
        return "strace is not installed"
    tried = subprocess.run(
        [strace, "-f", "-qq", "-o", "/dev/null", "-e", "inject=fsync:error=EIO", "true"],
        capture_output=True,
        check=False,
    )
    return "" if tried.returncode == 0 else "strace may not trace here"


def failing_calls(folder: Path, seed: int, fault: Fault, seconds: float) -> Scenario:
    """Load on a broker some of whose calls fail, then on a broker whose calls all work.

    It lasts so many seconds, and at least until a call has failed: a busy machine may take long to make the first
    calls.
    """
    inject = f"inject={fault.calls}:error={fault.error}:when={fault.when}"
    log = folder / "strace.log"
    # -D: what is started, and killed, is the broker, and strace is beside it. The filter keeps all other calls fast.
    before = (
        "strace", "-D", "-f", "-qq", "--seccomp-bpf", "-o", str(log),
        "-e", f"trace={fault.calls}", "-e", inject, "-P", str(folder / "soak.db"), "-P", str(folder / "soak.db-wal"),
    )  # fmt: skip
    scenario = Scenario(folder, f"sqlite:///{folder / 'soak.db'}", seed, before=before, broker_may_end=True)

    def failed() -> int:
        scenario.keep_going()
        return log.read_text(errors="replace").count("(INJECTED)")

    def load() -> None:
        scenario.load(seconds)
        _until(lambda: failed() > 0, "no call failed, so this run shows nothing")

    _played(scenario, load, scenario.mend)
    print(f"{log.read_text(errors='replace').count('(INJECTED)')} calls failed")
    return scenario


def disk_full(folder: Path, seed: int, seconds: float) -> Scenario:
    """Load on a broker whose disk fills up, stays full for so many seconds, and has room again."""
    with _small_disk(folder) as disk:
        scenario = Scenario(folder, f"sqlite:///{disk / 'soak.db'}", seed, broker_may_end=True)
        ballast = disk / "ballast"

        def fill() -> None:
            free = shutil.disk_usage(disk).free
            # The broker takes room too while this is written, so the disk may be full before all of it is.
            with ballast.open("wb", buffering=0) as file:
                for _ in range(max(0, free - ROOM_BYTES) >> 16):
                    try:
                        file.write(bytes(1 << 16))
                    except OSError as error:
                        if error.errno != errno.ENOSPC:
                            raise
                        break
            _until(lambda: _refused(scenario), "nothing was refused by a broker whose disk is full")
            scenario.load(seconds)

        _played(scenario, fill, ballast.unlink)
        return scenario


def _played(scenario: Scenario, fail: Callable[[], None], mend: Callable[[], None]) -> None:
    try:
        scenario.open()
        since = time.monotonic_ns()
        fail()
        mend()
        scenario.forgiven(since)
        marks = scenario.marks()
        scenario.recovered(PUBLISHERS, marks)  # what works again takes puts again
        scenario.close()
    finally:
        scenario.clear()


def _refused(scenario: Scenario) -> bool:
    scenario.keep_going()
    return any(b'["refused"' in scenario.workers.records(role).read_bytes() for role in PUBLISHERS)


def _until(condition: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + 120.0
    while not condition():
        if time.monotonic() > deadline:
            raise Stuck(otherwise)
        time.sleep(0.1)


@contextmanager
def _small_disk(folder: Path) -> Iterator[Path]:
    disk = folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "milepost-soak", str(disk)], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
