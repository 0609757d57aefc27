import json
import sys

import pytest

KEYS = {
    "file_system", "postgresql", "enqueue_vs_best", "dequeue_vs_best", "single_vs_best", "exchange", "orders_per_s",
    "orders", "readers_gain", "readers", "messages_twice", "messages_lost", "select_ms", "select", "growth_ms",
    "scan_ms", "scan_ratio",
}  # fmt: skip
STORES = ("Milepost through a broker on PostgreSQL", "Milepost through a broker on SQLite")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="it measures through /proc")
def test_queues_end_with_their_figures_whoever_of_the_peers_is_there(run):
    done = run(sys.executable, "-m", "benchmarks", "queues", QUICK="1")
    assert done.returncode == 0, done.stderr[-2_000:] + done.stdout[-2_000:]
    figures = json.loads(done.stdout.splitlines()[-1])
    assert (figures["bench"], figures["quick"]) == ("queues", True)
    assert figures.keys() >= KEYS
    # All share one PostgreSQL, and what it says is committed is on the disk.
    assert figures["postgresql"]["fsync"] == figures["postgresql"]["synchronous_commit"] == "on"
    # What Milepost does alone does not depend on peers; how fast it is decides nothing here.
    for store in STORES:
        assert all(rate > 0 for rate in figures["exchange"][store].values())
        assert all(rate > 0 for rate in figures["orders"][store].values())
    assert figures["orders_per_s"] == min(rate for store in STORES for rate in figures["orders"][store].values())
    assert figures["readers_gain"] == min(figures["readers"].values()) > 0
    assert figures["messages_twice"] == figures["messages_lost"] == 0
    assert figures["select_ms"].keys() == {"200", "1000"}
    assert figures["select_ms"] in figures["select"].values()
    assert len(figures["select"]) == 4
    assert len(figures["growth_ms"]) == 8
