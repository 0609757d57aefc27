"""`writeStream` and `write` to durable topics, exactly once.

Tasks *stage* their rows at the broker: stored, and seen by nobody. When all tasks of an epoch are done, the driver
*publishes* what they staged, in one transaction that also notes the epoch. A driver that dies after that and before
Spark has noted it repeats the epoch, and the broker recognises it.

A stream's sink is named by the query's ID, which is in its checkpoint, so a repeated epoch comes under the same name.
Spark gives `write` neither; both are among the local properties of the task that runs it. The attempt is a random
number and not Spark's: those of a driver that starts again are the same once more, and rows that its dead forerunner
had staged would be taken for this one's.
"""

from __future__ import annotations

import secrets
import uuid
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from milepost.client import Client
from milepost.errors import BrokerError, ConfigError, InvalidValue, did_you_mean
from milepost.pipeline.source import connection, topics
from milepost.pipeline.source.from_spark import FromSpark
from milepost.pipeline.source.options import SourceOptions
from milepost.pipeline.source.types import schema_of
from milepost.schema import Schema

QUERY_ID: Final = "sql.streaming.queryId"  # local properties that Spark sets for the tasks of a micro-batch
BATCH_ID: Final = "streaming.sql.batchId"
ATTEMPT_BITS: Final = 62  # of a random number: two of one part never meet, and databases count in signed 64
STAGED_ROWS: Final = 65_536  # that are gathered before they are sent: Spark gives 10,000 at a time
STAGED_BYTES: Final = 8 << 20
UNDER_WAY: Final = 2  # such gatherings that wait to be stored: one that is, and one that follows at once


@dataclass
class StagedPart(WriterCommitMessage):
    """What a task tells the driver: where its rows are, and how much there is."""

    sink: str
    epoch: int
    part: int
    attempt: int
    rows: int = 0
    bytes: int = 0  # of Spark's rows, as Arrow holds them
    note: dict[str, Any] = field(default_factory=dict)  # what a subclass wants the driver to know


class EpochSink:
    """What both writers are made of: rows to topics, under a name and an epoch. Pickled to the tasks."""

    chosen = True  # whether it is the user who has named the sink, where it has a name

    def __init__(self, options: SourceOptions, struct: StructType) -> None:
        self.options: Final = options
        if (options.topic is None) is (options.routes is None):
            raise ConfigError("option 'topic' or option 'routes' says where rows go; give one of the two")
        client = connection.client(options.broker, options.timeout)
        self.routes: Final[dict[str | None, str]] = {None: options.topic} if options.topic else dict(options.routes)
        self.schemas: Final[dict[str, Schema]] = {}
        for column, topic in self.routes.items():
            rows = struct if column is None else _struct_column(struct, column)
            schema = self._schema(client, topic, rows)
            FromSpark(schema).check(rows.names)
            self.schemas[topic] = schema
        for name in struct.names:
            if None not in self.routes and name not in self.routes and not name.startswith("_"):
                raise ConfigError(
                    f"option 'routes': column {name!r} goes nowhere; name its topic, or drop it "
                    "(a name that begins with _ may go nowhere)"
                )

    def _schema(self, client: Client, topic: str, rows: StructType) -> Schema:
        option = "topic" if None in self.routes else "routes"
        there = any(each.name == topic for each in client.topics(topic))
        if self.options.create and not there:
            client.declare_topic(topic, schema_of(rows, _schema_name(topic)), durable=True)
        try:
            return topics.found(client, topic, option).schema
        except ConfigError as error:
            raise error if there else ConfigError(f"{error} (option 'create' = 'true' would make it)") from None

    def stage(self, message: StagedPart, batches: Iterator[pa.RecordBatch]) -> None:
        """Send the rows of a task to where they wait; counts them in the message."""
        options = self.options
        converters = {topic: FromSpark(schema) for topic, schema in self.schemas.items()}
        key = message.sink, message.epoch, message.part, message.attempt
        # Storing takes the broker's time and a disk's: Spark makes the next rows meanwhile. In one thread, so in order.
        with connection.using(options.broker, options.timeout) as client, ThreadPoolExecutor(1) as pool:
            under_way: deque[Future[int]] = deque()
            for gathered in _gathered(batches, message):
                self.look(message, gathered)
                for column, topic in self.routes.items():
                    rows = gathered if column is None else _routed(gathered, column)
                    if rows.num_rows:
                        under_way.append(pool.submit(client.stage, *key, topic, converters[topic](rows)))
                        message.rows += rows.num_rows
                while len(under_way) > UNDER_WAY:
                    under_way.popleft().result()
            for each in under_way:
                each.result()

    def publish(self, messages: Sequence[StagedPart | None]) -> None:
        """Make what the tasks of an epoch staged visible, and note the epoch; a repeated one changes nothing."""
        told = [each for each in messages if each is not None]
        if not told:
            return
        names = {(each.sink, each.epoch) for each in told}
        if len(names) > 1:
            raise BrokerError(f"the tasks of one epoch are of different queries or epochs: {sorted(names)}")
        ((sink, epoch),) = names
        extra = self.extra(told)
        staged = [(each.part, each.attempt) for each in sorted(told, key=lambda each: each.part) if each.rows]
        if not staged and not extra:
            return
        with connection.using(self.options.broker, self.options.timeout) as client:
            if client.publish(sink, epoch, staged, extra).repeated:
                last = client.published(sink)
                if last is not None and last > epoch:
                    raise BrokerError(
                        f"sink {sink!r} has published epoch {last}, and is given epoch {epoch}: the checkpoint was "
                        "removed, or is an older copy, or that of another query; begin with a new checkpoint"
                        + (", and another name in the option 'sink'" if self.options.sink and self.chosen else "")
                    )

    def unstage(self, messages: Sequence[StagedPart | None]) -> None:
        """Remove what was staged for an epoch that failed. Without a message from any task the broker does, in time."""
        names = {(each.sink, each.epoch) for each in messages if each is not None}
        with connection.using(self.options.broker, self.options.timeout) as client:
            for sink, epoch in names:
                client.unstage(sink, epoch)

    # Hooks

    def look(self, message: StagedPart, batch: pa.RecordBatch) -> None:
        """A hook, in the task: see every record batch before it is staged; `message.note` goes to the driver."""

    def extra(self, messages: Sequence[StagedPart]) -> Mapping[str, Any] | None:
        """A hook, in the driver: {topic: rows} to be committed with the epoch."""
        return None


