import json
import sys

import pytest

KEYS = {
    "start_s", "rows_vs_nats_py", "columns_vs_nats_raw", "throughput", "latency_p50_vs_nats", "latency_p99_vs_nats",
    "latency_by_window", "latency_tail", "left_out",
    "vs_activemq", "fig2", "fig3", "cold_cpu_ratio", "many_publishers", "kb_per_connection", "idle_slowdown",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="it measures through /proc")
def test_pubsub_ends_with_its_figures_whoever_of_the_peers_is_there(run):
    done = run(sys.executable, "-m", "benchmarks", "pubsub", QUICK="1")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert (figures["bench"], figures["quick"]) == ("pubsub", True)
    assert figures.keys() >= KEYS
    # What Milepost does alone does not depend on peers.
    assert figures["throughput"]["milepost rows, uvloop"]["rows_per_s"] > 0
    assert figures["throughput"]["milepost columns"]["rows_per_s"] > 0
    assert figures["many_publishers"]["rows_per_s"] > 0
    assert [point["subscribers"] for point in figures["fig2"]] == [100, 300] * 2
    assert figures["kb_per_connection"] > 0
    assert 0 < figures["start_s"] < float("inf")
    assert {"mosquitto", "rabbitmq"} <= figures["left_out"].keys()
    assert figures["latency_tail"].keys() >= {"collector", "tick", "liveness"}


def test_a_missing_peer_is_named_with_its_package(run):
    check = (
        "from benchmarks.peers import Nats\n"
        "class Absent(Nats):\n"
        "    program = package = 'no-such-server'\n"
        "print(Absent.missing())\n"
    )
    done = run(sys.executable, "-c", check)
    assert done.stdout == "no-such-server is not installed (Debian: apt install no-such-server): left out\n", (
        done.stderr
    )


def test_a_part_that_does_not_exist_is_refused_with_those_that_do(run):
    done = run(sys.executable, "-m", "benchmarks", "pubsub", "no-such-part")
    assert done.returncode != 0
    assert "latency" in done.stderr


@pytest.mark.slow
def test_no_broker_outlives_the_benchmark(run):
    check = (
        "import os\n"
        "from benchmarks.peers import Milepost\n"
        "try:\n"
        "    with Milepost() as broker:\n"
        "        folder, pid = broker._folder, broker.pid\n"
        "        raise KeyboardInterrupt\n"
        "except KeyboardInterrupt:\n"
        "    pass\n"
        "print(os.path.exists(folder), os.path.exists(f'/proc/{pid}'))\n"
    )
    done = run(sys.executable, "-c", check)
    assert done.stdout == "False False\n", done.stderr
