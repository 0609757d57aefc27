"""The Spark session of a pipeline, with settings that small and frequent micro-batches want."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final

from milepost.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_SPARK: Final = "pipelines run on Spark: pip install 'milepost[spark]'"
NO_JAVA: Final = (
    "Spark needs Java 17 or newer, and there is none: install it (Debian, Ubuntu: apt install openjdk-17-jre-headless) "
    "or set JAVA_HOME"
)

DEFAULTS: Final[Mapping[str, str]] = {
    # Where the driver listens. A cluster elsewhere needs another address.
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Tasks of several queries take turns; first come, first served would let one lane wait for another's backlog.
    "spark.scheduler.mode": "FAIR",
    # As many as there are cores on one machine. A shuffle of tier 2 moves a few packed rows, not events.
    "spark.sql.shuffle.partitions": "2",
    # How often a query without news asks its source; 10 ms would be a load of its own.
    "spark.sql.streaming.pollingDelay": "50ms",
    "spark.sql.streaming.numRecentProgressUpdates": "50",
    "spark.sql.streaming.minBatchesToRetain": "20",
    # A time is a time: rules do not depend on where a machine is.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    # No bound in bytes: to keep one, Spark adds up the sizes of all columns, nested ones too, anew for each row.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    # Workers keep their imports and their connections to the broker.
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": "milepost.pipeline.daemon",
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.log.level": "ERROR",
}


def require_java() -> None:
    """Say in one sentence what is missing, before Spark says it in a page."""
    home = os.environ.get("JAVA_HOME")
    if not (home and (Path(home) / "bin" / "java").exists()) and shutil.which("java") is None:
        raise ConfigError(NO_JAVA)


def unpack_python() -> None:
    """Let Spark's Python processes import PySpark from where it is installed, unless SPARK_HOME is set already.

    Spark puts the archive `python/lib/pyspark.zip` of its home before everything else, and Python keeps no compiled
    code of archives: each process that Spark starts to plan, read or commit compiles PySpark anew, for more than half a
    second. A home with everything but that archive, made of links in the user's cache, has them all compiled already.
    """
    if "SPARK_HOME" in os.environ:
        return
    import pyspark

    package = Path(pyspark.__file__).parent
    if not (package / "bin" / "spark-submit").exists():
        return  # a Spark that is installed in another way knows where it is
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
        if not home.exists():  # a cache that cannot be written, or somebody who was faster
            return
    os.environ["SPARK_HOME"] = str(home)


def make_session(name: str, master: str = "local[2]", conf: Mapping[str, str] | None = None) -> SparkSession:
    """A session; the one that this process has, if it has one. Workers run this Python."""
    require_java()
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise ConfigError(NO_SPARK) from None

    unpack_python()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(f"milepost {name}").master(master)
    for key, value in {**DEFAULTS, **(conf or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
