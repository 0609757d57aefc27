"""`make bench NAME=durable`: durable topics against Redis Streams, RabbitMQ and JetStream, every process a separate one."""

from benchmarks.durable.run import PARTS, run

__all__ = ["PARTS", "run"]
