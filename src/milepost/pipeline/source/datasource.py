"""`format("milepost")`: selects the reader or writer for the options.

::

    spark.dataSource.register(milepost.pipeline.MilepostDataSource)
    events = spark.readStream.format("milepost").option("topic", "events").load()

Kinds of sources are in a table, by the option that names what is read. Each has its own options, and other parts of
Milepost can add kinds.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from milepost.errors import ConfigError
from milepost.pipeline.source import connection, queues, topics
from milepost.pipeline.source import options as known
from milepost.pipeline.source.batch import FilteringTopicReader, TopicReader
from milepost.pipeline.source.options import Option, SourceOptions
from milepost.pipeline.source.sink import BatchSink, StreamSink
from milepost.pipeline.source.stream import TopicStream
from milepost.pipeline.source.types import spark_schema
from milepost.schema import Schema

PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"


@dataclass(frozen=True)
class SourceKind:
    """A kind of source. `found` looks the source up; `reader` and `stream` get what it returns.

    `schema` gives the columns. `found` and the readers may be called in different processes, so the result of `found`
    is pickled with the data source. A kind without `stream` cannot be read with `readStream`.
    """

    name: str  # for errors, as in "reading a topic"
    options: tuple[Option, ...]  # of `read`
    stream_options: tuple[Option, ...]  # of `readStream`
    found: Callable[[SourceOptions, StructType | None], Any]
    schema: Callable[[SourceOptions, Any], StructType]
    reader: Callable[[SourceOptions, Any, StructType, bool], DataSourceReader]  # the flag: take filters
    stream: Callable[[SourceOptions, Any, StructType], DataSourceStreamReader] | None = None


def _topic(options: SourceOptions, struct: StructType | None) -> Schema:
    client = connection.client(options.broker, options.timeout, patient=struct is not None)
    info = topics.found(client, options.topic)
    schema = info.schema if struct is None else topics.version_for(info, struct)
    topics.checked_where(options.where, schema)
    return schema


KINDS: Final[dict[str, SourceKind]] = {
    "topic": SourceKind(
        name="reading a topic",
        options=known.BATCH,
        stream_options=known.STREAM,
        found=_topic,
        schema=lambda options, schema: spark_schema(schema, metadata=options.includeMetadata),
        reader=lambda options, schema, struct, filters: (FilteringTopicReader if filters else TopicReader)(
            options, schema, struct
        ),
        stream=TopicStream,
    ),
    "queue": SourceKind(
        name="reading a queue",
        options=queues.OPTIONS,
        stream_options=(),
        found=queues.found,
        schema=queues.columns,
        reader=lambda options, about, struct, _: queues.QueueReader(options, about, struct),
    ),
}
"""By the option that names what is read. Kinds that are added later are tried first, because they may have a
topic too.
"""


class MilepostDataSource(DataSource):
    """Topics of a broker as tables and streams of Spark, and its queues as tables."""

    filtering: bool = False  # whether `read` takes filters; see `register`

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        if "path" in options and "topic" not in options:  # load("events"), save("events")
            options["topic"] = options.pop("path")
        self._found: Any = None

    @classmethod
    def name(cls) -> str:
        """The name for `format("milepost")`."""
        return "milepost"

    def schema(self) -> StructType:
        """The columns, when the user gives none."""
        kind = self._kind()
        # Spark does not say here whether it wants a table or a stream: only options that neither has are refused.
        both = {option.name: option for option in (*kind.options, *kind.stream_options)}
        options = known.checked(self.options, both.values(), kind.name)
        self._found = kind.found(options, None)
        return kind.schema(options, self._found)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `read`."""
        kind = self._kind()
        options = known.checked(self.options, kind.options, f"{kind.name} with read")
        return kind.reader(options, self._looked_up(kind, options, schema), schema, self.filtering)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For `readStream`."""
        kind = self._kind()
        options = known.checked(self.options, kind.stream_options, f"{kind.name} with readStream")
        if kind.stream is None:
            raise ConfigError(f"{kind.name} works only with read")
        return kind.stream(options, self._looked_up(kind, options, schema), schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchSink:
        """For `write`."""
        if overwrite:
            raise ConfigError('mode "overwrite": rows can only be appended to a topic; write with mode("append")')
        return BatchSink(known.checked(self.options, known.BATCH_WRITING, "writing with write"), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:
        """For `writeStream`."""
        if overwrite:
            raise ConfigError('outputMode "complete": rows can only be appended to a topic; use "append" or "update"')
        return StreamSink(known.checked(self.options, known.WRITING, "writing with writeStream"), schema)

    def _kind(self) -> SourceKind:
        for option, kind in reversed(KINDS.items()):
            if option in self.options:
                return kind
        names = " or ".join(repr(option) for option in KINDS)
        raise ConfigError(f"option {names} is missing: name what to read")

    def _looked_up(self, kind: SourceKind, options: SourceOptions, struct: StructType) -> Any:
        if self._found is None:
            self._found = kind.found(options, struct)
        return self._found


class FilteringDataSource(MilepostDataSource):
    """The same, for sessions in which Spark offers its filters."""

    filtering = True


def register(spark: SparkSession) -> None:
    """Register `format("milepost")` with a session, with filters that the broker evaluates.

    `spark.dataSource.register(MilepostDataSource)` does it without filters: Spark offers filters to Python sources only
    when `spark.sql.python.filterPushdown.enabled` is set, which this function does.
    """
    spark.conf.set(PUSHDOWN, "true")
    spark.dataSource.register(FilteringDataSource)