class StreamSink(EpochSink, DataSourceStreamArrowWriter):
    """The end of a streaming query."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedPart:
        """In a task: stage its rows."""
        context = TaskContext.get()
        assert context is not None  # Spark runs this in tasks only
        query, epoch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if query is None or epoch is None:
            raise BrokerError(
                "Spark does not tell this task its query and epoch, without which rows cannot be written exactly once; "
                "write with the micro-batch engine"
            )
        message = StagedPart(
            self.options.sink or query, int(epoch), context.partitionId(), secrets.randbits(ATTEMPT_BITS)
        )
        self.stage(message, iterator)
        return message

    def commit(self, messages: list[Any], batchId: int) -> None:
        """In the driver, when all tasks are done, and again when Spark does not know that it was."""
        for each in messages:
            if each is not None and each.epoch != batchId:
                raise BrokerError(f"Spark commits epoch {batchId}, and its tasks were told that it is {each.epoch}")
        self.publish(messages)

    def abort(self, messages: list[Any], batchId: int) -> None:
        """In the driver, when a task failed."""
        self.unstage(messages)


class BatchSink(EpochSink, DataSourceArrowWriter):
    """The end of a job: one epoch. With `writeId` a job that is repeated is recognised, and changes nothing."""

    def __init__(self, options: SourceOptions, struct: StructType) -> None:
        super().__init__(options, struct)
        if options.sink and options.writeId:
            raise ConfigError("option 'sink' names the sink of a stream; option 'writeId' is what a job has instead")
        self.sink: Final[str] = options.writeId or options.sink or f"write-{uuid.uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedPart:
        """In a task: stage its rows."""
        context = TaskContext.get()
        assert context is not None
        message = StagedPart(self.sink, 0, context.partitionId(), secrets.randbits(ATTEMPT_BITS))
        self.stage(message, iterator)
        return message

    def commit(self, messages: list[Any]) -> None:
        """In the driver, when all tasks are done."""
        self.publish(messages)

    def abort(self, messages: list[Any]) -> None:
        """In the driver, when a task failed."""
        self.unstage(messages)


def _struct_column(struct: StructType, column: str) -> StructType:
    if column not in struct.names:
        near = did_you_mean(column, struct.names) or f"; there are {', '.join(struct.names)}"
        raise ConfigError(f"option 'routes': there is no column {column!r}{near}")
    kind = struct[column].dataType
    if not isinstance(kind, StructType):
        raise ConfigError(f"option 'routes': column {column!r} is a {kind.simpleString()}, and a message is a struct")
    return kind


def _schema_name(topic: str) -> str:
    """A name for the schema of a topic that is made."""
    return "_".join("".join(letter if letter.isalnum() else "_" for letter in part) for part in topic.split("."))


def _gathered(batches: Iterator[pa.RecordBatch], message: StagedPart) -> Iterator[pa.RecordBatch]:
    """Record batches of a good size for staging, out of many small ones."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        message.bytes += batch.nbytes
        if rows >= STAGED_ROWS or size >= STAGED_BYTES:
            yield _joined(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _routed(batch: pa.RecordBatch, column: str) -> pa.RecordBatch:
    """The messages in a struct column: its rows that are not null, with its fields as columns."""
    array = batch.column(column)
    if not pa.types.is_struct(array.type):
        raise InvalidValue(f"column {column!r} is no struct", column)
    if array.null_count == len(array):
        return batch.slice(0, 0)
    return pa.RecordBatch.from_struct_array(array.drop_null() if array.null_count else array)
