"""Neighbours that are joined: within their bounds, in their order, and only where that is allowed."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from milepost import limits
from milepost.batch import Batch
from milepost.batch.neighbours import Bounds, join, join_encoded, runs
from milepost.query import encode, parse_schema

QUOTE = parse_schema("quote: [symbol: string, number: long]")
BOUNDS = Bounds(bytes=100, rows=20, small=60, items=5)

Item = tuple[int, int, str]  # bytes, rows, kind


def cut(items: list[Item], bounds: Bounds = BOUNDS) -> list[list[Item]]:
    sizes, rows = [item[0] for item in items], [item[1] for item in items]
    return list(runs(items, sizes, rows, bounds, lambda run, item: run[-1][2] == item[2]))


@given(st.lists(st.tuples(st.integers(0, 120), st.integers(0, 25), st.sampled_from("ab"))))
def test_runs_hold_everything_in_order_and_keep_their_bounds(items: list[Item]) -> None:
    found = cut(items)
    assert [item for run in found for item in run] == items
    for run in found:
        assert run
        assert len(run) <= BOUNDS.items
        assert len({kind for _, _, kind in run}) == 1
        if len([size for size, _, _ in run if size]) > 1:
            assert sum(size for size, _, _ in run) <= BOUNDS.bytes
            assert max(size for size, _, _ in run) <= BOUNDS.small
        if len(run) > 1:
            assert sum(rows for _, rows, _ in run) <= BOUNDS.rows


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 10), st.just("a"))))
def test_a_run_ends_only_where_the_next_item_does_not_fit(items: list[Item]) -> None:
    for run, following in pairwise(cut(items)):
        longer = [*run, following[0]]
        over = (
            sum(size for size, _, _ in longer) > BOUNDS.bytes,
            sum(rows for _, rows, _ in longer) > BOUNDS.rows,
            len(longer) > BOUNDS.items,
        )
        assert any(over)


def test_an_item_above_all_bounds_is_a_run_by_itself() -> None:
    small, large = (10, 1, "a"), (500, 50, "a")
    assert cut([small, large, small]) == [[small], [large], [small]]


def test_items_without_bytes_follow_a_large_one() -> None:
    empty, large = (0, 0, "a"), (90, 1, "a")
    assert cut([empty, large, empty]) == [[empty, large, empty]]


def quotes(count: int) -> Batch:
    return encode(QUOTE, [{"symbol": "a", "number": number} for number in range(count)])


def test_join_is_concat() -> None:
    parts = [quotes(2), quotes(3)]
    made = join(parts)
    assert made is not None
    assert bytes(made) == bytes(Batch.concat(parts))
    encoded = join_encoded([bytes(part) for part in parts], QUOTE)
    assert encoded is not None
    assert bytes(encoded) == bytes(made)
    assert join(parts[:1]) is parts[0]


def test_what_exceeds_a_limit_together_is_not_joined() -> None:
    most = quotes(1).take([0] * (limits.BATCH_ROWS // 2 + 1))
    assert join([most, most]) is None
    assert join_encoded([bytes(most.data)] * 2, QUOTE) is None
