from milepost.pipeline.pace import SMALLER, STEP, BatchPace


def run(pace, batches, cost, each, waiting=1_000_000):
    """Micro-batches of a query that takes `cost` seconds and `each` for a row; how long the last one took."""
    now = took = 0.0
    for _ in range(batches):
        pace.asked(now)
        rows = min(pace.rows, waiting)
        pace.began(now, rows)
        took = cost + rows * each
        now += took
    pace.asked(now)
    return took


def test_micro_batches_take_as_long_as_they_should():
    pace = BatchPace(0.5, 100, 500_000)
    assert 0.35 < run(pace, 60, 0.1, 1e-4) < 0.7
    assert 0.35 < run(pace, 60, 0.1, 4e-4) < 0.7  # a hog came


def test_where_a_micro_batch_costs_more_than_it_may_take_rows_are_not_to_blame():
    pace = BatchPace(0.5, 100, 500_000)
    run(pace, 60, 0.1, 1e-5)
    assert run(pace, 200, 2.0, 1e-5) > 2.5
    assert pace.rows > 10_000


def test_under_a_hog_a_micro_batch_is_still_worth_its_fixed_cost():
    """Everything takes six times as long, from one moment to the next, and more waits than is done."""
    pace = BatchPace(1.5, 1_000, 1_000_000)
    for waiting in [300, 500, 400, 600] * 8:
        run(pace, 1, 0.25, 1e-4, waiting)
    for _ in range(8):
        run(pace, 1, 1.5, 6e-4)
        assert pace.rows > 1_500


def test_one_odd_micro_batch_changes_little():
    pace = BatchPace(0.5, 100, 500_000)
    run(pace, 60, 0.1, 1e-5)
    before = pace.rows
    pace.began(100.0, before)
    pace.asked(220.0)
    assert pace.rows >= round(SMALLER * before / STEP)


def test_it_stays_within_its_bounds_and_asking_without_a_micro_batch_changes_nothing():
    pace = BatchPace(0.5, 1_000, 20_000)
    pace.asked(1.0)
    assert pace.rows == 1_000
    run(pace, 61, 0.1, 1e-9)
    assert SMALLER * 20_000 <= pace.rows <= 20_000
    run(pace, 60, 0.1, 1.0)
    assert pace.rows == 1_000
