"""What Prometheus collects is what the broker's statistics say."""

import asyncio
import urllib.request
from urllib.parse import urlsplit

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from milepost.broker import Broker, metrics
from milepost.broker.metrics import BrokerCollector, start_metrics
from milepost.config import settings
from milepost.errors import ConfigError


def collected(figures, collector=None):
    collector = collector or BrokerCollector(None, None)
    return {
        (sample.name, *sample.labels.values()): sample.value
        for metric in collector.metrics(figures)
        for sample in metric.samples
    }


def topic(name, rows):
    return {"name": name, "rows_in": rows, "rows_out": rows, "bytes_in": rows, "bytes_out": rows}


async def figures_of_a_broker():
    async with Broker(settings(listen="127.0.0.1:0", store="", http="")) as broker:
        return broker.statistics()


def test_a_broker_serves_its_figures():
    async def play():
        async with Broker(settings(listen="127.0.0.1:0", store="", name="here")) as broker:
            served = start_metrics(broker, asyncio.get_running_loop(), "127.0.0.1:0")
            try:
                with pytest.raises(OSError, match="in use"):
                    start_metrics(broker, asyncio.get_running_loop(), urlsplit(served.url).netloc)
                return await asyncio.to_thread(fetch, served.url)
            finally:
                served.stop()

    def fetch(url):
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.read().decode()

    text = asyncio.run(play())
    assert 'milepost_info{name="here"' in text
    assert "# HELP milepost_rows_received_total Rows taken from publishers." in text
    assert "milepost_connections 0.0" in text
    assert "process_resident_memory_bytes" in text


def test_totals_and_topics_are_the_broker_s_own():
    figures = asyncio.run(figures_of_a_broker())
    figures["totals"]["rows_in"] = 5
    figures["topics"] = [topic("quotes", 3)]
    figures["errors"] = {"unknown_topic": 2}
    found = collected(figures)
    assert found["milepost_rows_received_total",] == 5
    assert found["milepost_topic_rows_received_total", "quotes"] == 3
    assert found["milepost_errors_total", "unknown_topic"] == 2


def test_topics_beyond_the_bound_are_added_up_and_labels_stay(monkeypatch):
    monkeypatch.setattr(metrics, "TOPIC_LABELS", 2)
    figures = asyncio.run(figures_of_a_broker())
    collector = BrokerCollector(None, None)
    figures["topics"] = [topic("b", 1), topic("c", 2)]
    collected(figures, collector)
    figures["topics"] = [topic("a", 10), topic("b", 1), topic("c", 2), topic("d", 20)]
    found = collected(figures, collector)
    name = "milepost_topic_rows_received_total"
    rows = {key[1]: value for key, value in found.items() if key[0] == name}
    assert rows == {"b": 1, "c": 2, metrics.OTHER_TOPICS: 30}


def test_queues_and_lags_are_there_once_they_were_counted():
    figures = asyncio.run(figures_of_a_broker())
    assert not [key for key in collected(figures) if "queue_messages" in key[0] and "total" not in key[0]]
    odd = 'a "b"\\\n{c}'
    figures |= {
        "time_us": 9_000_000, "counted_us": 7_000_000, "queues_total": 12, "queues_uncounted": 3, "lags_total": 5,
        "lags_other": 2, "queues_other": {"waiting": 40, "delayed": 0, "taken": 1},
        "queues": [
            {"name": odd, "waiting": 4, "delayed": 5, "taken": 6, "oldest_s": 8.5, "dead": "x", "dead_letters": 3}
        ],
        "lags": [{"topic": "quotes", "name": odd, "rows": 70}],
    }  # fmt: skip
    found = collected(figures)
    assert [found["milepost_queue_messages", odd, state] for state in ("waiting", "delayed", "taken")] == [4, 5, 6]
    assert found["milepost_queue_oldest_seconds", odd] == 8.5
    assert found["milepost_queue_dead_letters", odd] == 3
    assert found["milepost_queue_others_messages", "waiting"] == 40
    assert found["milepost_queues",] == 12
    assert found["milepost_queues_uncounted",] == 3
    assert found["milepost_subscription_lag_rows", "quotes", odd] == 70
    assert found["milepost_subscription_others_lag_rows",] == 2
    assert found["milepost_count_age_seconds",] == 2
    registry = CollectorRegistry()
    collector = BrokerCollector(None, None)
    collector.collect = lambda: collector.metrics(figures)
    registry.register(collector)
    assert 'queue="a \\"b\\"\\\\\\n{c}"' in generate_latest(registry).decode()
    assert found["milepost_backlog_rows",] == 0
    assert "milepost_queue_rows" not in {key[0] for key in found}


@pytest.mark.parametrize("where", ["7480", "localhost", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:99999", ":7480"])
def test_an_address_that_is_none_is_refused(where):
    with pytest.raises(ConfigError, match="host:port"):
        metrics.parse_http(where)


def test_addresses_of_the_newer_kind_are_understood():
    assert metrics.parse_http("[::1]:7480") == ("::1", 7480)
