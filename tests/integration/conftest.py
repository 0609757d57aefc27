"""What integration tests share: one Spark for the whole run.

Tests that ask for `spark` are a group of their own in parallel runs, so that one worker has the one session.
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from milepost.pipeline.session import unpack_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A small local Spark. Its time zone is odd on purpose: no result may depend on it.

    Tests that change a setting put it back.
    """
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    unpack_python()
    with tempfile.TemporaryDirectory(prefix="milepost-spark-", ignore_cleanup_errors=True) as folder:
        # Spark's own Python leaves sockets and files to the collector here and there, which is no fault of a test.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pyspark.sql import SparkSession

            session = (
                SparkSession.builder.master("local[2]")
                .appName("milepost-tests")
                .config("spark.ui.enabled", "false")
                .config("spark.ui.showConsoleProgress", "false")
                .config("spark.driver.host", "127.0.0.1")
                .config("spark.driver.bindAddress", "127.0.0.1")
                .config("spark.driver.memory", "1g")
                .config("spark.sql.shuffle.partitions", "2")
                .config("spark.default.parallelism", "2")
                .config("spark.sql.session.timeZone", "Asia/Kathmandu")
                .config("spark.sql.warehouse.dir", str(Path(folder) / "warehouse"))
                .config("spark.local.dir", str(Path(folder) / "local"))
                .config("spark.python.sql.dataFrameDebugging.enabled", "false")  # it walks the stack at each call
                .config("spark.log.level", "ERROR")
                .config("spark.python.daemon.module", "milepost.pipeline.daemon")
                .getOrCreate()
            )
        gateway = session.sparkContext._gateway
        yield session
        session.stop()
        # Spark leaves its Java to the end of this process, which may be told that it is still running.
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()
