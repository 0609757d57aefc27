import json
import sys

import pytest

KEYS = {
    "source_rows_per_s", "events_per_s", "vs_parquet", "splitter_rows_per_s", "combiner_rows_per_s", "paper_peak_ok",
    "p99_s",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.xdist_group("spark of its own")
def test_pipeline_ends_with_its_figures(run):
    done = run(sys.executable, "-m", "benchmarks", "pipeline", QUICK="1")
    assert done.returncode == 0, done.stderr[-2_000:] + done.stdout[-2_000:]
    figures = json.loads(done.stdout.splitlines()[-1])
    assert (figures["bench"], figures["quick"]) == ("pipeline", True)
    assert figures.keys() >= KEYS
    for key in KEYS - {"paper_peak_ok", "p99_s"}:  # how fast it is decides nothing here
        assert figures[key] > 0, key
