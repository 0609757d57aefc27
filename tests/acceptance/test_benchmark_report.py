"""What a benchmark says of what it did not measure."""

import json
import sys

import pytest

from benchmarks.durable import exchange
from benchmarks.pubsub.latency import Latency, compared
from benchmarks.report import Report, best_of, ratio


@pytest.fixture
def report():
    return Report("some", quick=False)


def last_line(report, capsys):
    report.finish()
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_the_best_of_the_peers_is_known_only_if_all_were_measured(report, capsys):
    assert best_of({"redis": 120.0, "jetstream": 50.0}, report, "the best peer") == 120.0
    assert report.figures["left_out"] == {}
    assert best_of({"redis": None, "jetstream": 50.0, "nats": 0}, report, "the best peer") is None
    assert ratio(100.0, None) is None
    figures = last_line(report, capsys)
    assert figures["left_out"]["the best peer"] == "redis, nats could be the best peer, and was not measured"


def test_without_redis_nothing_is_compared_with_rabbitmq(report):
    from benchmarks.durable.run import Run, _best

    run = Run(report, quick=False)
    peers = exchange.peers(quick=False)
    for synced in (True, False):
        wanted = exchange.could_be_best(peers, synced)
        assert "redis" in wanted
        assert not wanted & {"rabbitmq", "jetstream synced"}  # which cannot be the best, whether they are there or not
        rates = [(peer, 10_000.0) for peer in (wanted | {"rabbitmq"}) - {"redis"}]
        assert _best(run, f"synced: {synced}", wanted, rates) is None
        assert "redis" in report.figures["left_out"][f"synced: {synced}"]
        assert _best(run, "all", wanted, [*rates, ("redis", 90_000.0)]) == 90_000.0


def test_a_short_run_names_the_figures_that_it_does_not_give(capsys):
    report = Report("some", quick=True)
    report.leave_out_figures("events_per_s", "p99_s")
    report.bars([("events a second", None, ">=", 5.0), ("rows", 7.0, ">=", 5.0)])
    figures = last_line(report, capsys)
    assert figures["events_per_s"] is None
    assert figures["left_out"].keys() == {"events_per_s", "p99_s"}
    assert figures["missed"] == []  # what was not measured is neither met nor missed


def test_latencies_are_compared_window_by_window():
    ours, theirs = Latency("ours", "milepost", "uvloop"), Latency("theirs", "nats", "uvloop")
    for window, (mine, other) in enumerate([(200, 100), (90, 90), (5_000, 1_000), (110, 100)], 1):
        ours.windows[window], theirs.windows[window] = {99: mine}, {99: other}
    ours.windows[5] = {99: 1.0}  # theirs lost a message in this one
    found = compared(ours, theirs, 99)
    assert found.median == pytest.approx(1.55)
    assert found.extremes == (1.0, 5.0)
    assert 1.0 < found.quartiles[0] < found.median < found.quartiles[1] < 5.0
    assert compared(ours, Latency("none", "nats", "uvloop"), 99) is None


def test_a_format_whose_package_is_missing_is_left_out_and_its_ratios_are_null(run):
    check = """
import sys
sys.modules["lxml"] = None
from benchmarks import fields, format
from benchmarks.messages import SHAPES
print(fields.LEFT_OUT)
contest = fields.prepare(SHAPES[4], 5, 1)
assert "lxml" not in contest.one and "milepost_variants" in contest.one
print(format._advantage({}, "lxml"), format._least([1.0, None]), format._size_ratio({}, "int", ["lxml"]))
"""
    done = run(sys.executable, "-c", check)
    assert done.returncode == 0, done.stderr
    assert "lxml" in done.stdout
    assert done.stdout.splitlines()[-1] == "None None None"


def test_variants_read_what_optional_pieces_read():
    from benchmarks.formats.flattuple import FlatTuple, FlatTupleVariants
    from benchmarks.messages import FIELDS, SHAPES

    for shape in SHAPES[4:]:
        assert "{none: [] | some: [" in shape.text(variants=True)
        both = FlatTuple(shape), FlatTupleVariants(shape)
        for values in shape.messages(20, seed=3):
            for made in both:
                data = made.write(values)
                assert [made.reader(field)(data) for field in range(FIELDS)] == values
                assert made.projection(range(FIELDS))(data) == tuple(values)
