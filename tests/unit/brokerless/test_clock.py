"""The clock of the database, as a client without a broker keeps it."""

from milepost.brokerless.clock import DatabaseClock


def test_a_clock_is_set_by_what_the_database_says():
    clock = DatabaseClock()
    clock._ahead_us += 3_600_000_000  # this machine's own clock is an hour wrong
    clock.set(0, 1_000_000, 100)
    ahead = clock._ahead_us
    assert 999_900 <= ahead <= 1_000_000
    clock.set(1_000, 1_001_000, 1_400)  # it is within what is known
    assert clock._ahead_us == max(ahead, 999_600)
    clock.set(0, 5_000_000, 10)
    assert clock._ahead_us == 4_999_990
