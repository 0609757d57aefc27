"""`format("milepost")` on a real Spark, with a real broker over TCP on SQLite."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import milepost
import milepost.pipeline
from milepost import errors
from milepost.pipeline.source import connection
from milepost.pipeline.source import options as known
from milepost.query import parse_schema

pyspark = pytest.importorskip("pyspark")

from pyspark import cloudpickle  # noqa: E402
from pyspark.sql import functions as f  # noqa: E402

from milepost.pipeline.source.sink import StagedPart, StreamSink  # noqa: E402
from milepost.pipeline.source.types import spark_schema  # noqa: E402
from tests.integration import spark_killing  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    # Spark's own Python leaves sockets to the collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

SCHEMA = "event: [n: long, who: string?, price: double, at: timestamp]"
PATIENCE = 300  # seconds, for what hangs: nothing here waits for time to pass


class Broker:
    """A broker in a process of its own."""

    def __init__(self, folder):
        self.folder = folder
        self.port = 0
        self.process = None
        self.file = folder / "broker.toml"
        self.file.write_text(f'[broker]\nstore = "{folder}/milepost.db"\nhttp = ""\nzmq = ""\n')

    @property
    def address(self):
        return f"milepost://127.0.0.1:{self.port}"

    def start(self):
        command = [sys.executable, "-m", "milepost.cli", "up", "--listen", f"127.0.0.1:{self.port}"]
        self.process = subprocess.Popen(
            [*command, "--config", str(self.file)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        line = self.process.stdout.readline()
        assert b"listens on" in line
        self.port = int(line.split(b"listens on ")[1].split(b",")[0].split(b";")[0].rsplit(b":", 1)[1])

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    made = Broker(tmp_path_factory.mktemp("broker"))
    made.start()
    yield made
    made.kill()


@pytest.fixture(scope="module")
def client(broker):
    with milepost.Client(broker.address) as made:
        yield made


@pytest.fixture(scope="module")
def session(spark):
    cloudpickle.register_pickle_by_value(spark_killing)
    spark.dataSource.register(milepost.pipeline.MilepostDataSource)
    spark.dataSource.register(spark_killing.KillingDataSource)
    return spark


@pytest.fixture
def topic(client):
    """A topic of this test alone, with 5,000 rows."""
    name = f"t{uuid.uuid4().hex}"
    client.declare_topic(name, SCHEMA, durable=True)
    put(client, name, range(5_000))
    return name


def put(client, topic, numbers):
    numbers = list(numbers)
    rows = {
        "n": numbers,
        "who": [None if n % 5 == 0 else f"w{n % 5}" for n in numbers],
        "price": [n / 4 for n in numbers],
        "at": [datetime.fromtimestamp(n, UTC) for n in numbers],
    }
    client.put_many(topic, rows)


def source(session, broker, topic, kind="read", **options):
    reader = getattr(session, kind).format("milepost").option("broker", broker.address).option("topic", topic)
    return reader.options(**options).load()


def run(frame, checkpoint, sink="noop", **options):
    """The progress of each micro-batch of a query that reads what is there."""
    writer = frame.writeStream.format(sink).option("checkpointLocation", str(checkpoint)).options(**options)
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(PATIENCE)
    finally:
        query.stop()
    return [each for each in query.recentProgress if each.numInputRows]


def numbers(client, topic, field="n"):
    """One field of all that a topic has, in order."""
    stop = {log["log"]: log["next"] for log in client.look(topic)["logs"]}
    return [n for batch in client.read(topic, {}, stop) for n in batch.column(field).tolist()]


# Reading


def test_a_topic_is_a_table(session, broker, topic):
    table = source(session, broker, topic)
    assert table.schema.simpleString() == "struct<n:bigint,who:string,price:double,at:timestamp>"
    found = table.selectExpr("count(*)", "sum(n)", "count(who)", "max(unix_micros(at))").collect()
    assert [tuple(row) for row in found] == [(5_000, sum(range(5_000)), 4_000, 4_999_000_000)]
    some = source(session, broker, topic, where="n >= 10 and who = 'w1'", partitions="3", includeMetadata="true")
    rows = some.orderBy("n").limit(2).collect()
    assert [(row.n, row._offset, row._log, len(row._id)) for row in rows] == [(11, 11, 1, 32), (16, 16, 1, 32)]
    assert rows[0]._time.year >= 2024
    assert some.select(f.spark_partition_id()).distinct().count() == 3


def test_between_offsets_and_times(session, broker, client, topic):
    some = source(session, broker, topic, startingOffsets='{"1": 10}', endingOffsets='{"1": 20}')
    assert sorted(row.n for row in some.collect()) == list(range(10, 20))
    border = datetime.now(UTC).isoformat()
    put(client, topic, range(5_000, 5_003))
    later = source(session, broker, topic, startingOffsets=border)
    assert sorted(row.n for row in later.collect()) == [5_000, 5_001, 5_002]
    assert source(session, broker, topic, endingOffsets=border).count() == 5_000
    assert source(session, broker, topic, startingOffsets="latest").count() == 0


def test_filters_are_evaluated_by_the_broker(session, broker, topic):
    try:
        milepost.pipeline.register(session)
        table = source(session, broker, topic)
        some = table.where("who = 'w1' and n > 4000 and price < 1200 and n * price > 2")
        plan = some._jdf.queryExecution().executedPlan().toString()
        kept = plan.split("Filter", 1)[1].split("\n")[0]
        assert "who" not in kept, plan  # what was pushed is not done again
        assert "* price" in kept, plan
        assert sorted(row.n for row in some.collect()) == [n for n in range(4001, 4800) if n % 5 == 1]
        assert table.where("who is null and price > 1000").count() == len(range(4005, 5000, 5))
    finally:
        session.conf.unset("spark.sql.python.filterPushdown.enabled")
        session.dataSource.register(milepost.pipeline.MilepostDataSource)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topc": "x"}, "option 'topc'.*did you mean 'topic'"),
        ({"where": "prize > 1"}, "option 'where': there is no 'prize'; did you mean 'price'"),
        ({"startingOffsets": '{"7": 1}'}, "option 'startingOffsets': topic .* has no log 7"),
        ({"startingOffsets": '{"1": 9000}'}, "option 'startingOffsets'.*9000 does not exist"),
        ({"topic": "nowhere"}, "option 'topic': there is no topic 'nowhere'"),
        ({"broker": "milepost://127.0.0.1:1"}, "option 'broker' = 'milepost://127.0.0.1:1'"),
    ],
)
def test_an_option_that_is_wrong_is_named(session, broker, topic, options, said):
    with pytest.raises(Exception, match=said) as caught:
        given = {"broker": broker.address, "topic": topic} | options
        session.read.format("milepost").options(**given).load().collect()
    assert "Exception" in type(caught.value).__name__


def test_a_stream_in_bounded_batches_that_goes_on(session, broker, client, topic, tmp_path):
    stream = source(session, broker, topic, "readStream", maxRowsPerTrigger="2000", where="n % 2 = 0")
    first = run(stream, tmp_path / "checkpoint")
    assert [each.numInputRows for each in first] == [1_000, 1_000, 500]
    said = json.loads(first[0].sources[0].endOffset)
    assert said["logs"] == {"1": 2_000}
    assert json.loads(first[0].sources[0].latestOffset) == {"logs": {"1": 5_000}}
    (hold,) = client.look(topic)["subscriptions"]
    assert (hold["name"], hold["hold"]) == (said["hold"], True)
    put(client, topic, range(5_000, 5_100))
    again = run(stream, tmp_path / "checkpoint")
    assert [each.numInputRows for each in again] == [50]
    (hold,) = client.look(topic)["subscriptions"]
    assert hold["cursor"] == {1: 5_000}  # what was committed; the last micro-batch is, by the next


def test_rows_stay_until_they_are_processed(session, broker, client, tmp_path):
    topic = f"t{uuid.uuid4().hex}"
    client.declare_topic(topic, SCHEMA, durable=True, retain={"age_s": 0.0})
    stream = source(session, broker, topic, "readStream", maxRowsPerTrigger="60", hold=f"{topic}-hold")
    assert run(stream, tmp_path / "checkpoint") == []  # from here on rows are held
    put(client, topic, range(100))
    assert [each.numInputRows for each in run(stream, tmp_path / "checkpoint")] == [60, 40]
    (hold,) = client.look(topic)["subscriptions"]
    assert (hold["name"], hold["cursor"]) == (f"{topic}-hold", {1: 60})
    client.trim(topic, 100)
    put(client, topic, range(100, 110))
    client.trim(topic, 105)
    with pytest.raises(Exception, match="5 rows were removed before they were read"):
        run(stream, tmp_path / "checkpoint")
    lossy = source(session, broker, topic, "readStream", failOnDataLoss="false")
    assert [each.numInputRows for each in run(lossy, tmp_path / "checkpoint")] == [5]


def test_a_table_passes_over_rows_that_are_gone_if_it_may(broker, client):
    """Without a session: planning is in the driver, reading in executors, and rows may go in between."""
    topic = f"t{uuid.uuid4().hex}"
    client.declare_topic(topic, SCHEMA, durable=True)
    put(client, topic, range(100))
    client.trim(topic, 10)

    def reader(**options):
        options = {"broker": broker.address, "topic": topic, "startingOffsets": '{"1": 5}'} | options
        made = milepost.pipeline.MilepostDataSource(options)
        return made.reader(made.schema())

    def numbers(reader, parts):
        return [n for part in parts for batch in reader.read(part) for n in batch.column("n").to_pylist()]

    with pytest.raises(errors.ConfigError, match="5 does not exist"):
        reader().partitions()
    lossy = reader(failOnDataLoss="false", partitions="3")
    parts = lossy.partitions()
    assert numbers(lossy, parts) == list(range(10, 100))
    strict = reader(startingOffsets="earliest")
    planned = strict.partitions()
    client.trim(topic, 60)
    assert numbers(lossy, parts) == list(range(60, 100))
    with pytest.raises(errors.RowsGone):
        numbers(strict, planned)
    assert numbers(lossy, reader(failOnDataLoss="false", endingOffsets='{"1": 20}').partitions()) == []


def test_a_topic_made_anew_and_a_checkpoint_of_another_query(session, broker, client, topic, tmp_path):
    stream = source(session, broker, topic, "readStream", maxRowsPerTrigger="3000")
    run(stream, tmp_path / "checkpoint")
    client.delete_topic(topic)
    client.declare_topic(topic, SCHEMA, durable=True)
    put(client, topic, range(10))
    with pytest.raises(Exception, match="declared again"):
        run(stream, tmp_path / "checkpoint")
    put(client, topic, range(10, 6_000))  # longer than the checkpoint is far
    with pytest.raises(Exception, match="declared again"):
        run(stream, tmp_path / "checkpoint")


def test_a_schema_that_evolves_while_a_query_lives(session, broker, client, topic, tmp_path):
    stream = source(session, broker, topic, "readStream")
    table = source(session, broker, topic)
    client.declare_topic(topic, "event: [n: long, who: string?, price: double, at: timestamp, more: string?]")
    client.put(topic, {"n": 5_000, "who": None, "price": 1.0, "at": datetime.now(UTC), "more": "x"})
    assert sum(each.numInputRows for each in run(stream, tmp_path / "checkpoint")) == 5_001
    assert table.where("n >= 4999").count() == 2
    newer = source(session, broker, topic).where("n >= 4999").orderBy("n").collect()
    assert [row.more for row in newer] == [None, "x"]


# Writing

NESTED = """m: [i: int, small: uint8, big: uint64?, key: uuid, day: date, at: timestamp, cost: decimal(9,2), raw: bytes,
    tags: *(string)*, lines: *([name: string, count: uint32?])*, v: {a: int | b: [] | c: [d: uuid]}?,
    t: [x: float, ok: bool]?]"""


def nested(n):
    cases = [None, {"a": n}, {"b": {}}, {"c": {"d": uuid.UUID(int=n)}}]
    return {
        "i": n, "small": n % 256, "big": None if n % 3 else 2**64 - 1 - n, "key": uuid.UUID(int=n << 64),
        "day": datetime.fromtimestamp(n * 86_400, UTC).date(), "at": datetime.fromtimestamp(-n - 0.5, UTC),
        "cost": Decimal(n).scaleb(-2), "raw": bytes([n % 256]), "tags": [f"ö{k}" for k in range(n % 3)],
        "lines": [{"name": "x", "count": None if k else n} for k in range(n % 4)], "v": cases[n % 4],
        "t": None if n % 2 else {"x": n / 2, "ok": n % 4 == 0},
    }  # fmt: skip


def test_nested_messages_through_spark_are_the_same(session, broker, client):
    first, second = f"t{uuid.uuid4().hex}", f"t{uuid.uuid4().hex}"
    client.declare_topic(first, NESTED, durable=True)
    rows = [nested(n) for n in range(100)]
    client.put_many(first, rows)
    table = source(session, broker, first, partitions="2")
    table.write.format("milepost").mode("append").options(broker=broker.address, topic=second, create="true").save()
    (log,) = client.look(second)["logs"]
    found = [row for batch in client.read(second, {}, {log["log"]: log["next"]}) for row in batch.to_pylist()]
    assert sorted(found, key=lambda row: row["i"]) == rows
    made = next(each for each in client.topics(second)).schema
    assert "small: uint8?" in str(made)
    assert "c: [d: uuid]" in str(made)


def test_a_job_that_is_repeated_writes_once(session, broker, client, topic):
    out = f"t{uuid.uuid4().hex}"
    client.declare_topic(out, SCHEMA, durable=True)
    frame = source(session, broker, topic, endingOffsets='{"1": 500}')
    for _ in range(2):
        writer = frame.write.format("milepost").mode("append").options(broker=broker.address, topic=out)
        writer.option("writeId", f"job-{out}").save()
    assert sorted(numbers(client, out)) == list(range(500))
    with pytest.raises(Exception, match="only be appended to"):
        frame.write.format("milepost").mode("overwrite").options(broker=broker.address, topic=out).save()
    with pytest.raises(Exception, match="column 'extra' is not a field of event"):
        wider = frame.withColumn("extra", f.lit(1))
        wider.write.format("milepost").mode("append").options(broker=broker.address, topic=out).save()
    with pytest.raises(Exception, match=r"row .*price: missing"):
        empty = frame.withColumn("price", f.lit(None).cast("double"))
        empty.write.format("milepost").mode("append").options(broker=broker.address, topic=out).save()
    assert len(numbers(client, out)) == 500


def test_a_stream_is_routed_by_columns(session, broker, client, topic, tmp_path):
    even, odd = f"t{uuid.uuid4().hex}", f"t{uuid.uuid4().hex}"
    for name in (even, odd):
        client.declare_topic(name, "half: [n: long]", durable=True)
    half = f.struct("n")
    stream = source(session, broker, topic, "readStream", maxRowsPerTrigger="3000").select(
        f.when(f.col("n") % 2 == 0, half).alias("even"),
        f.when((f.col("n") % 2 == 1) & (f.col("n") < 100), half).alias("odd"),
        f.lit(1).alias("_left"),
    )
    options = {"broker": broker.address, "routes": json.dumps({"even": even, "odd": odd})}
    run(stream, tmp_path / "checkpoint", "milepost", **options)
    assert sorted(numbers(client, even)) == list(range(0, 5_000, 2))
    assert sorted(numbers(client, odd)) == list(range(1, 100, 2))
    with pytest.raises(Exception, match="option 'routes': there is no column 'add'; did you mean 'odd'"):
        run(stream, tmp_path / "other", "milepost", broker=broker.address, routes=json.dumps({"add": odd}))


def test_epochs_come_once_and_in_order(broker, client, topic):
    given = {"broker": broker.address, "topic": topic}
    sink = StreamSink(known.checked(given, known.WRITING, "writing"), spark_schema(parse_schema(SCHEMA)))
    rows = {"n": [1], "who": [None], "price": [1.0], "at": [datetime.now(UTC)]}

    def epoch(number, attempt, **changes):
        message = StagedPart(**{"sink": topic, "epoch": number, "part": 0, "attempt": attempt} | changes)
        sink.stage(message, iter([pa.record_batch(rows)]))
        assert message.rows == 1
        sink.commit([message, None], number)

    for number, attempt in ((0, 1), (1, 2), (1, 3)):  # the second of an epoch is what a killed driver does again
        epoch(number, attempt)
    assert len(numbers(client, topic)) == 5_002
    with pytest.raises(errors.BrokerError, match="has published epoch 1, but got epoch 0"):
        epoch(0, 4)
    with pytest.raises(errors.BrokerError, match="Spark commits epoch 2"):
        sink.commit([StagedPart(topic, 3, 0, 5)], 2)
    with pytest.raises(errors.BrokerError, match="belong to different queries or epochs"):
        sink.commit([StagedPart(topic, 2, 0, 6), StagedPart("other", 2, 1, 7)], 2)
    failed = StagedPart(topic, 2, 0, 8)
    sink.stage(failed, iter([pa.record_batch(rows)]))
    sink.abort([failed, None], 2)
    sink.commit([StagedPart(topic, 2, 0, 9)], 2)  # no rows
    assert len(numbers(client, topic)) == 5_002


# Killing


@pytest.fixture
def ground(tmp_path):
    """A broker of this test's own, with 5,000 rows in `in`, and an empty `out`."""
    made = Broker(tmp_path)
    made.start()
    with milepost.Client(made.address) as client:
        for name in ("in", "out"):
            client.declare_topic(name, SCHEMA, durable=True)
        put(client, "in", range(5_000))
        yield made, client, str(tmp_path)
    made.kill()


