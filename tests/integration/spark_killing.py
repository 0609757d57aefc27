"""A data source that kills, for the tests of the Spark source; and a driver that is killed, when this is run.

What is to happen is in a folder that the processes of Spark share: a file there says what was done already. Run as
`python spark_killing.py broker folder`: copies topic `in` to topic `out`, and dies between our commit and Spark's.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from milepost.pipeline.session import unpack_python
from milepost.pipeline.source import connection
from milepost.pipeline.source.datasource import MilepostDataSource
from milepost.pipeline.source.sink import StreamSink
from milepost.pipeline.source.stream import TopicStream


class KillingDataSource(MilepostDataSource):
    """Option `folder`: where files say what to do. The others are those of `milepost`."""

    def __init__(self, options):
        self.folder = options.pop("folder", "")
        super().__init__(options)

    @classmethod
    def name(cls):
        return "killing"

    def streamReader(self, schema):
        made = super().streamReader(schema)
        made.__class__ = PausingStream
        made.folder = self.folder
        return made

    def streamWriter(self, schema, overwrite):
        made = super().streamWriter(schema, overwrite)
        made.__class__ = KillingSink
        made.folder = self.folder
        return made


class PausingStream(TopicStream):
    """Tells through a pipe that it has read something, and goes on when another says so."""

    def read(self, partition):
        whole = super().read(partition)
        yield next(whole)
        told = Path(self.folder, "told")
        if told.exists():
            told.write_text("here")
            Path(self.folder, "go").read_text()
        yield from whole


class KillingSink(StreamSink):
    """Kills the process that writes, or the driver after it has committed; each once."""

    def once(self, what):
        try:
            Path(self.folder, what).rename(Path(self.folder, f"{what} done"))
        except FileNotFoundError:
            return False
        return True

    def look(self, message, batch):
        if self.once("kill worker"):
            os.kill(os.getpid(), signal.SIGKILL)

    def commit(self, messages, batchId):
        sinks = {each.sink for each in messages}
        (sink,) = sinks
        before = connection.client(self.options.broker, self.options.timeout).published(sink)
        with Path(self.folder, "commits").open("a") as file:
            file.write(f"{batchId} {before}\n")
        super().commit(messages, batchId)
        if self.once("kill driver"):
            for pid in map(int, Path(self.folder, "driver").read_text().split()):
                os.kill(pid, signal.SIGKILL)


def copy(spark, broker, folder, **options):
    """A query from `in` to `out`, in micro-batches of 1,000 rows."""
    source = spark.readStream.format("killing").option("broker", broker).option("topic", "in")
    source = source.option("folder", folder).option("maxRowsPerTrigger", 1_000).options(**options).load()
    sink = source.writeStream.format("killing").option("broker", broker).option("topic", "out")
    sink = sink.option("folder", folder).option("checkpointLocation", f"{folder}/checkpoint")
    return sink.trigger(availableNow=True).start()


def main(broker, folder):
    from pyspark import cloudpickle
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": f"{folder}/local",
        "spark.log.level": "ERROR",
        "spark.python.daemon.module": "milepost.pipeline.daemon",
    }
    unpack_python()
    builder = SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    machine = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    Path(folder, "driver").write_text(f"{machine} {os.getpid()}")
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    spark.dataSource.register(KillingDataSource)
    copy(spark, broker, folder).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
