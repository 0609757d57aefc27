import json
import sys

import pytest

KEYS = {
    "source_rows_per_s", "events_per_s", "vs_parquet", "splitter_rows_per_s", "combiner_rows_per_s", "paper_peak_ok",
    "p99_s",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.xdist_group("spark of its own")
def test_a_short_run_of_pipeline_goes_through_all_parts_and_has_no_figures_of_its_start(run):
    done = run(sys.executable, "-m", "benchmarks", "pipeline", QUICK="1")
    assert done.returncode == 0, done.stderr[-2_000:] + done.stdout[-2_000:]
    figures = json.loads(done.stdout.splitlines()[-1])
    assert (figures["bench"], figures["quick"]) == ("pipeline", True)
    assert figures.keys() >= KEYS
    assert all(figures[key] is None and figures["left_out"][key] for key in KEYS)
    assert figures["went_through"].keys() == {"source", "tier1", "ends", "peak"}
    assert all(rows > 0 for rows in figures["went_through"].values())