def test_a_driver_that_dies_between_the_two_commits(ground):
    broker, client, folder = ground
    Path(folder, "kill driver").touch()
    command = [sys.executable, spark_killing.__file__, broker.address, folder]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environment |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    for returns in (-9, 0):
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False, env=environment)
        assert done.returncode == returns, done.stderr.decode()[-3_000:]
    # Epoch 0 was published, and came again when it was; the others came once.
    assert Path(folder, "commits").read_text().split("\n")[:3] == ["0 None", "0 0", "1 0"]
    assert sorted(numbers(client, "out")) == list(range(5_000))


def test_a_broker_that_does_not_come_back_ends_the_work(tmp_path):
    broker = Broker(tmp_path)
    broker.start()
    rows = {"n": [1], "who": [None], "price": [1.0], "at": [datetime.now(UTC)]}
    try:
        with milepost.Client(broker.address) as client:
            client.declare_topic("t", SCHEMA, durable=True)
            put(client, "t", range(3))
        with (
            pytest.raises(errors.ConnectionLost, match=r"has been away for more than 2 s \(option 'timeout'\)"),
            connection.using(broker.address, 2.0) as client,  # before it goes: whoever comes later finds no client
        ):
            assert numbers(client, "t") == [0, 1, 2]
            broker.kill()
            client.stage("s", 0, 0, 0, "t", rows)
    finally:
        broker.kill()
    with pytest.raises(errors.ConnectionLost, match="option 'broker'"):
        connection.client(broker.address, 2.0, patient=False)
    broker.start()
    try:
        with connection.using(broker.address, 60.0) as client:
            assert numbers(client, "t") == [0, 1, 2]
            client.close()
        with connection.using(broker.address, 60.0) as client:  # one that is closed is not used again
            assert numbers(client, "t") == [0, 1, 2]
        with pytest.raises(errors.StateLost, match="the checkpoint belongs to another"):
            connection.client(broker.address, 60.0, expected="another")
    finally:
        connection.drop(broker.address)
        broker.kill()


