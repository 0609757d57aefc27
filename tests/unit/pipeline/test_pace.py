from milepost.pipeline.pace import Pace


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
    pace = Pace(0.5, 1_000, 500_000)
    assert abs(run(pace, 30, 0.1, 1e-4) - 0.5) < 0.01
    assert abs(run(pace, 30, 0.1, 4e-4) - 0.5) < 0.05  # a hog came


def test_a_long_one_shrinks_the_next_at_once():
    pace = Pace(0.5, 1_000, 500_000)
    run(pace, 30, 0.1, 1e-5)
    before = pace.rows
    pace.began(100.0, 10)
    pace.asked(120.0)
    assert pace.rows == round(before / 2)


def test_short_ones_that_were_not_full_say_nothing():
    pace = Pace(0.5, 1_000, 500_000)
    run(pace, 30, 0.1, 1e-4)
    before = pace.rows
    run(pace, 30, 0.1, 1e-4, waiting=before // 4)
    assert pace.rows == before


def test_it_stays_within_its_bounds_and_asking_without_a_micro_batch_changes_nothing():
    pace = Pace(0.5, 1_000, 20_000)
    pace.asked(1.0)
    assert pace.rows == 1_000
    run(pace, 30, 0.1, 1e-9)
    assert pace.rows == 20_000
    run(pace, 30, 5.0, 1e-4)
    assert pace.rows == 1_000
