"""The brokers that benchmarks compare: each module starts one, on a loopback port and in a folder of its own.

A broker is a context manager, so that the end of the benchmark always ends the broker as well. `missing()` says why a
broker cannot be started, and the benchmark goes on without it.
"""

from benchmarks.peers.activemq import ActiveMQ
from benchmarks.peers.milepost import Milepost
from benchmarks.peers.mosquitto import Mosquitto
from benchmarks.peers.nats import Nats
from benchmarks.peers.rabbitmq import RabbitMQ
from benchmarks.peers.redis import Redis
from benchmarks.peers.server import Server, Unavailable

__all__ = ["ActiveMQ", "Milepost", "Mosquitto", "Nats", "RabbitMQ", "Redis", "Server", "Unavailable"]
