"""`read` of a queue: its committed messages that no transaction has taken, at the time of the read. Nothing is
dequeued.

::

    waiting = spark.read.format("milepost").option("queue", "orders").load()

A queue is not a log: messages that are dequeued during the read may be missing, and new ones may be there. Each page is
one consistent query of the database. One task reads the queue: long queues are read for diagnosis, and a hundred
thousand messages take a few seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from milepost.client.taken import TakenBatch
from milepost.errors import ConfigError, did_you_mean
from milepost.pipeline.source import connection, topics
from milepost.pipeline.source.options import COMMON, Option, SourceOptions, flag, name
from milepost.pipeline.source.to_spark import ToSpark
from milepost.pipeline.source.types import spark_schema, with_metadata
from milepost.query.header import EPOCH_US, LANE_BITS
from milepost.schema import Schema

OPTIONS: Final = (
    *COMMON,
    Option("queue", name, required=True),
    Option("type", name),
    Option("where"),
    Option("includeMetadata", flag, False),
)
METADATA: Final = StructType(
    [
        spark.StructField("_id", spark.StringType()),  # S/T/M: writer, transaction, message
        spark.StructField("_priority", spark.DoubleType()),
        spark.StructField("_enqueued_at", spark.TimestampType()),
        spark.StructField("_deliveries", spark.IntegerType()),
    ]
)


class QueuedType(NamedTuple):
    """The type of the messages to read."""

    type: str
    schema: Schema


def found(options: SourceOptions, struct: StructType | None) -> QueuedType:
    """Look up a queue and the type of its messages."""
    client = connection.client(options.broker, options.timeout, patient=struct is not None)
    taken = client.queue(options.queue).types
    if options.type is None and len(taken) > 1:
        raise ConfigError(
            f"option 'type' is missing: queue {options.queue!r} takes several types; name one of {', '.join(taken)}"
        )
    kind = options.type or taken[0]
    if kind not in taken:
        near = did_you_mean(kind, taken) or f"; it takes {', '.join(taken)}"
        raise ConfigError(f"option 'type': queue {options.queue!r} takes no messages of type {kind!r}{near}")
    schema = client.types()[kind]
    topics.checked_where(options.where, schema)
    return QueuedType(kind, schema)


def columns(options: SourceOptions, about: QueuedType) -> StructType:
    """The columns: the fields of the messages and, if wanted, the metadata of the queue."""
    made = spark_schema(about.schema)
    return with_metadata(made, METADATA, about.type) if options.includeMetadata else made


class QueueReader(DataSourceReader):
    """The messages of a queue, in the order of their arrival."""

    def __init__(self, options: SourceOptions, about: QueuedType, struct: StructType) -> None:
        self.options: Final = options
        self.about: Final = about
        self.struct: Final = struct

    def partitions(self) -> list[InputPartition]:
        """One partition, as the module explains."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """All messages, page by page."""
        options, about = self.options, self.about
        content = StructType([each for each in self.struct.fields if each.name not in METADATA.names])
        convert = ToSpark(about.schema, content)
        client = connection.client(options.broker, options.timeout)
        for part in client.browse_batches(options.queue, about.type, where=options.where):
            made = convert(part.batch)
            extra = _metadata(part)
            arrays: list[Any] = [
                extra[each.name] if each.name in extra else made.column(each.name) for each in self.struct.fields
            ]
            fields = [
                pa.field(each.name, array.type) if each.name in extra else made.schema.field(each.name)
                for each, array in zip(self.struct.fields, arrays, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _metadata(part: TakenBatch) -> dict[str, pa.Array]:
    numbers = np.asarray(part.numbers, np.int64)
    shown = [
        f"{s}/{t}/{m}"
        for s, t, m in zip(part.writers.tolist(), part.transactions.tolist(), numbers.tolist(), strict=True)
    ]
    return {
        "_id": pa.array(shown, pa.string()),
        "_priority": pa.array(np.asarray(part.priorities, np.float64)),
        "_enqueued_at": pa.array((numbers >> LANE_BITS) + EPOCH_US).cast(pa.timestamp("us", "UTC")),
        "_deliveries": pa.array(np.asarray(part.deliveries, np.int32)),
    }
