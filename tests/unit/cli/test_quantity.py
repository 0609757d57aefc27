"""Durations and sizes as people write them."""

import pytest

from milepost.cli import quantity
from milepost.errors import InvalidValue


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("1.5h", 5400), ("7d", 604_800), ("2 w", 1_209_600)]
)
def test_durations(text, seconds):
    assert quantity.seconds(text) == seconds


@pytest.mark.parametrize("text", ["7", "d", "", "-1d", "7 fortnights", "1e3s", "٧d", "7D"])
def test_what_is_no_duration_is_refused_with_examples(text):
    with pytest.raises(InvalidValue, match="90s, 30m, 12h, 7d or 2w"):
        quantity.seconds(text)


@pytest.mark.parametrize(
    ("text", "size"), [("512", 512), ("10GB", 10**10), ("10gb", 10**10), ("1.5 kB", 1500), ("2GiB", 2 << 30), ("0", 0)]
)
def test_sizes(text, size):
    assert quantity.size(text) == size


@pytest.mark.parametrize("text", ["", "GB", "10 XB", "-5", "1,000"])
def test_what_is_no_size_is_refused_with_examples(text):
    with pytest.raises(InvalidValue, match="500MB, 10GB or 2GiB"):
        quantity.size(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(604_800, "7 days"), (86_400, "1 day"), (5400, "90 minutes"), (3600, "1 hour"), (1.5, "1.5 s"), (0, "0 s")],
)
def test_durations_are_shown_in_the_largest_unit_without_a_rest(seconds, text):
    assert quantity.duration_text(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1_000, "1 kB"), (27_104, "27.1 kB"), (999_600, "1 MB"), (123_456_789, "123 MB"),
     (5 * 10**15, "5000 TB")],
)  # fmt: skip
def test_sizes_are_shown_in_three_digits(size, text):
    assert quantity.size_text(size) == text
