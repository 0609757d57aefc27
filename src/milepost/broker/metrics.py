"""Prometheus metrics: the figures of `Broker.statistics`, in the form that Prometheus collects.

The server of prometheus_client runs in its own thread, and the broker's figures belong to the event loop. So each
collection asks the loop for them, and waits. This module counts nothing itself.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from operator import getitem
from typing import Any, Final, NamedTuple, Protocol, cast

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from milepost.broker.core.statistics import DEPTHS
from milepost.errors import ConfigError

ANSWER_SECONDS: Final = 5.0  # for the loop to give its figures; Prometheus waits ten
TOPIC_LABELS: Final = 1_000  # topics with their own series: Prometheus keeps each series for weeks
OTHER_TOPICS: Final = "(others)"  # label for the sums of all other topics; no topic can have this name

# Metrics with one value: where it is in the figures, the name, and the help text.
_COUNTERS: Final = {
    "connections.accepted": ("milepost_connections_accepted", "Clients so far."),
    "connections_refused": (
        "milepost_connections_refused",
        "Connections not taken, or closed to make room for others.",
    ),
    "totals.rows_in": ("milepost_rows_received", "Rows taken from publishers."),
    "totals.rows_out": (
        "milepost_rows_delivered",
        "Rows sent to subscribers; a row that goes to two of them counts twice.",
    ),
    "totals.bytes_in": ("milepost_bytes_received", "Bytes of batches taken from publishers."),
    "totals.bytes_out": ("milepost_bytes_delivered", "Bytes of batches sent to subscribers."),
    "totals.batches_in": ("milepost_batches_received", "Batches taken from publishers."),
    "totals.rows_dropped": ("milepost_rows_dropped", "Rows that slow subscribers will never get."),
    "totals.batches_refused": (
        "milepost_batches_refused",
        "Batches that were not taken: damaged, or against their schema.",
    ),
    "totals.puts_throttled": (
        "milepost_puts_throttled",
        "Batches whose publisher had to wait, because a subscriber is slow.",
    ),
    "totals.rows_staged": ("milepost_rows_staged", "Rows stored for an epoch that was not published yet."),
    "totals.epochs_published": ("milepost_epochs_published", "Epochs of sinks whose rows are seen now."),
    "totals.messages_enqueued": (
        "milepost_queue_messages_enqueued",
        "Messages that transactions have put into queues.",
    ),
    "totals.messages_dequeued": (
        "milepost_queue_messages_dequeued",
        "Messages that transactions have taken out of queues.",
    ),
    "totals.queue_transactions": (
        "milepost_queue_transactions_begun",
        "Transactions on queues that clients have begun.",
    ),
    "totals.queue_commits": ("milepost_queue_transactions_committed", "Transactions on queues that were committed."),
    "totals.queue_aborts": ("milepost_queue_transactions_aborted", "Transactions on queues that were undone."),
}
_GAUGES: Final = {
    "uptime_s": ("milepost_uptime_seconds", "Since the broker was started."),
    "connections.open": ("milepost_connections", "Clients connected now."),
    "connections.greeting": ("milepost_connections_greeting", "Of these, clients that have not introduced themselves."),
    "backlogs.rows": ("milepost_backlog_rows", "Rows that wait for their subscribers."),
    "backlogs.bytes": ("milepost_backlog_bytes", "Bytes that wait for their subscribers."),
    "memory.held": (
        "milepost_memory_held_bytes",
        "Bytes held for connections: frames, puts, requests, deliveries and answers under way.",
    ),
    "queueing.transactions": ("milepost_queue_transactions", "Transactions on queues under way."),
    "queueing.waiting": ("milepost_queue_dequeues_waiting", "Dequeues that wait for a message."),
    "subscriptions_total": ("milepost_subscriptions", "Subscriptions now."),
    "topics_total": ("milepost_topics", "Topics now."),
}
_COUNTED: Final = {
    "queues_total": ("milepost_queues", "Queues now."),
    "queues_uncounted": ("milepost_queues_uncounted", "Queues not counted yet."),
    "lags_total": ("milepost_named_subscriptions", "Named subscriptions now."),
    "lags_other": (
        "milepost_subscription_others_lag_rows",
        "Lag of named subscriptions without a series of their own.",
    ),
}
_TOPICS: Final = {
    "rows_in": ("milepost_topic_rows_received", "Rows taken, by topic."),
    "rows_out": ("milepost_topic_rows_delivered", "Rows sent to subscribers, by topic."),
    "bytes_in": ("milepost_topic_bytes_received", "Bytes of batches taken, by topic."),
    "bytes_out": ("milepost_topic_bytes_delivered", "Bytes of batches sent to subscribers, by topic."),
}


class Source(Protocol):
    """A source of figures: a broker."""

    def counted(self, then: Callable[[dict[str, Any]], list[Any]]) -> None: ...


class BrokerCollector(Collector):
    """Asks a broker for its figures whenever Prometheus does."""

    def __init__(self, broker: Source, loop: asyncio.AbstractEventLoop) -> None:
        self._broker = broker
        self._loop = loop
        self._labelled: set[str] = set()

    def describe(self) -> list[Metric]:
        """No metrics. Without this, registering would collect in the loop's own thread, and wait for the loop."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Called in a thread of the HTTP server. A loop that does not answer in time makes the collection fail."""
        answer: concurrent.futures.Future[dict[str, Any]] = concurrent.futures.Future()

        def told(figures: dict[str, Any]) -> list[Any]:
            answer.set_result(figures)
            return []

        def ask() -> None:
            try:
                self._broker.counted(told)
            except Exception as error:  # passed to the thread that waits
                answer.set_exception(error)

        self._loop.call_soon_threadsafe(ask)
        return self.metrics(answer.result(ANSWER_SECONDS))

    def metrics(self, figures: Mapping[str, Any]) -> Iterator[Metric]:
        """The figures as metrics."""
        yield InfoMetricFamily(
            "milepost", "The broker.", {"name": str(figures["name"]), "version": str(figures["version"])}
        )
        yield from _plain(CounterMetricFamily, _COUNTERS, figures)
        errors = CounterMetricFamily("milepost_errors", "Errors told to clients, by code.", labels=["code"])
        for code, count in sorted(figures["errors"].items()):
            errors.add_metric([code], count)
        yield errors
        yield from _plain(GaugeMetricFamily, _GAUGES, figures)
        throttling = sum(1 for client in figures["clients"] if client["throttles"])
        yield GaugeMetricFamily(
            "milepost_clients_throttling", "Subscribers so slow now that publishers wait for them.", throttling
        )
        yield from self._topics(figures["topics"], figures["topics_other"])
        if figures["counted_us"]:
            yield from _counted(figures)

    def _topics(self, topics: list[dict[str, Any]], rest: dict[str, int]) -> Iterator[Metric]:
        """The metrics of topics; `rest` has the sums of the topics that are not listed."""
        names = {topic["name"] for topic in topics}
        self._labelled &= names
        for name in sorted(names - self._labelled):  # a topic keeps its label: counters must not jump
            if len(self._labelled) < TOPIC_LABELS:
                self._labelled.add(name)
        own = [topic for topic in topics if topic["name"] in self._labelled]
        others = [topic for topic in topics if topic["name"] not in self._labelled]
        for key, (name, words) in _TOPICS.items():
            metric = CounterMetricFamily(name, words, labels=["topic"])
            for topic in own:
                metric.add_metric([topic["name"]], topic[key])
            if others or any(rest.values()):
                metric.add_metric([OTHER_TOPICS], sum(topic[key] for topic in others) + rest[key])
            yield metric


