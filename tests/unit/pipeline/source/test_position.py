"""Offsets of Spark's, and how a micro-batch takes its share of the logs."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import BrokerError, ConfigError
from milepost.pipeline.source.position import LogExtent, Position, advanced, checked, pieces

offsets = st.dictionaries(st.integers(1, 5), st.integers(0, 10_000), max_size=4)


def ahead(start):
    return st.fixed_dictionaries({log: st.integers(at, at + 5_000) for log, at in start.items()})


@given(offsets, st.booleans())
def test_an_offset_is_read_again(logs, initial):
    position = Position(logs, "b", "h", initial=initial)
    assert Position.read(json.loads(json.dumps(position.offset()))) == position


@given(offsets)
def test_nothing_new_is_the_same_text(logs):
    position = Position(logs, "b", "h", begun={1: 5})
    assert position.moved(dict(logs) | {9: 0}).offset() == position.offset()


def test_the_first_end_says_where_it_began():
    first = Position({1: 100}, "b", "h", initial=True).moved({1: 150})
    assert (first.begun, first.initial) == ({1: 100}, False)
    assert first.moved({1: 200}).begun is None


@pytest.mark.parametrize("other", [{}, {"logs": {"1": 1}}, {"logs": [1], "broker": "b", "hold": "h"}, {"x": 1}])
def test_a_checkpoint_of_something_else_is_told(other):
    with pytest.raises(ConfigError, match="checkpointLocation"):
        Position.read(other)


@given(st.data(), offsets, st.integers(0, 20_000))
def test_a_share_is_bounded_fair_and_whole(data, start, rows):
    end = data.draw(ahead(start))
    reached = advanced(start, end, rows)
    waiting = {log: end[log] - start[log] for log in end}
    taken = {log: reached[log] - start[log] for log in end}
    assert all(0 <= taken[log] <= waiting[log] for log in end)
    assert sum(taken.values()) == min(rows, sum(waiting.values()))
    held = [taken[log] for log in end if taken[log] < waiting[log]]
    assert not held or max(taken.values()) <= min(held) + 1  # who did not get everything got as much as anybody
    assert advanced(start, end, None) == end


@given(st.data(), offsets, st.integers(1, 9), st.integers(1, 3_000))
def test_pieces_cover_everything_once(data, start, most, least):
    end = data.draw(ahead(start))
    made = list(pieces(start, end, most, least))
    assert all(low < high for _, low, high in made)
    for log in end:
        mine = [(low, high) for number, low, high in made if number == log]
        assert sum(high - low for low, high in mine) == end[log] - start[log]
        assert all(one[1] == two[0] for one, two in pairwise(mine))
    assert len(made) <= most + len(end)


def test_one_log_is_divided_as_asked():
    assert len(list(pieces({}, {1: 1_000}, 4, 1))) == 4
    assert len(list(pieces({}, {1: 1_000}, 64, 400))) == 3
    assert list(pieces({1: 5}, {1: 5}, 4, 1)) == []


def test_where_reading_cannot_go_on():
    there = {1: LogExtent(10, 20, 10, 100)}
    assert checked("t", {1: 15}, there) == {1: 15}
    assert checked("t", {}, there) == {1: 10}
    with pytest.raises(BrokerError, match="declared again"):
        checked("t", {1: 21}, there)
    with pytest.raises(BrokerError, match="declared again"):
        checked("t", {2: 1}, there, fail=False)
    with pytest.raises(BrokerError, match=r"5 rows were removed before they were read.*failOnDataLoss"):
        checked("t", {1: 5}, there)
    assert checked("t", {1: 5}, there, fail=False) == {1: 10}
