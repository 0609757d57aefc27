"""`python -m tests.spark_archive FILE`: the classes that a Spark session loads, archived for the Java of all tests.

Most of what a Spark does that lives for some seconds is to read and verify the same ten thousand classes. With the
archive it takes half of the CPU time until its first micro-batch is done. Java looks itself whether an archive is of
its own version and of these jars, and leaves one that does not fit alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# What every Java of the tests runs with, and so the one that writes the archive. It lives for some seconds or minutes:
# most of what it would compile well is never used again, and threads that collect its garbage only take cores from
# others. The same Spark tests take less than half of the CPU time with this.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# `make test` writes it, into what `make clean` removes.
ARCHIVE = ROOT / ".venv" / "spark.jsa"


def java_options() -> str:
    """For the environment of all that tests start. What Java says of an archive that does not fit would be output."""
    return f'{SHORT_LIVED} -Xlog:disable "-XX:SharedArchiveFile={ARCHIVE}"' if ARCHIVE.exists() else SHORT_LIVED


def archive(file: Path) -> None:
    """Let `play` run, in a Java that writes its classes down when it ends.

    From the home that pipelines run Spark from: an archive is for the very paths of the jars.
    """
    import pyspark

    from milepost.pipeline.session import unpack_python

    unpack_python()
    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    with tempfile.TemporaryDirectory(dir=file.parent, prefix="spark-") as folder:
        written = Path(folder) / "classes.jsa"
        subprocess.run(
            [
                str(home / "bin" / "spark-submit"), "--master", "local[1]", "--conf", "spark.ui.enabled=false",
                "--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1",
                "--driver-java-options", f'{SHORT_LIVED} -Xlog:disable "-XX:ArchiveClassesAtExit={written}"',
                __file__,
            ],
            check=False, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
        )  # fmt: skip
        if written.exists():
            written.rename(file)  # whole, or not there
        else:
            print("this Java wrote no archive of its classes: the tests of Spark will take longer")


def play() -> None:
    """Something of all that the tests do with Spark: SQL, Python that sees Arrow, a stream."""
    from pyspark.sql import SparkSession

    def same(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches

    spark = SparkSession.builder.getOrCreate()
    spark.range(1_000).selectExpr("id % 7 as k", "id").groupBy("k").sum("id").mapInArrow(
        same, "k long, s long"
    ).collect()
    stream = spark.readStream.format("rate").load().writeStream.format("memory").queryName("rates")
    stream.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        archive(Path(sys.argv[1]).resolve())
    else:
        play()
