"""`read` of a durable topic: the rows between two positions, once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from milepost.errors import ConfigError
from milepost.pipeline.source import connection, pushdown
from milepost.pipeline.source.options import SourceOptions
from milepost.pipeline.source.place import resolved
from milepost.pipeline.source.ranges import RangeReader, ReadPart, parts
from milepost.schema import Schema


class TopicReader(DataSourceReader):
    """The rows of a topic from `startingOffsets` to before `endingOffsets`, resolved when the query is planned."""

    def __init__(self, options: SourceOptions, schema: Schema, struct: StructType) -> None:
        self.options: Final = options
        self.schema: Final = schema
        self.where: str | None = options.where
        self.reader: Final = RangeReader(options.broker, options.timeout, schema, struct, fail=options.failOnDataLoss)

    def partitions(self) -> list[InputPartition]:
        """The parts that are read in parallel."""
        options = self.options
        client = connection.client(options.broker, options.timeout)
        fail = options.failOnDataLoss
        begin = resolved(client, options.topic, options.startingOffsets, "startingOffsets", fail=fail)
        end = resolved(client, options.topic, options.endingOffsets, "endingOffsets", fail=fail)
        for log, offset in end.items():
            if begin.get(log, 0) > offset:
                raise ConfigError(
                    f"option 'endingOffsets': log {log} of topic {options.topic!r} would end at {offset}, "
                    f"before it begins, at {begin[log]}"
                )
        found = parts(
            options.topic,
            begin,
            end,
            where=self.where,
            broker=client.broker_id,
            most=options.partitions,
            rows=1 if options.partitions else options.rowsPerPartition,
        )
        return [*found] or [ReadPart(options.topic, ())]  # without any partition, Spark would make one of its own

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a part. Called in an executor."""
        assert isinstance(partition, ReadPart)
        return self.reader.read(partition)


class FilteringTopicReader(TopicReader):
    """A `TopicReader` with filters of Spark that the broker evaluates.

    It is a class of its own because Spark refuses a reader that takes filters while
    `spark.sql.python.filterPushdown.enabled` is off.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        """Take the filters with an equivalent predicate, and return the rest to Spark."""
        texts = [] if self.where is None else [f"({self.where})"]
        for each in filters:
            text = pushdown.predicate(each, self.schema)
            if text is None:
                yield each
            else:
                texts.append(text)
        self.where = " and ".join(texts) or None
