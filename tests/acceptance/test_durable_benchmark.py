import json
import sys

import pytest

KEYS = {
    "file_system", "put_vs_best", "put_way", "put_rows_vs_best", "put_many_vs_best", "get_vs_best", "single_get_per_s",
    "exchange", "group_commit_gain", "put_p99_syncs", "replay_rows_per_s", "replay", "restart_s", "rss_mb",
    "rss_empty_mb",
}  # fmt: skip
OURS = ("milepost, put(wait=False), flush; loop", "milepost, put_many of 500; get_many")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="it measures through /proc")
def test_durable_ends_with_its_figures_whoever_of_the_peers_is_there(run):
    done = run(sys.executable, "-m", "benchmarks", "durable", QUICK="1")
    assert done.returncode == 0, done.stderr[-2_000:] + done.stdout[-2_000:]
    figures = json.loads(done.stdout.splitlines()[-1])
    assert (figures["bench"], figures["quick"]) == ("durable", True)
    assert figures.keys() >= KEYS
    assert figures["file_system"] not in ("tmpfs", "ramfs")
    # What Milepost does alone does not depend on peers; how fast it is decides nothing here.
    for way in OURS:
        assert figures["exchange"][way]["put_per_s"] > 0
        assert figures["exchange"][way]["get_per_s"] > 0
        assert figures["exchange"][way]["synced"] is True
    assert figures["single_get_per_s"] > 0
    assert figures["group_commit_gain"] > 0
    assert figures["put_p99_syncs"] > 0
    assert figures["replay"].keys() == {"batched", "compacted", "uncompacted"}
    assert figures["replay_rows_per_s"] == min(figures["replay"]["batched"], figures["replay"]["compacted"]) > 0
    assert figures["retained"] == 1_000_000
    assert figures["restart_s"] > 0
    assert figures["rss_mb"] > 0


def test_the_folder_of_the_stores_is_on_a_disk(run):
    check = (
        "from benchmarks.durable import disk\n"
        "print(disk.file_system(disk.real_folder()) in disk.MEMORY, disk.file_system('/proc'))\n"
    )
    done = run(sys.executable, "-c", check)
    assert done.stdout == "False proc\n", done.stderr
