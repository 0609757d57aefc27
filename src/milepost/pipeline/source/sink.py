"""`writeStream` and `write` to durable topics, exactly once.

Tasks *stage* their rows at the broker, where they are stored but not visible. When all tasks of an epoch are done, the
driver *publishes* the staged rows in one transaction that also stores the epoch. A driver that dies after that, and
before Spark has noted it, repeats the epoch, and the broker recognises it.

The sink of a stream is named by the query's ID, which is in its checkpoint, so a repeated epoch has the same name.
Spark does not pass ID and epoch to `write`; both are local properties of the task. The attempt is a random number, not
Spark's: the attempt numbers of a restarted driver repeat, and would match rows that the dead driver had staged.
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
from milepost.pipeline.source.ranges import joined
from milepost.pipeline.source.types import schema_of
from milepost.schema import Schema

QUERY_ID: Final = "sql.streaming.queryId"  # local properties that Spark sets for the tasks of a micro-batch
BATCH_ID: Final = "streaming.sql.batchId"
ATTEMPT_BITS: Final = 62  # of a random number: never equal for two attempts, and a signed 64-bit number for databases
STAGED_ROWS: Final = 65_536  # gathered before they are sent: Spark passes 10,000 at a time
STAGED_BYTES: Final = 8 << 20
UNDER_WAY: Final = 2  # gatherings that wait to be stored: the current one, and the next one


@dataclass
class StagedPart(WriterCommitMessage):
    """The message of a task to the driver: where its rows are staged, and how many."""

    sink: str
    epoch: int
    part: int
    attempt: int
    rows: int = 0
    bytes: int = 0  # of Spark's rows, in Arrow's format
    note: dict[str, Any] = field(default_factory=dict)  # data of a subclass for the driver


class EpochSink:
    """The base of both writers: rows to topics, under a sink name and an epoch. Pickled to the tasks."""

    chosen = True  # whether the user named the sink, where it has a name

    def __init__(self, options: SourceOptions, struct: StructType) -> None:
        self.options: Final = options
        if (options.topic is None) is (options.routes is None):
            raise ConfigError("rows need a destination: give either option 'topic' or option 'routes'")
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
                    f"option 'routes': column {name!r} has no topic; name one, or drop the column "
                    "(a column whose name begins with _ needs no topic)"
                )

    def _schema(self, client: Client, topic: str, rows: StructType) -> Schema:
        option = "topic" if None in self.routes else "routes"
        there = any(each.name == topic for each in client.topics(topic))
        if self.options.create and not there:
            client.declare_topic(topic, schema_of(rows, _schema_name(topic)), durable=True)
        try:
            return topics.found(client, topic, option).schema
        except ConfigError as error:
            raise error if there else ConfigError(f"{error} (option 'create' = 'true' declares it)") from None

    def staged(self, sink: str, epoch: int, context: TaskContext, batches: Iterator[pa.RecordBatch]) -> StagedPart:
        """Stage the rows of a task as a new attempt. Returns the message for the driver."""
        message = StagedPart(sink, epoch, context.partitionId(), secrets.randbits(ATTEMPT_BITS))
        self.stage(message, batches)
        return message

    def stage(self, message: StagedPart, batches: Iterator[pa.RecordBatch]) -> None:
        """Stage the rows of a task, and count them in the message."""
        options = self.options
        converters = {topic: FromSpark(schema) for topic, schema in self.schemas.items()}
        key = message.sink, message.epoch, message.part, message.attempt
        # Storing waits for the broker and a disk; Spark makes the next rows meanwhile. One thread keeps the order.
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
        """Publish the staged rows of an epoch, and store the epoch. A repeated epoch changes nothing."""
        told = [each for each in messages if each is not None]
        if not told:
            return
        names = {(each.sink, each.epoch) for each in told}
        if len(names) > 1:
            raise BrokerError(f"the tasks of one epoch belong to different queries or epochs: {sorted(names)}")
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
                        f"sink {sink!r} has published epoch {last}, but got epoch {epoch}: the checkpoint was "
                        "removed, or is an older copy, or belongs to another query; start with a new checkpoint"
                        + (", and another name in the option 'sink'" if self.options.sink and self.chosen else "")
                    )

    def unstage(self, messages: Sequence[StagedPart | None]) -> None:
        """Remove what was staged for a failed epoch. Without a message from any task the broker removes it later."""
        names = {(each.sink, each.epoch) for each in messages if each is not None}
        with connection.using(self.options.broker, self.options.timeout) as client:
            for sink, epoch in names:
                client.unstage(sink, epoch)

    # Hooks

    def look(self, message: StagedPart, batch: pa.RecordBatch) -> None:
        """A hook in the task: called with every record batch before it is staged. `message.note` goes to the driver."""

    def extra(self, messages: Sequence[StagedPart]) -> Mapping[str, Any] | None:
        """A hook in the driver: {topic: rows} to commit with the epoch."""
        return None


class StreamSink(EpochSink, DataSourceStreamArrowWriter):
    """The sink of a streaming query."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedPart:
        """Stage the rows of a task. Called in the task."""
        context = TaskContext.get()
        assert context is not None  # Spark calls this in tasks only
        query, epoch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if query is None or epoch is None:
            raise BrokerError(
                "Spark gives this task no query and epoch, which exactly-once writes need; use the micro-batch engine"
            )
        return self.staged(self.options.sink or query, int(epoch), context, iterator)

    def commit(self, messages: list[Any], batchId: int) -> None:
        """Publish the epoch. Called in the driver when all tasks are done, and again when Spark does not know that it
        was.
        """
        for each in messages:
            if each is not None and each.epoch != batchId:
                raise BrokerError(f"Spark commits epoch {batchId}, but its tasks had epoch {each.epoch}")
        self.publish(messages)

    def abort(self, messages: list[Any], batchId: int) -> None:
        """Remove the staged rows. Called in the driver when a task failed."""
        self.unstage(messages)