def test_a_worker_that_is_killed_while_it_writes(session, ground):
    broker, client, folder = ground
    Path(folder, "kill worker").touch()
    with pytest.raises(Exception, match=r"crashed|exited"):
        spark_killing.copy(session, broker.address, folder).awaitTermination()
    assert Path(folder, "kill worker done").exists()
    spark_killing.copy(session, broker.address, folder).awaitTermination()
    assert sorted(numbers(client, "out")) == list(range(5_000))


def test_a_broker_that_goes_away_within_a_micro_batch_and_comes_back(session, ground):
    broker, client, folder = ground
    told, go = Path(folder, "told"), Path(folder, "go")
    os.mkfifo(told)
    os.mkfifo(go)

    def restart():
        assert told.read_text() == "here"
        told.unlink()
        broker.kill()
        go.write_text("on")
        broker.start()

    thread = threading.Thread(target=restart)
    thread.start()
    query = spark_killing.copy(session, broker.address, folder, partitions="1")
    assert query.awaitTermination(PATIENCE)
    thread.join(PATIENCE)
    assert sorted(numbers(client, "out")) == list(range(5_000))


def test_a_queue_is_a_table(session, broker, client):
    client.declare_type("""DEFINE MESSAGETYPE Basket;
        NODE basket; id: IDENT; name: STRING; lines: REFERENCE TO line; END;
        NODE line; amount: INTEGER; END;
        ROOT basket; END;""")
    client.declare_type("parcel: [weight: double, note: string?]")
    client.declare_queue("baskets", types=["Basket", "parcel"])
    with client.transaction() as tx:
        for number in range(1500):
            tx.enqueue(
                "baskets", {"id": number, "name": "it's" if number % 2 else "even", "lines": [{"amount": 3}]}, "Basket"
            )
        tx.enqueue("baskets", [{"weight": 1.5, "note": None}], "parcel", priority=7.0)

    def read(kind, **options):
        reader = session.read.format("milepost").options(broker=broker.address, queue="baskets", type=kind)
        return reader.options(**options).load()

    assert read("Basket").count() == 1500
    assert read("Basket").selectExpr("explode(basket) AS b").selectExpr("sum(b.id)").first()[0] == sum(range(1500))
    assert read("Basket", where="name = 'it''s' and id < 100").count() == 50
    (row,) = read("parcel", where="weight > 1", includeMetadata="true").collect()
    assert (row.weight, row.note, row._priority, row._deliveries) == (1.5, None, 7.0, 0)
    with client.transaction() as tx:
        (taken,) = tx.dequeue("baskets", "parcel")
        assert row._id == taken.header.id
        assert read("parcel").count() == 0, "taken, and so nobody's to see"
    client.purge("baskets", "Basket")
    assert read("Basket").count() == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"queue": "nowhere"}, "there is no queue 'nowhere'"),
        ({"queue": "things"}, "option 'type' is missing"),
        ({"queue": "things", "type": "thin"}, "did you mean 'thing'"),
        ({"queue": "things", "type": "thing", "where": "nme = 1"}, "option 'where'"),
        ({"queue": "things", "startingOffsets": "latest"}, "option 'startingOffsets'"),
    ],
)
def test_an_option_of_a_queue_that_is_wrong_is_named(session, broker, client, options, said):
    client.declare_type("thing: [name: string]")
    client.declare_type("other: [name: string]")
    client.declare_queue("things", types=["thing", "other"])
    with pytest.raises(Exception, match=re.escape(said)):
        session.read.format("milepost").options(broker=broker.address, **options).load()
