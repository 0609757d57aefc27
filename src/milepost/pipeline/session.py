"""The Spark session of a pipeline, with settings for small and frequent micro-batches."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final

from milepost.errors import ConfigError
from milepost.extras import require

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA: Final = 17  # the oldest version that Spark runs on
NO_JAVA: Final = (
    f"Spark needs Java {JAVA} or newer, but there is {{}}: install it "
    f"(Debian, Ubuntu: apt install openjdk-{JAVA}-jre-headless) or set JAVA_HOME"
)
JAVA_S: Final = 30.0  # for Java to print its version, so that a hanging process is ended

SHARDS: Final = "spark.sql.shuffle.partitions"
DEFAULTS: Final[Mapping[str, str]] = {
    # Where the driver listens. A cluster on other machines needs another address.
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Tasks of several queries take turns; with FIFO one lane would wait for another's backlog.
    "spark.scheduler.mode": "FAIR",
    # As many as there are cores on one machine. A shuffle of tier 2 moves a few packed rows, not events.
    SHARDS: "2",
    # How often an idle query asks its source; the default of 10 ms would be a load of its own.
    "spark.sql.streaming.pollingDelay": "50ms",
    "spark.sql.streaming.numRecentProgressUpdates": "50",
    "spark.sql.streaming.minBatchesToRetain": "20",
    # Rules must not depend on the time zone of a machine.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    # No bound in bytes: to enforce one, Spark sums the sizes of all columns, nested ones too, for each row.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    # Workers keep their imports and their connections to the broker.
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": "milepost.pipeline.daemon",
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.log.level": "ERROR",
}


def shards_of(conf: Mapping[str, str]) -> int:
    """The number of shuffle partitions with these settings."""
    return int({**DEFAULTS, **conf}[SHARDS])


def require_spark() -> None:
    """Raise `ConfigError` when PySpark, Pandas (to which Spark hands tables) or Java is missing."""
    require("pipelines need", "spark", "pyspark", "pandas")
    require_java()


def require_java() -> None:
    """Raise `ConfigError` with one sentence about what is missing, instead of Spark's page of errors."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise ConfigError(NO_JAVA.format(f"none in JAVA_HOME, {home}" if home else "none"))
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=JAVA_S, check=False).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(NO_JAVA.format(f"one that does not run, {java}: {error}")) from None
    # As in: openjdk version "17.0.13" 2024-10-15; until Java 8 it was "1.8.0".
    found = re.search(r'version "(?:1\.)?(\d+)', told)
    if found is not None and int(found[1]) < JAVA:
        raise ConfigError(NO_JAVA.format(f"Java {found[1]} ({java})"))


def unpack_python() -> None:
    """Let Spark's Python processes import PySpark from where it is installed, unless SPARK_HOME is set.

    Spark puts the archive `python/lib/pyspark.zip` of its home first on the path, and Python caches no compiled code of
    archives. So each process that Spark starts to plan, read or commit would compile PySpark again, for more than half
    a second. A home without this archive, made of links in the user's cache, avoids that.
    """
    if "SPARK_HOME" in os.environ:
        return
    import pyspark

    package = Path(pyspark.__file__).parent
    if not (package / "bin" / "spark-submit").exists():
        return  # a Spark that is installed in another way knows its home
    told = blake2b(f"{package} {pyspark.__version__}".encode(), digest_size=8).hexdigest()
    cache = os.environ.get("XDG_CACHE_HOME") or ""
    home = (Path(cache) if Path(cache).is_absolute() else Path.home() / ".cache") / "milepost" / f"spark-{told}"
    try:
        if not home.exists():
            home.parent.mkdir(parents=True, exist_ok=True)
            made = Path(tempfile.mkdtemp(dir=home.parent, prefix="spark-"))
            for each in ("bin", "jars", "sbin"):
                (made / each).symlink_to(package / each)
            made.rename(home)
    except OSError:
        if not home.exists():  # the cache is not writable, or another process made it first
            return
    os.environ["SPARK_HOME"] = str(home)


def make_session(name: str, master: str = "local[2]", conf: Mapping[str, str] | None = None) -> SparkSession:
    """The session of this process, made when there is none. Workers run the same Python."""
    require_spark()
    from pyspark.sql import SparkSession

    unpack_python()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(f"milepost {name}").master(master)
    for key, value in {**DEFAULTS, **(conf or {})}.items():
        builder = builder.config(key, value)
    with _interruptible():
        return builder.getOrCreate()


@contextmanager
def _interruptible() -> Iterator[None]:
    """Keep the process's own handler of Ctrl-C: Spark would replace it by one that cancels its jobs and raises."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        mine = before is not signal.default_int_handler and before is not None
        if mine and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)
