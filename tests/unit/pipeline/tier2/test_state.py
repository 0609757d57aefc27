from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import ConfigError, MalformedBatch
from milepost.pipeline.tier2 import Rule, RuleEngine, Sequence, TimeWindow, state

RULES = bytes(range(16))
TABLES = {"0/panes": pa.table({"a": [1, 2, None], "b": ["x", None, "z"]}), "0/keys": pa.table({"k": [0.5]})}


def test_the_bytes_of_the_header() -> None:
    assert state.write(RULES, -2, {}) == (
        b"MPT2"
        b"\x01\x00\x00\x00"
        b"\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f"
        b"\xfe\xff\xff\xff\xff\xff\xff\xff"
        b"\x00\x00\x00\x00"
        b"\x00\x00\x00\x00"
    )


def test_tables_come_back() -> None:
    stored = state.read(state.write(RULES, 77, TABLES), RULES)
    assert stored.watermark == 77
    assert list(stored.tables) == list(TABLES)
    assert all(stored.tables[name].equals(TABLES[name]) for name in TABLES)


def test_other_rules_are_refused() -> None:
    one: list[Rule] = [TimeWindow("w", (), 10, 10)]
    rows = pa.table({"_time": [1], "_first": [True], "_then": [False]})
    mine, _ = RuleEngine(one).run(None, {"w": rows}, 5)
    for other in (TimeWindow("w", (), 10, 5), TimeWindow("v", (), 10, 10), Sequence("w", (), 10)):
        with pytest.raises(ConfigError, match="this state was made by other rules"):
            RuleEngine([other]).run(mine, {}, 6)
    RuleEngine(one).run(mine, {}, 6)


def test_another_version_is_refused() -> None:
    data = bytearray(state.write(RULES, 77, TABLES))
    data[4] = 9
    with pytest.raises(MalformedBatch, match="has version 9"):
        state.read(bytes(data), RULES)


@given(st.data())
def test_damage_is_seen(data: st.DataObject) -> None:
    whole = bytearray(state.write(RULES, 77, TABLES))
    if data.draw(st.booleans()):
        at = data.draw(st.integers(40, len(whole) - 1))
        whole[at] ^= data.draw(st.integers(1, 255))
    else:
        whole = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(MalformedBatch):
        state.read(bytes(whole), RULES)
