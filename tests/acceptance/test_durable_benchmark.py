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
def test_a_short_run_of_durable_goes_through_all_parts_whoever_of_the_peers_is_there(run):
    done = run(sys.executable, "-m", "benchmarks", "durable", QUICK="1")
    assert done.returncode == 0, done.stderr[-2_000:] + done.stdout[-2_000:]
    figures = json.loads(done.stdout.splitlines()[-1])
    assert (figures["bench"], figures["quick"]) == ("durable", True)
    assert figures.keys() >= KEYS
    assert figures["file_system"] not in ("tmpfs", "ramfs")
    # What Milepost does alone does not depend on peers; how fast it is decides nothing here.
    assert all(figures["exchanged"][way] == 4_000 for way in OURS)
    assert figures["group_commit_gain"] > 0
    assert figures["put_p99_syncs"] > 0
    assert list(figures["replayed"].values()) == [200_000, 20_000, 20_000]
    # What would be figures of the start is null, and named with the reason.
    for key in ("put_vs_best", "get_vs_best", "single_get_per_s", "exchange", "replay_rows_per_s", "replay"):
        assert figures[key] is None
        assert "short run" in figures["left_out"][key]
    assert "short run" in figures["left_out"]["rabbitmq"]
    assert figures["retained"] == 200_000
    assert figures["restart_s"] > 0
    assert figures["rss_mb"] > 0


def test_the_folder_of_the_stores_is_on_a_disk(run):
    check = (
        "from benchmarks.durable import disk\n"
        "print(disk.file_system(disk.real_folder()) in disk.MEMORY, disk.file_system('/proc'))\n"
    )
    done = run(sys.executable, "-c", check)
    assert done.stdout == "False proc\n", done.stderr
