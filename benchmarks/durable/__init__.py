"""`make bench NAME=durable`: durable topics against Redis Streams, RabbitMQ and JetStream, each in its own process."""

from benchmarks.durable.run import PARTS, run

__all__ = ["PARTS", "run"]