class Served(NamedTuple):
    """Metrics that are being served."""

    url: str  # with the port in use
    stop: Callable[[], None]  # blocks for half a second at most, so that an event loop may call it


def start_metrics(broker: Source, loop: asyncio.AbstractEventLoop, where: str) -> Served:
    """Serve a broker's metrics at `host:port`, path `/metrics`.

    Raises `OSError` when the port is taken. Does not block: the server has its own thread.
    """
    host, port = parse_http(where)
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(BrokerCollector(broker, loop))
    server, thread = start_http_server(port, host, registry)

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    shown = f"[{host}]" if ":" in host else host
    return Served(f"http://{shown}:{server.server_port}/metrics", stop)


def parse_http(where: str) -> tuple[str, int]:
    """The host and port of `host:port`."""
    host, sign, port = where.rpartition(":")
    if not sign or not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ConfigError(f"http = {where!r} is no host:port; write 127.0.0.1:7480, or nothing for no metrics")
    return host.strip("[]"), int(port)


def _counted(figures: Mapping[str, Any]) -> Iterator[Metric]:
    """Metrics of queues and lags. Each has up to `counts.LISTED` series, and one for the others."""
    age_s = max(0, figures["time_us"] - figures["counted_us"]) / 1e6
    yield GaugeMetricFamily(
        "milepost_count_age_seconds", "Since the oldest figure of queues and lags was counted.", age_s
    )
    depth = GaugeMetricFamily("milepost_queue_messages", "Messages in queues, by state.", labels=["queue", "state"])
    oldest = GaugeMetricFamily(
        "milepost_queue_oldest_seconds", "Age of the oldest message that waits, by queue.", labels=["queue"]
    )
    dead = GaugeMetricFamily(
        "milepost_queue_dead_letters", "Messages in the dead-letter queue of a queue.", labels=["queue"]
    )
    for queue in figures["queues"]:
        name = queue["name"]
        for state in DEPTHS:
            depth.add_metric([name, state], queue[state])
        oldest.add_metric([name], queue["oldest_s"])
        if "dead" in queue:
            dead.add_metric([name], queue["dead_letters"])
    yield from (depth, oldest, dead)
    others = GaugeMetricFamily(
        "milepost_queue_others_messages", "Messages in queues without series of their own.", labels=["state"]
    )
    for state in DEPTHS:
        others.add_metric([state], figures["queues_other"][state])
    yield others
    yield from _plain(GaugeMetricFamily, _COUNTED, figures)
    lag = GaugeMetricFamily(
        "milepost_subscription_lag_rows", "Rows before a named subscription.", labels=["topic", "subscription"]
    )
    for each in figures["lags"]:
        lag.add_metric([each["topic"], each["name"]], each["rows"])
    yield lag


def _plain(
    kind: Callable[..., Metric], table: Mapping[str, tuple[str, str]], figures: Mapping[str, Any]
) -> Iterator[Metric]:
    """The metrics of a table, each with one value."""
    for path, (name, words) in table.items():
        yield kind(name, words, reduce(getitem, path.split("."), cast("Any", figures)))