class BatchSink(EpochSink, DataSourceArrowWriter):
    """The sink of a job: one epoch. With `writeId` a repeated job is recognised, and changes nothing."""

    def __init__(self, options: SourceOptions, struct: StructType) -> None:
        super().__init__(options, struct)
        if options.sink and options.writeId:
            raise ConfigError("option 'sink' is for streams; use option 'writeId' for a job")
        self.sink: Final[str] = options.writeId or options.sink or f"write-{uuid.uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedPart:
        """Stage the rows of a task. Called in the task."""
        context = TaskContext.get()
        assert context is not None
        return self.staged(self.sink, 0, context, iterator)

    def commit(self, messages: list[Any]) -> None:
        """Publish the job. Called in the driver when all tasks are done."""
        self.publish(messages)

    def abort(self, messages: list[Any]) -> None:
        """Remove the staged rows. Called in the driver when a task failed."""
        self.unstage(messages)


def _struct_column(struct: StructType, column: str) -> StructType:
    if column not in struct.names:
        near = did_you_mean(column, struct.names) or f"; there are {', '.join(struct.names)}"
        raise ConfigError(f"option 'routes': there is no column {column!r}{near}")
    kind = struct[column].dataType
    if not isinstance(kind, StructType):
        raise ConfigError(
            f"option 'routes': column {column!r} is a {kind.simpleString()}, but a message must be a struct"
        )
    return kind


def _schema_name(topic: str) -> str:
    """A name for the schema of a new topic."""
    return "_".join("".join(letter if letter.isalnum() else "_" for letter in part) for part in topic.split("."))


def _gathered(batches: Iterator[pa.RecordBatch], message: StagedPart) -> Iterator[pa.RecordBatch]:
    """Join small record batches to a suitable size for staging."""
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
            yield joined(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield joined(waiting)


def _routed(batch: pa.RecordBatch, column: str) -> pa.RecordBatch:
    """The messages in a struct column: its rows that are not null, with its fields as columns."""
    array = batch.column(column)
    if not pa.types.is_struct(array.type):
        raise InvalidValue(f"column {column!r} is not a struct", column)
    if array.null_count == len(array):
        return batch.slice(0, 0)
    return pa.RecordBatch.from_struct_array(array.drop_null() if array.null_count else array)
