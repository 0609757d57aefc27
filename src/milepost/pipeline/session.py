"""The Spark session of a pipeline, with settings that small and frequent micro-batches want."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
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


def make_session(name: str, master: str = "local[2]", conf: Mapping[str, str] | None = None) -> SparkSession:
    """A session; the one that this process has, if it has one. Workers run this Python."""
    require_java()
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise ConfigError(NO_SPARK) from None

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(f"milepost {name}").master(master)
    for key, value in {**DEFAULTS, **(conf or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
