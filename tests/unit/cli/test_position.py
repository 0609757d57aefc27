"""Places in a durable topic as people write them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from milepost.cli import position
from milepost.errors import InvalidValue


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", "earliest"),
        ("new", "new"),
        ("0", 0),
        ("1200", 1200),
        ("1:7", {1: 7}),
        ("1:7,3:0", {1: 7, 3: 0}),
        ("2026-03-02T14:30:00Z", datetime(2026, 3, 2, 14, 30, tzinfo=UTC)),
        ("2026-03-02T14:30:00+02:00", datetime(2026, 3, 2, 14, 30, tzinfo=timezone(timedelta(hours=2)))),
    ],
)
def test_places(text, start):
    assert position.start(text, "--start") == start


@pytest.mark.parametrize("text", ["", "newest", "-1", "1:", "1:2,", "٣", "14:30:00Z"])
def test_what_is_no_place_is_refused_with_the_forms(text):
    with pytest.raises(InvalidValue, match=r"--start .* is not a position in a topic: write earliest, new"):
        position.start(text, "--start")


def test_a_time_says_its_zone():
    with pytest.raises(InvalidValue, match="2026-03-02T00:00:00Z"):
        position.start("2026-03-02", "--before")


def test_a_position_that_is_shown_can_be_given_again():
    assert position.shown({3: 5, 1: 7}) == "1:7,3:5"
    assert position.start(position.shown({3: 5, 1: 7}), "--start") == {1: 7, 3: 5}
    assert position.shown({}) == "0"
