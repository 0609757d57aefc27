"""Bars, ages and priorities: what the commands about queues draw and read."""

import io
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from milepost.cli import queue_picture
from milepost.cli.queue import _priorities
from milepost.cli.queue_options import LEVELS
from milepost.cli.queue_put import _blocks
from milepost.client import QueueInfo
from milepost.errors import InvalidValue
from milepost.query import encode, parse_schema
from milepost.queues.states import LEVELS as STORED_LEVELS

NOTE = parse_schema("note: [number: int]")
NOW = datetime(2026, 3, 2, 14, 30, tzinfo=UTC)


@given(st.integers(0, 10**12), st.integers(1, 10**12))
def test_a_bar_is_as_long_as_its_share_and_never_hides_something(count, most):
    most = max(count, most)
    drawn = queue_picture.bar(count, most)
    assert bool(drawn) == bool(count)
    assert abs(len(drawn) - count / most * queue_picture.BAR_COLUMNS) <= 1


def test_a_queue_is_drawn_with_its_rules_and_bars():
    figures = {"waiting": 30, "delayed": 0, "taken": 10, "uncommitted": 1, "expired": 0,
               "oldest_us": int(NOW.timestamp() * 1e6) - 200_000_000}  # fmt: skip
    queue = QueueInfo("a[b]c", ("x", "y"), "blockwise", "desc", 2.5, {"y": "n * 2"}, None, 0, NOW, figures)
    console = Console(width=120, file=io.StringIO())
    for part in queue_picture.of_queue(queue, NOW):
        console.print(part)
    text = console.file.getvalue()
    assert text.startswith("a[b]c\n")
    assert "x  priority 2.5" in text
    assert "y  priority n * 2" in text
    assert "30  can be taken now; the oldest for 3 minutes" in text
    assert "expired" not in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "< 1 s"), (59.9, "59 s"), (61, "1 minute"), (7199, "1 hour"), (1e6, "11 days")],
)
def test_ages_are_in_one_unit(seconds, text):
    assert queue_picture._age(seconds) == text


def test_priorities_are_numbers_or_functions_of_a_type():
    assert _priorities(["a"], []) == (0.0, {})
    assert _priorities(["a"], ["7", "x * 2"]) == (7.0, {"a": "x * 2"})
    assert _priorities(["a", "b"], ["b = x", "a=y = 3"]) == (0.0, {"b": " x", "a": "y = 3"})
    assert _priorities(["a"], ["x = 3"]) == (0.0, {"a": "x = 3"})  # which the broker refuses: no number
    with pytest.raises(InvalidValue, match="name the type"):
        _priorities(["a", "b"], ["x"])


@given(st.lists(st.integers(1, 5), max_size=8), st.none() | st.integers(1, 7))
def test_messages_are_cut_into_transactions(parts, wanted):
    numbers = iter(range(1_000))
    batches = [encode(NOTE, [{"number": next(numbers)} for _ in range(size)]) for size in parts]
    blocks = [[row["number"] for row in block.to_pylist()] for block in _blocks(iter(batches), wanted)]
    assert [number for block in blocks for number in block] == list(range(sum(parts)))
    if wanted is not None:
        assert all(len(block) == wanted for block in blocks[:-1])
        assert all(0 < len(block) <= wanted for block in blocks)
    else:
        assert [len(block) for block in blocks] == parts


def test_the_levels_of_the_help_are_those_of_the_queues():
    assert LEVELS == STORED_LEVELS
    assert set(queue_picture.RULES) == set(LEVELS)
