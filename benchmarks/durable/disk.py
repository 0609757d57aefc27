"""The disk that everything is stored on: a real one, its name, and the time of a sync."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.peers import Unavailable

MEMORY = {"tmpfs", "ramfs"}  # file systems where a sync costs nothing
SYNC_BYTES = 4_096
SYNCS = 50


def real_folder() -> str:
    """A folder for temporary files on a disk; the system's own, when that is on a disk."""
    for folder in (tempfile.gettempdir(), "/var/tmp", str(Path.cwd())):
        if os.access(folder, os.W_OK) and file_system(folder) not in MEMORY:
            return folder
    raise Unavailable("no folder for temporary files is on a disk: set TMPDIR to one that is")


def file_system(folder: str) -> str:
    """The kind of the file system that holds a folder: ext4, xfs, tmpfs."""
    found, kind = "", "unknown"
    real = os.path.realpath(folder)
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mounted, this, *_ = line.split(" ")
        inside = real == mounted or real.startswith(mounted.rstrip("/") + "/")
        if inside and len(mounted) >= len(found):
            found, kind = mounted, this
    return kind


def memory_folder() -> str | None:
    """A folder in memory for files that are copied later; None when there is none."""
    folder = "/dev/shm"
    return folder if os.access(folder, os.W_OK) and file_system(folder) in MEMORY else None


def fdatasync_s(*, over: bool = False) -> float:
    """Seconds that 4 kB take to reach the disk, at the end of a file that grows, as a log does; the median of 50.

    With `over`, existing bytes are overwritten: the length stays the same, and the file system has less to do.
    """
    block = os.urandom(SYNC_BYTES)
    taken = []
    with tempfile.TemporaryFile(buffering=0) as file:
        number = file.fileno()
        if over:
            os.pwrite(number, block * SYNCS, 0)
            os.fsync(number)
        for turn in range(SYNCS):
            began = time.perf_counter()
            os.pwrite(number, block, turn * SYNC_BYTES)
            os.fdatasync(number)
            taken.append(time.perf_counter() - began)
    return statistics.median(taken)
